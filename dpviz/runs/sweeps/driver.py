"""A sweep at work: it gives a runner a few runs at a time until nothing is left. The same for queue and cluster."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.process_wide import process_wide
from dpviz.runs.execution.runner import AUTO, Runner
from dpviz.runs.store.records import LIVE, Run, Summary
from dpviz.runs.store.store import Store, new_id
from dpviz.runs.sweeps.folder import Begun, SweepFolder, sweeps_of
from dpviz.runs.sweeps.result import CandidateResult, by_key
from dpviz.runs.sweeps.spec import Candidate, Sweep
from dpviz.training.spec import RunSpec

log = logging.getLogger("dpviz.runs")
TRIES = 2  # a run that failed is tried once more
POLL = 0.05  # seconds
SAVING = 60.0  # seconds that stopped runs are given for their checkpoints


class Proposer(Protocol):
    """Where candidates come from."""

    def candidates(self) -> Iterator[Candidate]: ...

    def tell(self, result: CandidateResult) -> None: ...


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

    def tell(self, result: CandidateResult) -> None:
        """A grid learns nothing."""


def proposer_of(sweep: Sweep, folder: SweepFolder) -> Proposer:
    if sweep.search is None:
        return GridProposer(sweep, folder)
    from dpviz.runs.sweeps.search import SearchProposer

    return SearchProposer(sweep, folder)


@dataclass
class DueRun:
    """A run of a candidate that is to be made or at work."""

    candidate: Candidate
    spec: RunSpec
    tries: int = 1


class SweepDriver:
    """One sweep, driven by this process from `run` until it is finished or stopped. Runs that are there are reused."""

    def __init__(
        self,
        sweep: Sweep,
        store: Store,
        runner: Runner,
        *,
        width: int | None = None,
        options: RunOptions = AUTO,
        on_end: Callable[[Candidate, Run], None] | None = None,
    ) -> None:
        self.sweep, self.store, self.runner = sweep, store, runner
        self.problem = ""
        # A search learns from what is done: nothing is proposed before somebody has time for it.
        self._width = width or (runner.slots if sweep.search else runner.width)(options.device)
        self._options, self._on_end = options, on_end
        self._due: deque[DueRun] = deque()
        self._live: dict[str, DueRun] = {}
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
            run = self._runs.get(spec.key)
            self._note(spec, run.id if run else "")

    def _note(self, spec: RunSpec, run_id: str) -> None:
        """Write down that a run is begun or reused; before it starts, so that nothing it spends is forgotten."""
        begun = Begun(spec.key, run_id)
        if begun not in self._begun:
            self._folder.begin(begun)
            self._begun.add(begun)

    def _fill(self, coming: Iterator[Candidate]) -> bool:
        """Give the runner as many runs as it has room for; False once nothing is left to give."""
        while len(self._live) < self._width and not self._stopping.is_set():
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
                due.append(DueRun(candidate, spec))
        self._due.extend(due)
        if not due:
            self._proposer.tell(self._result(candidate))

    def _begin(self, due: DueRun) -> None:
        existing = self._runs.get(due.spec.key)
        if existing is None:
            title = f"{self.sweep.title}: {due.candidate.label}" if self.sweep.title else due.candidate.label
            run_id, owner = new_id(), self.store.owner
            self._note(due.spec, run_id)
            self.runner.start(due.spec, title=_short(title), options=self._options, owner=owner, run_id=run_id)
        else:
            run_id = existing.id
            self._note(due.spec, run_id)
            if self.store.get(run_id).status not in LIVE:  # a live one is somebody else's: wait for it
                self.runner.resume(run_id, options=self._options)
        self._live[run_id] = due

    def _collect(self) -> None:
        """See who has ended; try again, once, what failed."""
        for run_id, due in tuple(self._live.items()):
            if not self.runner.wait(run_id, 0):
                continue
            run = self.store.get(run_id)
            if run.status in LIVE:
                continue
            del self._live[run_id]
            self._runs[due.spec.key] = run.summary
            if run.status == "failed" and due.tries < TRIES:
                self._due.appendleft(DueRun(due.candidate, due.spec, due.tries + 1))
                continue
            if self._on_end:
                self._on_end(due.candidate, run)
            if not self._waits_for(due.candidate):
                self._proposer.tell(self._result(due.candidate))

    def _waits_for(self, candidate: Candidate) -> bool:
        return any(due.candidate is candidate for due in (*self._due, *self._live.values()))

    def _is_done(self, spec: RunSpec) -> bool:
        run = self._runs.get(spec.key)
        return run is not None and run.status == "done"

    def _result(self, candidate: Candidate) -> CandidateResult:
        return CandidateResult(candidate, tuple(self._runs.get(spec.key) for spec in candidate.specs))

    def _stop_live(self) -> None:
        for run_id in self._live:
            with contextlib.suppress(InputError):  # it has just ended, or somebody else's process works on it
                self.runner.stop(run_id)
        for run_id in self._live:
            self.runner.wait(run_id, SAVING)


def _short(title: str) -> str:
    return title if len(title) <= 120 else title[:119] + "…"


# --- the server's sweeps --------------------------------------------------------------------------------------------


def sweep_drivers(store: Store) -> dict[str, SweepDriver]:
    """The sweeps that this process was asked to drive, by id; like its runner they survive a hot reload."""
    return process_wide(f"sweep drivers {sweeps_of(store).resolve()}", dict)


def launch(driver: SweepDriver) -> None:
    """Drive a sweep in a thread of its own."""
    sweep_drivers(driver.store)[driver.sweep.id] = driver
    threading.Thread(target=driver.run, name="dpviz-sweep", daemon=True).start()
