"""Sweeps on a real Ray cluster: two raylets on this machine, workers that are killed, runs that are stopped."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import expect

from benchmarks.scale import STORE_BYTES
from dpviz.privacy import InputError
from dpviz.runs import QueueRunner, Store
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.ray_runner import connect, needs, refuse_unless_answering, slots
from dpviz.runs.execution.runners import ray_address
from dpviz.runs.sweeps.driver import SweepDriver
from dpviz.runs.sweeps.folder import sweep_ids
from dpviz.runs.sweeps.result import result
from dpviz.runs.sweeps.spec import Sweep
from dpviz.training.checkpoint import from_bytes
from tests.runs.conftest import ROOT, small_spec
from tests.ui.train.test_sweep_panel import type_values, vary
from tests.ui.train.test_train_page import WAIT, fill_in_quick_logistic

# Ray leaves sockets to its processes, and speaks of what its next versions will do.
RAY_WARNINGS = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]
pytestmark = RAY_WARNINGS


@pytest.fixture
def store(ray_runner):
    return ray_runner.store


def until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def curves(store: Store) -> dict:
    """Everything that was recorded but the clock's part of it, by settings."""
    runs = [store.get(run.id) for run in store.list().runs]
    return {run.spec.key: [dataclasses.replace(epoch, seconds=0.0) for epoch in run.epochs] for run in runs}


def below(process: int, ancestor: int) -> bool:
    """Whether the process was started by this one, or by one that was."""
    while process not in (0, ancestor):
        process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    return process == ancestor


def workers() -> list[int]:
    """Processes of this test's cluster that train a member right now."""
    return processes(b"ray::train_member")


