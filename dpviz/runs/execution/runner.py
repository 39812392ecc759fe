"""Runners: who works on runs. A queue in this process and a Ray cluster, behind the same calls.

Neither imports torch before a run starts, and neither knows of any page: they meet in the store and in `progress`.
"""

from __future__ import annotations

import atexit
import contextlib
import dataclasses
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import Job, OnEpoch, OnProgress, RunOptions, check_own_code, check_workers
from dpviz.runs.store.records import Progress
from dpviz.runs.store.store import Store
from dpviz.runs.tracking.mirror import Mirror
from dpviz.training.spec import RunSpec

AHEAD = 4  # runs that are handed over beyond those that have room, so that no worker waits for the next
BREATH = 0.2  # seconds; Ctrl-C that another thread receives does not wake a thread that waits without end
AUTO = RunOptions()


class Runner(ABC):
    """Works on runs of a store. Only `wait` waits for a run, and only `close` for all of them.

    What watches (`on_progress`, `on_epoch`) is called from the thread that writes the run down; a mirror has a thread
    of its own, and is closed with the runner.
    """

    def __init__(
        self,
        store: Store,
        threads: int,
        on_progress: OnProgress | None = None,
        on_epoch: OnEpoch | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        self.store = store
        self._threads = threads
        self._on_progress = on_progress or (lambda progress: None)
        self._on_epoch = on_epoch or (lambda run_id, record: None)
        self._mirror = mirror
        self._jobs: dict[str, Job] = {}
        self._guard = threading.RLock()
        self._closed = self._stopping = False
        atexit.register(self.close)  # a process that ends leaves checkpoints behind

    @abstractmethod
    def slots(self, device: str = "auto") -> int:
        """Runs that are worked on at a time."""

    @abstractmethod
    def check_device(self, device: str) -> None:
        """Refuse a device that is nowhere to be found where the runs will be; may take a moment."""

    @abstractmethod
    def _check(self, more: int, options: RunOptions) -> None:
        """Refuse more runs than can be taken, at once and before anything is written."""

    @abstractmethod
    def _submit(self, job: Job) -> None:
        """See that a run which the store holds is trained and finished."""

    @abstractmethod
    def _stop(self, job: Job) -> None:
        """See to it that a run whose `stop` is set ends."""

    @abstractmethod
    def _leave(self) -> None:
        """Let all workers go; every run has been stopped."""

    def width(self, device: str = "auto") -> int:
        """Runs to hand over at a time, so that nothing idles."""
        slots = self.slots(device)
        return slots + min(slots, AHEAD)

    def start(
        self, spec: RunSpec, *, title: str = "", options: RunOptions = AUTO, owner: str = "", run_id: str = ""
    ) -> str:
        """Save a new run, hand it over, and return its id at once: a new one, or the one that was given."""
        with self._guard:
            self._refuse((spec,), options)
            run_id = self.store.create(spec, title=title, owner=owner, run_id=run_id)
            self._take(run_id, options)
        return run_id

    def start_all(
        self, specs: Iterable[RunSpec], *, title: str = "", options: RunOptions = AUTO, owner: str = ""
    ) -> tuple[str, ...]:
        """Several runs in one request, for example `with_seeds(spec, (0, 1, 2))`: all of them or none."""
        specs = tuple(specs)
        with self._guard:
            self._refuse(specs, options)
            created = _create_all(self.store, specs, title, owner)
            for run_id in created:
                self._take(run_id, options)
        return created

    def resume(self, run_id: str, *, options: RunOptions = AUTO) -> None:
        """Hand over a stopped, interrupted or failed run again; it goes on from its last checkpoint.

        By as many workers as before, whatever the options say, so that sums are rounded alike.
        """
        with self._guard:
            run = self.store.get(run_id)
            if run.provenance is not None:
                options = dataclasses.replace(options, workers=run.provenance.workers)
            self._refuse((run.own_spec,), options)
            self.store.claim(run_id)
            self._take(run_id, options)

    def stop(self, run_id: str) -> None:
        """End a run of this runner: within a moment if it is running, at once if it waits. It can be resumed."""
        with self._guard:
            job = self._jobs.get(run_id)
            if job is None:
                raise InputError(f"run {run_id!r} is not at work here")
            job.stop.set()
            self._stop(job)

    def stop_all(self) -> None:
        """End every run of this runner, those that wait first, and whatever is still handed over to it."""
        self._stopping = True
        for run_id in reversed(self.live()):
            with contextlib.suppress(InputError):  # it has just ended
                self.stop(run_id)

    def progress(self, run_id: str) -> Progress | None:
        """How far a live run of this runner is; None before its first step and after its end."""
        job = self._jobs.get(run_id)
        return job.progress if job else None

    def live(self) -> tuple[str, ...]:
        """Ids of the runs that wait or run here, in the order in which they came."""
        return tuple(self._jobs)

    def wait(self, run_id: str, timeout: float | None = None) -> bool:
        """Block until a run of this runner has ended; False if it takes longer than `timeout` seconds."""
        job = self._jobs.get(run_id)
        while job is not None and timeout is None and not job.ended.wait(BREATH):
            pass
        return job is None or job.ended.wait(timeout)

    def close(self) -> None:
        """End every run as interrupted, with a checkpoint, as far as the time allows; nothing can be started then."""
        atexit.unregister(self.close)
        with self._guard:
            if self._closed:
                return
            self._closed = True
            for job in self._jobs.values():
                job.ending = "interrupted"
            self.stop_all()
        self._leave()
        if self._mirror is not None:
            self._mirror.close()

    def _refuse(self, specs: Sequence[RunSpec], options: RunOptions) -> None:
        if self._closed:
            raise InputError("this process is about to end and takes no more runs")
        self._check(len(specs), options)
        check_own_code(specs, options)
        check_workers(specs, options)

    def _take(self, run_id: str, options: RunOptions) -> None:
        job = Job(run_id, options, self._threads, self._on_progress, self._on_epoch, self._mirror)
        self._jobs[run_id] = job
        self._submit(job)
        if self._stopping:
            self.stop(run_id)


def _create_all(store: Store, specs: Iterable[RunSpec], title: str, owner: str) -> tuple[str, ...]:
    """New queued runs: all of them, or none if one cannot be saved."""
    created: list[str] = []
    try:
        for spec in specs:
            created.append(store.create(spec, title=title, owner=owner))
    except InputError:
        for run_id in created:
            store.release(run_id)
            store.delete(run_id)
        raise
    return tuple(created)


def with_seeds(spec: RunSpec, seeds: Iterable[int]) -> tuple[RunSpec, ...]:
    """The same settings once per seed."""
    seeds = tuple(seeds)
    if not seeds or len(set(seeds)) != len(seeds):
        raise InputError(f"seeds must be different whole numbers, for example 0,1,2; got {list(seeds)}")
    return tuple(dataclasses.replace(spec, seed=seed) for seed in seeds)
