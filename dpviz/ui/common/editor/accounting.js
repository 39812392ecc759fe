// Epsilon in the browser, fast enough to follow a pen.
//
// Python sends, once per sample rate, the log of one step's RDP on a log grid of sigmas, one column per order. A sigma
// between two rows is read off with a monotone cubic (pchip), which cannot overshoot; beyond the grid with the slope at
// its edge.

class RdpTable {
  static #held = new Map(); // by name, the newest last

  /** The table, decoded once; undefined if Python sent no more than its name and it is not here. */
  static of(table) {
    const held = RdpTable.#held;
    if (!held.has(table.name) && table.values) {
      if (held.size >= 8) held.delete(held.keys().next().value);
      held.set(table.name, new RdpTable(table));
    }
    return held.get(table.name);
  }

  /** What Python need not send again. */
  static get names() {
    return Array.from(RdpTable.#held.keys());
  }

  constructor({ orders, low, high, rows, values }) {
    const bytes = Uint8Array.from(atob(values), (letter) => letter.charCodeAt(0));
    this.orders = Float64Array.from(orders);
    this.rows = rows;
    this.start = Math.log(low);
    this.step = Math.log(high / low) / (rows - 1);
    this.logs = Float64Array.from(new Float32Array(bytes.buffer));
    this.slopes = this.#monotoneSlopes();
  }

  /** Slope at each grid point, per row: the harmonic mean of both sides, 0 where they disagree in sign. */
  #monotoneSlopes() {
    const { logs, rows } = this;
    const width = this.orders.length;
    const slopes = new Float64Array(logs.length);
    for (let at = 0; at < logs.length; at++) {
      const row = Math.floor(at / width);
      const before = row > 0 ? logs[at] - logs[at - width] : logs[at + width] - logs[at];
      const after = row < rows - 1 ? logs[at + width] - logs[at] : before;
      slopes[at] = before * after > 0 ? (2 * before * after) / (before + after) : 0;
    }
    return slopes;
  }

  /** Adds `steps` steps at this sigma to `composed`, order by order. */
  add(sigma, steps, composed) {
    const { logs, slopes } = this;
    const width = composed.length;
    const place = (Math.log(sigma) - this.start) / this.step;
    const row = clamp(Math.floor(place), 0, this.rows - 2);
    const [left, right, leftSlope, rightSlope] = hermiteWeights(place - row);
    for (let order = 0, a = row * width, b = a + width; order < width; order++, a++, b++) {
      const log = left * logs[a] + right * logs[b] + leftSlope * slopes[a] + rightSlope * slopes[b];
      composed[order] += steps * Math.exp(log);
    }
  }
}

/** Weights of the two values and the two slopes around a point at `t`; outside 0 ... 1 the curve goes on straight. */
function hermiteWeights(t) {
  if (t < 0) return [1, 0, t, 0];
  if (t > 1) return [0, 1, 0, t - 1];
  const rest = 1 - t;
  return [(1 + 2 * t) * rest * rest, t * t * (3 - 2 * t), t * rest * rest, -t * t * rest];
}

class Accountant {
  constructor(table, steps, delta) {
    this.table = table;
    this.steps = steps;
    // From RDP to (epsilon, delta): epsilon = RDP(a) + log(1 - 1/a) - (log delta + log a) / (a - 1), least over a.
    this.conversion = this.table.orders.map(
      (a) => Math.log1p(-1 / a) - (Math.log(delta) + Math.log(a)) / (a - 1),
    );
    this.composed = new Float64Array(this.table.orders.length);
    this.second = this.table.orders.findIndex((order) => order >= 2);
  }

  /** mu of the Gaussian mechanism that has the last curve's RDP at order 2: what many small steps come to. */
  get mu() {
    return Math.sqrt(this.composed[this.second]);
  }

  /** Epsilon after each epoch, written into `path`. No noise costs infinity, and stays so. */
  spend(sigmas, path) {
    const { composed, conversion, table, steps } = this;
    composed.fill(0);
    for (let epoch = 0; epoch < sigmas.length; epoch++) {
      if (!(sigmas[epoch] > 0)) {
        path.fill(Infinity, epoch);
        composed.fill(Infinity);
        return;
      }
      table.add(sigmas[epoch], steps, composed);
      let least = Infinity;
      for (let order = 0; order < composed.length; order++) {
        least = Math.min(least, composed[order] + conversion[order]);
      }
      path[epoch] = Math.max(0, least);
    }
  }
}

/** Of a Renyi filter: its order is fixed, so that what was spent is a plain sum, here as a share of the budget. */
class FilterAccountant {
  mu = 0;

  constructor(table, steps, { budget }) {
    Object.assign(this, { table, steps, budget });
    this.composed = new Float64Array(1);
  }

  /** The share of the budget that is spent after each epoch, written into `path`. */
  spend(sigmas, path) {
    const { composed, table, steps, budget } = this;
    composed.fill(0);
    for (let epoch = 0; epoch < sigmas.length; epoch++) {
      if (sigmas[epoch] > 0) table.add(sigmas[epoch], steps, composed);
      else composed.fill(Infinity);
      path[epoch] = composed[0] / budget;
    }
  }
}

/** A risk of the Gaussian mechanism with this mu; the threshold is where the attacker's false alarms are those accepted. */
const RISKS = {
  advantage: (mu) => 2 * normalCdf(mu / 2) - 1,
  tpr: (mu, threshold) => normalCdf(mu - threshold),
  mu: (mu) => mu,
};

/** Good to 1e-7. Abramowitz & Stegun (1964), 7.1.26. */
function normalCdf(x) {
  const t = 1 / (1 + (0.3275911 * Math.abs(x)) / Math.SQRT2);
  const series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))));
  const tail = (series * Math.exp((-x * x) / 2)) / 2;
  return x < 0 ? tail : 1 - tail;
}