def processes(*titles: bytes) -> list[int]:
    """Processes of this test's cluster by their title, into which Ray writes the task."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and (process / "cmdline").read_bytes().startswith(titles):
                found += [int(process.name)] if below(int(process.name), os.getpid()) else []
        except OSError:
            continue
    return found


@pytest.mark.faults
def test_twelve_members_finish_with_one_worker_killed_and_their_curves_equal_those_of_the_queue(
    store, ray_runner, tmp_path, caplog
):
    grid = (("schedule", ("constant", "linear")), ("learning_rate", (0.5, 1.0)))
    sweep = Sweep(small_spec(epochs=2), (0, 1, 2), (grid,))
    killed: list[int] = []

    def kill_one(candidate, run) -> None:
        if not killed and (there := workers()):
            killed.append(there[0])
            os.kill(there[0], signal.SIGKILL)

    with caplog.at_level(logging.WARNING, "dpviz.runs"):
        SweepDriver(sweep, store, ray_runner, on_end=kill_one).run()
    found = result(store, sweep.id)
    assert (found.done, found.failed) == (12, 0)
    runs = [store.get(run.id) for row in found.rows for run in row.runs]
    assert not any(run.spent.redone or run.spent.at_most for run in runs)  # the same noise again costs nothing more
    assert all(run.provenance.threads == 1 and store.read_checkpoint(run.id) for run in runs)
    assert (ray_runner.slots(), len(ray_runner._data)) == (2, 1)  # both nodes; data put into the object store once
    assert len(killed) == 1
    assert "died (1 of 3)" in caplog.text

    other = Store(tmp_path / "queue")
    queue = QueueRunner(other, threads=1)
    SweepDriver(sweep, other, queue).run()
    queue.close()
    on_ray, in_queue = curves(store), curves(other)
    assert len(in_queue) == 12
    assert {key: on_ray[key] for key in in_queue} == in_queue


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_two_workers_of_two_nodes_share_a_run_and_one_that_is_killed_changes_nothing(
    store, ray_runner, tmp_path, caplog
):
    """Through Ray Train: the curve of one worker within rounding, epsilon the same, and no trace of the death."""
    spec = small_spec(epochs=3, seed=5, batch_size=5, learning_rate=0.1)  # 400 steps per epoch: time enough to kill
    two = RunOptions("cpu", workers=2)
    killed: list[int] = []

    def kill_one(run_id, record) -> None:
        if not killed and (there := processes(b"ray::RayTrainWorker")):
            killed.append(there[-1])
            os.kill(there[-1], signal.SIGKILL)

    ray_runner._on_epoch = kill_one
    try:
        with caplog.at_level(logging.WARNING, "dpviz.runs"):
            run_id = ray_runner.start(spec, options=two)
            assert ray_runner.wait(run_id, 400)
    finally:
        ray_runner._on_epoch = lambda run_id, record: None
    run = store.get(run_id)
    assert (run.status, run.error, run.provenance.workers) == ("done", "", 2)
    assert len(killed) == 1
    assert "died (1 of 3)" in caplog.text

    queue = QueueRunner(Store(tmp_path / "queue"), threads=1)
    alone = queue.start(spec, options=RunOptions("cpu"))
    queue.wait(alone)
    one = queue.store.get(alone)
    queue.close()
    for mine, theirs in zip(run.epochs, one.epochs, strict=True):
        assert mine.epsilon_sound == theirs.epsilon_sound
        assert (mine.train_loss, mine.test_loss) == pytest.approx((theirs.train_loss, theirs.test_loss), rel=1e-4)
    with pytest.raises(InputError, match="room for 2 workers at a time, not for 3"):
        ray_runner.start(spec, options=RunOptions("cpu", workers=3))


@pytest.mark.faults
def test_what_a_killed_worker_may_have_spent_is_charged_and_a_secure_run_pays_for_it_again(store, ray_runner):
    run_id = ray_runner.start(small_spec(epochs=60, learning_rate=0.8, secure=True))
    deadline = time.monotonic() + 60
    while not (store.get(run_id).epochs and workers()) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(workers()[0], signal.SIGKILL)
    assert ray_runner.wait(run_id, 120)
    run = store.get(run_id)
    assert run.status == "done"
    assert (len(run.spent.redone), run.spent.at_most) == (1, True)
    assert run.spent.epsilon_sound > run.epochs[-1].epsilon_sound


def test_a_head_without_a_gpu_sends_a_run_to_the_node_that_has_one_and_only_that_node_may_refuse(raylets, ray_runner):
    """The node only says that it has a GPU, so its worker finds none."""
    import ray
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(InputError, match="no node of the cluster has a CUDA device"):
        ray_runner.start(small_spec(), options=RunOptions(device="cuda"))
    node = raylets.add_node(num_cpus=1, num_gpus=1, object_store_memory=STORE_BYTES)
    try:
        until(lambda: ray.cluster_resources().get("GPU", 0) == 1)
        assert ray_runner.slots("cuda") == 1
        run_id = ray_runner.start(small_spec(), options=RunOptions(device="cuda"))
        assert ray_runner.wait(run_id, 90)
    finally:
        raylets.remove_node(node)
        until(lambda: "GPU" not in ray.cluster_resources())
    run = ray_runner.store.get(run_id)
    assert (run.status, run.error) == ("failed", "this machine has no cuda device; choose auto or cpu")


ENDING = """
import sys, time
from conftest import small_spec
from dpviz.runs import Store, server_runner

store = Store(sys.argv[1])
run_id = server_runner(store, sys.argv[2]).start(small_spec(epochs=5000))
while not store.get(run_id).epochs:
    time.sleep(0.05)
