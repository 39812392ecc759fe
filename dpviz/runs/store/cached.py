"""Cached runs: full-length runs of the papers' experiments, in the same files as a person's own runs.

`cached_runs/<paper>/<experiment>/<seed>/` holds spec.json, epochs.jsonl, status.json and provenance.json; of a run that
was stopped early also checkpoint.pt, so that whoever makes it whole goes on from there. Runs that forecasts were learnt
from lie in `cached_runs/forecasts/<settings>/<seed>/`; no paper has them.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dpviz.paths import cached_runs_folder
from dpviz.privacy.registry import InputError
from dpviz.runs.store import run_files as files
from dpviz.runs.store.records import Run, labels

NAME = re.compile(r"[a-z0-9][a-z0-9.+-]{0,79}")
SEED = re.compile(r"0|[1-9][0-9]{0,9}")
FORECASTS = "forecasts"  # stands where a paper would
CACHED = ("done", "stopped")  # a stopped one has fewer epochs than planned, and says so


@dataclass(frozen=True)
class CachedRun:
    """A run and the experiment that it reproduces."""

    paper: str
    experiment: str
    seed: int
    run: Run


@dataclass(frozen=True)
class CachedListing:
    """The cached runs that can be read, and one sentence for each that cannot."""

    runs: tuple[CachedRun, ...]
    warnings: tuple[str, ...]


def cached_runs(folder: Path | None = None, *, paper: str | None = None) -> CachedListing:
    """Every cached run of a paper, or those of one paper (or of FORECASTS), in the order of their names."""
    root = folder or cached_runs_folder()
    runs: list[CachedRun] = []
    warnings: list[str] = []
    for paper_folder in _folders(root, NAME, warnings):
        if paper_folder.name == paper or (paper is None and paper_folder.name != FORECASTS):
            for experiment_folder in _folders(paper_folder, NAME, warnings):
                for seed_folder in _folders(experiment_folder, SEED, warnings):
                    try:
                        runs.append(read_cached(seed_folder))
                    except InputError as error:
                        warnings.append(f"skipped: {'/'.join(seed_folder.parts[-3:])}: {error}")
    return CachedListing(tuple(runs), tuple(warnings))


def read_cached(folder: Path) -> CachedRun:
    """The cached run in `<paper>/<experiment>/<seed>`; it must be finished, measured, and of that seed."""
    paper, experiment, seed = folder.parts[-3:]
    run = files.read_run(folder, f"{paper}/{experiment}/{seed}")
    if run.provenance is None or not run.provenance.kind == run.kind == "measured":
        raise InputError("a cached run needs a provenance.json that says how it was measured")
    if run.status not in CACHED or not run.epochs:
        raise InputError(f"a cached run is done or stopped and has epochs; this one is {run.status}")
    if str(run.spec.seed) != seed:
        raise InputError(f"the folder says seed {seed}, its spec.json {run.spec.seed}")
    return CachedRun(paper, experiment, int(seed), run)


def read_checkpoint(cached: CachedRun, folder: Path | None = None) -> bytes | None:
    """Where a run that was stopped early can go on; None if nobody kept it."""
    path = (folder or cached_runs_folder()) / cached.paper / cached.experiment / str(cached.seed) / files.CHECKPOINT
    return files.read_bytes(path) if path.exists() else None


def write_cached(
    run: Run,
    paper: str,
    experiment: str,
    *,
    folder: Path | None = None,
    replace: bool = False,
    checkpoint: bytes | None = None,
) -> Path:
    """Save a measured run as an experiment's, whole or not at all; an existing one is kept unless `replace`."""
    for name in (paper, experiment):
        if not NAME.fullmatch(name):
            raise InputError(f"names of papers and experiments are made of a-z, 0-9, '.', '+' and '-', got {name!r}")
    if run.provenance is None or run.provenance.kind != "measured" or run.status not in CACHED or not run.epochs:
        raise InputError(f"only a measured run that is done or stopped can be cached; run {run.id} is {run.status}")
    parent = (folder or cached_runs_folder()) / paper / experiment
    target = parent / str(run.spec.seed)
    if target.exists() and not replace:
        raise InputError(f"{paper}/{experiment}/{run.spec.seed} is cached already")
    made = parent / f".new-{secrets.token_hex(4)}"
    made.mkdir(parents=True)
    try:
        files.write_spec(made, run.spec)
        files.replace(made / files.EPOCHS, b"".join(files.dump(record.to_json()) for record in run.epochs))
        numbers = labels(run.spec, run.epochs[-1])
        status = files.Status(run.status, run.created, run.error, None, numbers, spent=run.written, audit=run.audit)
        files.write_status(made, status)
        files.replace(made / files.PROVENANCE, files.dump(run.provenance.to_json()))
        if checkpoint is not None:
            files.replace(made / files.CHECKPOINT, checkpoint)
        if target.exists():
            shutil.rmtree(target)
        os.rename(made, target)
    except OSError as error:
        shutil.rmtree(made, ignore_errors=True)
        raise InputError(f"{paper}/{experiment} cannot be cached: {files.reason(error)}") from None
    return target


def _folders(parent: Path, pattern: re.Pattern[str], warnings: list[str]) -> Iterator[Path]:
    """Sub-folders with the right kind of name, sorted; other folders are named in the warnings, files are ignored."""
    try:
        children = sorted(parent.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        warnings.append(f"skipped: {parent.name!r} cannot be read: {files.reason(error)}")
        return
    for child in children:
        if child.name.startswith(".") or not child.is_dir():
            continue
        if child.is_symlink() or not pattern.fullmatch(child.name):
            warnings.append(f"skipped: {parent.name}/{child.name[:60]} is not a cached run's folder")
        else:
            yield child
