// The line that a person drags along the rates: pointer, keys, and the talk with Python.
//
// Python holds the rate. The browser sends {seq, chosen} when the hand lets go, and Python answers with the seq that it
// heard last: an answer to an earlier message never pulls the line away.

const KEY_PAUSE = 400; // milliseconds after the last key, then the rate is sent
const PAGE = 5; // rates that Page Up passes
const PEOPLE = 1000;
const PER_ROW = 50;

class RiskPlot {
  constructor(root) {
    this.root = root;
    this.svg = root.querySelector(".plot");
    for (const name of ["grid", "labels", "guessing", "bands", "curves", "line", "points", "people", "sentence"]) {
      this[name] = root.querySelector(`.${name}`);
    }
    this.legend = root.querySelector(".trade-off .legend");
    this.drag = null; // the pointer that moves the line
    this.#listen();
  }

  #listen() {
    this.listening = new AbortController();
    const { signal } = this.listening;
    const on = (name, handle) => this.svg.addEventListener(name, handle, { signal });
    on("pointerdown", (event) => this.#pointerDown(event));
    on("pointermove", (event) => this.#isDragging(event) && this.#moveTo(event));
    on("pointerup", (event) => this.#pointerUp(event));
    on("lostpointercapture", (event) => this.#pointerUp(event));
    on("pointercancel", (event) => this.#isDragging(event) && this.#cancel());
    on("keydown", (event) => this.#keyDown(event));
    on("focusout", () => this.#send());
    this.resizing = new ResizeObserver(() => this.#layout());
    this.resizing.observe(this.svg);
  }

  destroy() {
    clearTimeout(this.pause);
    this.listening.abort();
    this.resizing.disconnect();
  }

  // --- from Python

  update(data, tell) {
    Object.assign(this, { data, tell });
    this.seq ??= data.seq;
    const busy = this.drag || this.pause;
    if (!busy && data.seq === this.seq) this.chosen = this.sent = data.chosen;
    this.#showLegend();
    this.#layout();
  }

  // --- on screen

  #showLegend() {
    const names = [...this.data.curves.map(({ name }) => name), "guessing"];
    this.legend.replaceChildren(
      ...names.map((name, index) => {
        const entry = document.createElement("li");
        const swatch = document.createElement("span");
        swatch.className = index < names.length - 1 ? `swatch curve${index}` : "swatch guessed";
        entry.append(swatch, name, document.createElement("b"));
        return entry;
      }),
    );
  }

  #layout() {
    const { clientWidth: width, clientHeight: height } = this.svg;
    if (!width || !this.data) return; // not on screen yet: the observer calls again
    this.axes = new Axes(width, height);
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.axes.draw(this.grid, this.labels);
    this.guessing.setAttribute("d", this.axes.line([LEAST, 1], [LEAST, 1]));
    for (const layer of [this.bands, this.curves, this.points]) layer.replaceChildren();
    this.marks = this.data.curves.map((curve, index) => this.#drawCurve(curve, index));
    this.#paint();
  }

  /** Band, curve and the point that follows the line: the first one wide, so that it is seen under the others. */
  #drawCurve(curve, index) {
    const look = { class: `curve${index}` };
    append(this.bands, "path", { ...look, d: this.axes.band(curve) });
    append(this.curves, "path", { ...look, d: this.axes.line(curve.fpr, curve.upper) });
    return append(this.points, "circle", { ...look, r: index ? 3 : 6.5 });
  }

  /** Everything that follows the line. */
  #paint() {
    const rate = this.data.rates[this.chosen];
    this.sentence.textContent = rate.sentence;
    this.#paintLine(rate);
    this.#paintPeople(rate);
    this.data.curves.forEach(({ found, shares }, index) => {
      setAll(this.marks[index], { cx: this.axes.x(rate.fpr), cy: this.axes.y(found[this.chosen]) });
      this.legend.children[index].lastChild.textContent = shares[this.chosen];
    });
    this.legend.lastChild.lastChild.textContent = `${Number((100 * rate.fpr).toPrecision(6))} %`;
  }

  #paintLine({ fpr, alarms }) {
    const { top, bottom, left, right } = this.axes;
    const x = this.axes.x(fpr);
    const [mark, tag, words] = ["line", "rect", "text"].map((name) => this.line.querySelector(name));
    words.textContent = alarms;
    setAll(mark, { x1: x, x2: x, y1: top - 8, y2: bottom });
    const width = words.getComputedTextLength() + 22;
    const middle = clamp(x, left + width / 2 - 20, right - width / 2);
    setAll(words, { x: middle, y: top - 15 });
    setAll(tag, { x: middle - width / 2, y: top - 30, width });
    const max = this.data.rates.length - 1;
    const value = `${alarms}: ${this.data.curves[0].shares[this.chosen]} of the members`;
    setAll(this.line, { "aria-valuemax": max, "aria-valuenow": this.chosen, "aria-valuetext": value });
  }

  #paintPeople({ guessed, found }) {
    const groups = [
      ["guessed", 0, guessed, "found by guessing alone"],
      ["exposed", guessed, found, "found because of the model, at most"],
      ["safe", found, PEOPLE, "not found"],
    ];
    for (const [group, from, to, words] of groups) {
      let dots = ""; // a line of no length with round ends is a dot
      for (let k = from; k < to; k++) dots += `M${(k % PER_ROW) * 10 + 5},${Math.floor(k / PER_ROW) * 10 + 5}h0`;
      this.people.querySelector(`.${group}`).setAttribute("d", dots);
      this.root.querySelector(`[data-group=${group}]`).textContent = `${(to - from).toLocaleString("en-US")} ${words}`;
    }
    this.people.setAttribute("aria-label", `1,000 members. ${this.sentence.textContent}`);
  }

  // --- moving the line

  #choose(index) {
    const chosen = clamp(index, 0, this.data.rates.length - 1);
    if (chosen === this.chosen) return;
    this.chosen = chosen;
    this.#paint();
  }

  /** Tells Python where the line rests, if that is new. */
  #send() {
    clearTimeout(this.pause);
    this.pause = undefined;
    if (this.drag || this.chosen === this.sent) return;
    this.sent = this.chosen;
    this.seq += 1;
    this.tell({ seq: this.seq, chosen: this.chosen });
  }

