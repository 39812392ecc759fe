// What outlives the page, in the storage of the browser's tab: per drawing its last state, what can be undone, and what
// Python wants kept beside it.

const KEPT_STEPS = 50;

class Memory {
  static #met = new Set(); // drawings that this page has shown: only the first sight of one may bring something back

  constructor(slot) {
    this.slot = `dpviz.drawing.${slot}`;
    this.first = !Memory.#met.has(slot);
    Memory.#met.add(slot);
    try {
      this.held = JSON.parse(sessionStorage.getItem(this.slot)) ?? {};
    } catch {
      this.held = {};
    }
  }

  /** What Python shall be told: what it had us keep before the page was loaded anew. */
  wish(kept) {
    const restore = this.first && this.held.kept !== kept && this.held.kept;
    this.first = false;
    return restore ? { restore } : {};
  }

  write(kept, sigmas, { past, future }) {
    const last = (steps) => steps.slice(-KEPT_STEPS).map((step) => Array.from(step));
    this.held = { kept, sigmas: Array.from(sigmas), past: last(past), future: last(future) };
    try {
      sessionStorage.setItem(this.slot, JSON.stringify(this.held));
    } catch {
      // A full storage forgets; the drawing itself is Python's.
    }
  }
}
