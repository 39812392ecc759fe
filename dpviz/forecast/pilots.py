"""Make the runs that a forecast is learnt from, and say after each how good it has become and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpviz.forecast.designs import pilots
from dpviz.forecast.evidence import curves, fitted, runs_like
from dpviz.forecast.fit import FEWEST
from dpviz.forecast.response import Response
from dpviz.privacy.guarantees import rule_of
from dpviz.privacy.records import steps_per_epoch
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import epsilon_number
from dpviz.privacy.selection import composed
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.runner import AUTO, Runner
from dpviz.runs.store.records import RESUMABLE, Run
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps.charges import spent_of
from dpviz.training.spec import RunSpec


@dataclass(frozen=True)
class Lesson:
    """What is known after so many of the pilot runs; `response` is None while there are too few schedules."""

    done: int
    wanted: int
    runs: tuple[Run, ...]
    response: Response | None


def lessons(
    spec: RunSpec, count: int, store: Store, runner: Runner | None = None, *, options: RunOptions = AUTO
) -> Iterator[Lesson]:
    """What the runs say that are there already, then again after each missing pilot run that the runner makes.

    A pilot that was stopped goes on from its checkpoint. Without a runner nothing is made.
    """
    wanted = pilots(spec, count)
    runs = {run.own_spec.key: run for run in runs_like(spec, store)}
    yield _lesson(spec, wanted, runs)
    if runner is None:
        return
    missing = [pilot for pilot in wanted if pilot.key not in runs]
    begun = {run.key: run.id for run in store.list().runs if run.status in RESUMABLE}
    for pilot in missing:
        if pilot.key in begun:
            runner.resume(begun[pilot.key], options=options)
    new = [pilot for pilot in missing if pilot.key not in begun]
    ids = runner.start_all(new, title=f"pilot of {spec.recipe or spec.model}", options=options)
    started = begun | {pilot.key: run_id for pilot, run_id in zip(new, ids, strict=True)}
    for pilot in missing:
        runner.wait(started[pilot.key])
        run = store.get(started[pilot.key])
        if run.status == "failed":
            raise InputError(f"pilot run {run.id} failed: {run.error}")
        if run.status != "done":
            return
        runs[pilot.key] = run
        yield _lesson(spec, wanted, runs)


def _lesson(spec: RunSpec, wanted: Sequence[RunSpec], runs: dict[str, Run]) -> Lesson:
    known = tuple(runs.values())
    enough = len({curve.sigmas for curve in curves(known)}) >= FEWEST
    done = sum(pilot.key in runs for pilot in wanted)
    return Lesson(done, len(wanted), known, fitted(spec, known) if enough else None)


@dataclass(frozen=True)
class Price:
    """What the runs that a forecast rests on cost the people in the data: nothing if the data are public.

    `pilots` is their composition, `with_final` that of a run of the recipe's own besides; None: there is no guarantee.
    """

    public: bool
    runs: int
    pilots: float | None
    with_final: float | None
    words: str

    @classmethod
    def of(cls, spec: RunSpec, runs: Sequence[Run]) -> Price:
        specs = [run.own_spec for run in runs]
        if spec.own is None:
            return cls(
                True, len(specs), 0.0, None, f"{spec.dataset} is public: its pilot runs cost nobody any privacy."
            )
        alone, whole = composition(specs, spec.delta), composition([*specs, spec], spec.delta)
        if alone is None or whole is None:
            words = "At least one of these runs has no guarantee, so there is no price for having looked at them."
            return cls(False, len(specs), None, None, words)
        words = (
            f"The data are your own, and all {len(specs)} runs were looked at: together they cost epsilon "
            f"{epsilon_number(alone)}, with a run of the recipe's own schedule {epsilon_number(whole)} (composition, "
            f"delta {spec.delta:g}). Accuracy was measured on test data, which no epsilon covers."
        )
        return cls(False, len(specs), alone, whole, words)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def composition(specs: Sequence[RunSpec], delta: float) -> float | None:
    """Epsilon of having looked at all of these runs; None: one of them has no guarantee."""
    if any(rule_of(spec.method, spec.curriculum).sound is None for spec in specs):
        return None
    spent = [spent_of(spec, spec.epochs * steps_per_epoch(spec.sample_rate)) for spec in specs]
    return composed(spent, delta).upper