  #isDragging(event) {
    return event.pointerId === this.drag?.id;
  }

  #moveTo(event) {
    this.#choose(this.axes.nearest(this.data.rates, event.clientX - this.drag.left));
  }

  #pointerDown(event) {
    if (event.button !== 0 || this.drag || !this.axes) return;
    event.preventDefault();
    this.#send();
    this.line.focus({ preventScroll: true });
    this.line.classList.remove("keyboard");
    this.svg.setPointerCapture(event.pointerId);
    this.drag = { id: event.pointerId, left: this.svg.getBoundingClientRect().left, before: this.chosen };
    this.svg.classList.add("dragging");
    // A finger may be about to scroll: the line follows once it moves sideways, or is lifted.
    if (event.pointerType !== "touch") this.#moveTo(event);
  }

  #pointerUp(event) {
    if (!this.#isDragging(event)) return;
    if (event.type === "pointerup") this.#moveTo(event);
    this.#letGo();
    this.#send();
  }

  #cancel() {
    this.#choose(this.drag.before);
    this.#letGo();
  }

  #letGo() {
    this.drag = null;
    this.svg.classList.remove("dragging");
  }

  #keyDown(event) {
    const { key, altKey, ctrlKey, metaKey } = event;
    if (altKey || ctrlKey || metaKey) return;
    if (key === "Escape" && this.drag) this.#cancel();
    const last = this.data.rates.length - 1;
    const places = {
      ArrowLeft: this.chosen - 1, ArrowDown: this.chosen - 1, PageDown: this.chosen - PAGE, Home: 0,
      ArrowRight: this.chosen + 1, ArrowUp: this.chosen + 1, PageUp: this.chosen + PAGE, End: last,
    };
    if (!(key in places) || this.drag) return;
    event.preventDefault();
    event.stopPropagation(); // Streamlit has single-key shortcuts of its own, and tabs that change with an arrow
    this.line.classList.add("keyboard");
    this.#choose(places[key]);
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.#send(), KEY_PAUSE);
  }
}

export default function ({ data: [data], parentElement, setStateValue }) {
  const tell = (choice) => setStateValue("choice", choice);
  return show(parentElement, "riskPlot", RiskPlot, (plot) => plot.update(data, tell));
}
