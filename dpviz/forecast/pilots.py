"""Make the runs that a forecast is learnt from, and say after each how good it has become and what they cost."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dpviz.forecast.designs import CHECK_SEEDS
from dpviz.forecast.evidence import curves, every_cached_run, fitted, runs_like
from dpviz.forecast.fit import FEWEST
from dpviz.forecast.library import begin, write
from dpviz.forecast.response import Response
from dpviz.paths import cached_runs_folder
from dpviz.privacy.guarantees import rule_of
from dpviz.privacy.records import steps_per_epoch
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import epsilon_number
from dpviz.privacy.schedules import CUSTOM
from dpviz.privacy.selection import composed
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.runner import AUTO, BREATH, Runner
from dpviz.runs.store.cached import FORECASTS, write_cached
from dpviz.runs.store.records import LIVE, RESUMABLE, Run, Summary
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps.charges import spent_of
from dpviz.training.spec import RunSpec

TITLE = "pilot of "  # who gives a pilot run another title takes it out of the group


def is_pilot(run: Summary) -> bool:
    """Whether a run was made to learn from, as its line in the list says."""
    return run.title.startswith(TITLE) and run.schedule == CUSTOM


@dataclass(frozen=True)
class Lesson:
    """What is known after some of the pilot runs; `response` is None while there are too few schedules."""

    pilots: tuple[RunSpec, ...]
    runs: tuple[Run, ...]  # of equal settings, pilots or not
    response: Response | None

    @property
    def made(self) -> tuple[Run, ...]:
        """The pilots among the runs."""
        keys = {pilot.key for pilot in self.pilots}
        return tuple(run for run in self.runs if run.own_spec.key in keys)

    @property
    def done(self) -> int:
        return len(self.made)

    @property
    def wanted(self) -> int:
        return len(self.pilots)


def lessons(
    spec: RunSpec, wanted: Sequence[RunSpec], store: Store, runner: Runner | None = None, *, options: RunOptions = AUTO
) -> Iterator[Lesson]:
    """What the runs say that are there already, then again after each missing pilot run that the runner makes.

    A pilot that was stopped goes on from its checkpoint; one that another process works on is waited for. Without a
    runner nothing is made.
    """
    runs = {run.own_spec.key: run for run in runs_like(spec, store)}
    yield _lesson(spec, wanted, runs)
    if runner is None:
        return
    missing = [pilot for pilot in wanted if pilot.key not in runs]
    begun = {run.key: run for run in store.list().runs if run.status in (*RESUMABLE, *LIVE)}
    for pilot in missing:
        if pilot.key in begun and begun[pilot.key].status in RESUMABLE:
            runner.resume(begun[pilot.key].id, options=options)
    new = [pilot for pilot in missing if pilot.key not in begun]
    begin(new, store)
    title = f"{TITLE}{spec.recipe or spec.model}"
    ids = runner.start_all(new, title=title, options=options, owner=store.owner)
    started = {key: run.id for key, run in begun.items()}
    started |= {pilot.key: run_id for pilot, run_id in zip(new, ids, strict=True)}
    for pilot in missing:
        run = _ended(started[pilot.key], store, runner)
        if run.status == "failed":
            raise InputError(f"pilot run {run.id} failed: {run.error}")
        if run.status == "done":
            runs[pilot.key] = run
            yield _lesson(spec, wanted, runs)


def _ended(run_id: str, store: Store, runner: Runner) -> Run:
    """The run once nobody works on it any more, here or elsewhere."""
    runner.wait(run_id)
    while (run := store.get(run_id)).status in LIVE:
        time.sleep(BREATH)
    return run


def _lesson(spec: RunSpec, wanted: Sequence[RunSpec], runs: dict[str, Run]) -> Lesson:
    known = tuple(runs.values())
    enough = len({curve.sigmas for curve in curves(known)}) >= FEWEST
    return Lesson(tuple(wanted), known, fitted(spec, known) if enough else None)


def publish(lesson: Lesson) -> None:
    """Keep what was learnt, and every run that it rests on or is measured by, among what comes with dpviz."""
    if lesson.response is None:
        raise InputError("there are too few runs for a forecast; make more pilots")
    there = {cached.run.own_spec.key for cached in every_cached_run()}
    for run in lesson.runs:
        if run.own_spec.key not in there and run.own_spec.seed not in CHECK_SEEDS:
            write_cached(run, FORECASTS, lesson.response.settings)
    write(lesson.response, cached_runs_folder() / FORECASTS)


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
    def of(cls, spec: RunSpec, looked_at: Sequence[RunSpec], *, final: bool = True) -> Price:
        """The price of looking at these runs, each as a whole, and (`final`) of a run of the spec's own besides."""
        count = len(looked_at)
        if spec.own is None:
            name = spec.data.title or spec.dataset
            return cls(True, count, 0.0, None, f"{name} is public: its pilot runs cost nobody any privacy.")
        specs = tuple(looked_at)
        alone = composition(specs, spec.delta)
        whole = composition((*specs, spec), spec.delta) if final else None
        if alone is None:
            words = (
                "At least one of these runs has no guarantee or may be changed on the way, so there is no price for "
                "looking at all of them."
            )
            return cls(False, count, None, None, words)
        besides = ""
        if whole is not None:
            besides = f", with a run of the recipe's own schedule {epsilon_number(whole)}"
        elif final:
            besides = ", and a final run that may be changed on the way adds its whole budget and its delta"
        words = (
            f"The data are your own, and all {count} runs are looked at: together they cost epsilon "
            f"{epsilon_number(alone)}{besides} (composition, delta {spec.delta:g}). Accuracy is measured on test data, "
            "which no epsilon covers."
        )
        return cls(False, count, alone, whole, words)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@functools.lru_cache(maxsize=256)  # a page asks every second
def composition(specs: tuple[RunSpec, ...], delta: float) -> float | None:
    """Epsilon of having looked at all of these runs; None: one of them has no guarantee, or its noise is not fixed."""
    if any(spec.filter or rule_of(spec.method, spec.curriculum).sound is None for spec in specs):
        return None
    spent = [spent_of(spec, spec.epochs * steps_per_epoch(spec.sample_rate)) for spec in specs]
    return composed(spent, delta).upper
