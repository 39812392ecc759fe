"""Runners: who works on runs. In the background of a server, or in the foreground of a command.

Neither imports torch before a run starts, and neither knows of any page: they meet in the store and in `progress`.
"""

from __future__ import annotations

import atexit
import dataclasses
import queue
import sys
import threading
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol

from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import Job, cores, finish, work
from dpviz.runs.store.records import Progress
from dpviz.runs.store.store import Store
from dpviz.training.limits import LIMITS
from dpviz.training.spec import EpochRecord, RunSpec

DEVICES = ("auto", "cpu", "cuda", "mps")
ANCHOR = "dpviz_anchor"


class Runner(Protocol):
    """Works on runs. A cluster implements the same three."""

    def start(self, spec: RunSpec, *, title: str = "", device: str = "auto", data_dir: Path | None = None) -> str:
        """Save a new run and see that it is trained; returns its id."""
        ...

    def stop(self, run_id: str) -> None:
        """End a run within one step; it can be resumed."""
        ...

    def progress(self, run_id: str) -> Progress | None:
        """How far a live run of this runner is; None before it began and after it ended."""
        ...


def with_seeds(spec: RunSpec, seeds: Iterable[int]) -> tuple[RunSpec, ...]:
    """The same settings once a seed."""
    seeds = tuple(seeds)
    if not seeds or len(set(seeds)) != len(seeds):
        raise InputError(f"seeds must be different whole numbers, for example 0,1,2; got {list(seeds)}")
    return tuple(dataclasses.replace(spec, seed=seed) for seed in seeds)


def check_device(device: str) -> str:
    if device not in DEVICES:
        raise InputError(f"device must be one of {', '.join(DEVICES)}, got {device!r}")
    return device


def create_all(store: Store, specs: Iterable[RunSpec], title: str, owner: str = "") -> tuple[str, ...]:
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


class BackgroundRunner:
    """Daemon threads in this process: one finds out where a run belongs, one a device trains, run after run."""

    def __init__(self, store: Store, *, threads: int | None = None) -> None:
        self.store = store
        self._threads = threads or max(1, cores() - 1)  # a core is left for the page
        self._jobs: dict[str, Job] = {}
        self._arrivals: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._slots: dict[str, queue.SimpleQueue[Job | None]] = {}
        self._workers: list[threading.Thread] = []
        self._guard = threading.RLock()

    def start(
        self,
        spec: RunSpec,
        *,
        title: str = "",
        device: str = "auto",
        data_dir: Path | None = None,
        owner: str = "",
        run_id: str = "",
    ) -> str:
        """Save a new run, queue it, and return its id at once: a new one, or the one that was given."""
        with self._guard:
            self._check_room(1, device)
            created = self.store.create(spec, title=title, owner=owner, run_id=run_id)
            self._enqueue(Job(created, device, data_dir, self._threads))
        return created

    def start_all(
        self,
        specs: Iterable[RunSpec],
        *,
        title: str = "",
        device: str = "auto",
        data_dir: Path | None = None,
        owner: str = "",
    ) -> tuple[str, ...]:
        """Several runs in one request, for example `with_seeds(spec, (0, 1, 2))`: all of them or none."""
        specs = tuple(specs)
        with self._guard:
            self._check_room(len(specs), device)
            created = create_all(self.store, specs, title, owner)
            for run_id in created:
                self._enqueue(Job(run_id, device, data_dir, self._threads))
        return created

    def resume(self, run_id: str, *, device: str = "auto", data_dir: Path | None = None) -> None:
        """Queue a stopped, interrupted or failed run again; it goes on from its last checkpoint."""
        with self._guard:
            self._check_room(1, device)
            self.store.claim(run_id)
            self._enqueue(Job(run_id, device, data_dir, self._threads))

    def stop(self, run_id: str) -> None:
        """End a run of this runner: within one step if it is running, at once if it waits."""
        with self._guard:
            job = self._jobs.get(run_id)
            if job is None:
                raise InputError(f"run {run_id!r} is not at work here")
            self._stop(job)

    def progress(self, run_id: str) -> Progress | None:
        job = self._jobs.get(run_id)
        return job.progress if job else None

    def live(self) -> tuple[str, ...]:
        """Ids of the runs that wait or run here, in the order in which they came."""
        return tuple(self._jobs)

    def wait(self, run_id: str, timeout: float | None = None) -> bool:
        """Block until a run of this runner has ended; False if it takes longer than `timeout` seconds."""
        job = self._jobs.get(run_id)
        return job is None or job.ended.wait(timeout)

    def close(self, timeout: float = 5.0) -> None:
        """End every run as interrupted, with a checkpoint, as far as the time allows."""
        atexit.unregister(self.close)
        with self._guard:
            for job in tuple(self._jobs.values()):
                job.ending = "interrupted"
                self._stop(job)
            for line in (self._arrivals, *self._slots.values()):
                line.put(None)
            workers, self._workers = self._workers, []
            self._slots.clear()
        for worker in workers:
            worker.join(timeout)

    def _check_room(self, more: int, device: str) -> None:
        check_device(device)
        LIMITS["queue"].check(len(self._jobs) + more)  # each waiting run holds its lock, and with it an open file

    def _enqueue(self, job: Job) -> None:
        if not self._workers:
            self._spawn(self._route)
            atexit.register(self.close)  # a server that is shut down leaves checkpoints behind
        self._jobs[job.run_id] = job
        self._arrivals.put(job)

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        worker = threading.Thread(target=target, args=args, name="dpviz-runner", daemon=True)
        self._workers.append(worker)
        worker.start()

    def _stop(self, job: Job) -> None:
        job.stop.set()
        if not job.begun:
            del self._jobs[job.run_id]
            finish(self.store, job, job.ending)

    def _route(self) -> None:
        """Give each run to its device's slot. torch, which knows the devices, is first imported here."""
        while (job := self._arrivals.get()) is not None:
            try:
                from dpviz.training.engine import pick_device

                device = pick_device(job.device)
            except (InputError, ImportError, RuntimeError) as error:
                with self._guard:
                    if self._jobs.pop(job.run_id, None):
                        finish(self.store, job, "failed", str(error))
                continue
            with self._guard:
                if device not in self._slots:
                    self._slots[device] = queue.SimpleQueue()
                    self._spawn(self._work_slot, self._slots[device])
                self._slots[device].put(job)

    def _work_slot(self, slot: queue.SimpleQueue[Job | None]) -> None:
        while (job := slot.get()) is not None:
            with self._guard:
                if job.stop.is_set():  # stopped while it waited
                    continue
                job.begun = True
            work(self.store, job)
            with self._guard:
                if self._jobs.get(job.run_id) is job:  # it may have been resumed in the meantime
                    del self._jobs[job.run_id]


