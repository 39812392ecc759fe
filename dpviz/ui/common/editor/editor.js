// The schedule editor: pointer, keys and buttons, and the talk with Python.
//
// Python holds the truth. It sends {rev, seq, sigmas, ...}; the editor takes the sigmas over only when rev is new, so a
// late echo never fights the hand. The editor sends {rev, seq, sigmas} when the hand lets go; seq counts the drawings
// since rev, so both sides know which drawing a certified epsilon belongs to. With a drawing goes the list of the tables
// that are here: Python then leaves them out.

const KEY_PAUSE = 400; // milliseconds after the last key, then the drawing is sent
const KEPT_TIMINGS = 5000;
const LEAST_SIGMA = 0.05; // what keys can reach; the table may end earlier, beyond it prices go on with its edge slope
const MOST_SIGMA = 1000;

class Editor {
  constructor(root) {
    this.root = root;
    this.svg = root.querySelector(".plot");
    this.picture = new Picture(this.svg);
    this.outlook = new Outlook(root, this.svg);
    this.readout = new Readout(root);
    this.history = new History();
    this.tool = "draw";
    this.scale = "log";
    this.cursor = 0;
    this.stroke = null; // the gesture under way
    this.typed = null; // the schedule before a burst of keys
    this.tightness = 1; // certified epsilon / RDP epsilon, of the last curve that Python certified
    this.locked = []; // sigmas of the epochs that have begun: nothing here changes them
    this.muScale = 1; // the same for mu: that of the certified risk / that of order 2
    this.stats = { moves: [], replies: [] }; // milliseconds: handling a pointer move; sending to certified on screen
    this.#listen();
  }

