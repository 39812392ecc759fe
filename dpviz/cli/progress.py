"""How far a command is, on standard error: standard output is for its result."""

from __future__ import annotations

import sys
import time

from dpviz.cli.command import spent_text
from dpviz.runs.store.records import Progress
from dpviz.training.spec import EpochRecord
from dpviz.views.numbers import duration_words

WIDTH = 24
PACE = 0.1  # seconds between two drawings
CLEAR = "\r\x1b[K"


class Bar:
    """One line that is drawn over, and lines that stay. Where nobody watches a terminal, only those that stay."""

    def __init__(self) -> None:
        self._terminal, self._drawn = sys.stderr.isatty(), 0.0

    def draw(self, what: str, share: float, note: str) -> None:
        now = time.monotonic()
        if self._terminal and (now - self._drawn >= PACE or share >= 1):
            self._drawn = now
            self._print(f"{CLEAR}{what} [{'#' * round(WIDTH * share):{WIDTH}}] {note}", end="")

    def say(self, text: str) -> None:
        """A line that stays, above the one that is drawn over."""
        self._print(f"{CLEAR if self._terminal else ''}{text}")

    def clear(self) -> None:
        if self._terminal:
            self._print(CLEAR, end="")

    @staticmethod
    def _print(text: str, end: str = "\n") -> None:
        print(text, end=end, file=sys.stderr, flush=True)


class RunBar:
    """The progress of one run after the other: steps are drawn over, epochs stay."""

    def __init__(self, runs: int) -> None:
        self.bar, self._runs = Bar(), runs
        self._ids: list[str] = []

    def step(self, progress: Progress) -> None:
        left = "" if progress.seconds_left is None else f", {duration_words(progress.seconds_left)} left"
        note = f"step {progress.step:,} of {progress.steps:,}{left}"
        self.bar.draw(self._name(progress.run_id), progress.step / progress.steps, note)

    def epoch(self, run_id: str, record: EpochRecord) -> None:
        spent = f"sound epsilon {spent_text(record.epsilon_sound)}"
        self.bar.say(f"{self._name(run_id)} epoch {record.epoch}: test accuracy {record.test_accuracy:.2%}, {spent}")

    def _name(self, run_id: str) -> str:
        if run_id not in self._ids:
            self._ids.append(run_id)
        return run_id if self._runs == 1 else f"{run_id} ({self._ids.index(run_id) + 1} of {self._runs})"
