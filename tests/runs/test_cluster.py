"""Sweeps on a real Ray cluster: two raylets on this machine, workers that are killed, runs that are stopped."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import time
from pathlib import Path

import pytest

from dpviz.privacy import InputError
from dpviz.runs import BackgroundRunner, Store
from dpviz.runs.cluster import ClusterRunner, connect, needs, ray_address, slots
from dpviz.runs.drive import Drive
from dpviz.runs.fold import result
from dpviz.runs.sweep import Sweep
from tests.runs.conftest import small_spec

# Ray leaves sockets to its processes, and speaks of what its next versions will do.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]


@pytest.fixture(scope="module")
def address():
    from benchmarks.scale import cluster

    with cluster(2) as address:
        yield address


@pytest.fixture(scope="module")
def crew(address, tmp_path_factory):
    """One runner for all tests, with a store of its own: workers that have imported torch are used again."""
    crew = ClusterRunner(Store(tmp_path_factory.mktemp("cluster") / "runs"), address)
    yield crew
    crew.close()


@pytest.fixture
def store(crew):
    return crew.store


def curves(store: Store) -> dict:
    """Everything that was recorded but the clock's part of it, by settings."""
    runs = [store.get(run.id) for run in store.list().runs]
    return {run.spec.key: [dataclasses.replace(epoch, seconds=0.0) for epoch in run.epochs] for run in runs}


def workers() -> list[int]:
    """Processes that train a member right now; Ray writes the task into a process's title."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "cmdline").read_bytes().startswith(b"ray::train_member"):
                found.append(int(process.name))
        except OSError:
            continue
    return found


def test_twelve_members_finish_with_one_worker_killed_and_their_curves_equal_those_of_the_queue(
    store, crew, tmp_path, caplog
):
    grid = (("schedule", ("constant", "linear")), ("learning_rate", (0.5, 1.0)))
    sweep = Sweep(small_spec(epochs=2), (0, 1, 2), (grid,))
    killed: list[int] = []

    def kill_one(candidate, run) -> None:
        if not killed and (there := workers()):
            killed.append(there[0])
            os.kill(there[0], signal.SIGKILL)

    with caplog.at_level(logging.WARNING, "dpviz.runs"):
        Drive(sweep, store, crew, width=crew.width, on_end=kill_one).run()
    found = result(store, sweep.id)
    assert (found.done, found.failed) == (12, 0)
    assert len(killed) == 1
    assert "died (1 of 3)" in caplog.text

    other = Store(tmp_path / "queue")
    queue = BackgroundRunner(other, threads=1)
    Drive(sweep, other, queue).run()
    queue.close()
    on_ray, in_queue = curves(store), curves(other)
    assert len(in_queue) == 12
    assert {key: on_ray[key] for key in in_queue} == in_queue


def test_both_nodes_work_and_provenance_is_kept(store, crew):
    assert crew.slots == 2
    sweep = Sweep(small_spec(epochs=1), (0, 1, 2, 3), ((("learning_rate", (0.7,)),),))
    Drive(sweep, store, crew, width=crew.width).run()
    runs = [store.get(run.id) for row in result(store, sweep.id).rows for run in row.runs]
    assert [run.status for run in runs] == ["done"] * 4
    assert all(run.provenance.source == "dpviz" and run.provenance.threads == 1 for run in runs)
    assert all(store.read_checkpoint(run.id) for run in runs)
    assert len(crew._data) == 1  # read and put into the object store once


def test_a_run_is_stopped_within_a_moment_and_resumed_from_where_it_was(store, crew, tmp_path):
    spec = small_spec(epochs=40, learning_rate=0.9)
    run_id = crew.start(spec)
    deadline = time.monotonic() + 60
    while not store.get(run_id).epochs and time.monotonic() < deadline:
        time.sleep(0.05)
    crew.stop(run_id)
    assert crew.wait(run_id, 30)
    stopped = store.get(run_id)
    assert stopped.status == "stopped"
    assert 1 <= len(stopped.epochs) < 40
    crew.resume(run_id)
    assert crew.wait(run_id, 120)
    run = store.get(run_id)
    assert run.status == "done"
    assert run.epochs[: len(stopped.epochs)] == stopped.epochs

    other = Store(tmp_path / "queue")
    queue = BackgroundRunner(other, threads=1)
    queue.wait(queue.start(spec))
    queue.close()
    assert curves(store)[spec.key] == curves(other)[spec.key]


def test_a_run_that_waits_is_stopped_at_once(store, crew):
    first = [crew.start(small_spec(epochs=200, seed=seed)) for seed in range(2)]
    deadline = time.monotonic() + 60
    while not all(store.get(run_id).status == "running" for run_id in first) and time.monotonic() < deadline:
        time.sleep(0.05)
    waiting = crew.start(small_spec(seed=9))
    time.sleep(0.5)
    assert store.get(waiting).status == "queued"
    crew.stop(waiting)
    assert crew.wait(waiting, 10)
    assert store.get(waiting).status == "stopped"
    for run_id in first:
        crew.stop(run_id)
    assert all(crew.wait(run_id, 30) for run_id in first)


def test_a_run_whose_settings_fail_on_the_worker_fails_with_its_sentence(store, crew):
    to_nothing = {"clip_norm_schedule": "linear", "knobs": (("clip_norm_schedule.final", 0.0),)}
    run_id = crew.start(small_spec(**to_nothing))
    assert crew.wait(run_id, 60)
    run = store.get(run_id)
    assert run.status == "failed"
    assert run.error.startswith("clip_norm must stay above 0")


def test_a_cluster_that_is_not_there_or_not_meant_is_refused_in_a_sentence():
    with pytest.raises(InputError, match="rather than ray://"):
        connect("ray://127.0.0.1:10001")


def test_a_run_needs_a_gpu_where_there_is_one_and_else_its_threads():
    assert needs("auto", 2, {"CPU": 8.0}) == {"num_cpus": 2}
    assert needs("auto", 2, {"CPU": 8.0, "GPU": 4.0}) == {"num_gpus": 1, "num_cpus": 1}
    assert needs("cpu", 2, {"CPU": 8.0, "GPU": 4.0}) == {"num_cpus": 2}
    assert slots({"num_cpus": 2}, {"CPU": 9.0}) == 4
    assert slots({"num_gpus": 1, "num_cpus": 1}, {"CPU": 64.0, "GPU": 8.0}) == 8
    assert slots({"num_cpus": 2}, {}) == 1


def test_the_cluster_is_the_one_asked_for_before_that_of_the_environment(monkeypatch):
    monkeypatch.setenv("DPVIZ_RAY", "10.0.0.1:6379")
    assert ray_address() == "10.0.0.1:6379"
    assert ray_address("auto") == "auto"
    assert ray_address("") == ""
