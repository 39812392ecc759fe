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

/** A share of a budget, rounded up to a tenth of a percent; where it is far beyond, how many budgets it is. */
function shareText(share) {
  if (!Number.isFinite(share)) return "∞";
  if (share >= 10) return `${Math.ceil(share).toLocaleString("en-US")} times`;
  return `${roundedUp(100 * share, -1, (value) => value.toFixed(1))} %`;
}

/** The number that follows the pen, what its strip and its target are called, and how it is written. */
const UNITS = {
  epsilon: {
    symbol: "ε",
    word: "epsilon",
    strip: "ε spent so far",
    write: epsilonText,
    most: Infinity,
    axis: (epsilon) => axisNumber(epsilon),
    goal: (target) => `target ${axisNumber(target)}`,
    verdict: (side, target) => `${side} target ${targetText(target)}`,
  },
  budget: {
    symbol: "budget",
    word: "share of the budget",
    strip: "spent of the budget, %",
    write: shareText,
    most: 2, // of its axis: how far beyond the budget does not matter
    axis: (share) => axisNumber(100 * share),
    goal: () => "budget",
    verdict: (side) => `${side} the budget`,
  },
};

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
  showNumber(epsilon, risk, certified, { measure, target, delta, basis }, unit) {
    // No noise costs infinity: nothing is approximate about it.
    const sign = Number.isFinite(epsilon) ? "≈ " : "";
    const price = certified ? certified.text : sign + unit.write(epsilon);
    const write = measure?.shape === "mu" ? epsilonText : percentText;
    const shown = measure && (certified ? measure.text : sign + write(risk));
    const upper = certified ? Number((measure ?? certified).upper) : (risk ?? epsilon);
    const verdict = target == null ? "" : upper > target ? "over" : "within";
    const share = measure && write === percentText; // shown in percent, so its target is too
    const goal = verdict && ` · ${share ? `${verdict} target ${targetText(100 * target)} %` : unit.verdict(verdict, target)}`;
    const kind = certified ? (measure ?? certified).kind : "approximate";
    this.symbol.textContent = measure ? measure.symbol : unit.symbol;
    this.value.textContent = shown ?? price;
    const note = measure ? `${measure.note && ` · ${measure.note}`} · ε ${price}` : "";
    this.meta.textContent = `${kind}${note} · ${basis || `δ = ${deltaText(delta)}`}${goal}`;
    this.box.dataset.state = certified ? "certified" : "approximate";
    this.box.dataset.verdict = verdict;
  }

  showCursor(epoch, sigmas, range, epsilon, locked, unit) {
    const sigma = sigmaText(sigmas[epoch]);
    const silent = sigmas[epoch] === 0 ? " (no noise)" : "";
    const begun = epoch < locked ? ", begun: locked" : "";
    this.place.textContent = `epoch ${epoch + 1} of ${sigmas.length} · σ = ${sigma}${silent}${begun}`;
    setAll(this.plot, {
      "aria-valuemin": range.low,
      "aria-valuemax": range.high,
      "aria-valuenow": sigma,
      "aria-valuetext": `epoch ${epoch + 1} of ${sigmas.length}, sigma ${sigma}${begun}, ${unit.word} ${unit.write(epsilon)}`,
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
  describe(sigmas, epsilon, locked, unit) {
    const least = sigmas.reduce((a, b) => Math.min(a, b), Infinity);
    const most = sigmas.reduce((a, b) => Math.max(a, b), 0);
    this.description.textContent =
      `${sigmas.length} epochs. Sigma starts at ${sigmaText(sigmas[0])} and ends at ${sigmaText(sigmas.at(-1))}, ` +
      `lowest ${sigmaText(least)}, highest ${sigmaText(most)}. In total ${unit.word} ${unit.write(epsilon)}. ` +
      (locked ? `The first ${locked} epochs have begun and are locked. ` : "") +
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
