"""Ray beyond one machine: a sweep's runs as Ray tasks. Ray is imported inside functions only: it is optional.

A task trains by the same `work` as the queue, in a store of its own on the worker's disk, and streams back its epochs.
The process that asked writes them into the store, so that nodes need not share a disk and nobody sees the difference. A
worker that dies is replaced by another, which goes on from the last epoch that arrived.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import queue
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpviz.paths import PACKAGE
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import Job, commit, finish, work
from dpviz.runs.execution.runner import check_device
from dpviz.runs.store.records import Progress, Provenance, Run
from dpviz.runs.store.run_files import reason
from dpviz.runs.store.spending import Spending, at_most, of_epoch
from dpviz.runs.store.store import Store
from dpviz.training.spec import EpochRecord, RunSpec

log = logging.getLogger("dpviz.runs")
LIVES = 3  # workers that may die under one run before it counts as failed
PULSE = 0.5  # seconds between two reports of a step, and between two looks whether to stop
AHEAD = 4  # runs that are handed to Ray beyond those that have room, so that no worker waits for the next
ANSWER = 10.0  # seconds in which a cluster must answer
MOST_DATA = 4  # datasets kept in the object store


def ray_address(asked: str | None = None) -> str:
    """The cluster to use: as asked, or DPVIZ_RAY; empty for none."""
    return (asked if asked is not None else os.environ.get("DPVIZ_RAY", "")).strip()


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


class ClusterRunner:
    """Works on runs by Ray tasks; one thread a run follows its task and writes what it reports."""

    def __init__(self, store: Store, address: str, *, threads: int = 1, device: str = "auto") -> None:
        self.store, self.threads = store, threads
        self._ray = connect(address)
        self._needs = needs(check_device(device), threads, self._ray.cluster_resources())
        self._task = self._ray.remote(
            max_retries=0, num_returns="streaming", scheduling_strategy="SPREAD", **self._needs
        )(train_member)
        self._board = self._ray.remote(num_cpus=0, scheduling_strategy=here())(Board).remote()
        self._jobs: dict[str, Job] = {}
        self._streams: dict[str, Any] = {}
        self._data: dict[tuple[str, bool, int], Any] = {}
        self._guard, self._data_guard = threading.RLock(), threading.Lock()

    @property
    def slots(self) -> int:
        """Runs for which the cluster has room at a time."""
        return slots(self._needs, self._ray.cluster_resources())

    @property
    def width(self) -> int:
        return self.slots + min(self.slots, AHEAD)

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
        """Save a new run, hand it to the cluster, and return its id at once: a new one, or the one that was given."""
        run_id = self.store.create(spec, title=title, owner=owner, run_id=run_id)
        self._begin(Job(run_id, check_device(device), data_dir, self.threads))
        return run_id

    def resume(self, run_id: str, *, device: str = "auto", data_dir: Path | None = None) -> None:
        """Hand a stopped, interrupted or failed run to the cluster again; it goes on from its last checkpoint."""
        check_device(device)
        self.store.claim(run_id)
        self._board.stopped.remote(run_id)  # takes an old wish to stop, which came too late, off the board
        self._begin(Job(run_id, device, data_dir, self.threads))

    def stop(self, run_id: str) -> None:
        """End a run: within a pulse and a step if it is running, at once if it waits."""
        with self._guard:
            job = self._jobs.get(run_id)
            if job is None:
                raise InputError(f"run {run_id!r} is not at work here")
            job.stop.set()
            self._board.stop.remote(run_id)
            if not job.begun and run_id in self._streams:
                self._ray.cancel(self._streams[run_id])

    def progress(self, run_id: str) -> Progress | None:
        job = self._jobs.get(run_id)
        return job.progress if job else None

    def live(self) -> tuple[str, ...]:
        return tuple(self._jobs)

    def wait(self, run_id: str, timeout: float | None = None) -> bool:
        """Block until a run of this runner has ended; False if it takes longer than `timeout` seconds."""
        job = self._jobs.get(run_id)
        return job is None or job.ended.wait(timeout)

    def close(self) -> None:
        """End every run as stopped and leave the cluster."""
        jobs = tuple(self._jobs.values())
        for job in jobs:
            self.stop(job.run_id)
        for job in jobs:
            job.ended.wait(60)
        self._ray.shutdown()

    def _begin(self, job: Job) -> None:
        self._jobs[job.run_id] = job
        threading.Thread(target=self._follow, args=(job,), name="dpviz-cluster", daemon=True).start()

    def _follow(self, job: Job) -> None:
        """See a run to its end, through as many workers as it takes; every way to end passes here."""
        status, error, provenance = "failed", f"{LIVES} workers died under this run", None
        try:
            for life in range(1, LIVES + 1):
                end = self._attend(job)
                if end is not None:
                    status, error = end["status"], end["error"]
                    provenance = Provenance.from_json(end["provenance"]) if end["provenance"] else None
                    job.spent = Spending.from_json(end["spent"]) if end["spent"] else None
                    break
                log.warning("the worker of run %s died (%s of %s)", job.run_id, life, LIVES)
        except InputError as failure:
            error = str(failure)
        except OSError as failure:
            error = f"the run could not be saved: {reason(failure)}; free some space and resume it"
        except Exception as failure:  # a thread's last line of defence: the run must not stay "running" for ever
            log.exception("run %s failed", job.run_id)
            error = f"{type(failure).__name__}: {failure}"
        with self._guard:
            self._streams.pop(job.run_id, None)
            finish(self.store, job, status, error, provenance)
            self._jobs.pop(job.run_id, None)

    def _attend(self, job: Job) -> dict[str, Any] | None:
        """Hand the run to a worker and write down what it reports; how it ended, or None if the worker died."""
        from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError, TaskCancelledError

        run = self.store.get(job.run_id)
        data = self._shared_data(run.spec, job.data_dir)
        with self._guard:
            if job.stop.is_set():
                return STOPPED
            stream = self._task.remote(order_of(run, self.store, job), data, self._board)
            self._streams[job.run_id], job.begun = stream, False
        told = False
        try:
            for reference in stream:
                message = self._ray.get(reference)
                self._write(job, message)
                if "status" in message:
                    told = True
                    return dict(message)
        except TaskCancelledError:
            return STOPPED
        except (RayTaskError, RuntimeEnvSetupError) as failure:
            raise InputError(f"the worker could not train: {str(failure).strip().splitlines()[-1]}") from None
        except RayError as failure:  # the worker, its node or what it had in memory is gone
            log.warning("run %s: %s", job.run_id, type(failure).__name__)
        finally:
            if job.begun and not told:
                self._charge_lost(job.run_id)
        return STOPPED if job.stop.is_set() else None

    def _charge_lost(self, run_id: str) -> None:
        """A worker is gone. What it did after the epochs that arrived was seen by nobody; one more epoch is charged."""
        run = self.store.get(run_id)
        floor = of_epoch(run.epochs[-1]) if run.epochs else None
        self.store.set_status(run_id, "running", spent=at_most(run.spec, len(run.epochs), run.written, floor))

    def _write(self, job: Job, message: Mapping[str, Any]) -> None:
        """One message into the store, in the order of `work`: the checkpoint before the epochs that it carries."""
        if not job.begun:
            job.begun = True
            self.store.set_status(job.run_id, "running")
        if message.get("provenance"):
            provenance, spent = Provenance.from_json(message["provenance"]), Spending.from_json(message["spent"])
            self.store.set_status(job.run_id, "running", provenance=provenance, spent=spent)
        if message.get("progress"):
            job.progress = Progress(job.run_id, *message["progress"])
        if message.get("checkpoint"):
            self.store.write_checkpoint(job.run_id, message["checkpoint"])
        for record in message.get("records", ()):
            self.store.append(job.run_id, EpochRecord.from_json(record))

    def _shared_data(self, spec: RunSpec, data_dir: Path | None) -> Any:
        """The run's data or features in the object store: read and put there once for all runs that use them."""
        key = (spec.dataset, spec.model.startswith("scatter-"), spec.subset)
        with self._data_guard:
            if key not in self._data:
                from dpviz.training.data.scatter_features import load_for

                self._data[key] = self._ray.put(load_for(spec, data_dir).arrays())
                while len(self._data) > MOST_DATA:
                    self._data.pop(next(iter(self._data)))
            return self._data[key]


