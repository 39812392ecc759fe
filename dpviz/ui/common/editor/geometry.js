// Where things are on screen. A Frame is made anew when the size, the axis or the number of epochs changes.

// What is drawn is what Python gets and what a share link keeps: four digits.
const fourDigits = (value) => Number(value.toPrecision(4));

/** The nearest of 1, 2, 5 x 10^k at or below (or at or above) a positive value. */
function roundDown125(value) {
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9);
  const lead = value / power;
  return fourDigits(power * (lead >= 5 - 1e-9 ? 5 : lead >= 2 - 1e-9 ? 2 : 1));
}

function roundUp125(value) {
  const below = roundDown125(value);
  if (value <= below * (1 + 1e-9)) return below;
  return roundDown125(below * 2.5);
}

/** The least range that shows low ... high and every positive sigma of the curves. */
function rangeOf(low, high, curves) {
  const positive = curves.flatMap((curve) => Array.from(curve)).filter((sigma) => sigma > 0);
  const least = positive.reduce((a, b) => Math.min(a, b), Infinity);
  const most = positive.reduce((a, b) => Math.max(a, b), 0);
  return { low: least < low ? roundDown125(least) : low, high: most > high ? roundUp125(most) : high };
}

/** As many round values as have room, 16 pixels apart. */
function logTicks(low, high, room) {
  const pixels = (ratio) => (room * Math.log(ratio)) / Math.log(high / low);
  const leads = pixels(1.5) >= 16 ? [1, 2, 3, 5] : pixels(2) >= 16 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let decade = 10 ** Math.floor(Math.log10(low)); decade <= high; decade *= 10) {
    ticks.push(...leads.map((lead) => fourDigits(lead * decade)));
  }
  return ticks.filter((tick) => tick >= low && tick <= high);
}

function linearTicks(high, count) {
  const step = roundUp125(high / count);
  return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, index) => fourDigits(index * step));
}

/** Epochs (counted from 0) that get a number under the plot. */
function epochTicks(epochs, room) {
  const step = roundUp125(Math.max(1, (epochs * 32) / room));
  return Array.from({ length: epochs }, (_, epoch) => epoch).filter((epoch) => epoch === 0 || (epoch + 1) % step === 0);
}

/** The top of the epsilon axis: a round number, so that the axis keeps still while a pen moves. */
function epsilonTop(epsilon, target) {
  const most = Math.max(Number.isFinite(epsilon) ? epsilon * 1.05 : 0, (target ?? 0) * 1.15, 0.01);
  const power = 10 ** Math.floor(Math.log10(most));
  return fourDigits(power * [1, 1.5, 2, 3, 4, 6, 8, 10].find((lead) => lead * power >= most));
}

class Frame {
  constructor({ width, height, epochs, span, silent, low, high, scale, forecast, locked }) {
    Object.assign(this, { width, height, epochs, span, low, high, scale, locked });
    this.left = 44;
    this.right = width - 14;
    this.bottom = height - 36;
    const strip = Math.round(height * (forecast ? 0.16 : 0.2));
    this.forecastTop = this.bottom - strip; // the lowest strip, if there is a forecast
    this.stripBottom = forecast ? this.forecastTop - 26 : this.bottom;
    this.stripTop = this.stripBottom - strip;
    this.curveTop = 14;
    this.curveBottom = this.stripTop - 26;
    if (silent && scale === "log") {
      this.zeroY = this.curveBottom - 4; // no noise has no place on a logarithmic axis: it gets a line under it
      this.curveBottom -= 22;
    }
    this.pitch = span > 1 ? (this.right - this.left) / (span - 1) : 0;
    // Where the epochs that can be drawn begin: half an epoch before the first of them.
    this.openLeft = locked ? Math.max(this.left, this.x(locked) - this.pitch / 2) : this.left;
  }

  /** A single epoch sits in the middle. */
  x(epoch) {
    return this.pitch ? this.left + epoch * this.pitch : (this.left + this.right) / 2;
  }

  epochAt(x) {
    return this.pitch ? clamp(Math.round((x - this.left) / this.pitch), 0, this.epochs - 1) : 0;
  }

  y(sigma) {
    if (sigma === 0 && this.zeroY) return this.zeroY;
    const share = this.scale === "log" ? Math.log(sigma / this.low) / Math.log(this.high / this.low) : sigma / this.high;
    return this.curveBottom + clamp(share, 0, 1) * (this.curveTop - this.curveBottom);
  }

  sigmaAt(y) {
    const share = clamp((y - this.curveBottom) / (this.curveTop - this.curveBottom), 0, 1);
    const sigma = this.scale === "log" ? this.low * (this.high / this.low) ** share : this.high * share;
    return fourDigits(clamp(sigma, this.low, this.high));
  }

  /** Whether a pen put down here means an epoch that can be drawn (and not the past, a strip or the labels). */
  holds(x, y) {
    return y <= this.curveBottom + 10 && (!this.locked || x >= this.openLeft);
  }

  epsilonY(epsilon, top) {
    return this.stripBottom - clamp(epsilon / top, 0, 1) * (this.stripBottom - this.stripTop);
  }

  /** An SVG path through one value an epoch; a single epoch is a line from side to side. */
  line(values, y) {
    if (values.length === 1 && !this.pitch) {
      return `M${this.left},${y(values[0]).toFixed(1)}H${this.right}`;
    }
    let path = "";
    for (let epoch = 0; epoch < values.length; epoch++) {
      path += `${epoch ? "L" : "M"}${this.x(epoch).toFixed(1)},${y(values[epoch]).toFixed(1)}`;
    }
    return path;
  }

  /** What lies between two curves. */
  between(lower, upper, y) {
    if (!this.pitch) return this.area(this.line(upper, y), 1, y(lower[0]));
    let path = this.line(lower, y);
    for (let epoch = upper.length - 1; epoch >= 0; epoch--) {
      path += `L${this.x(epoch).toFixed(1)},${y(upper[epoch]).toFixed(1)}`;
    }
    return `${path}Z`;
  }

  /** The same path, closed along a floor. */
  area(path, length, floor) {
    const [from, to] = this.pitch ? [this.x(0), this.x(length - 1)] : [this.left, this.right];
    return `${path}L${to.toFixed(1)},${floor}L${from.toFixed(1)},${floor}Z`;
  }
}