class ForegroundRunner:
    """Works in the calling thread: `start` returns when the run has ended. Uses every core.

    `until` is the epoch after which a run is stopped, None for its last.
    """

    def __init__(
        self,
        store: Store,
        *,
        threads: int | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        on_epoch: Callable[[str, EpochRecord], None] | None = None,
        until: int | None = None,
    ) -> None:
        if until is not None and not until >= 1:
            raise InputError(f"until must be an epoch, 1 or later, got {until}")
        self.store, self.until = store, until
        self._threads = threads or cores()
        self._on_progress, self._on_epoch = on_progress, on_epoch
        self._jobs: dict[str, Job] = {}

    def start(self, spec: RunSpec, *, title: str = "", device: str = "auto", data_dir: Path | None = None) -> str:
        return self.start_all((spec,), title=title, device=device, data_dir=data_dir)[0]

    def start_all(
        self, specs: Iterable[RunSpec], *, title: str = "", device: str = "auto", data_dir: Path | None = None
    ) -> tuple[str, ...]:
        """One run after the other."""
        check_device(device)
        created = create_all(self.store, specs, title)
        self._work_all([self._job(run_id, device, data_dir) for run_id in created])
        return created

    def resume(self, run_id: str, *, device: str = "auto", data_dir: Path | None = None) -> None:
        check_device(device)
        self.store.claim(run_id)
        self._work_all([self._job(run_id, device, data_dir)])

    def stop(self, run_id: str) -> None:
        if run_id in self._jobs:
            self._jobs[run_id].stop.set()

    def stop_all(self) -> None:
        """For a signal handler: ends the run at work within one step, and those behind it."""
        for job in tuple(self._jobs.values()):
            job.stop.set()

    def progress(self, run_id: str) -> Progress | None:
        job = self._jobs.get(run_id)
        return job.progress if job else None

    def _job(self, run_id: str, device: str, data_dir: Path | None) -> Job:
        return Job(run_id, device, data_dir, self._threads, self._on_progress, self._after_epoch)

    def _after_epoch(self, run_id: str, record: EpochRecord) -> None:
        if self._on_epoch:
            self._on_epoch(run_id, record)
        if self.until is not None and record.epoch >= self.until:
            self.stop(run_id)

    def _work_all(self, jobs: list[Job]) -> None:
        self._jobs = {job.run_id: job for job in jobs}
        for job in jobs:
            if job.stop.is_set():
                finish(self.store, job, job.ending)
            else:
                work(self.store, job)
            del self._jobs[job.run_id]


def background(store: Store | None = None) -> BackgroundRunner:
    """The server's one runner for a store, made on first use.

    It hangs on a module without a file: a hot reload drops the modules whose files changed, and everything in them,
    but not that one, so runs go on and are found again.
    """
    store = store or Store()
    anchor = sys.modules.setdefault(ANCHOR, types.ModuleType(ANCHOR))
    runners: dict[str, BackgroundRunner] = anchor.__dict__.setdefault("runners", {})
    return runners.setdefault(str(store.folder.resolve()), BackgroundRunner(store))
