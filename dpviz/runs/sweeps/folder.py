"""The folder of sweeps, inside the store's: what each of them is, its candidates so far, and which runs it has begun.

.sweeps/<id>/sweep.json        written once
.sweeps/<id>/candidates.jsonl  append only, one candidate per line, in the order in which they were made
.sweeps/<id>/begun.jsonl       append only, one run per line, written before it starts: what the choice has to pay for,
                               also once the run is deleted. Sweeps that were made before this was recorded have none
.sweeps/<id>/search.journal    what Optuna remembers, searches only
.sweeps/<id>/lock              held by the process that drives the sweep

The runs themselves are runs like any other; a sweep knows its own by their settings.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpviz.privacy.registry import InputError
from dpviz.runs.store import run_files as files
from dpviz.runs.store.journal import append, lines
from dpviz.runs.store.lock import Lock, held
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps.spec import Candidate, Sweep
from dpviz.training.limits import refuse_if_read_only
from dpviz.training.spec import RunSpec

SWEEPS, SWEEP, CANDIDATES, BEGUN, JOURNAL = (
    ".sweeps",
    "sweep.json",
    "candidates.jsonl",
    "begun.jsonl",
    "search.journal",
)
SWEEP_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Begun:
    """A run that a sweep began, or found finished and used: the key of its settings and its id.

    The id is empty where a sweep of an older format may have begun a run that is no longer there.
    """

    key: str
    run_id: str


class SweepFolder:
    """One sweep's files. Making one touches nothing."""

    def __init__(self, store: Store, sweep_id: str) -> None:
        if not (isinstance(sweep_id, str) and SWEEP_ID.fullmatch(sweep_id)):
            raise InputError(f"{str(sweep_id)[:60]!r} is not a sweep's id")
        self.path = sweeps_of(store) / sweep_id

    def save(self, sweep: Sweep) -> None:
        """Keep the description; a sweep that is there already stays as it is."""
        refuse_if_read_only()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if not (self.path / SWEEP).exists():
                (self.path / BEGUN).touch()
                files.replace(self.path / SWEEP, files.dump(sweep.to_json()))
        except OSError as error:
            raise InputError(f"the sweep cannot be saved: {files.reason(error)} (the runs folder)") from None

    def sweep(self) -> Sweep:
        if not self.path.is_dir():
            raise InputError(f"there is no sweep {self.path.name!r}")
        return Sweep.from_json(files.load(self.path / SWEEP))

    def candidates(self) -> tuple[Candidate, ...]:
        """The candidates so far; an unfinished last line is dropped."""
        return lines(self.path / CANDIDATES, _candidate) or ()

    def begun(self) -> tuple[Begun, ...] | None:
        """Every run that was begun or reused; None if the sweep is older than this record."""
        return lines(self.path / BEGUN, _begun)

    def append(self, candidate: Candidate) -> None:
        """Add a candidate; whoever calls holds the lock."""
        data = {
            "settings": dict(candidate.settings),
            "specs": [spec.to_json() for spec in candidate.specs],
            "error": candidate.error,
        }
        append(self.path / CANDIDATES, data)

    def begin(self, run: Begun) -> None:
        """Write down a run before it starts; whoever calls holds the lock."""
        append(self.path / BEGUN, {"key": run.key, "run_id": run.run_id})

    def lock(self) -> Lock:
        """Take the sweep; an InputError if another process, or this one, drives it."""
        try:
            return Lock(self.path / files.LOCK)
        except InputError:
            raise InputError("this sweep is running already; stop it there first") from None
        except OSError as error:
            raise InputError(f"the sweep cannot be started: {files.reason(error)} (the runs folder)") from None

    @property
    def driven(self) -> bool:
        """Whether a living process drives it."""
        return held(self.path / files.LOCK)

    def delete(self) -> None:
        """Forget the sweep; its runs stay."""
        refuse_if_read_only()
        lock = self.lock()
        try:
            shutil.rmtree(self.path)
        finally:
            lock.release()


def _candidate(data: Any) -> Candidate:
    specs = tuple(RunSpec.from_json(spec) for spec in data["specs"])
    return Candidate(tuple(data["settings"].items()), specs, str(data["error"]))


def _begun(data: Any) -> Begun:
    return Begun(str(data["key"]), str(data["run_id"]))


def sweeps_of(store: Store) -> Path:
    """Where the sweeps of a store are; where people sign in, each person's are in a folder of their own."""
    return store.folder / SWEEPS / store.owner if store.owner else store.folder / SWEEPS


def sweep_ids(store: Store) -> tuple[str, ...]:
    """Ids of the sweeps in a store, the newest first."""
    try:
        folders = [path for path in sweeps_of(store).iterdir() if SWEEP_ID.fullmatch(path.name)]
    except OSError:
        return ()
    sweeps = [path for path in folders if (path / SWEEP).is_file()]
    return tuple(path.name for path in sorted(sweeps, key=_made, reverse=True))


def _made(path: Path) -> float:
    return (path / SWEEP).stat().st_mtime