  #listen() {
    this.listening = new AbortController();
    const { signal } = this.listening;
    const on = (name, handle) => this.svg.addEventListener(name, handle, { signal });
    on("pointerdown", (event) => this.#penDown(event));
    on("pointermove", (event) => this.#penMove(event));
    on("pointerup", (event) => this.#penUp(event));
    on("lostpointercapture", (event) => this.#penUp(event));
    on("pointercancel", (event) => this.#penCancel(event));
    on("keydown", (event) => this.#keyDown(event));
    on("blur", () => this.#endTyping());
    for (const button of this.root.querySelectorAll("button")) {
      button.addEventListener("click", () => this.#press(button.dataset), { signal });
    }
    this.resizing = new ResizeObserver(() => this.#layout());
    this.resizing.observe(this.svg);
  }

  destroy() {
    clearTimeout(this.pause);
    this.listening.abort();
    this.resizing.disconnect();
  }

  // --- Python to editor

  update(data, send) {
    this.send = (drawing) => send({ ...drawing, tables: RdpTable.names });
    const table = RdpTable.of(data.table);
    if (!table) {
      const { rev, seq, sigmas } = data;
      this.send({ rev, seq, sigmas }); // the list of tables tells Python what is missing
      return;
    }
    this.data = data;
    this.memory ??= new Memory(data.slot);
    const { first } = this.memory;
    const wishes = { ...keepAddress(data.link), ...this.memory.wish(data.kept) };
    const opened = this.opening;
    this.opening = Boolean(wishes.open);
    if (Object.keys(wishes).length) this.send(wishes);
    this.accountant = data.budget
      ? new FilterAccountant(table, data.steps, data.budget)
      : new Accountant(table, data.steps, data.delta);
    this.unit = UNITS[data.budget ? "budget" : "epsilon"];
    this.outlook.take(data.forecast);
    this.locked = data.locked;
    // An editor that was put in this one's place may have sent what Python has by now.
    const overtaken = data.rev === this.rev && data.seq > this.seq;
    const draft = first && data.draft && this.memory.held.sigmas;
    // What was there before the page was loaded comes back: nothing to undo.
    const returns = draft || overtaken || opened || this.opening;
    if (overtaken || data.rev !== this.rev) this.#adopt(data, returns, draft);
    this.#lock();
    this.#widen();
    this.#learnTightness();
    this.#layout();
    this.#noteReply();
    this.#remember(wishes.restore ?? data.kept);
  }

  #adopt({ rev, seq, sigmas, low, high }, returns, draft) {
    const { held } = this.memory;
    if (!this.sigmas && held.sigmas) {
      Object.assign(this.history, { past: held.past, future: held.future });
      this.sigmas = held.sigmas;
    }
    if (this.sigmas && !returns && !same(this.sigmas, sigmas)) this.history.record(this.sigmas);
    clearTimeout(this.pause);
    Object.assign(this, { rev, seq, stroke: null, typed: null, changing: false, range: { low, high }, start: sigmas });
    this.#take(draft?.length === sigmas.length ? draft : sigmas);
    if (!same(this.sigmas, sigmas)) this.#tell(); // a draft: Python hears of it
  }

  /** Another curve, perhaps of another length; what has begun stays as it was. */
  #take(sigmas) {
    this.sigmas = Float64Array.from(sigmas);
    this.#lock();
    this.spent = new Float64Array(sigmas.length);
    this.cursor = clamp(this.cursor, 0, sigmas.length - 1);
  }

  #lock() {
    if (this.locked.length <= this.sigmas.length) this.sigmas.set(this.locked);
  }

  #remember(kept = this.memory.held.kept) {
    this.memory.write(kept, this.sigmas, this.history);
  }

  /** Python's band, if it is for the curve on screen. */
  get certified() {
    const { rev, seq, certified } = this.data;
    return !this.changing && rev === this.rev && seq === this.seq ? certified : null;
  }

  // The browser knows RDP only. What Python certified for the last curve says how much tighter (or looser) its accountant
  // is there; the estimate for a curve near by is scaled alike, so that the number does not jump when the pen lands.
  #learnTightness() {
    if (this.changing || this.data.seq !== this.seq) return;
    this.accountant.spend(this.sigmas, this.spent);
    const ratio = this.certified ? Number(this.certified.upper) / this.spent.at(-1) : 1;
    this.tightness = ratio > 0 && Number.isFinite(ratio) ? ratio : 1;
    const scale = this.certified && this.data.measure ? this.data.measure.mu / this.accountant.mu : 1;
    this.muScale = scale > 0 && Number.isFinite(scale) ? scale : 1;
  }

  #noteReply() {
    if (!this.certified || this.sentAt === undefined) return;
    remember(this.stats.replies, performance.now() - this.sentAt);
    this.sentAt = undefined;
    const { text, kind } = this.certified;
    this.readout.announce(`${this.unit.word} ${text}, ${kind} ${this.outlook.words.textContent}`.trim());
  }

  // --- drawing

  /** The range grows with the curves and never shrinks under the hand. */
  #widen() {
    const { ghost, pinned } = this.data;
    const others = [...(ghost ? [ghost] : []), ...pinned].map((curve) => curve.sigmas);
    const { low, high } = rangeOf(this.range.low, this.range.high, [this.sigmas, ...others]);
    this.range = { low: Math.max(low, LEAST_SIGMA), high: Math.min(high, MOST_SIGMA) };
  }

  #layout() {
    const width = this.svg.clientWidth;
    if (!width || !this.data) return; // not on screen yet: the observer calls again
    const { height, pinned, ghost } = this.data;
    const epochs = this.sigmas.length;
    const curves = [this.sigmas, ...(ghost ? [ghost] : []).concat(pinned).map((curve) => curve.sigmas)];
    const span = Math.max(...curves.map((sigmas) => sigmas.length));
    const silent = curves.some((sigmas) => sigmas.includes(0));
    const forecast = Boolean(this.data.forecast);
    const parts = { width, height, epochs, span, silent, forecast, locked: this.locked.length, scale: this.scale };
    this.frame = new Frame({ ...parts, ...this.range });
    this.svg.classList.toggle("point", this.tool === "point");
    this.picture.drawBackground(this.frame, this.data, this.unit);
    this.outlook.layout(this.frame);
    this.readout.showLegend(this.data);
    for (const button of this.root.querySelectorAll("[data-tool], [data-scale]")) {
      const { tool, scale } = button.dataset;
      button.setAttribute("aria-pressed", tool ? tool === this.tool : scale === this.scale);
    }
    this.#paint();
    this.readout.describe(this.sigmas, this.epsilon, this.locked.length, this.unit);
  }

