from __future__ import annotations

import dataclasses
import re
import threading
import time

import pytest

from dpviz.privacy import InputError
from dpviz.runs.execution import pace as timing
from dpviz.runs.execution.pace import Pace, StepTimings, likeness, pace_from, pace_of, step_timings, try_steps
from dpviz.runs.store.records import Provenance, Run
from dpviz.training.data.catalog import DATASETS


def made(spec, record, *, count=3, minutes=0.0, **changes) -> Run:
    provenance = Provenance("measured", "dpviz", minutes=minutes)
    epochs = tuple(record(epoch, seconds=2.0) for epoch in range(1, count + 1))
    return Run("a", spec(**changes), "done", epochs, "", provenance)


def wait_for(trial: StepTimings, spec) -> None:
    deadline = time.monotonic() + 120
    while trial.pending(spec) and time.monotonic() < deadline:
        time.sleep(0.05)


def test_a_pace_is_seconds_a_step_and_what_an_epoch_takes_on_top(spec, record):
    # 3 epochs of 10 steps and 2 s each, 12 s in all: 2 s an epoch went into testing and saving.
    assert pace_of(made(spec, record, minutes=0.2)) == Pace(pytest.approx(0.2), pytest.approx(2.0))
    assert pace_of(made(spec, record, count=0)) is None


def test_the_expected_time_grows_with_epochs_and_examples(spec):
    pace = Pace(0.1, 1.0)
    assert pace.seconds(spec(epochs=3)) == pytest.approx(3 * (10 * 0.1 + 1.0))
    assert pace.seconds(spec(epochs=3, subset=4000)) == pytest.approx(3 * (20 * 0.1 + 1.0))


def test_only_runs_alike_tell_the_pace_and_the_last_of_them_counts(spec, record):
    runs = [made(spec, record, minutes=0.2), made(spec, record, minutes=0.3), made(spec, record, batch_size=100)]
    assert pace_from(runs, spec(seed=7, epochs=50)) == pace_of(runs[1])
    assert pace_from(runs, spec(model="cnn-mnist")) is None
    assert pace_from([], spec()) is None


def test_noise_and_seed_do_not_change_the_pace_but_diagnostics_do(spec):
    assert likeness(spec(seed=3, sigma=5.0)) == likeness(spec())
    assert likeness(spec(diagnostics=True)) != likeness(spec())


def test_a_trial_times_real_steps_without_making_anyone_wait(spec, monkeypatch):
    gate = threading.Event()

    def gated_steps(settings):
        assert gate.wait(120)
        return try_steps(settings)

    monkeypatch.setattr(timing, "try_steps", gated_steps)
    trial, settings = StepTimings(), spec()
    assert not trial.pending(settings)
    trial.start(settings)
    assert trial.pending(settings)
    gate.set()
    wait_for(trial, settings)
    pace = trial.pace(dataclasses.replace(settings, seed=9))
    assert 0 < pace.step < 5
    assert 0 < pace.epoch < 60
    assert trial.problem(settings) == ""


def trial_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dpviz-trial"]


def test_one_trial_runs_at_a_time_however_many_are_asked_for(spec, monkeypatch):
    gate = threading.Event()
    tried = []

    def gated_steps(settings):
        tried.append(settings.batch_size)
        assert gate.wait(120)
        return Pace(0.1, 1.0)

    monkeypatch.setattr(timing, "try_steps", gated_steps)
    trial, first = StepTimings(), spec(batch_size=200)
    trial.start(first)
    trial.start(first)  # the one that runs
    for batch_size in range(201, 221):
        with pytest.raises(InputError, match="only one trial runs at a time"):
            trial.start(spec(batch_size=batch_size))
    assert len(trial_threads()) == 1
    assert not trial.pending(spec(batch_size=201))
    gate.set()
    wait_for(trial, first)
    trial.start(spec(batch_size=201))
    wait_for(trial, spec(batch_size=201))
    assert trial.pace(spec(batch_size=201)) == Pace(0.1, 1.0)
    assert tried == [200, 201]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_trial_that_breaks_in_a_way_nobody_foresaw_does_not_stop_the_next(spec, monkeypatch):
    def breaks(settings):
        raise MemoryError

    monkeypatch.setattr(timing, "try_steps", breaks)
    trial = StepTimings()
    trial.start(spec())
    wait_for(trial, spec())
    assert trial.problem(spec()) == "the steps could not be timed: see the server's log"
    trial.start(spec(batch_size=100))
    for thread in trial_threads():
        thread.join(30)


def test_a_trial_that_fails_says_why(spec, tmp_path, monkeypatch):
    source = DATASETS["fashion-mnist"]
    (tmp_path / source.folder).mkdir(parents=True)
    for file in source.files:
        (tmp_path / source.folder / file).write_bytes(b"damaged")
    monkeypatch.setenv("DPVIZ_DATA", str(tmp_path))
    trial, settings = StepTimings(), spec(dataset="fashion-mnist")
    trial.start(settings)
    wait_for(trial, settings)
    assert trial.pace(settings) is None
    assert re.match("the steps could not be timed: .* is damaged", trial.problem(settings))


def test_the_server_has_one_set_of_trials():
    assert step_timings() is step_timings()
