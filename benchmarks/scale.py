"""A sweep in the queue and on Ray with two workers: runs per minute, and what a run costs beside its training.

Each run is logistic regression on 6,000 digits, 150 steps. `*_run_seconds` is what one run takes from its first step to
its last checkpoint, tests included; `*_overhead_seconds` is what the sweep adds to it: saving, handing over, waiting.
The cluster is two raylets with a core each on this machine; a run has one thread in both engines. The first run in
each, which imports torch, does not count.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.execution.ray_runner import RayRunner
from dpviz.runs.execution.runner import Runner
from dpviz.runs.settings import DEFAULT, change
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps.driver import SweepDriver
from dpviz.runs.sweeps.spec import Sweep

MEMBERS = (4, 8, 16)
WORKERS = 2
STORE_BYTES = 150_000_000


def rows() -> list[dict[str, Any]]:
    """One row per number of members: seconds per member stay the same if cost grows linearly."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.closing(QueueRunner(Store(f"{folder}/queue"), threads=1)) as queue:
            in_queue = _all_timed(queue, 1)
        with cluster() as address, contextlib.closing(RayRunner(Store(f"{folder}/ray"), address)) as ray:
            on_ray = _all_timed(ray, WORKERS)
    return [
        {"members": members}
        | {f"queue_{name}": value for name, value in in_queue[members].items()}
        | {f"ray_{name}": value for name, value in on_ray[members].items()}
        for members in MEMBERS
    ]


@contextlib.contextmanager
def cluster(nodes: int = WORKERS) -> Iterator[str]:
    """The address of a real Ray cluster of so many raylets on this machine, a core each."""
    with raylets(nodes) as made:
        yield made.address


@contextlib.contextmanager
def raylets(nodes: int = WORKERS) -> Iterator[Any]:
    """The cluster itself, whose nodes can be taken away."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
    made = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    try:
        for _ in range(nodes - 1):
            made.add_node(**size)
        yield made
    finally:
        made.shutdown()


def _all_timed(runner: Runner, workers: int) -> dict[int, dict[str, float]]:
    _drive(runner, range(workers))
    return {members: _timed(runner, workers, members) for members in MEMBERS}


def _timed(runner: Runner, workers: int, members: int) -> dict[str, float]:
    first = 1000 * members  # seeds of its own: a run that is there already would not be made again
    began = time.perf_counter()
    minutes = _drive(runner, range(first, first + members))
    seconds = time.perf_counter() - began
    each = 60 * statistics.fmean(minutes)
    return {
        "members_per_minute": 60 * members / seconds,
        "seconds_per_member": seconds / members,
        "run_seconds": each,
        "overhead_seconds": workers * seconds / members - each,
    }


def _drive(runner: Runner, seeds: range) -> list[float]:
    """Make a run for each seed; the minutes that each of them took."""
    start = change(DEFAULT, {"model": "logistic", "subset": 6000, "batch_size": 200, "epochs": 5})
    minutes: list[float] = []
    sweep = Sweep(start, tuple(seeds), ((("learning_rate", (0.5,)),),))
    driver = SweepDriver(sweep, runner.store, runner, on_end=lambda _, run: minutes.append(run.provenance.minutes))
    driver.run()
    if driver.problem or len(minutes) != len(seeds):
        raise RuntimeError(f"the sweep did not finish: {driver.problem}")
    return minutes
