"""Ray beyond one machine: runs as Ray tasks. Ray is imported inside functions only: it is optional.

A worker streams what happens back to this process, the driver, which writes it into the store: nodes need not share a
disk, and nobody sees the difference. A worker that dies is replaced by another, which goes on from the last epoch that
arrived.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from dpviz.paths import PACKAGE
from dpviz.privacy.registry import InputError
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
from dpviz.runs.execution.process_wide import process_wide
from dpviz.runs.execution.ray_team import team_words
from dpviz.runs.execution.ray_worker import StopFlags, here, train_member
from dpviz.runs.execution.runner import Runner
from dpviz.runs.store.store import Store
from dpviz.runs.tracking.mirror import Mirror
from dpviz.training.spec import RunSpec
from dpviz.training.tables import MODELS

log = logging.getLogger("dpviz.runs")
ANSWER = 10.0  # seconds in which a cluster must answer
SAVING = 60.0  # seconds that workers are given for their last checkpoints
MOST_DATA = 4  # datasets kept in the object store


def connect(address: str) -> Any:
    """Join the cluster and return the ray module; dpviz's own code goes along, so workers run the same."""
    try:
        import ray
    except ModuleNotFoundError:
        raise InputError(
            "a cluster needs Ray; install it with: pip install -r requirements-cluster.txt, on every node"
        ) from None
    if address.startswith("ray://"):
        raise InputError("dpviz joins a cluster as one of its machines; give host:port, or auto, rather than ray://")
    if not ray.is_initialized():
        refuse_unless_answering(address)
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.WARNING,
                runtime_env={"py_modules": [str(PACKAGE)]},
            )
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            raise InputError(f"no Ray cluster could be joined at {address!r}: {str(error).splitlines()[0]}") from None
    return ray


def refuse_unless_answering(address: str) -> None:
    """Knock at host:port first: Ray itself waits for minutes where nobody answers."""
    host, _, port = address.rpartition(":")
    if not host:
        return  # auto, or a name that Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
    except (OSError, ValueError, OverflowError) as error:
        raise InputError(f"no Ray cluster could be joined at {address!r}: {error}") from None


