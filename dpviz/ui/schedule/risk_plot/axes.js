// Where shares are on screen: both axes are logarithmic, from 0.01 % to all.

const LEAST = 1e-4;
const TICKS = [1e-4, 1e-3, 1e-2, 0.1, 1];

class Axes {
  constructor(width, height) {
    Object.assign(this, { width, height, left: 66, right: width - 14, top: 34, bottom: height - 38 });
  }

  /** 0 at 0.01 %, 1 at all. */
  #part(share) {
    return 1 - Math.log(clamp(share, LEAST, 1)) / Math.log(LEAST);
  }

  x(share) {
    return this.left + this.#part(share) * (this.right - this.left);
  }

  y(share) {
    return this.bottom - this.#part(share) * (this.bottom - this.top);
  }

  /** The number of the rate whose place is nearest. */
  nearest(rates, x) {
    const far = rates.map(({ fpr }) => Math.abs(this.x(fpr) - x));
    return far.indexOf(Math.min(...far));
  }

  line(fprs, shares) {
    return fprs.map((fpr, k) => `${k ? "L" : "M"}${this.x(fpr).toFixed(1)},${this.y(shares[k]).toFixed(1)}`).join("");
  }

  band({ fpr, lower, upper }) {
    return `${this.line(fpr, upper)}${this.line([...fpr].reverse(), [...lower].reverse()).replace("M", "L")}Z`;
  }

  /** Lines and numbers of both axes. */
  draw(grid, labels) {
    const { left, right, top, bottom, height } = this;
    grid.replaceChildren();
    labels.replaceChildren();
    for (const tick of TICKS) {
      const [x, y] = [this.x(tick), this.y(tick)];
      const text = `${Number((100 * tick).toPrecision(3))} %`;
      append(grid, "line", { x1: x, x2: x, y1: top, y2: bottom });
      append(grid, "line", { x1: left, x2: right, y1: y, y2: y });
      append(labels, "text", { x, y: bottom + 16, class: tick === 1 ? "end" : "middle" }, text);
      append(labels, "text", { x: left - 8, y: y + 4, class: "end" }, text);
    }
    append(labels, "text", { x: (left + right) / 2, y: height - 5, class: "middle title" }, "false alarms (of non-members)");
    const upright = { transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, class: "middle title" };
    append(labels, "text", upright, "members found");
  }
}
