"""Every run as one pandas frame: `dpviz.load_runs`. Needs pandas and nothing that draws."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from dpviz.papers import TITLES
from dpviz.privacy.registry import InputError
from dpviz.runs import Run, Store, cached_runs
from dpviz.runs.store.imported import AnySpec, ImportedSpec
from dpviz.training.spec import EpochRecord

SETTINGS = (
    "method",
    "dataset",
    "model",
    "loss",
    "optimizer",
    "curriculum",
    "batch_size",
    "learning_rate",
    "clip_norm",
    "delta",
    "secure",
    "seed",
)
MEASURES = ("test_accuracy", "test_loss")
PROGRESS = ("epoch", "step", "noise_multiplier", *MEASURES)
EPSILONS = ("epsilon_claimed", "epsilon_sound")
COLUMNS = (
    *("run", "title", "source", "paper", "experiment", "status", "epochs", "examples", "schedule"),
    *SETTINGS,
    *PROGRESS,
    *EPSILONS,
    *("spent_claimed", "spent_sound", "at_most", "audited", "seconds"),
)


SOURCES = {"measured": "own", "imported": "imported"}  # of a run in the store, by who trained it


def load_runs(folder: Path | str | None = None, *, cached: bool = True) -> pd.DataFrame:
    """One row per epoch of every run: your own (`source` "own"), imported ones ("imported") and the papers' ("cached").

    `folder` is a store's, by default the one that `dpviz runs list` shows. Accuracies are fractions. Epsilons are
    upper bounds, NaN where there is no guarantee, and add up over the epochs; `spent_claimed` and `spent_sound` are the
    whole run's, which may have ended within an epoch (`at_most`: it is not on record how far it came). `audited` is
    what the run's audit leaves to its epsilon, at least. A run without a whole epoch has no row. What cannot be read is
    skipped with a warning.
    """
    rows = [row for run in _own(Store(folder)) for row in _rows(run, SOURCES[run.kind], run.spec.recipe)]
    if cached:
        listing = cached_runs()
        _warn(listing.warnings)
        rows += [row for item in listing.runs for row in _rows(item.run, "cached", f"{item.paper}/{item.experiment}")]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _own(store: Store) -> Iterator[Run]:
    listing = store.list()
    _warn(listing.warnings)
    for summary in listing.runs:
        try:
            yield store.get(summary.id)
        except InputError as error:
            _warn((f"skipped: {error}",))


def _warn(sentences: tuple[str, ...]) -> None:
    for sentence in sentences:
        warnings.warn(sentence, stacklevel=3)


def _rows(run: Run, source: str, recipe: str) -> Iterator[dict[str, Any]]:
    paper, _, experiment = recipe.partition("/")
    spec, spent = run.spec, run.spent
    about = {
        "run": run.id,
        "title": run.title or TITLES.get(recipe, ""),
        "source": source,
        "paper": paper,
        "experiment": experiment,
        "status": run.status,
        **_settings(spec),
        "spent_claimed": _number(spent.epsilon_claimed if spent else None),
        "spent_sound": _number(spent.epsilon_sound if spent else None),
        "at_most": spent is not None and spent.at_most,
        "audited": _number(run.audit.lower if run.audit else None),
    }
    return (about | _epoch(record) for record in run.epochs)


def _settings(spec: AnySpec) -> dict[str, Any]:
    """The settings of a run; of an imported one as far as its facts name them."""
    if isinstance(spec, ImportedSpec):
        known = {"method": spec.method, "dataset": spec.dataset, "delta": spec.delta, "epochs": spec.epochs or None}
        return {name: spec.fact(name, None) for name in ("examples", *SETTINGS)} | known
    about = {"epochs": spec.epochs, "examples": spec.examples, "schedule": spec.schedule.name}
    return about | {name: getattr(spec, name) for name in SETTINGS}


def _epoch(record: EpochRecord) -> dict[str, Any]:
    numbers = {name: getattr(record, name) for name in (*PROGRESS, "seconds")}
    return numbers | {name: _number(getattr(record, name)) for name in (*MEASURES, *EPSILONS)}


def _number(value: float | None) -> float:
    return math.nan if value is None else value
