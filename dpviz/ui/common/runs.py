"""What pages know of runs: the store, the server's runner, runs already read, and how a run is called and picked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import streamlit as st

from dpviz.papers import RECIPES
from dpviz.paths import cached_runs_folder
from dpviz.privacy.registry import InputError, title_of
from dpviz.runs import CachedListing, Run, Runner, Store, Summary, cached_runs, server_runner
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.runners import ray_address, server_runner_of
from dpviz.runs.local_results import PAPER as LOCAL
from dpviz.runs.local_results import LocalResult, local_results
from dpviz.runs.store.records import LIVE
from dpviz.runs.store.spending import Spending
from dpviz.training.limits import refuse_if_read_only
from dpviz.training.spec import RunSpec
from dpviz.training.tables import DATASETS, METHODS, MODELS
from dpviz.ui.common.auth import person
from dpviz.ui.common.session import Slot

WATCHED: Slot[frozenset[str]] = Slot("watched", frozenset())  # runs and sweeps that were at work at the last look
MOST_LOADED = 10_000  # runs in memory: with fewer than a store has, each visit would read them all again
STATUS_COLOURS = {
    "queued": "gray",
    "running": "blue",
    "done": "green",
    "stopped": "orange",
    "failed": "red",
    "interrupted": "orange",
}


def store() -> Store:
    """The runs of the person at the page; without sign-in, all of them."""
    return Store(owner=person())


def runner(address: str = "") -> Runner:
    """The server's one runner, or its runner on a cluster. Pages act on single runs by the three functions below."""
    return server_runner(Store(), address)


def runner_of(run_id: str) -> Runner:
    """The server's runner that has the run in its hands, if one has."""
    return server_runner_of(Store(), run_id)


def start(specs: Sequence[RunSpec], title: str = "", workers: int = 1) -> tuple[str, ...]:
    """Launch runs that belong to the person at the page; those that several workers share, on the cluster."""
    here = runner(ray_address() if workers > 1 else "")
    ids = here.start_all(specs, title=title, owner=person(), options=RunOptions(workers=workers))
    watch(*ids)
    return ids


def stop(run_id: str) -> None:
    refuse_if_read_only()
    store().get(run_id)  # another person's run is not there
    runner_of(run_id).stop(run_id)


def resume(run_id: str) -> None:
    provenance = store().get(run_id).provenance
    runner(ray_address() if provenance and provenance.workers > 1 else "").resume(run_id)
    watch(run_id)


def watch(*ids: str) -> None:
    """Announce the end of these runs and sweeps, which start now: the shortest would end before anybody looks."""
    WATCHED.set(WATCHED.get() | set(ids))


def is_live(summary: Summary) -> bool:
    return summary.status in LIVE


def load(summary: Summary) -> Run:
    """The whole run behind a line of the list; read again only when the line says that it changed."""
    return _load_summary(store().folder, summary)


def _load_summary(folder: Path, summary: Summary) -> Run:
    return _load(folder, summary.id, summary.status, summary.epochs_done, summary.title, summary.written)


@lru_cache(maxsize=MOST_LOADED)
def _load(folder: Path, run_id: str, status: str, epochs_done: int, title: str, written: Spending | None) -> Run:
    return Store(folder).get(run_id)


def load_all(summaries: Sequence[Summary]) -> tuple[list[Run], list[str]]:
    """The runs that can be read, and one sentence for each that cannot."""
    runs, warnings, folder = [], [], store().folder
    for summary in summaries:
        try:
            runs.append(_load_summary(folder, summary))
        except InputError as error:
            warnings.append(f"skipped: {error}")
    return runs, warnings


def cached(paper: str | None = None) -> CachedListing:
    """The papers' cached runs, or those of one (or of FORECASTS), read at most once per minute."""
    return _cached(cached_runs_folder(), paper)


@st.cache_resource(ttl=60, show_spinner=False)
def _cached(folder: Path, paper: str | None) -> CachedListing:
    return cached_runs(folder, paper=paper)


def cached_local() -> tuple[tuple[LocalResult, ...], tuple[str, ...]]:
    """Cached results under local privacy, read at most once per minute, and a sentence for each that cannot be read."""
    return _cached_local(cached_runs_folder() / LOCAL)


@st.cache_resource(ttl=60, show_spinner=False)
def _cached_local(folder: Path) -> tuple[tuple[LocalResult, ...], tuple[str, ...]]:
    return local_results(folder)


def summary_name(summary: Summary) -> str:
    """What a person calls the run, from its line in the list alone."""
    if summary.title:
        return summary.title
    if summary.recipe in RECIPES:
        return RECIPES[summary.recipe].title
    method = METHODS.get(summary.method)
    words = "no noise" if method and not method.private else summary.schedule.replace("-", " ")
    names = (title_of(DATASETS, summary.dataset), title_of(MODELS, summary.model), words)
    return ", ".join(name for name in names if name) or "imported run"


def show_warnings(warnings: Sequence[str]) -> None:
    """Folders that could not be read, out of the way but not hidden."""
    if warnings:
        with st.expander(f"{len(warnings)} run{'s' if len(warnings) > 1 else ''} could not be read"):
            for warning in warnings[:20]:
                st.text(warning)
