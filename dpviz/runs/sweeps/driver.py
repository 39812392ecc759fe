"""A sweep at work: it gives a runner a few runs at a time until nothing is left. The same for queue and cluster."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from dpviz.privacy.registry import InputError
from dpviz.runs.execution.runner import ANCHOR
from dpviz.runs.store.records import LIVE, Run, Summary
from dpviz.runs.store.store import Store, new_id
from dpviz.runs.sweeps.folder import Begun, SweepFolder, sweeps_of
from dpviz.runs.sweeps.result import Row, by_key
from dpviz.runs.sweeps.spec import Candidate, Sweep
from dpviz.training.spec import RunSpec

log = logging.getLogger("dpviz.runs")
TRIES = 2  # a run that failed is tried once more
WIDTH = 2  # runs that a queue is given at a time: one to work on and one that waits, so that it never idles
POLL = 0.05  # seconds
SAVING = 60.0  # seconds that stopped runs are given for their checkpoints


class Crew(Protocol):
    """Whoever trains a sweep's runs: the background queue or a cluster."""

    def start(
        self,
        spec: RunSpec,
        *,
        title: str = "",
        device: str = "auto",
        data_dir: Path | None = None,
        owner: str = "",
        run_id: str = "",
    ) -> str: ...

    def resume(self, run_id: str, *, device: str = "auto", data_dir: Path | None = None) -> None: ...

    def stop(self, run_id: str) -> None: ...

    def wait(self, run_id: str, timeout: float | None = None) -> bool: ...


class Proposer(Protocol):
    """Where candidates come from."""

    def candidates(self) -> Iterator[Candidate]: ...

    def tell(self, row: Row) -> None: ...


class GridProposer:
    """The combinations of a sweep's grids: those that are in its folder, then the others as they are needed."""

    def __init__(self, sweep: Sweep, folder: SweepFolder) -> None:
        self.sweep, self.folder = sweep, folder

    def candidates(self) -> Iterator[Candidate]:
        known = {candidate.settings: candidate for candidate in self.folder.candidates()}
        for settings in self.sweep.combinations():
            if settings not in known:
                known[settings] = self.sweep.candidate(settings)
                self.folder.append(known[settings])
            yield known[settings]

    def tell(self, row: Row) -> None:
        """A grid learns nothing."""


def proposer_of(sweep: Sweep, folder: SweepFolder) -> Proposer:
    if sweep.search is None:
        return GridProposer(sweep, folder)
    from dpviz.runs.sweeps.search import SearchProposer

    return SearchProposer(sweep, folder)


@dataclass
class Task:
    """A run of a candidate that is due or at work."""

    candidate: Candidate
    spec: RunSpec
    tries: int = 1


