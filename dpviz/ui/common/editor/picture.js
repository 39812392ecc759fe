// The plot as SVG: a background that changes with the frame, and a foreground that changes with every pointer move.

/** A number for an axis: short, without trailing zeros. */
function axisNumber(value) {
  if (value >= 1e6) return value.toExponential(0).replace("+", "");
  return value >= 1e4 ? `${Number((value / 1000).toPrecision(3))}k` : String(Number(value.toPrecision(3)));
}

class Picture {
  constructor(svg) {
    this.svg = svg;
    svg.replaceChildren();
    const layers = {
      grid: "g", labels: "g", others: "g", area: "path", ghost: "path", curve: "path", dots: "path", past: "rect",
      veiled: "g", guide: "line", cursor: "circle", spentArea: "path", spent: "path", target: "line", spentLabels: "g",
    };
    for (const name in layers) this[name] = append(svg, layers[name], { class: name });
  }

  /** Grid, axes, ghost and pinned curves, and a veil over the epochs that cannot be changed. */
  drawBackground(frame, { ghost, pinned }, unit) {
    const { width, height, left, right, curveTop, curveBottom, stripTop, stripBottom, forecastTop, bottom } = frame;
    Object.assign(this, { frame, unit });
    this.shownTop = null;
    setAll(this.svg, { viewBox: `0 0 ${width} ${height}`, height });
    this.grid.replaceChildren();
    this.labels.replaceChildren();
    this.#sigmaAxis();
    for (const epoch of epochTicks(frame.span, right - left)) {
      const x = frame.x(epoch);
      append(this.grid, "line", { x1: x, x2: x, y1: curveTop, y2: curveBottom });
      append(this.grid, "line", { x1: x, x2: x, y1: stripTop, y2: stripBottom });
      if (stripBottom < bottom) append(this.grid, "line", { x1: x, x2: x, y1: forecastTop, y2: bottom });
      append(this.labels, "text", { x, y: bottom + 16, class: "middle" }, epoch + 1);
    }
    append(this.labels, "text", { x: (left + right) / 2, y: height - 5, class: "middle title" }, "epoch");
    append(this.labels, "text", { x: left + 8, y: curveTop + 15, class: "title" }, "σ noise multiplier");
    append(this.labels, "text", { x: left + 8, y: stripTop - 7, class: "title" }, unit.strip);
    setAll(this.past, { x: left, y: curveTop, width: Math.max(0, frame.openLeft - left), height: curveBottom - curveTop });
    this.veiled.replaceChildren();
    const words = frame.openLeft - left > 90 ? "begun: locked" : "";
    append(this.veiled, "text", { x: left + 8, y: curveBottom - 8 }, words);
    const sigmaY = (sigma) => frame.y(sigma);
    this.ghost.setAttribute("d", ghost ? frame.line(ghost.sigmas, sigmaY) : "");
    this.others.replaceChildren();
    pinned.forEach((curve, index) => {
      append(this.others, "path", { class: `pinned pin${index % 4}`, d: frame.line(curve.sigmas, sigmaY) });
    });
  }

  #sigmaAxis() {
    const { frame } = this;
    const room = frame.curveBottom - frame.curveTop;
    const ticks = frame.scale === "log" ? logTicks(frame.low, frame.high, room) : linearTicks(frame.high, room / 34);
    for (const tick of ticks) {
      const y = frame.y(tick);
      append(this.grid, "line", { x1: frame.left, x2: frame.right, y1: y, y2: y });
      append(this.labels, "text", { x: frame.left - 8, y: y + 4, class: "end" }, axisNumber(tick));
    }
    if (frame.zeroY) {
      append(this.grid, "line", { x1: frame.left, x2: frame.right, y1: frame.zeroY, y2: frame.zeroY });
      append(this.labels, "text", { x: frame.left - 8, y: frame.zeroY + 4, class: "end" }, 0);
      append(this.labels, "text", { x: frame.right, y: frame.zeroY - 5, class: "end title" }, "no noise");
    }
  }

  /** Everything a pointer move can change. */
  drawCurve(sigmas, spent, cursor, target) {
    const { frame } = this;
    const count = sigmas.length;
    const curve = frame.line(sigmas, (sigma) => frame.y(sigma));
    this.curve.setAttribute("d", curve);
    this.area.setAttribute("d", frame.area(curve, count, frame.curveBottom));
    this.dots.setAttribute("d", this.#dotsPath(sigmas));
    const x = frame.x(cursor);
    setAll(this.guide, { x1: x, x2: x, y1: frame.curveTop, y2: frame.bottom });
    setAll(this.cursor, { cx: x, cy: frame.y(sigmas[cursor]), r: 5.5 });

    const top = Math.min(epsilonTop(spent[count - 1], target), this.unit.most);
    const path = frame.line(spent, (epsilon) => frame.epsilonY(epsilon, top));
    this.spent.setAttribute("d", path);
    this.spentArea.setAttribute("d", frame.area(path, count, frame.stripBottom));
    if (top !== this.shownTop || target !== this.shownTarget) this.#epsilonAxis(top, target);
  }

  #dotsPath(sigmas) {
    const { frame } = this;
    if (frame.pitch && frame.pitch < 5) return ""; // dots that touch hide the curve
    const r = !frame.pitch || frame.pitch > 10 ? 3 : 2;
    let path = "";
    for (let epoch = 0; epoch < sigmas.length; epoch++) {
      const start = `${(frame.x(epoch) - r).toFixed(1)},${frame.y(sigmas[epoch]).toFixed(1)}`;
      path += `M${start}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`;
    }
    return path;
  }

  #epsilonAxis(top, target) {
    const { left, right, stripTop, stripBottom } = this.frame;
    this.shownTop = top;
    this.shownTarget = target;
    this.spentLabels.replaceChildren();
    for (const value of [0, top / 2, top]) {
      const y = this.frame.epsilonY(value, top);
      append(this.spentLabels, "line", { x1: left, x2: right, y1: y, y2: y });
      append(this.spentLabels, "text", { x: left - 8, y: y + 4, class: "end" }, this.unit.axis(value));
    }
    this.target.style.display = target == null ? "none" : "";
    if (target == null) return;
    const y = this.frame.epsilonY(target, top);
    setAll(this.target, { x1: left, x2: right, y1: y, y2: y });
    const above = y - 5 > stripTop + 6 || y > (stripTop + stripBottom) / 2;
    const place = { x: left + 8, y: above ? y - 5 : y + 13, class: "title goal" };
    append(this.spentLabels, "text", place, this.unit.goal(target));
  }
}
