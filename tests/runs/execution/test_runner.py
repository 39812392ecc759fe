"""Runners with the real trainer: what starts ends somewhere sane, and what stops goes on as if it never had."""

from __future__ import annotations

import dataclasses
import importlib
import os
import signal
import sys
import threading
import time

import pytest
import torch

from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.execution.runner import with_seeds
from dpviz.runs.execution.runners import server_runner
from dpviz.runs.execution.work import work
from dpviz.runs.store.store import Store
from tests.runs.conftest import Foreground


def numbers(run) -> list:
    """The run's curve without its clock."""
    return [dataclasses.replace(record, seconds=0.0) for record in run.epochs]


def weights(store, run_id) -> dict:
    from dpviz.training import checkpoint

    return checkpoint.from_bytes(store.read_checkpoint(run_id))["trainer"]["weights"]


def same_weights(store, one, other) -> bool:
    return all(bool((a == b).all()) for a, b in zip(weights(store, one), weights(store, other), strict=True))


@pytest.fixture
def whole(store, spec):
    """A run of the small spec that nothing interrupted, and its store."""
    return store.get(Foreground(store, threads=1).start(spec()))


@pytest.fixture
def runner(store):
    runner = QueueRunner(store, threads=1)
    yield runner
    runner.close()


def until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)


def test_a_run_whose_noise_is_halved_ends_as_failed_with_its_audit_and_the_likely_causes(store, spec, monkeypatch):
    from dpviz.training.random_streams import Seeded

    monkeypatch.setattr(Seeded, "normal", lambda self, count: torch.randn(count, generator=self.generator) / 2)
    run = store.get(Foreground(store, threads=1).start(spec(epochs=10)))
    assert run.status == "failed"
    assert run.audit.lower > run.audit.proven
    assert run.error.startswith("the audit failed: the step audit shows an epsilon of at least")
    assert "Likely causes: noise that is scaled by another sigma" in run.error
    assert len(run.epochs) == 10