STOPPED: dict[str, Any] = {"status": "stopped", "error": "", "provenance": None, "spent": None}


def needs(device: str, threads: int, resources: Mapping[str, float]) -> dict[str, float]:
    """What Ray must set aside for one run: a GPU where one is wanted and there, else a core a thread."""
    if device == "cuda" or (device == "auto" and resources.get("GPU", 0) >= 1):
        return {"num_gpus": 1, "num_cpus": 1}
    return {"num_cpus": threads}


def slots(wanted: Mapping[str, float], resources: Mapping[str, float]) -> int:
    """How often the cluster's resources hold what one run needs; at least once, since nodes may still be joining."""
    there = {"num_cpus": resources.get("CPU", 0), "num_gpus": resources.get("GPU", 0)}
    return max(1, min(math.floor(there[name] / amount) for name, amount in wanted.items()))


def here() -> Any:
    """The driver's own node: whatever lies there is not lost with another one."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)


def order_of(run: Run, store: Store, job: Job) -> dict[str, Any]:
    """Everything that a worker must know to go on with a run; plain values, and the checkpoint as bytes."""
    return {
        "run_id": run.id,
        "spec": run.spec.to_json(),
        "records": [record.to_json() for record in run.epochs],
        "provenance": run.provenance.to_json() if run.provenance else None,
        "spent": run.written.to_json() if run.written else None,
        "checkpoint": store.read_checkpoint(run.id),
        "device": job.device,
        "threads": job.threads,
        "commit": commit(),
    }


# --- on the worker ----------------------------------------------------------------------------------------------------


class Board:
    """An actor on which it is written which runs are to stop."""

    def __init__(self) -> None:
        self._stopped: set[str] = set()

    def stop(self, run_id: str) -> None:
        self._stopped.add(run_id)

    def stopped(self, run_id: str) -> bool:
        """Whether to stop; asked once it says so, a run that is resumed later starts clean."""
        found = run_id in self._stopped
        self._stopped.discard(run_id)
        return found


class Wish:
    """Asks the board once a pulse and reads the answer at the next: waiting for it would give the core away."""

    def __init__(self, board: Any, run_id: str) -> None:
        self._board, self._run_id = board, run_id
        self._asked, self._answer = time.monotonic(), None

    def to_stop(self) -> bool:
        import ray

        if time.monotonic() - self._asked < PULSE:
            return False
        self._asked = time.monotonic()
        if self._answer is None:
            self._answer = self._board.stopped.remote(self._run_id)
            return False
        ready, _ = ray.wait([self._answer], timeout=0)
        if not ready:
            return False
        answer, self._answer = ray.get(self._answer), None
        return bool(answer)


def train_member(order: Mapping[str, Any], arrays: Mapping[str, Any], board: Any) -> Iterator[dict[str, Any]]:
    """A Ray task: train a run to its end in a store of its own, yielding progress, epochs and at last how it ended."""
    from dpviz.training.data.readers import Data

    yield {}  # a worker is at it: the run is no longer waiting
    with tempfile.TemporaryDirectory(prefix="dpviz-") as folder:
        store = Store(folder)
        run_id = _unpack(store, order)
        events: queue.SimpleQueue[tuple[float, ...] | None] = queue.SimpleQueue()
        job = Job(run_id, order["device"], None, order["threads"], data=Data.of_arrays(arrays))
        job.on_progress = _paced(events)
        job.on_epoch = lambda run_id, record: events.put(())
        thread = threading.Thread(target=_work, args=(store, job, events), daemon=True)
        thread.start()
        sent, wish = len(order["records"]), Wish(board, order["run_id"])
        while (event := _next(events)) is not None:
            run = store.get(run_id)
            if event:
                yield {"progress": event}
            elif run.epochs[sent:]:
                yield _report(run, sent, order["commit"], store.read_checkpoint(run_id))
                sent = len(run.epochs)
            if wish.to_stop():
                job.stop.set()
        thread.join()
        run = store.get(run_id)
        report = _report(run, sent, order["commit"], store.read_checkpoint(run_id))
        yield report | {"status": run.status, "error": run.error}


def _unpack(store: Store, order: Mapping[str, Any]) -> str:
    """The run as the driver has it, in the worker's own store."""
    run_id = store.create(RunSpec.from_json(order["spec"]))
    provenance = order["provenance"] and Provenance.from_json(order["provenance"])
    spent = order["spent"] and Spending.from_json(order["spent"])
    store.set_status(run_id, "running", provenance=provenance or None, spent=spent or None)
    for record in order["records"]:
        store.append(run_id, EpochRecord.from_json(record))
    if order["checkpoint"]:
        store.write_checkpoint(run_id, order["checkpoint"])
    return run_id