  #paint() {
    const { spent, sigmas, data } = this;
    this.accountant.spend(sigmas, spent);
    for (let epoch = 0; epoch < spent.length; epoch++) spent[epoch] *= this.tightness;
    this.epsilon = spent.at(-1);
    const { measure } = data;
    const risk = measure && RISKS[measure.shape](this.muScale * this.accountant.mu, measure.threshold);
    this.picture.drawCurve(sigmas, spent, this.cursor, measure ? null : data.target);
    this.outlook.paint(sigmas);
    this.readout.showNumber(this.epsilon, risk, this.certified, data, this.unit);
    this.readout.showCursor(this.cursor, sigmas, this.range, this.epsilon, this.locked.length, this.unit);
    this.#enable("undo", this.history.past.length > 0);
    this.#enable("redo", this.history.future.length > 0);
  }

  #enable(action, possible) {
    const button = (this[`${action}Button`] ??= this.root.querySelector(`[data-action=${action}]`));
    if (button.disabled === possible) button.disabled = !possible;
  }

  // --- one change, from first touch to Python

  /** Ends a change: one entry to undo, one message to Python. */
  #commit(before) {
    this.changing = false;
    if (same(before, this.sigmas)) {
      this.#paint();
      return;
    }
    this.history.record(before);
    this.#deliver();
  }

  #deliver() {
    this.#tell();
    this.#widen();
    this.#layout();
    this.#remember();
    this.readout.announce(`${this.unit.word} about ${this.unit.write(this.epsilon)}`);
  }

  #tell() {
    this.seq += 1;
    this.sentAt = performance.now();
    this.send({ rev: this.rev, seq: this.seq, sigmas: Array.from(this.sigmas) });
  }

  #replace(sigmas) {
    this.#endTyping();
    const before = this.sigmas;
    this.#take(sigmas);
    this.#commit(before);
  }

  #travel(step) {
    this.#endTyping();
    const sigmas = this.history[step](this.sigmas);
    if (!sigmas) return;
    this.#take(sigmas);
    this.#deliver();
  }

  #press({ tool, scale, action }) {
    if (tool) this.tool = tool;
    if (scale) this.scale = scale;
    if (tool || scale) this.#layout();
    if (action === "undo") this.#travel("back");
    if (action === "redo") this.#travel("forward");
    if (action === "smooth") this.#replace(smoothed(this.sigmas));
    if (action === "reset") this.#replace(this.#origin());
  }

  /** Where Reset goes: the preset, or what Python sent last. */
  #origin() {
    const { ghost } = this.data;
    return ghost?.sigmas.length === this.sigmas.length ? ghost.sigmas : this.start;
  }

  // --- pointer

  #position(event) {
    const { left, top } = this.stroke.box;
    return { x: event.clientX - left, y: event.clientY - top };
  }

  #penDown(event) {
    if (event.button !== 0 || this.stroke || !this.frame) return;
    // Measured once a stroke: asking again in every move would force a layout.
    const box = this.svg.getBoundingClientRect();
    if (!this.frame.holds(event.clientX - box.left, event.clientY - box.top)) return;
    event.preventDefault();
    this.#endTyping();
    this.svg.focus({ preventScroll: true });
    this.svg.classList.remove("keyboard");
    this.svg.setPointerCapture(event.pointerId);
    const single = event.shiftKey || this.tool === "point";
    this.stroke = { id: event.pointerId, single, box, before: this.sigmas.slice() };
    const { x, y } = this.#position(event);
    Object.assign(this.stroke, { epoch: this.frame.epochAt(x), x, y });
    this.changing = true;
    // A finger may be about to scroll: the browser then cancels the stroke before anything was drawn.
    this.stroke.waits = event.pointerType === "touch" && !single;
    if (!this.stroke.waits) this.#drawTo(x, y);
    this.#paint();
  }

  #penMove(event) {
    if (event.pointerId !== this.stroke?.id) return;
    const began = performance.now();
    const moves = event.getCoalescedEvents?.() ?? [];
    for (const move of moves.length ? moves : [event]) {
      const { x, y } = this.#position(move);
      this.#drawTo(x, y);
    }
    this.#paint();
    remember(this.stats.moves, performance.now() - began);
  }

  /** Moves the pen; the epochs that it passes take its height where it passes them, straight on screen. */
  #drawTo(x, y) {
    const { stroke, frame } = this;
    const epoch = stroke.single ? stroke.epoch : frame.epochAt(x);
    const direction = Math.sign(epoch - stroke.epoch);
    for (let passed = stroke.epoch; passed !== epoch; passed += direction) {
      const share = clamp((frame.x(passed) - stroke.x) / (x - stroke.x), 0, 1);
      this.#put(passed, frame.sigmaAt(stroke.y + share * (y - stroke.y)));
    }
    this.#put(epoch, frame.sigmaAt(y));
    this.cursor = epoch;
    Object.assign(stroke, { epoch, x, y, waits: false });
  }

  #put(epoch, sigma) {
    if (epoch >= this.locked.length) this.sigmas[epoch] = sigma;
  }

  #penUp(event) {
    if (event.pointerId !== this.stroke?.id) return;
    const { before, waits, x, y } = this.stroke;
    if (waits) this.#drawTo(x, y); // a tap
    this.stroke = null;
    this.#commit(before);
  }

  #penCancel(event) {
    if (event.pointerId === this.stroke?.id) this.#dropStroke();
  }

  #dropStroke() {
    this.sigmas.set(this.stroke.before);
    this.#lock();
    this.stroke = null;
    this.changing = false;
    this.#paint();
  }

  // --- keyboard

  #keyDown(event) {
    const act = this.#keyAction(event);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation(); // Streamlit has single-key shortcuts of its own
    this.svg.classList.add("keyboard");
    act();
  }

  #keyAction({ key, shiftKey, ctrlKey, metaKey, altKey }) {
    if (altKey) return null;
    const letter = key.toLowerCase();
    if (ctrlKey || metaKey) {
      if (letter === "z") return () => this.#travel(shiftKey ? "forward" : "back");
      return letter === "y" ? () => this.#travel("forward") : null;
    }
    if (key === "Escape") return this.stroke ? () => this.#dropStroke() : null;
    const percent = shiftKey ? 1.1 : 1.01;
    const epochs = shiftKey ? 10 : 1;
    const actions = {
      arrowleft: () => this.#moveCursor(this.cursor - epochs),
      arrowright: () => this.#moveCursor(this.cursor + epochs),
      home: () => this.#moveCursor(0),
      end: () => this.#moveCursor(Infinity),
      arrowup: () => this.#scaleAtCursor(percent),
      arrowdown: () => this.#scaleAtCursor(1 / percent),
      pageup: () => this.#scaleAtCursor(1.25),
      pagedown: () => this.#scaleAtCursor(1 / 1.25),
      d: () => this.#press({ tool: "draw" }),
      p: () => this.#press({ tool: "point" }),
      s: () => this.#press({ action: "smooth" }),
    };
    return actions[letter] ?? null;
  }

  #moveCursor(epoch) {
    this.cursor = clamp(epoch, 0, this.sigmas.length - 1);
    this.#paint();
  }

  #scaleAtCursor(factor) {
    if (this.cursor < this.locked.length) return;
    this.typed ??= this.sigmas.slice();
    this.changing = true;
    const sigma = Math.max(this.sigmas[this.cursor], LEAST_SIGMA); // so that an epoch without noise can be raised
    this.sigmas[this.cursor] = fourDigits(clamp(sigma * factor, LEAST_SIGMA, MOST_SIGMA));
    this.#paint();
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.#endTyping(), KEY_PAUSE);
  }

  #endTyping() {
    if (!this.typed) return;
    clearTimeout(this.pause);
    const before = this.typed;
    this.typed = null;
    this.#commit(before);
  }
}
