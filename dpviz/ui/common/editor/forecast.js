// Accuracy to expect, while the pen moves: the sums of dpviz/forecast/response.py, a strip under epsilon's, and a line
// beside its number.

const ACCURACY_TICKS = [0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999];
const FURTHEST = 4; // doublings outside of the domain that still widen the band

class AccuracyModel {
  constructor({ parameters, half_widths: halfWidths, least_sigma: least, most_sigma: most, ...run }) {
    const { batch_doublings: batch, seen, shifts } = run;
    const [pace, power, floor, unlearnt, noise, memory, last, noisePower] = parameters;
    const { exp } = Math;
    this.steepness = exp(power);
    this.step = this.steepness * exp(pace);
    this.unlearnt = exp(-unlearnt * this.steepness);
    [this.rho, this.last] = [memory, last].map((logit) => 1 / (1 + exp(-logit)));
    [this.floor, this.noise, this.noisePower] = [floor, noise, noisePower].map(exp);
    Object.assign(this, { halfWidths, least, most, batch, seen, shifts });
  }

  /** Expected accuracy after each epoch and its band, written into three arrays; returns what is outside, in words. */
  forecast(sigmas, accuracy, lower, upper) {
    const { rho, last, halfWidths, seen, shifts } = this;
    const outside = this.#outside(sigmas);
    const furthest = Math.min(FURTHEST, Math.max(0, ...outside.map(([doublings]) => doublings)));
    const widening = outside.length ? 2 * (1 + furthest) : 1;
    let left = this.unlearnt;
    let recent = 0;
    for (let epoch = 0; epoch < sigmas.length; epoch++) {
      const square = sigmas[epoch] ** 2;
      left += this.step;
      recent = rho * recent + (1 - rho) * square;
      const mixed = last * square + (1 - last) * recent;
      const error = this.floor + left ** (-1 / this.steepness) + this.noise * mixed ** this.noisePower;
      const half = widening * halfWidths[Math.min(epoch, halfWidths.length - 1)];
      accuracy[epoch] = clamp(1 - clamp(error, 1e-4, 0.95) + (shifts[epoch] ?? 0), 0, 1);
      if (epoch < seen.length) {
        accuracy[epoch] = lower[epoch] = upper[epoch] = seen[epoch];
        continue;
      }
      lower[epoch] = Math.max(accuracy[epoch] - half, 0);
      upper[epoch] = Math.min(accuracy[epoch] + half, 1);
    }
    return outside.map(([, words]) => words);
  }

  #outside(sigmas) {
    const { least, most, batch, halfWidths } = this;
    let low = Infinity;
    let high = 0;
    for (const sigma of sigmas) {
      low = Math.min(low, sigma);
      high = Math.max(high, sigma);
    }
    const places = [];
    if (low < least) places.push([Math.log2(least / low), `σ below ${sigmaText(least)}`]);
    if (high > most) places.push([Math.log2(high / most), `σ above ${sigmaText(most)}`]);
    const more = sigmas.length / halfWidths.length;
    if (more > 1) places.push([Math.log2(more), `more than ${halfWidths.length} epochs`]);
    if (batch > 0) places.push([batch, "another batch size"]);
    return places;
  }
}

const percentage = (share) => (100 * share).toFixed(1);

class Outlook {
  /** After the picture, which empties the plot. */
  constructor(root, svg) {
    this.words = root.querySelector(".expected");
    this.band = append(svg, "path", { class: "expectedBand" });
    this.line = append(svg, "path", { class: "expectedLine" });
    this.labels = append(svg, "g", { class: "expectedLabels" });
  }

  /** What Python knows; null if nobody fitted this recipe. */
  take(data) {
    this.model = data && new AccuracyModel(data);
    this.basis = data && `${data.rests_on} runs${data.seen.length ? ` and ${data.seen.length} epochs seen` : ""}`;
    this.words.hidden = !data;
    this.words.title = data ? `Accuracy to expect of ${data.recipe}; nine of ten runs should end in the band.` : "";
  }

  layout(frame) {
    this.frame = frame;
    this.range = null;
    for (const part of [this.band, this.line, this.labels]) part.style.display = this.model ? "" : "none";
  }

  paint(sigmas) {
    if (!this.model) return;
    const count = sigmas.length;
    if (this.accuracy?.length !== count) {
      [this.accuracy, this.lower, this.upper] = [0, 1, 2].map(() => new Float64Array(count));
    }
    const { accuracy, lower, upper } = this;
    const outside = this.model.forecast(sigmas, accuracy, lower, upper);
    this.#axis(lower[0], upper[count - 1]);
    const y = (share) => this.#y(share);
    this.line.setAttribute("d", this.frame.line(accuracy, y));
    this.band.setAttribute("d", this.frame.between(lower, upper, y));
    const [low, middle, high] = [lower, accuracy, upper].map((values) => percentage(values[count - 1]));
    const basis = outside.length ? `a guess: ${outside.join(", ")}` : this.basis;
    this.words.textContent = `accuracy ≈ ${middle} % (${low}–${high}) · ${basis}`;
    this.words.dataset.state = outside.length ? "guess" : "measured";
  }

  /** By the logarithm of the error, so that 98 and 99 % stand apart; from tick to tick, so that the axis keeps still. */
  #y(share) {
    const { forecastTop, bottom } = this.frame;
    const [low, high] = this.range;
    const height = Math.log((1 - low) / (1 - share)) / Math.log((1 - low) / (1 - high));
    return bottom - clamp(height, 0, 1) * (bottom - forecastTop);
  }

  #axis(least, most) {
    const low = ACCURACY_TICKS.findLast((tick) => tick <= Math.min(least, 0.95)) ?? 0;
    const high = ACCURACY_TICKS.find((tick) => tick >= most && tick > low) ?? ACCURACY_TICKS.at(-1);
    if (this.range && this.range[0] === low && this.range[1] === high) return;
    this.range = [low, high];
    this.labels.replaceChildren();
    const { left, right, forecastTop } = this.frame;
    append(this.labels, "text", { x: left + 8, y: forecastTop - 7, class: "title" }, "accuracy to expect, %");
    let last = Infinity;
    for (const tick of ACCURACY_TICKS.filter((tick) => tick >= low && tick <= high)) {
      const y = this.#y(tick);
      append(this.labels, "line", { x1: left, x2: right, y1: y, y2: y });
      if (last - y < 13) continue; // no room for another number
      last = y;
      append(this.labels, "text", { x: left - 8, y: y + 4, class: "end" }, axisNumber(100 * tick));
    }
  }
}