class Drive:
    """One sweep, driven by this process from `run` until it is finished or stopped. Runs that are there are reused."""

    def __init__(
        self,
        sweep: Sweep,
        store: Store,
        crew: Crew,
        *,
        width: int = WIDTH,
        device: str = "auto",
        data_dir: Path | None = None,
        on_end: Callable[[Candidate, Run], None] | None = None,
    ) -> None:
        self.sweep, self.store, self.crew, self.width = sweep, store, crew, width
        self.problem = ""
        self._where: dict[str, Any] = {"device": device, "data_dir": data_dir}
        self._on_end = on_end
        self._due: deque[Task] = deque()
        self._live: dict[str, Task] = {}
        self._runs: dict[str, Summary] = {}
        self._begun: set[Begun] = set()
        self._stopping = threading.Event()
        self._folder = SweepFolder(store, sweep.id)
        self._folder.save(sweep)
        self._lock = self._folder.lock()

    def stop(self) -> None:
        """End the whole within one step of the runs at work; giving the sweep again resumes it."""
        self._stopping.set()

    def run(self) -> None:
        """Work until nothing is left. What keeps it from going on is left in `problem`."""
        try:
            self._runs = by_key(self.store.list().runs)
            self._recall_begun()
            # Not before: Optuna takes a second to load, and a journal that is damaged must let go of the sweep.
            self._proposer = proposer_of(self.sweep, self._folder)
            coming = self._proposer.candidates()
            while not self._stopping.is_set() and (self._fill(coming) or self._live):
                self._collect()
                time.sleep(POLL)
        except InputError as error:
            self.problem = str(error)
        except Exception as error:  # a thread's last line of defence: the sweep must not stay "running" for ever
            log.exception("sweep %s failed", self.sweep.id)
            self.problem = f"{type(error).__name__}: {error}"
        finally:
            self._stop_live()
            self._lock.release()

    def _recall_begun(self) -> None:
        """What was begun so far. A sweep older than that record may have begun every run of its candidates."""
        begun = self._folder.begun()
        if begun is not None:
            self._begun = set(begun)
            return
        for spec in (spec for candidate in self._folder.candidates() for spec in candidate.specs):
            found = self._runs.get(spec.key)
            self._note(spec, found.id if found else "")

    def _note(self, spec: RunSpec, run_id: str) -> None:
        """Write down that a run is begun or reused; before it starts, so that nothing it spends is forgotten."""
        begun = Begun(spec.key, run_id)
        if begun not in self._begun:
            self._folder.begin(begun)
            self._begun.add(begun)

    def _fill(self, coming: Iterator[Candidate]) -> bool:
        """Give the crew as many runs as it has room for; False once nothing is left to give."""
        while len(self._live) < self.width and not self._stopping.is_set():
            if not self._due:
                candidate = next(coming, None)
                if candidate is None:
                    return False
                self._take(candidate)
                continue
            self._begin(self._due.popleft())
        return True

    def _take(self, candidate: Candidate) -> None:
        due = []
        for spec in candidate.specs:
            if self._is_done(spec):
                self._note(spec, self._runs[spec.key].id)
            else:
                due.append(Task(candidate, spec))
        self._due.extend(due)
        if not due:
            self._proposer.tell(self._row(candidate))

    def _begin(self, task: Task) -> None:
        found = self._runs.get(task.spec.key)
        if found is None:
            title = f"{self.sweep.title}: {task.candidate.label}" if self.sweep.title else task.candidate.label
            run_id, owner = new_id(), self.store.owner
            self._note(task.spec, run_id)
            self.crew.start(task.spec, title=_short(title), owner=owner, run_id=run_id, **self._where)
        else:
            run_id = found.id
            self._note(task.spec, run_id)
            if self.store.get(run_id).status not in LIVE:  # a live one is somebody else's: wait for it
                self.crew.resume(run_id, **self._where)
        self._live[run_id] = task

    def _collect(self) -> None:
        """See who has ended; try again, once, what failed."""
        for run_id, task in tuple(self._live.items()):
            if not self.crew.wait(run_id, 0):
                continue
            run = self.store.get(run_id)
            if run.status in LIVE:
                continue
            del self._live[run_id]
            self._runs[task.spec.key] = run.summary
            if run.status == "failed" and task.tries < TRIES:
                self._due.appendleft(Task(task.candidate, task.spec, task.tries + 1))
                continue
            if self._on_end:
                self._on_end(task.candidate, run)
            if not self._waits_for(task.candidate):
                self._proposer.tell(self._row(task.candidate))

    def _waits_for(self, candidate: Candidate) -> bool:
        return any(task.candidate is candidate for task in (*self._due, *self._live.values()))

    def _is_done(self, spec: RunSpec) -> bool:
        found = self._runs.get(spec.key)
        return found is not None and found.status == "done"

    def _row(self, candidate: Candidate) -> Row:
        return Row(candidate, tuple(self._runs.get(spec.key) for spec in candidate.specs))

    def _stop_live(self) -> None:
        for run_id in self._live:
            with contextlib.suppress(InputError):  # it has just ended, or somebody else's process works on it
                self.crew.stop(run_id)
        for run_id in self._live:
            self.crew.wait(run_id, SAVING)


def _short(title: str) -> str:
    return title if len(title) <= 120 else title[:119] + "…"


# --- the server's sweeps --------------------------------------------------------------------------------------------


def driven(store: Store) -> dict[str, Drive]:
    """The sweeps that this process was asked to drive, by id; like its runner they survive a hot reload."""
    anchor = sys.modules.setdefault(ANCHOR, types.ModuleType(ANCHOR))
    stores: dict[str, dict[str, Drive]] = anchor.__dict__.setdefault("drives", {})
    return stores.setdefault(str(sweeps_of(store).resolve()), {})


def launch(drive: Drive) -> None:
    """Drive a sweep in a thread of its own."""
    driven(drive.store)[drive.sweep.id] = drive
    threading.Thread(target=drive.run, name="dpviz-sweep", daemon=True).start()
