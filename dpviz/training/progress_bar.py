"""A progress bar on standard error: standard output is for results."""

from __future__ import annotations

import sys
import time

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
