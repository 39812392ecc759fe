// Undo and redo: whole schedules, one entry a stroke, a burst of keys or a button.

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

  clear() {
    this.past = [];
    this.future = [];
  }
}
