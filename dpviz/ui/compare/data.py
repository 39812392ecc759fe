"""What the Compare page reads: runs, full-length runs and reported results, read once and remembered."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import pandas as pd

from dpviz.forecast.pilots import is_pilot
from dpviz.papers import REPORTED
from dpviz.papers.records import TEST_ACCURACY
from dpviz.paths import runs_folder
from dpviz.privacy.registry import InputError
from dpviz.runs import Store, Summary
from dpviz.runs.sweeps.folder import SweepFolder, sweep_ids
from dpviz.training.tables import DATASETS
from dpviz.ui.common.runs import cached, load_all, store
from dpviz.ui.compare.link import ALL, EXPERIMENT, Comparison
from dpviz.views.comparison.experiments import ComparisonData, comparison_data, fold, regrouped
from dpviz.views.comparison.settings import value_words
from dpviz.views.comparison.table import experiments

_reading = threading.Lock()  # sessions that ask for the same wait for the first of them instead of reading it too


@dataclass(frozen=True, eq=False)
class Material:
    """Everything there is, grouped as a person asked: rows per run, folded over seeds, and a row per group."""

    data: ComparisonData
    rows: pd.DataFrame
    folded: pd.DataFrame
    experiments: pd.DataFrame
    settings: pd.DataFrame
    texts: pd.Series  # label and settings of each group as one text, to search in


def prepare() -> None:
    """Price what the papers report, and read their cached runs, before anybody asks."""
    ids = tuple(item.run.id for item in cached().runs)
    with _reading:
        _material(runs_folder(), "", (), ids, EXPERIMENT)


def newest_dataset() -> str:
    """The dataset of the person's newest run, all if an imported run's own name is none here; empty without runs."""
    runs = _shown(store().list().runs)
    newest = max(runs, key=lambda summary: summary.created).dataset if runs else ""
    return newest if newest in DATASETS or not runs else ALL


def material(group: str) -> tuple[Material, list[str]]:
    """All curves, and a sentence for each that could not be read."""
    listing, full_length = store().list(), cached()
    own = _shown(listing.runs)
    ids = tuple(item.run.id for item in full_length.runs)
    with _reading:
        whole, problems = _material(store().folder, store().owner, own, ids, group)
    return whole, [*listing.warnings, *full_length.warnings, *problems]


def _shown(runs: tuple[Summary, ...]) -> tuple[Summary, ...]:
    """Runs with a curve; pilots, of which there are dozens, were made to learn from and not to be compared."""
    return tuple(summary for summary in runs if summary.epochs_done and not is_pilot(summary))


@lru_cache(maxsize=4)
def _data(
    folder: Path, owner: str, own: tuple[Summary, ...], ids: tuple[str, ...]
) -> tuple[ComparisonData, tuple[str, ...]]:
    """Remembered, since a page asks again on every rerun; a run that goes on has another summary."""
    runs, problems = load_all(own)
    full_length = [item for item in cached().runs if item.run.id in set(ids)]
    numbers = [number for number in REPORTED if number.quantity == TEST_ACCURACY]
    sweeps = _sweeps(Store(folder, owner=owner)) if own else {}
    return comparison_data(runs, full_length, numbers, sweeps), tuple(problems)


@lru_cache(maxsize=8)
def _material(
    folder: Path, owner: str, own: tuple[Summary, ...], ids: tuple[str, ...], group: str
) -> tuple[Material, tuple[str, ...]]:
    data, problems = _data(folder, owner, own, ids)
    rows, settings = data.rows, data.settings
    if group != EXPERIMENT and group in settings:
        rows = regrouped(rows, settings[group].map(lambda value: value_words(group, value)))
        owners = dict(zip(data.rows["group"][rows.index], rows["group"], strict=True))
        settings = _common(settings, owners)
    folded = fold(rows)
    table = experiments(folded)
    return Material(data, rows, folded, table, settings, _texts(table, settings)), problems


def _common(settings: pd.DataFrame, owners: Mapping[str, str]) -> pd.DataFrame:
    """The settings of merged groups: those on which all members agree."""
    grouped = settings.groupby(settings.index.map(owners), sort=False)
    kinds = settings.astype(str).groupby(settings.index.map(owners), sort=False).nunique()
    return grouped.first().astype(object).where(kinds <= 1, "mixed")


def _sweeps(of: Store) -> dict[str, str]:
    """Run id -> the name of the sweep that began it."""
    names: dict[str, str] = {}
    for sweep_id in sweep_ids(of):
        folder = SweepFolder(of, sweep_id)
        try:
            title = folder.sweep().title or sweep_id
            names |= {run.run_id: title for run in folder.begun() or ()}
        except InputError:
            continue  # the Train page says what is wrong with it
    return names


def filtered(whole: Material, shown: Comparison) -> pd.DataFrame:
    """The experiments that pass the filters."""
    table = whole.experiments
    keep = table["source"].isin(shown.show)
    if shown.dataset != ALL:
        keep &= table["dataset"] == shown.dataset
    if shown.paper != ALL:
        keep &= table["paper"] == shown.paper
    for word in shown.search.lower().split():
        keep &= whole.texts.str.contains(word, regex=False)
    return table[keep]


def _texts(table: pd.DataFrame, settings: pd.DataFrame) -> pd.Series:
    rows = settings.reindex(table.index).itertuples(index=False, name=None)
    words = [" ".join(str(value) for value in row if value == value) for row in rows]
    return (table["label"].astype(object) + " " + pd.Series(words, table.index, dtype=object)).str.lower()
