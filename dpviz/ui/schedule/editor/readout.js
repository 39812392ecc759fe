// Words and numbers around the plot, and what a screen reader is told.

/** An upper bound in writing, rounded up by the rules of dpviz/privacy/rounding.py. */
function epsilonText(epsilon) {
  if (!Number.isFinite(epsilon)) return "∞";
  if (epsilon === 0) return "0";
  const power = Number(epsilon.toExponential().split("e")[1]);
  if (epsilon < 1e-4 || epsilon >= 1e6) {
    const places = epsilon < 1 ? 1 : 2;
    const write = (value) => value.toExponential(places).replace("+", "");
    return roundedUp(epsilon, power - places, write);
  }
  const usual = epsilon < 10 ? 3 : epsilon < 100 ? 2 : epsilon < 1000 ? 1 : 0;
  const places = Math.max(usual, 1 - power); // two significant digits, if they need more room
  const text = roundedUp(epsilon, -places, (value) => value.toFixed(places));
  const [whole, fraction] = (places > usual ? text.replace(/0$/, "") : text).split(".");
  const grouped = Number(whole).toLocaleString("en-US");
  return fraction ? `${grouped}.${fraction}` : grouped;
}

/** The nearest number in writing, or the next one (10^power more) if the nearest lies below the value. */
function roundedUp(value, power, write) {
  const nearest = Number(write(value));
  return write(nearest < value ? nearest + 10 ** power : nearest);
}

/** A target is what a person typed: no digits are added, none are lost. */
const targetText = (target) => target.toLocaleString("en-US", { maximumSignificantDigits: 15 });

/** As in dpviz/privacy/rounding.py: 1/60000 rather than sixteen digits. */
function deltaText(delta) {
  const whole = Math.round(1 / delta);
  if (Number(delta.toPrecision(6)) !== delta && 1 / whole === delta) return `1/${whole}`;
  return delta < 1e-3 ? delta.toExponential() : String(delta);
}

const sigmaText = (sigma) => String(fourDigits(sigma));

/** A share, rounded up to three digits: 2.13 %. */
function percentText(share) {
  const percent = 100 * share;
  const places = clamp(2 - Math.floor(Math.log10(Math.max(percent, 1e-6))), 0, 8);
  return `${roundedUp(percent, -places, (value) => value.toFixed(places))} %`;
}

class Readout {
  constructor(root) {
    const find = (selector) => root.querySelector(selector);
    this.plot = find(".plot");
    this.box = find(".readout");
    this.symbol = find(".symbol");
    this.value = find(".value");
    this.meta = find(".meta");
    this.place = find(".place");
    this.legend = find(".legend");
    this.description = find("#description");
    this.announcer = find(".announcer");
  }

  /** Epsilon or a risk: Python's own text when it knows this very curve, else what the browser estimates. */
  showNumber(epsilon, risk, certified, { measure, target, delta }) {
    // No noise costs infinity: nothing is approximate about it.
    const sign = Number.isFinite(epsilon) ? "≈ " : "";
    const price = certified ? certified.text : sign + epsilonText(epsilon);
    const write = measure?.shape === "mu" ? epsilonText : percentText;
    const shown = measure && (certified ? measure.text : sign + write(risk));
    const upper = certified ? Number((measure ?? certified).upper) : (risk ?? epsilon);
    const verdict = target == null ? "" : upper > target ? "over" : "within";
    const goal = verdict && ` · ${verdict} target ${targetText(target)}`;
    const kind = certified ? (measure ?? certified).kind : "approximate";
    this.symbol.textContent = measure ? measure.symbol : "ε";
    this.value.textContent = shown ?? price;
    this.meta.textContent = `${kind}${measure ? ` · ε ${price}` : ""} · δ = ${deltaText(delta)}${goal}`;
    this.box.dataset.state = certified ? "certified" : "approximate";
    this.box.dataset.verdict = verdict;
  }

  showCursor(epoch, sigmas, range, epsilon) {
    const sigma = sigmaText(sigmas[epoch]);
    const silent = sigmas[epoch] === 0 ? " (no noise)" : "";
    this.place.textContent = `epoch ${epoch + 1} of ${sigmas.length} · σ = ${sigma}${silent}`;
    setAll(this.plot, {
      "aria-valuemin": range.low,
      "aria-valuemax": range.high,
      "aria-valuenow": sigma,
      "aria-valuetext": `epoch ${epoch + 1} of ${sigmas.length}, sigma ${sigma}, epsilon ${epsilonText(epsilon)}`,
    });
  }

  showLegend({ ghost, pinned }) {
    const items = [["drawn", "your curve"]];
    if (ghost) items.push(["ghosted", ghost.name]);
    pinned.forEach((curve, index) => {
      const note = curve.epsilon == null ? "" : `ε ${epsilonText(Number(curve.epsilon))}`;
      items.push([`pin${index % 4}`, curve.name, note]);
    });
    this.legend.replaceChildren(...items.map(([kind, name, note]) => legendItem(kind, name, note)));
    this.legend.hidden = items.length === 1;
  }

  /** The plot in words. */
  describe(sigmas, epsilon) {
    const least = sigmas.reduce((a, b) => Math.min(a, b), Infinity);
    const most = sigmas.reduce((a, b) => Math.max(a, b), 0);
    this.description.textContent =
      `${sigmas.length} epochs. Sigma starts at ${sigmaText(sigmas[0])} and ends at ${sigmaText(sigmas.at(-1))}, ` +
      `lowest ${sigmaText(least)}, highest ${sigmaText(most)}. Epsilon in total ${epsilonText(epsilon)}. ` +
      "Left and right choose an epoch, up and down change its sigma, Shift and Page keys change it more.";
  }

  announce(text) {
    this.announcer.textContent = text;
  }
}

function legendItem(kind, name, note) {
  const item = document.createElement("li");
  const swatch = document.createElement("span");
  swatch.className = `swatch ${kind}`;
  item.append(swatch, name);
  if (note) {
    const small = document.createElement("span");
    small.className = "note";
    small.textContent = note;
    item.append(small);
  }
  return item;
}
