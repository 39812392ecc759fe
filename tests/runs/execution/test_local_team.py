"""One run over two processes of this machine: the same curve, also where a worker is killed or the run is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dpviz.privacy.registry import InputError
from dpviz.runs.execution import local_team
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.store.store import Store
from tests.runs.conftest import ROOT, small_spec

TWO = RunOptions("cpu", workers=2)
SPEC = small_spec(epochs=3)


@pytest.fixture
def runner(store):
    made = QueueRunner(store, threads=2)
    yield made
    made.close()


def trained(runner: QueueRunner, spec, options: RunOptions = TWO):
    run_id = runner.start(spec, options=options)
    assert runner.wait(run_id, 120)
    return runner.store.get(run_id)


def numbers(run) -> list[tuple[float, ...]]:
    return [(e.train_loss, e.train_accuracy, e.test_loss, e.test_accuracy) for e in run.epochs]


def workers_of_this_test() -> list[int]:
    found = []
    for process in Path("/proc").iterdir():
        try:
            mine = process.name.isdigit() and f"PPid:\t{os.getpid()}\n" in (process / "status").read_text()
            if mine and b"local_worker" in (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return sorted(found)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A run of two workers that nobody disturbed."""
    runner = QueueRunner(Store(tmp_path_factory.mktemp("two")), threads=2)
    yield trained(runner, SPEC)
    runner.close()


def test_two_workers_give_the_curve_of_one_and_the_run_says_so(runner, two):
    one = trained(runner, SPEC, RunOptions("cpu"))
    assert (one.status, two.status) == ("done", "done")
    for mine, theirs in zip(numbers(two), numbers(one), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)
    assert [e.epsilon_sound for e in two.epochs] == [e.epsilon_sound for e in one.epochs]
    assert (one.provenance.workers, two.provenance.workers, two.provenance.threads) == (1, 2, 1)
    assert "workers" not in one.provenance.to_json()
    assert two.audit.step.lower == pytest.approx(one.audit.step.lower, rel=0.01)


@pytest.mark.parametrize("victim", [0, 1])
def test_a_run_whose_worker_is_killed_goes_on_from_its_last_epoch_and_ends_with_the_same_curve(store, two, victim):
    killed: list[int] = []

    def kill_one(run_id, record) -> None:
        if not killed:
            killed.append(workers_of_this_test()[victim])
            os.kill(killed[0], signal.SIGKILL)

    runner = QueueRunner(store, threads=2, on_epoch=kill_one)
    run = trained(runner, SPEC)
    runner.close()
    assert len(killed) == 1
    assert (run.status, run.error) == ("done", "")
    assert numbers(run) == numbers(two)
    assert workers_of_this_test() == []


def test_a_stop_ends_all_workers_and_a_resumed_run_has_as_many_again(store):
    spec = small_spec(epochs=20)
    begun = threading.Event()
    runner = QueueRunner(store, threads=2, on_epoch=lambda run_id, record: begun.set())
    run_id = runner.start(spec, options=TWO)
    assert begun.wait(60)
    runner.stop(run_id)
    assert runner.wait(run_id, 60)
    stopped = store.get(run_id)
    assert stopped.status == "stopped"
    assert 0 < len(stopped.epochs) < 20
    deadline = time.monotonic() + 20
    while workers_of_this_test() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert workers_of_this_test() == []
    runner.resume(run_id, options=RunOptions("cpu"))
    assert runner.wait(run_id, 120)
    run = store.get(run_id)
    runner.close()
    assert (run.status, len(run.epochs), run.provenance.workers) == ("done", 20, 2)


def test_what_two_workers_may_have_spent_is_on_record_where_whoever_watches_fails(store):
    def fail(run_id, record) -> None:
        raise KeyError("a bug of whoever watches")

    runner = QueueRunner(store, threads=2, on_epoch=fail)
    run = trained(runner, SPEC)
    runner.close()
    assert (run.status, len(run.epochs)) == ("failed", 1)
    assert run.written.at_most
    assert run.written.epsilon_sound > run.epochs[-1].epsilon_sound


def test_workers_import_nothing_from_the_folder_that_they_start_in(runner, monkeypatch, tmp_path, two):
    (tmp_path / "tempfile.py").write_text("raise SystemExit('this is not the library')")
    monkeypatch.chdir(tmp_path)
    assert numbers(trained(runner, SPEC)) == numbers(two)


def test_a_run_that_diverges_fails_in_words_and_is_not_begun_again(runner, caplog):
    run = trained(runner, small_spec(method="sgd", sigma=0.0, learning_rate=1000.0, model="cnn-mnist", loss="sse"))
    assert run.status == "failed"
    assert "most likely too high" in run.error
    assert "died" not in caplog.text


SECOND_FAILS = """
import sys
from multiprocessing.connection import Connection
from dpviz.runs.execution.local_worker import main
from dpviz.training.engine import Trainer

take_step = Trainer._take_step

def fail_in_the_second_epoch(trainer):
    if (trainer.team.rank, trainer.epoch) == (1, 1):
        raise OSError(5, "Input/output error")
    take_step(trainer)

Trainer._take_step = fail_in_the_second_epoch
sys.exit(main(Connection(int(sys.argv[1]))))
"""


def test_a_worker_other_than_the_first_that_fails_ends_the_run_with_its_reason(runner, monkeypatch, caplog):
    monkeypatch.setattr(local_team, "START", SECOND_FAILS)
    run = trained(runner, SPEC)
    assert (run.status, len(run.epochs), run.written.steps) == ("failed", 1, 10)
    assert "input/output error" in run.error
    assert "died" not in caplog.text


def test_a_run_that_cannot_be_saved_is_charged_for_the_epoch_at_which_its_workers_were(runner, store, monkeypatch):
    def full(run_id, record) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "append", full)
    run = trained(runner, SPEC)
    assert run.status == "failed"
    assert "free some space and resume it" in run.error
    assert (run.written.steps, run.written.at_most) == (10, True)
    assert workers_of_this_test() == []


def test_what_cannot_be_shared_is_refused_before_anything_is_written(runner, store):
    with pytest.raises(InputError, match="workers must be a whole number from 1 to 256, got 0"):
        RunOptions(workers=0)
    with pytest.raises(InputError, match="start it with one worker"):
        runner.start(small_spec(filter_epsilon=20.0), options=TWO)
    assert not store.list().runs


def test_the_command_line_shares_a_run_too(tmp_path):
    settings = ["--set", "subset=2000", "--set", "batch_size=200", "--set", "model=logistic", "--epochs", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "dpviz", "train", *settings, "--device", "cpu", "--workers", "2", "--json"],
        env=os.environ | {"DPVIZ_RUNS": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    (run,) = json.loads(done.stdout)["runs"]
    assert Store(tmp_path).get(run["run_id"]).provenance.workers == 2
    assert done.returncode == 0
