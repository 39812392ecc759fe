"""The runs that a forecast is learnt from: cached ones and a person's own, of equal settings."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator

from dpviz.forecast.designs import CHECK_SEEDS, HELD_OUT_SEED
from dpviz.forecast.fit import Curve, fit
from dpviz.forecast.library import begun, settings_key, title_of
from dpviz.forecast.response import Response
from dpviz.privacy.registry import InputError
from dpviz.runs.store.cached import FORECASTS, CachedRun, cached_runs
from dpviz.runs.store.records import Run, Summary
from dpviz.runs.store.store import Store
from dpviz.training.spec import RunSpec


def runs_like(spec: RunSpec, store: Store) -> tuple[Run, ...]:
    """Cached and own runs that share the spec's response, each once; only those that reached an epoch."""
    return finished(alike(spec, _candidates(spec, store)))


def alike(spec: RunSpec, runs: Iterable[Run]) -> tuple[Run, ...]:
    """Those of the runs that share the spec's response; of seeded runs of equal settings one, finished if there is."""
    key = settings_key(spec)
    measured = sorted((run for run in runs if run.kind == "measured"), key=lambda run: run.status == "done")
    shared = [run for run in measured if _key(run.own_spec) == key]
    return tuple({run.id if run.own_spec.secure else run.own_spec.key: run for run in shared}.values())


def finished(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Those that a forecast can be learnt from."""
    return tuple(run for run in runs if run.status == "done" and run.epochs)


def may_be_alike(summary: Summary, spec: RunSpec) -> bool:
    """Whether a run that took a step may share the spec's response, from its line in the list alone."""
    names = (summary.kind, summary.method, summary.dataset, summary.model)
    return summary.begun and names == ("measured", spec.method, spec.dataset, spec.model)


def every_cached_run() -> Iterator[CachedRun]:
    """The papers' runs, and those that were made for forecasts."""
    for paper in (None, FORECASTS):
        yield from cached_runs(paper=paper).runs


def _candidates(spec: RunSpec, store: Store) -> Iterator[Run]:
    yield from (cached.run for cached in every_cached_run())
    for run in store.list().runs:
        if run.status == "done" and may_be_alike(run, spec):
            yield store.get(run.id)


def looked_at(spec: RunSpec, runs: Iterable[Run], store: Store) -> tuple[RunSpec, ...]:
    """Settings of these runs, finished or not, and of the spec's pilots and checks that were deleted.

    Whoever learns from some of them has seen them all.
    """
    seen = []
    for run in {run.id: run for run in runs}.values():
        again = len(run.written.redone) if run.written else 0  # parts of a run, each counted like a whole one
        seen += [run.own_spec] * (1 + again)
    there = Counter(run.key for run in store.list().runs)
    for made, times in Counter(begun(settings_key(spec), store)).items():
        seen += [made] * (times - there[made.key])
    return charged_once(seen)


def charged_once(specs: Iterable[RunSpec]) -> tuple[RunSpec, ...]:
    """Seeded runs of equal settings are one run, bit for bit; secure ones draw fresh noise each time, so each stays."""
    return tuple({place if spec.secure else spec.key: spec for place, spec in enumerate(specs)}.values())


def begun_like(spec: RunSpec, store: Store) -> tuple[Run, ...]:
    """A person's runs that share the spec's response, finished or not."""
    return alike(spec, (store.get(run.id) for run in store.list().runs if may_be_alike(run, spec)))


def unseen(response: Response | None, runs: Iterable[Run]) -> tuple[Run, ...]:
    """Finished runs that the response does not rest on, without those that are kept away from every fit."""
    known = set(response.runs) if response else set()
    usable = (run for run in finished(runs) if run.own_spec.seed < HELD_OUT_SEED)
    return tuple(run for run in usable if run.own_spec.key not in known)


@functools.lru_cache(maxsize=10_000)  # a page asks every second
def _key(spec: RunSpec) -> str:
    try:
        return settings_key(spec)
    except InputError:
        return ""


def curves(runs: Iterable[Run], *, held_out: bool = False) -> tuple[Curve, ...]:
    """What runs say. By their seeds some are kept away from every fit, and those that check a suggestion left out."""
    seeds = range(HELD_OUT_SEED, CHECK_SEEDS[0]) if held_out else range(HELD_OUT_SEED)
    wanted = (run for run in runs if run.own_spec.seed in seeds)
    return tuple(
        Curve(
            run.own_spec.key,
            tuple(record.noise_multiplier for record in run.epochs),  # a run may have left its planned schedule
            tuple(record.accuracy for record in run.epochs),
        )
        for run in wanted
    )


def noise_of(run: Run) -> tuple[float, ...]:
    """One sigma per epoch of a run: the noise that it had so far, then the noise to come as it stands."""
    had = tuple(record.noise_multiplier for record in run.epochs)
    spec = run.own_spec
    planned = run.course.sigmas if run.course else tuple(spec.schedule.sigmas(spec.epochs).tolist())
    return had + planned[len(had) :]


def fitted(spec: RunSpec, runs: Iterable[Run]) -> Response:
    """The response that these runs show."""
    return fit(
        curves(runs),
        recipe=title_of(spec),
        settings=settings_key(spec),
        dataset=spec.dataset,
        batch_size=spec.batch_size,
    )