print(run_id)
"""


@pytest.mark.parametrize("where", ["queue", pytest.param("ray", marks=pytest.mark.faults)])
def test_the_runner_of_a_server_that_ends_is_closed_and_leaves_no_step_unrecorded(where, request, tmp_path, python):
    store = Store(tmp_path / "runs")
    process = python(ENDING, store.folder, request.getfixturevalue("address") if where == "ray" else "")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    run = store.get(out.split()[-1])
    steps = sum(phase[2] for phase in from_bytes(store.read_checkpoint(run.id))["trainer"]["spent"])
    assert (run.status, run.spent.steps, run.spent.at_most) == ("interrupted", steps, False)


def test_a_run_under_a_filter_is_refused_since_its_file_of_changes_is_elsewhere(ray_runner, spec):
    before = ray_runner.store.list()
    with pytest.raises(InputError, match="without a cluster"):
        ray_runner.start(spec(filter_epsilon=20.0))
    assert ray_runner.store.list() == before


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


# --- the command line and the page ------------------------------------------------------------------------------------

TEXT = """
seeds = [0]
[settings]
model = "logistic"
subset = 2000
batch_size = 200
epochs = 20
[[grid]]
learning_rate = [0.5, 2.0]
"""


def sweep_command(file: Path, folder: Path, *flags: str) -> subprocess.Popen[bytes]:
    """The real command in a process of its own, with a store of its own and one thread a run."""
    environment = os.environ | {"DPVIZ_RUNS": str(folder), "OMP_NUM_THREADS": "1", "DPVIZ_RAY": ""}
    command = [sys.executable, "-m", "dpviz", "sweep", str(file), "--json", *flags]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe)


@pytest.mark.faults
def test_the_command_line_gives_a_sweep_to_the_cluster_and_its_curves_are_those_of_the_queue(address, tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(TEXT)
    told, seen = {}, {}
    for name, flags in {"ray": ("--ray", address), "queue": ()}.items():
        process = sweep_command(file, tmp_path / name, *flags)
        while process.poll() is None:
            seen[name] = seen.get(name) or workers()
            time.sleep(0.05)
        out, err = process.communicate()
        assert process.returncode == 0, err
        told[name] = json.loads(out)
    assert seen["ray"]
    assert not seen["queue"]
    assert (told["ray"]["runs"], told["ray"]["done"], told["ray"]["failed"]) == (2, 2, 0)
    assert len(curves(Store(tmp_path / "ray"))) == 2
    assert curves(Store(tmp_path / "ray")) == curves(Store(tmp_path / "queue"))
    assert told["ray"]["winner"] == told["queue"]["winner"]
    assert told["ray"]["selection"] == told["queue"]["selection"]


@pytest.mark.parametrize("address", ["127.0.0.1:1", "127.0.0.1:none", "127.0.0.1:99999999", "[::1]:1"])
def test_an_address_where_nobody_answers_is_refused_at_once_in_a_sentence(address):
    with pytest.raises(InputError, match="no Ray cluster could be joined"):
        refuse_unless_answering(address)


def test_the_command_line_says_in_one_line_that_there_is_no_cluster(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(TEXT)
    process = sweep_command(file, tmp_path / "runs", "--ray", "127.0.0.1:1")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, b"")
    assert b"no Ray cluster could be joined at '127.0.0.1:1'" in err
    assert err.count(b"\n") == 1


@pytest.mark.faults
def test_a_server_joins_the_cluster_and_shows_its_sweep_in_a_browser(address, serve, new_page, tmp_path):
    runs = tmp_path / "runs"
    url = serve(ROOT / "app.py", {"DPVIZ_RUNS": str(runs), "OMP_NUM_THREADS": "1", "DPVIZ_RAY": address})
    page = new_page(f"{url}/train", viewport={"width": 1500, "height": 1400})
    fill_in_quick_logistic(page)
    page.get_by_text("Sweep: many runs at once").click()
    vary(page, "Learning rate")
    type_values(page, "Learning rate", "0.5, 2")
    expect(page.get_by_text("2 candidates, 2 runs.")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Launch sweep").click()
    deadline = time.monotonic() + 60
    while not workers() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers()
    expect(page.get_by_text("2 of 2 runs done").first).to_be_visible(timeout=WAIT)
    store, other = Store(runs), Store(tmp_path / "queue")
    sweep = result(store, sweep_ids(store)[0]).sweep
    queue = QueueRunner(other, threads=1)
    SweepDriver(sweep, other, queue).run()
    queue.close()
    assert len(curves(other)) == sweep.runs
    assert curves(store) == curves(other)