class RayRunner(Runner):
    """Works on runs by Ray tasks; one thread per run follows its task and applies what it reports."""

    def __init__(
        self,
        store: Store,
        address: str,
        *,
        threads: int = 1,
        on_progress: OnProgress | None = None,
        on_epoch: OnEpoch | None = None,
        mirror: Mirror | None = None,
    ) -> None:
        self._ray = connect(address)  # before Runner, so that at the end of the process it is closed before Ray is
        super().__init__(store, threads, on_progress, on_epoch, mirror)
        self._task = self._ray.remote(max_retries=0, num_returns="streaming", scheduling_strategy="SPREAD")(
            train_member
        )
        self._flags = self._ray.remote(num_cpus=0, scheduling_strategy=here())(StopFlags).remote()
        self._streams: dict[str, Any] = {}
        self._data: dict[tuple[object, ...], Any] = {}
        self._data_guard = threading.Lock()
        _open_runners().add(self)

    def slots(self, device: str = "auto") -> int:
        resources = self._ray.cluster_resources()
        return slots(needs(device, self._threads, resources), resources)

    def check_device(self, device: str) -> None:
        if device == "cuda" and not self._ray.cluster_resources().get("GPU", 0) >= 1:
            raise InputError("no node of the cluster has a CUDA device; choose auto or cpu, or add a node with a GPU")

    def _check(self, more: int, options: RunOptions) -> None:
        self.check_device(options.device)
        room = self.slots(options.device)
        if options.workers > room:
            raise InputError(f"the cluster has room for {room} workers at a time, not for {options.workers}; add nodes")

    def _refuse(self, specs: Sequence[RunSpec], options: RunOptions) -> None:
        if any(spec.filter for spec in specs):
            raise InputError(
                "a run that may be changed on the way (filter_epsilon) trains beside its files; start it without a "
                "cluster"
            )
        super()._refuse(specs, options)

    def _submit(self, job: Job) -> None:
        self._flags.take.remote(job.run_id)  # lowers the flag of an old wish to stop that came too late
        threading.Thread(target=self._follow, args=(job,), name="dpviz-cluster", daemon=True).start()

    def _stop(self, job: Job) -> None:
        self._flags.stop.remote(job.run_id)
        if not job.reported and job.run_id in self._streams:
            self._ray.cancel(self._streams[job.run_id])

    def _leave(self) -> None:
        for job in tuple(self._jobs.values()):
            job.ended.wait(SAVING)
        self._ray.kill(self._flags)
        _open_runners().discard(self)
        if not _open_runners():
            self._ray.shutdown()

    def _follow(self, job: Job) -> None:
        ended = see_through(self.store, job, lambda: self._attend(job))
        self._flags.stop.remote(job.run_id)  # a worker may be left, at work on a run that could not be written down
        with self._guard:
            self._streams.pop(job.run_id, None)
            finish(self.store, job, ended)
            self._jobs.pop(job.run_id, None)

    def _attend(self, job: Job) -> Ended | None:
        """Hand the run to a worker and apply what it reports; how it ended, or None if the worker died."""
        from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError, TaskCancelledError

        assignment = assignment_of(self.store, job)
        data = self._shared_data(assignment.run.own_spec, job.options)
        wanted = needs(job.options.device, job.threads, self._ray.cluster_resources())
        with self._guard:
            if job.stop.is_set():
                return Ended("stopped")
            if assignment.options.workers > 1:
                words = team_words(assignment, data, self._flags, wanted, job.stop.is_set)
            else:
                stream = self._task.options(**wanted).remote(assignment, data, self._flags)
                self._streams[job.run_id] = stream
                words = (self._ray.get(reference) for reference in stream)
        try:
            for word in words:
                if isinstance(word, Ended):
                    return word
                applied(self.store, job, word)
        except TaskCancelledError:
            return Ended("stopped")
        except (RayTaskError, RuntimeEnvSetupError) as failure:
            raise InputError(f"the worker could not train: {str(failure).strip().splitlines()[-1]}") from None
        except RayError as failure:  # the worker, its node or what it had in memory is gone
            log.warning("run %s: %s", job.run_id, type(failure).__name__)
        return Ended("stopped") if job.stop.is_set() else None

    def _shared_data(self, spec: RunSpec, options: RunOptions) -> Any:
        """The run's data or features in the object store: read and put there once for all runs that use them."""
        key = (spec.dataset, spec.own, MODELS[spec.model].scattered, spec.subset, options.data_dir)
        with self._data_guard:
            if key not in self._data:
                from dpviz.training.data.scatter_features import load_for

                self._data[key] = self._ray.put(load_for(spec, options.data_dir).arrays())
                while len(self._data) > MOST_DATA:
                    self._data.pop(next(iter(self._data)))
            return self._data[key]


def _open_runners() -> set[RayRunner]:
    """The runners of this process: the last one to be closed leaves the cluster."""
    return process_wide("ray runners", set)


def needs(device: str, threads: int, resources: Mapping[str, float]) -> dict[str, float]:
    """What Ray must set aside for one run: a GPU where one is wanted and there, else one core per thread."""
    if device == "cuda" or (device == "auto" and resources.get("GPU", 0) >= 1):
        return {"num_gpus": 1, "num_cpus": 1}
    return {"num_cpus": threads}


def slots(wanted: Mapping[str, float], resources: Mapping[str, float]) -> int:
    """How often the cluster's resources hold what one run needs; at least once, since nodes may still be joining."""
    there = {"num_cpus": resources.get("CPU", 0), "num_gpus": resources.get("GPU", 0)}
    return max(1, min(math.floor(there[name] / amount) for name, amount in wanted.items()))