def _work(store: Store, job: Job, events: queue.SimpleQueue[tuple[float, ...] | None]) -> None:
    try:
        work(store, job)
    finally:
        events.put(None)


def _paced(events: queue.SimpleQueue[tuple[float, ...] | None]) -> Any:
    """Progress a pulse at a time: a step may take a millisecond."""
    last = [0.0]

    def on_progress(progress: Progress) -> None:
        if time.monotonic() - last[0] >= PULSE:
            last[0] = time.monotonic()
            told = dataclasses.astuple(progress)
            events.put(told[1:])

    return on_progress


def _next(events: queue.SimpleQueue[tuple[float, ...] | None]) -> tuple[float, ...] | None:
    """The next event; an empty one after a quiet pulse, None at the end."""
    try:
        return events.get(timeout=PULSE)
    except queue.Empty:
        return ()


def _report(run: Run, sent: int, driver_commit: str, checkpoint: bytes | None) -> dict[str, Any]:
    """The epochs since the last report. The code that runs came from the driver, so its commit is the driver's."""
    provenance = run.provenance and dataclasses.replace(run.provenance, commit=driver_commit)
    return {
        "records": [record.to_json() for record in run.epochs[sent:]],
        "checkpoint": checkpoint,
        "provenance": provenance.to_json() if provenance else None,
        "spent": run.written.to_json() if run.written else None,
    }
