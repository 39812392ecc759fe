"""Trials of local privacy in the background: one thread a job, one job at a time, nothing kept on disk."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from dpviz.privacy.registry import InputError
from dpviz.training.limits import refuse_if_read_only
from dpviz.training.local.experiments import differences, run_trials
from dpviz.training.local.spec import LocalSpec
from dpviz.training.local.tabular import Tabular

MAX_WORK = 200e9  # numbers that are touched; some minutes
_one_at_a_time = threading.Semaphore(1)


class Stopped(Exception):
    """The person pressed Stop."""


def check_work(data: Tabular, specs: Sequence[LocalSpec], repeats: int) -> None:
    """Refuse what would take many minutes; the command line has no such limit."""
    work = data.people * data.dimension * specs[0].epochs * repeats * len(specs)
    if not work <= MAX_WORK:
        most = int(repeats * MAX_WORK / work)
        raise InputError(
            f"this is too much for a page; take at most {most} repeats or use the command line"
            if most
            else "this is too much for a page even once; use the command line: dpviz local"
        )


class Job:
    """Trials that run while the page stays free. Read `share`, `rows`, `differences` and `error`; call `stop`."""

    def __init__(self, data: Tabular, specs: Sequence[LocalSpec], repeats: int, seed: int = 0) -> None:
        refuse_if_read_only()
        check_work(data, specs, repeats)
        self.data, self.specs, self.repeats, self.seed = data, tuple(specs), repeats, seed
        self.share, self.started = 0.0, time.monotonic()
        self.rows: tuple[dict[str, Any], ...] = ()
        self.differences: tuple[dict[str, Any], ...] = ()
        self.error = ""
        self._stop = threading.Event()
        self.thread = threading.Thread(target=self._work, name="local-privacy", daemon=True)
        self.thread.start()

    @property
    def running(self) -> bool:
        return self.thread.is_alive()

    @property
    def seconds_left(self) -> float | None:
        """From the pace so far; None at the beginning."""
        passed = time.monotonic() - self.started
        return passed * (1 - self.share) / self.share if self.share > 0.02 else None

    def stop(self) -> None:
        self._stop.set()

    def _progress(self, share: float) -> None:
        self.share = share
        if self._stop.is_set():
            raise Stopped

    def _work(self) -> None:
        with _one_at_a_time:
            self.started = time.monotonic()
            try:
                self._progress(0.0)
                trials = run_trials(
                    self.data, self.specs, repeats=self.repeats, seed=self.seed, progress=self._progress
                )
                pairs = [pair for first in ("prestige", "masked") for pair in differences(trials, first, "djw")]
                self.differences = tuple(pair.to_json() for pair in pairs)
                self.rows = tuple(trial.to_json() for trial in trials)
            except Stopped:
                self.error = "Stopped; nothing was kept."
            except (InputError, MemoryError) as error:
                self.error = str(error) or "The machine has too little memory for this; take fewer repeats."
