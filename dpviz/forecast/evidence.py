"""The runs that a forecast is learnt from: cached ones and a person's own, of equal settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dpviz.forecast.designs import HELD_OUT_SEED
from dpviz.forecast.fit import Curve, fit
from dpviz.forecast.library import settings_key, title_of
from dpviz.forecast.response import Response
from dpviz.privacy.registry import InputError
from dpviz.runs.store.cached import cached_runs
from dpviz.runs.store.records import Run
from dpviz.runs.store.store import Store
from dpviz.training.spec import RunSpec


def runs_like(spec: RunSpec, store: Store) -> tuple[Run, ...]:
    """Cached and own runs that share the spec's response, each once; only those that reached an epoch."""
    key = settings_key(spec)
    alike = (run for run in _candidates(spec, store) if run.kind == "measured" and run.epochs)
    return tuple({run.own_spec.key: run for run in alike if _key(run.own_spec) == key}.values())


def _candidates(spec: RunSpec, store: Store) -> Iterator[Run]:
    yield from (cached.run for cached in cached_runs().runs)
    for run in store.list().runs:
        if (run.status, run.method, run.dataset, run.model) == ("done", spec.method, spec.dataset, spec.model):
            yield store.get(run.id)


def _key(spec: RunSpec) -> str:
    try:
        return settings_key(spec)
    except InputError:
        return ""


def curves(runs: Iterable[Run], *, held_out: bool = False) -> tuple[Curve, ...]:
    """What runs say; by their seeds some are kept away from every fit."""
    wanted = (run for run in runs if (run.own_spec.seed >= HELD_OUT_SEED) == held_out)
    return tuple(
        Curve(
            run.own_spec.key,
            run.course.sigmas if run.course else tuple(run.own_spec.schedule.sigmas(run.own_spec.epochs).tolist()),
            tuple(record.accuracy for record in run.epochs),
        )
        for run in wanted
    )


def fitted(spec: RunSpec, runs: Iterable[Run]) -> Response:
    """The response that these runs show."""
    return fit(
        curves(runs),
        recipe=title_of(spec),
        settings=settings_key(spec),
        dataset=spec.dataset,
        batch_size=spec.batch_size,
    )
