"""How long a run will take: its pace, read from a run alike or from a few steps tried in the background."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dpviz.privacy.records import steps_per_epoch
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.process_wide import process_wide
from dpviz.runs.execution.provenance import cores
from dpviz.runs.store.records import Run
from dpviz.training.limits import check_spec, refuse_if_read_only, refuse_own_model
from dpviz.training.spec import RunSpec

TRIAL_STEPS = 5
TRIAL_SECONDS = 3.0


@dataclass(frozen=True)
class Pace:
    """Seconds per step, and seconds per epoch on top of its steps: testing and saving."""

    step: float
    epoch: float

    def seconds(self, spec: RunSpec) -> float:
        """Expected duration of a run."""
        return spec.epochs * (steps_per_epoch(spec.sample_rate) * self.step + self.epoch)


def likeness(spec: RunSpec) -> tuple[Any, ...]:
    """What decides a run's pace, near enough: runs that agree in it take the same time per step."""
    return (spec.dataset, spec.model, spec.batch_size, spec.method, spec.clipping, spec.diagnostics)


def pace_of(run: Run) -> Pace | None:
    """A run's own pace; None before its first epoch."""
    if not run.epochs:
        return None
    trained = sum(record.seconds for record in run.epochs)
    whole = 60 * run.provenance.minutes if run.provenance else trained
    return Pace(trained / max(1, run.epochs[-1].step), max(0.0, whole - trained) / len(run.epochs))


def pace_from(runs: Iterable[Run], spec: RunSpec) -> Pace | None:
    """The pace of the last of the runs that is alike; None if none is."""
    alike = [run for run in runs if run.epochs and run.kind == "measured" and likeness(run.own_spec) == likeness(spec)]
    return pace_of(alike[-1]) if alike else None


class StepTimings:
    """Tries a few steps of settings in a thread of its own, one trial at a time, once for all settings alike.

    Asking never waits. Each trial holds a dataset, a model and its gradients, so a second one is refused, not queued.
    """

    def __init__(self) -> None:
        self._outcomes: dict[tuple[Any, ...], Pace | str | None] = {}  # a pace, why there is none, or None: pending
        self._guard = threading.Lock()

    def start(self, spec: RunSpec) -> None:
        """Begin a trial, unless there is one already; one that failed is tried again. Limits hold as for a run."""
        refuse_if_read_only()
        check_spec(spec)
        refuse_own_model(spec)
        with self._guard:
            if not isinstance(self._outcomes.get(likeness(spec), ""), str):
                return
            if None in self._outcomes.values():
                raise InputError("only one trial runs at a time, and other settings are being timed; try again soon")
            self._outcomes[likeness(spec)] = None
            threading.Thread(target=self._try, args=(spec,), name="dpviz-trial", daemon=True).start()

    def pending(self, spec: RunSpec) -> bool:
        return self._outcomes.get(likeness(spec), "") is None

    def pace(self, spec: RunSpec) -> Pace | None:
        outcome = self._outcomes.get(likeness(spec))
        return outcome if isinstance(outcome, Pace) else None

    def problem(self, spec: RunSpec) -> str:
        """Why a trial failed, in one sentence; empty if it did not."""
        outcome = self._outcomes.get(likeness(spec))
        return outcome if isinstance(outcome, str) else ""

    def _try(self, spec: RunSpec) -> None:
        outcome: Pace | str = "the steps could not be timed: see the server's log"
        try:
            outcome = try_steps(spec)
        except (InputError, OSError, RuntimeError, ImportError, ArithmeticError) as error:
            outcome = f"the steps could not be timed: {error}"
        finally:  # whatever happened: a trial that never ends would be the last one
            with self._guard:
                self._outcomes[likeness(spec)] = outcome


def try_steps(spec: RunSpec) -> Pace:
    """Train for a moment and test once, keeping nothing. The first step warms up and does not count."""
    from dpviz.training import checkpoint
    from dpviz.training.devices import pick_device
    from dpviz.training.engine import Trainer
    from dpviz.training.evaluation import evaluate

    checkpoint.use_threads(max(1, cores() - 1))
    trainer = Trainer(spec, device=pick_device("auto"))
    moments: list[float] = []

    def enough() -> bool:
        return len(moments) > TRIAL_STEPS or (len(moments) > 1 and moments[-1] - moments[0] > TRIAL_SECONDS)

    for _ in trainer.epochs(on_step=lambda step, steps: moments.append(time.monotonic()), should_stop=enough):
        if enough():
            break
    began = time.monotonic()
    evaluate(trainer.model, trainer.loss, *trainer.test, trainer.epoch)
    testing = time.monotonic() - began
    return Pace((moments[-1] - moments[0]) / max(1, len(moments) - 1), testing)


def step_timings() -> StepTimings:
    """The server's own; like its runner they survive a hot reload."""
    return process_wide("step timings", StepTimings)


def duration_words(seconds: float) -> str:
    """A time as a person says it: "0.4 s", "3 min 20 s", "2 h 5 min"."""
    whole = max(0, round(seconds))
    if 0 < seconds < 9.95:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
