"""What every runner keeps to, the queue and a real Ray cluster alike, with the real trainer."""

from __future__ import annotations

import dataclasses
import time

import pytest

from dpviz.privacy import InputError, Ledger, Phase, epsilon
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.runner import with_seeds
from dpviz.runs.execution.runners import runner_for
from dpviz.runs.store.store import Store
from dpviz.runs.tracking.mirror import Mirror
from dpviz.training.checkpoint import from_bytes
from tests.runs.conftest import Foreground, small_spec
from tests.runs.execution.test_ray_runner import RAY_WARNINGS

pytestmark = RAY_WARNINGS


@pytest.fixture(params=["queue", "ray"])
def address_or_none(request) -> str:
    return request.getfixturevalue("address") if request.param == "ray" else ""


@pytest.fixture
def epochs() -> list:
    """What `on_epoch` was called with."""
    return []


class HeardMirror(Mirror):
    """A mirror that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list = []

    def epoch(self, run_id, record) -> None:
        self.heard.append((run_id, record.epoch))

    def end(self, run_id) -> None:
        self.heard.append((run_id, "end"))

    def close(self) -> None:
        self.heard.append("closed")


@pytest.fixture
def mirror() -> HeardMirror:
    return HeardMirror()


@pytest.fixture
def runner(store, address_or_none, epochs, mirror, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    heard = {"on_epoch": lambda run_id, record: epochs.append((run_id, record.epoch)), "mirror": mirror}
    runner = runner_for(store, address_or_none, **heard)
    yield runner
    runner.close()


def until(condition, seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def numbers(run) -> list:
    return [dataclasses.replace(record, seconds=0.0) for record in run.epochs]


def uninterrupted(folder, spec):
    store = Store(folder / "uninterrupted")
    return store.get(Foreground(store, threads=1).start(spec))


def test_a_run_starts_at_once_and_ends_with_the_numbers_of_any_other_runner(store, runner, epochs, mirror, tmp_path):
    run_id = runner.start(small_spec(), title="Anywhere", owner="ann", run_id="0-given")
    assert (run_id, runner.live()) == ("0-given", ("0-given",))
    assert runner.wait(run_id, 90)
    run = store.get(run_id)
    assert (run.status, run.error, run.title, run.owner) == ("done", "", "Anywhere", "ann")
    assert numbers(run) == numbers(uninterrupted(tmp_path, small_spec()))
    assert epochs == [(run_id, 1), (run_id, 2), (run_id, 3)]
    assert mirror.heard == [*epochs, (run_id, "end")]
    assert (run.provenance.source, run.provenance.threads) == ("dpviz", 1)
    assert run.provenance.minutes > 0
    assert store.read_checkpoint(run_id)
    until(lambda: runner.live() == ())
    assert runner.progress(run_id) is None
    runner.close()
    assert mirror.heard[-1] == "closed"


def test_what_is_stopped_has_spent_its_checkpoints_ledger_and_goes_on_bit_for_bit(store, runner, tmp_path):
    spec = small_spec(epochs=80, learning_rate=0.9)
    run_id = runner.start(spec)
    until(lambda: runner.progress(run_id) and store.get(run_id).epochs)
    assert runner.progress(run_id).steps == 800
    runner.stop(run_id)
    assert runner.wait(run_id, 30)
    stopped = store.get(run_id)
    assert stopped.status == "stopped"
    assert 1 <= len(stopped.epochs) < 80
    ledger = Ledger(Phase(*phase) for phase in from_bytes(store.read_checkpoint(run_id))["trainer"]["spent"])
    assert stopped.spent.steps == ledger.steps >= stopped.epochs[-1].step
    assert stopped.spent.epsilon_sound == pytest.approx(epsilon(ledger, spec.delta).upper, rel=5e-3)
    assert not stopped.spent.at_most
    runner.resume(run_id)
    assert runner.wait(run_id, 120)
    run = store.get(run_id)
    assert run.status == "done"
    assert run.epochs[: len(stopped.epochs)] == stopped.epochs
    assert numbers(run) == numbers(uninterrupted(tmp_path, spec))


def test_a_run_that_waits_is_stopped_at_once(store, runner):
    first = runner.start_all(with_seeds(small_spec(epochs=500), range(runner.slots())))
    until(lambda: all(store.get(run_id).status == "running" for run_id in first))
    waiting = runner.start(small_spec(seed=9))
    time.sleep(0.5)
    assert store.get(waiting).status == "queued"
    runner.stop(waiting)
    assert runner.wait(waiting, 10)
    assert store.get(waiting).status == "stopped"
    runner.stop_all()
    assert all(runner.wait(run_id, 30) for run_id in first)
    assert {store.get(run_id).status for run_id in first} == {"stopped"}


def test_a_run_ends_after_the_epoch_that_was_asked_for_and_no_step_later(store, runner):
    run_id = runner.start(small_spec(), options=RunOptions(until=2))
    assert runner.wait(run_id, 90)
    run = store.get(run_id)
    assert (run.status, len(run.epochs), run.spent.steps) == ("stopped", 2, 20)


def test_settings_that_fail_in_training_fail_with_their_sentence(store, runner):
    to_nothing = {"clip_norm_schedule": "linear", "knobs": (("clip_norm_schedule.final", 0.0),)}
    run_id = runner.start(small_spec(**to_nothing))
    assert runner.wait(run_id, 90)
    run = store.get(run_id)
    assert run.status == "failed"
    assert run.error.startswith("clip_norm must stay above 0")


def test_a_device_that_is_nowhere_is_refused_before_the_start(store, runner):
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(InputError, match=r"no cuda device|no node of the cluster has a CUDA device"):
        runner.check_device("cuda")
    assert not store.folder.exists()


def test_several_runs_are_all_started_or_none(store, runner, monkeypatch):
    monkeypatch.setenv("DPVIZ_MAX_EPOCHS", "5")
    with pytest.raises(InputError, match="at most 5 epochs"):
        runner.start_all((small_spec(), small_spec(epochs=6)))
    assert (store.list().runs, runner.live()) == ((), ())


def test_a_disk_that_is_full_fails_the_run_with_clear_words_and_keeps_its_epochs(
    small_disk, address_or_none, store, tmp_path, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    small = Store(small_disk / "runs")  # room for one checkpoint, not for the next one beside it
    runner = runner_for(small, address_or_none)
    run_id = runner.start(small_spec())
    assert runner.wait(run_id, 90)
    runner.close()
    run = small.get(run_id)
    assert run.status == "failed"
    assert run.error == "the run could not be saved: the disk is full; free some space and resume it"
    assert numbers(run) == numbers(uninterrupted(tmp_path, small_spec()))[:1]
    assert run.spent.steps >= 20  # what came after the last epoch on the disk was taken too


def test_a_runner_that_is_closed_leaves_interrupted_runs_with_a_checkpoint_and_takes_no_more(store, runner):
    run_id, waiting = runner.start_all(with_seeds(small_spec(epochs=2000), (0, 1)))
    until(lambda: store.get(run_id).epochs)
    runner.close()
    run = store.get(run_id)
    assert (run.status, store.get(waiting).status) == ("interrupted", "interrupted")
    assert run.spent.steps == sum(phase[2] for phase in from_bytes(store.read_checkpoint(run_id))["trainer"]["spent"])
    with pytest.raises(InputError, match="takes no more runs"):
        runner.resume(run_id)
    with pytest.raises(InputError, match="not at work here"):
        runner.stop(run_id)