def test_a_background_run_starts_at_once_and_ends_as_done(store, runner, spec, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr("dpviz.runs.execution.queue_runner.work", lambda *job: gate.wait(60) and work(*job))
    run_id = runner.start(spec(), title="in the back")
    assert store.get(run_id).status == "queued"
    gate.set()
    assert runner.wait(run_id, 60)
    run = store.get(run_id)
    assert (run.status, run.error, run.title) == ("done", "", "in the back")
    assert [record.epoch for record in run.epochs] == [1, 2, 3]
    assert run.epochs[-1].test_accuracy > 0.5
    provenance = run.provenance
    assert (provenance.kind, provenance.device) == ("measured", "cpu")
    assert provenance.minutes > 0
    assert provenance.versions["torch"]


def test_foreground_and_background_give_the_same_numbers(store, runner, whole, spec):
    run_id = runner.start(spec())
    runner.wait(run_id, 60)
    assert numbers(store.get(run_id)) == numbers(whole)


def test_progress_counts_every_step_and_says_how_long_it_will_take(store, spec):
    seen = []
    run_id = Foreground(store, on_progress=seen.append).start(spec())
    assert [(progress.step, progress.steps) for progress in seen] == [(step, 30) for step in range(1, 31)]
    assert {progress.run_id for progress in seen} == {run_id}
    assert seen[0].seconds_left is None
    assert all(progress.seconds_left > 0 for progress in seen[1:-1])
    assert seen[-1].seconds_left == 0


@pytest.mark.parametrize("step", [1, 10, 13, 20, 29])
def test_stop_and_resume_equals_uninterrupted_bit_for_bit(store, spec, whole, step):
    def stop_there(progress):
        if progress.step == step:
            runner.stop(progress.run_id)

    runner = Foreground(store, threads=1, on_progress=stop_there)
    run_id = runner.start(spec())
    stopped = store.get(run_id)
    assert stopped.status == "stopped"
    assert len(stopped.epochs) == step // 10
    Foreground(store, threads=2).resume(run_id)  # the run keeps the one thread that it began with
    resumed = store.get(run_id)
    assert resumed.status == "done"
    assert resumed.provenance.threads == 1
    assert numbers(resumed) == numbers(whole)
    assert same_weights(store, run_id, whole.id)


def test_a_running_run_stops_within_a_step(store, runner, spec):
    run_id = runner.start(spec(epochs=10_000))
    until(lambda: (runner.progress(run_id) or None) and runner.progress(run_id).step > 3)
    runner.stop(run_id)
    at = runner.progress(run_id).step
    assert runner.wait(run_id, 10)
    run = store.get(run_id)
    assert run.status == "stopped"
    assert run.epochs == () or run.epochs[-1].step <= at + 1
    assert store.read_checkpoint(run_id) is not None
    until(lambda: runner.progress(run_id) is None)


KILLED = """
import os, signal, sys
from conftest import Foreground, small_spec
from dpviz.runs.store.store import Store

store = Store(sys.argv[1])

def step(progress):
    print(progress.run_id, progress.step, flush=True)
    if progress.step == 25:
        os.kill(os.getpid(), signal.SIGSTOP)  # in mid-epoch; the parent does the rest

Foreground(store, threads=1, on_progress=step).start(small_spec())
"""


@pytest.mark.timeout(60)
def test_kill_9_in_mid_epoch_loses_that_epoch_only_and_resumes_to_the_same_numbers(store, spec, whole, python):
    process = python(KILLED, store.folder)
    for line in process.stdout:
        run_id, step = line.split()
        if step == "25":
            break
    assert store.get(run_id).status == "running"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    killed = store.get(run_id)
    assert killed.status == "interrupted"
    assert numbers(killed) == numbers(whole)[:2]
    Foreground(store).resume(run_id)
    assert store.get(run_id).status == "done"
    assert numbers(store.get(run_id)) == numbers(whole)
    assert same_weights(store, run_id, whole.id)


@pytest.mark.timeout(60)
def test_kill_9_between_checkpoint_and_epoch_line_loses_nothing(store, spec, whole, python):
    code = KILLED + (
        "\nstore.append = lambda run_id, record: os.kill(os.getpid(), signal.SIGKILL)"
        "\nForeground(store, threads=1).start(small_spec())"
    )
    process = python(code.replace("== 25", "== -1"), store.folder)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    killed = store.list().runs[-1]
    assert (killed.status, killed.epochs_done) == ("interrupted", 0)
    steps = []
    Foreground(store, on_progress=lambda progress: steps.append(progress.step)).resume(killed.id)
    assert steps[0] == 11  # the first epoch came out of the checkpoint
    assert numbers(store.get(killed.id)) == numbers(whole)


QUEUED = """
import sys, time
from conftest import small_spec
from dpviz.runs import QueueRunner, with_seeds
from dpviz.runs.store.store import Store

runner = QueueRunner(Store(sys.argv[1]))
assert "torch" not in sys.modules
began = time.perf_counter()
ids = runner.start_all(with_seeds(small_spec(epochs=500), (0, 1, 2)))
assert time.perf_counter() - began < 1.0
while runner.progress(ids[0]) is None or runner.progress(ids[0]).step == 0:
    time.sleep(0.01)
print(*ids, flush=True)
time.sleep(60)
"""


@pytest.mark.timeout(60)
def test_a_queue_outlives_its_process(store, runner, python):
    process = python(QUEUED, store.folder)
    ids = process.stdout.readline().split()
    assert len(ids) == 3, process.communicate()
    assert [store.get(run_id).status for run_id in ids] == ["running", "queued", "queued"]
    with pytest.raises(InputError, match="another process works on this run"):
        runner.resume(ids[1])
    process.kill()
    process.wait()
    assert [run.status for run in store.list().runs] == ["interrupted"] * 3
    runner.resume(ids[1])
    until(lambda: store.get(ids[1]).epochs)
    runner.stop(ids[1])
    assert runner.wait(ids[1], 10)


def test_a_waiting_run_stops_at_once_and_can_be_resumed(store, runner, spec):
    first, second = runner.start_all(with_seeds(spec(epochs=10_000), (0, 1)))
    until(lambda: runner.progress(first))
    runner.stop(second)
    assert store.get(second).status == "stopped"
    assert runner.live() == (first,)
    runner.resume(second)
    assert store.get(second).status == "queued"
    runner.stop(first)
    until(lambda: store.get(second).status == "running")
    runner.stop(second)
    assert runner.wait(second, 10)
    assert store.get(second).status == "stopped"


def test_a_run_that_is_resumed_the_moment_it_ends_is_still_known(store, runner, spec):
    run_id = runner.start(spec(epochs=10_000))
    for _ in range(10):
        runner.stop(run_id)
        assert runner.wait(run_id, 10)
        runner.resume(run_id)
        until(lambda: store.get(run_id).status == "running")
        assert runner.live() == (run_id,)


def test_seeds_give_one_run_each_and_different_curves(store, runner, spec):
    ids = runner.start_all(with_seeds(spec(epochs=1), (3, 4)))
    assert all(runner.wait(run_id, 60) for run_id in ids)
    one, other = (store.get(run_id) for run_id in ids)
    assert (one.spec.seed, other.spec.seed) == (3, 4)
    assert one.epochs[0].test_loss != other.epochs[0].test_loss
    with pytest.raises(InputError, match="seeds must be different"):
        with_seeds(spec(), (1, 1))


def test_a_diverging_run_fails_with_the_step_and_the_likely_cause(store, spec):
    run_id = Foreground(store).start(spec(method="sgd", sigma=0.0, loss="sse", learning_rate=1000.0, epochs=20))
    run = store.get(run_id)
    assert run.status == "failed"
    assert "step" in run.error
    assert "learning rate (1000) is most likely too high" in run.error


def test_a_method_without_a_guarantee_has_no_epsilon_anywhere(store, spec):
    run_id = Foreground(store).start(spec(method="sgd", sigma=0.0, epochs=1))
    (record,) = store.get(run_id).epochs
    assert (record.epsilon_claimed, record.epsilon_sound) == (None, None)
    assert (store.list().runs[0].epsilon_claimed, store.list().runs[0].epsilon_sound) == (None, None)
    assert store.export(run_id)["epochs"][0]["epsilon"] == {"claimed": None, "sound": None}


def test_a_disk_that_fills_up_fails_the_run_with_clear_words_and_keeps_its_epochs(small_disk, spec, store, whole):
    small = Store(small_disk / "runs")  # room for one checkpoint, not for the next one beside it
    run_id = Foreground(small, threads=1).start(spec())
    run = small.get(run_id)
    assert run.status == "failed"
    assert run.error == "the run could not be saved: the disk is full; free some space and resume it"
    assert numbers(run) == numbers(whole)[:1]
    assert not list((small.folder / run_id).glob(".tmp-*"))


def test_a_file_size_limit_fails_the_run_too(store, python):
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
    process = python(limited + KILLED.replace("== 25", "== -1"), store.folder)
    process.communicate(timeout=60)
    (run,) = store.list().runs
    assert run.status == "failed"
    assert "the file is larger than the system allows" in run.error


def test_data_that_is_damaged_fails_the_run_with_words(store, spec, tmp_path):
    raw = tmp_path / "data" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (raw / f"{name}-ubyte.gz").write_bytes(b"nonsense")
    run_id = Foreground(store).start(spec(), data_dir=tmp_path / "data")
    assert store.get(run_id).status == "failed"
    assert "is damaged" in store.get(run_id).error
    assert str(tmp_path) not in store.get(run_id).error


def test_a_run_that_is_handed_over_after_the_wish_to_stop_ends_at_once_and_can_be_resumed(store, runner, spec):
    runner.stop_all()
    run_id = runner.start(spec())
    assert runner.wait(run_id, 30)
    assert store.get(run_id).status == "stopped"
    Foreground(store).resume(run_id)
    assert store.get(run_id).status == "done"


def test_a_checkpoint_with_a_part_missing_fails_the_run_with_words(store, spec):
    from dpviz.training import checkpoint

    run_id = Foreground(store).start(spec(), until=1)
    state = checkpoint.from_bytes(store.read_checkpoint(run_id))
    del state["trainer"]["weights"]
    store.claim(run_id)
    store.set_status(run_id, "running")
    store.write_checkpoint(run_id, checkpoint.to_bytes(state))
    store.release(run_id)
    Foreground(store).resume(run_id)
    assert store.get(run_id).status == "failed"
    assert "the checkpoint cannot be used (KeyError)" in store.get(run_id).error


def test_a_checkpoint_that_is_code_is_refused(store, spec):
    from dpviz.training import checkpoint

    class Evil:
        def __reduce__(self):
            return (os.mkdir, (str(store.folder / "evil"),))

    run_id = store.create(spec())
    store.set_status(run_id, "running")
    store.write_checkpoint(run_id, checkpoint.to_bytes({"trainer": Evil()}))
    store.release(run_id)
    Foreground(store).resume(run_id)
    assert store.get(run_id).status == "failed"
    assert "the checkpoint cannot be read" in store.get(run_id).error
    assert not (store.folder / "evil").exists()


def test_what_is_refused_leaves_nothing_behind(store, runner, spec, monkeypatch):
    with pytest.raises(InputError, match="device must be one of"):
        runner.start(spec(), options=RunOptions(device="tpu"))
    with pytest.raises(InputError, match="printable"):
        runner.start(spec(), title="x" * 500)
    monkeypatch.setenv("DPVIZ_MAX_QUEUE", "2")
    with pytest.raises(InputError, match="at most 2 waiting runs are allowed here, got 3"):
        runner.start_all(with_seeds(spec(), (0, 1, 2)))
    assert not store.folder.exists()
    with pytest.raises(InputError, match="not at work here"):
        runner.stop("0-0")


def test_a_device_that_is_not_there_fails_the_run_with_words(store, runner, spec):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    run_id = runner.start(spec(), options=RunOptions(device="cuda"))
    assert runner.wait(run_id, 60)
    assert store.get(run_id).status == "failed"
    assert "no cuda device" in store.get(run_id).error


def test_a_device_that_fails_as_nobody_foresaw_fails_its_run_and_not_those_behind_it(store, runner, spec, monkeypatch):
    from dpviz.training import devices

    pick_device = devices.pick_device

    def odd(name: str) -> str:
        if name == "mps":
            raise TypeError("a driver of another age")
        return pick_device(name)

    monkeypatch.setattr(devices, "pick_device", odd)
    first = runner.start(spec(), options=RunOptions(device="mps"))
    second = runner.start(spec(epochs=1))
    assert runner.wait(first, 60)
    assert runner.wait(second, 60)
    assert (store.get(first).status, store.get(first).error) == ("failed", "a driver of another age")
    assert store.get(second).status == "done"


def test_a_server_that_shuts_down_leaves_interrupted_runs_with_a_checkpoint(store, spec):
    runner = QueueRunner(store)
    first, second = runner.start_all(with_seeds(spec(epochs=10_000), (0, 1)))
    until(lambda: (runner.progress(first) or None) and runner.progress(first).step > 2)
    runner.close()
    assert [store.get(run_id).status for run_id in (first, second)] == ["interrupted"] * 2
    assert store.read_checkpoint(first) is not None


def test_a_run_whose_folder_is_taken_away_ends_quietly_and_the_next_one_starts(store, runner, spec, caplog, tmp_path):
    gone, after = runner.start_all((spec(epochs=10_000), spec(epochs=1)))
    until(lambda: store.get(gone).epochs)
    os.rename(store.folder / gone, tmp_path / "elsewhere")
    assert runner.wait(after, 60)
    assert [(run.id, run.status) for run in store.list().runs] == [(after, "done")]
    assert f"run {gone} ended as failed, which could not be saved" in caplog.text


def test_a_hot_reload_finds_the_same_runner_with_its_run_still_going(store, spec, monkeypatch):
    before = server_runner(store)
    run_id = before.start(spec(epochs=10_000))
    for name in [name for name in sys.modules if name.startswith("dpviz.runs")]:
        monkeypatch.delitem(sys.modules, name)
    fresh = importlib.import_module("dpviz.runs.execution.runners")
    assert fresh.QueueRunner is not QueueRunner
    after = fresh.server_runner(importlib.import_module("dpviz.runs.store.store").Store(store.folder))
    assert after is before
    until(lambda: after.progress(run_id))
    step = after.progress(run_id).step
    until(lambda: after.progress(run_id).step > step)
    after.close()
    assert store.get(run_id).status == "interrupted"


def test_nothing_here_imports_torch_before_a_run_starts(python):
    code = (
        "import sys\nimport dpviz.runs.execution.runners, dpviz.runs.settings\n"
        "import dpviz.runs.store.cached, dpviz.runs.store.store\n"
        "sys.exit('torch' in sys.modules or 'streamlit' in sys.modules)"
    )
    process = python(code)
    process.communicate()
    assert process.returncode == 0
