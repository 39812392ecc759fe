// Undo and redo: whole schedules, of any length; one entry per stroke, burst of keys, button or curve from Python.

class History {
  past = [];
  future = [];

  /** Call after a change, with what was there before it. */
  record(before) {
    this.past.push(before);
    this.future = [];
    if (this.past.length > 200) this.past.shift();
  }

  /** The schedule before the last change (or undefined); `now` can then be had back with forward. */
  back(now) {
    if (this.past.length) this.future.push(now);
    return this.past.pop();
  }

  forward(now) {
    if (this.future.length) this.past.push(now);
    return this.future.pop();
  }
}
