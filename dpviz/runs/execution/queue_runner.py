"""The queue: runs of this process, one after the other on each device."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial

from dpviz.runs.execution.job import (
    Ended,
    Job,
    OnEpoch,
    OnProgress,
    RunOptions,
    applied,
    assignment_of,
    finish,
    see_through,
)
from dpviz.runs.execution.local_team import train_together
from dpviz.runs.execution.provenance import cores
from dpviz.runs.execution.runner import Runner
from dpviz.runs.execution.work import work
from dpviz.runs.store.store import Store
from dpviz.runs.tracking.mirror import Mirror
from dpviz.training.limits import LIMITS

SAVING = 20.0  # seconds that a run is given for its last checkpoint when the process ends


class QueueRunner(Runner):
    """Daemon threads in this process: one finds out where a run belongs, one per device trains, run after run."""

    def __init__(
        self,
        store: Store,
        *,
        threads: int | None = None,
        on_progress: OnProgress | None = None,
        on_epoch: OnEpoch | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        super().__init__(store, threads or cores(), on_progress, on_epoch, mirror)
        self._arrivals: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._slots: dict[str, queue.SimpleQueue[Job | None]] = {}
        self._workers: list[threading.Thread] = []

    def slots(self, device: str = "auto") -> int:
        return 1

    def check_device(self, device: str) -> None:
        from dpviz.training.devices import pick_device

        pick_device(device)

    def _check(self, more: int, options: RunOptions) -> None:
        LIMITS["queue"].check(len(self._jobs) + more)  # each waiting run holds its lock, and with it an open file

    def _submit(self, job: Job) -> None:
        if not self._workers:
            self._spawn(self._route)
        self._arrivals.put(job)

    def _stop(self, job: Job) -> None:
        if not job.taken:
            del self._jobs[job.run_id]
            finish(self.store, job, Ended("stopped"))

    def _leave(self) -> None:
        with self._guard:
            for line in (self._arrivals, *self._slots.values()):
                line.put(None)
        for worker in self._workers:
            worker.join(SAVING)

    def _spawn(self, target: Callable[..., None], *args: object) -> None:
        worker = threading.Thread(target=target, args=args, name="dpviz-runner", daemon=True)
        self._workers.append(worker)
        worker.start()

    def _route(self) -> None:
        """Give each run to its device's slot. torch, which knows the devices, is first imported here."""
        while (job := self._arrivals.get()) is not None:
            try:
                from dpviz.training.devices import pick_device

                device = pick_device(job.options.device)
            except Exception as error:  # whatever it was: the runs behind this one must not wait for ever
                with self._guard:
                    if self._jobs.pop(job.run_id, None):
                        finish(self.store, job, Ended("failed", str(error)))
                continue
            with self._guard:
                if job.stop.is_set():  # nobody may be left to work on a new slot
                    continue
                if device not in self._slots:
                    self._slots[device] = queue.SimpleQueue()
                    self._spawn(self._work_slot, self._slots[device])
                self._slots[device].put(job)

    def _work_slot(self, slot: queue.SimpleQueue[Job | None]) -> None:
        while (job := slot.get()) is not None:
            with self._guard:
                if job.stop.is_set():  # stopped while it waited
                    continue
                job.taken = True
            self._work(job)
            with self._guard:
                if self._jobs.get(job.run_id) is job:  # it may have been resumed in the meantime
                    del self._jobs[job.run_id]

    def _work(self, job: Job) -> None:
        sink = partial(applied, self.store, job)

        def train() -> Ended | None:
            assignment = assignment_of(self.store, job)
            if assignment.options.workers > 1:
                return train_together(assignment, sink, job.stop.is_set)
            sigmas_at = partial(self.store.begin_epoch, job.run_id)
            return work(assignment, sink, job.stop.is_set, None, sigmas_at)

        finish(self.store, job, see_through(self.store, job, train))
