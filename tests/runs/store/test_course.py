"""Runs that may be changed on the way: what is redrawn reaches the loop, survives kill -9, and stays in the budget."""

from __future__ import annotations

import dataclasses
import json
import os
import signal

import pytest

from dpviz.privacy import InputError, Schedule
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.settings import change
from dpviz.runs.store.course import Course
from dpviz.runs.store.run_files import COURSE, FILES
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps.spec import Sweep
from dpviz.training.pricing import planned_guarantee, planned_risk
from dpviz.training.spec import RunSpec
from dpviz.views.comparison.experiments import group_of
from tests.runs.conftest import Foreground, small_spec

BUDGET = 8.0


def filtered(**changes) -> RunSpec:
    return small_spec(**({"sigma": 2.0, "epochs": 4, "filter_epsilon": BUDGET} | changes))


def redraw_after(store: Store, epoch: int, sigmas, *, through: Store | None = None):
    """What a runner calls after each epoch: change the noise to come once, as soon as `epoch` is on record."""

    def on_epoch(run_id, record):
        if record.epoch == epoch:
            (through or store).redraw(run_id, sigmas)

    return on_epoch


# --- settings


def test_settings_without_a_filter_are_written_as_before_and_with_one_they_come_back():
    assert not {"filter_epsilon", "filter_order"} & set(small_spec().to_json())
    spec = filtered()
    assert spec.filter_order > 1
    assert RunSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert spec.key != small_spec(sigma=2.0, epochs=4).key
    assert change(small_spec(sigma=2.0, epochs=4), {"filter_epsilon": "8"}) == spec
    other = filtered(filter_order=5.0)
    assert change(other, {}) == other
    assert change(other, {"epochs": 4}) == spec


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"filter_epsilon": float("nan")}, "filter_epsilon"),
        ({"filter_epsilon": 0.0}, "needs a budget of"),
        ({"filter_epsilon": "much"}, "filter_epsilon"),
        ({"filter_epsilon": 0.3}, r"needs a budget of 1\.\d+ at least, got 0.3"),
        ({"filter_epsilon": None, "filter_order": 4.0}, "goes with filter_epsilon"),
        ({"filter_order": 1.0}, "order must be"),
        ({"secure": True}, "secure takes steps"),
        ({"streams": 1}, "share noise"),
        ({"sigma": 0.0}, "without noise"),
        ({"method": "sgd", "sigma": 0.0}, "no guarantee"),
        ({"curriculum": "sample"}, "no guarantee"),
    ],
)
def test_what_a_filter_does_not_hold_for_is_refused(changes, words):
    with pytest.raises(InputError, match=words):
        filtered(**changes)


def test_a_plan_that_just_fits_is_taken_and_the_guarantee_is_the_budget_and_no_risk():
    with pytest.raises(InputError) as refusal:
        filtered(filter_epsilon=0.3)
    least = float(str(refusal.value).partition("budget of ")[2].split()[0])
    assert planned_guarantee(filtered(filter_epsilon=least)).sound.upper == least
    assert planned_risk(filtered()) is None
    assert planned_guarantee(small_spec(sigma=2.0, epochs=4)).sound.upper < least


def test_sweeps_refuse_filters():
    with pytest.raises(InputError, match="fixed ahead"):
        Sweep(filtered(), grids=((("batch_size", (100, 200)),),)).check()
    with pytest.raises(InputError, match="cannot be varied"):
        Sweep(small_spec(), grids=((("filter_epsilon", (1.0, 2.0)),),))


# --- the record and its file


def test_past_epochs_are_locked_and_the_last_ones_change():
    course = Course.planned(filtered()).begin(1).begin(2)
    assert course.redraw([1.8, 1.7], "").sigmas == (2.0, 2.0, 1.8, 1.7)
    assert course.redraw([1.7], "").sigmas == (2.0, 2.0, 2.0, 1.7)
    with pytest.raises(InputError, match=r"epochs 1 to 2 of 4 have begun, .* last 2 can be changed at most; got 3"):
        course.redraw([1.8, 1.8, 1.8], "")
    with pytest.raises(InputError, match="times the budget"):
        course.redraw([0.4, 0.4], "")
    changed = course.redraw([1.8, 1.7], "")
    assert "Epochs that have begun use" in changed.budget_words()
    assert changed.undone == (2.0, 2.0)
    assert changed.begin(3).undone == (2.0,)
    assert changed.begin(3).begin(4).undone == ()
    assert course.undone == ()


def test_a_list_that_began_before_the_last_epoch_did_may_still_hold_it_as_it_was():
    course = Course.planned(filtered()).begin(1).begin(2)
    assert course.changeable([2.0, 1.8, 1.7]) == [1.8, 1.7]
    assert course.changeable(["2", "2", "1.8", "1.7"]) == [1.8, 1.7]
    for refused in ([1.9, 1.8, 1.7], [2.0] * 5):
        with pytest.raises(InputError, match="have begun"):
            course.redraw(course.changeable(refused), "")


def test_a_change_at_the_limit_is_taken_and_one_above_it_is_refused(store):
    run_id = store.create(filtered())
    with pytest.raises(InputError, match="multiply the noise to come by") as refusal:
        store.redraw(run_id, [0.5, 0.5])
    scale = float(str(refusal.value).rpartition("by ")[2].split()[0])
    with pytest.raises(InputError, match="times the budget"):
        store.redraw(run_id, [0.5 * scale * 0.999] * 2)
    assert store.get(run_id).course.redraws == ()
    course = store.redraw(run_id, [0.5 * scale] * 2)
    assert 0.99 < course.used <= 1
    assert store.get(run_id).course == course


def test_a_drawing_leaves_out_what_has_begun_meanwhile(store):
    run_id = store.create(filtered())
    for epoch in (1, 2):
        store.begin_epoch(run_id, epoch)
    with pytest.raises(InputError, match="have begun"):
        store.redraw(run_id, [1.9, 1.8, 1.7])
    course = store.redraw(run_id, [1.9, 1.8, 1.7], skip_begun=True)
    assert (course.sigmas, course.redraws[-1].first) == ((2.0, 2.0, 1.8, 1.7), 3)
    for epoch in (3, 4):
        store.begin_epoch(run_id, epoch)
    with pytest.raises(InputError, match="epochs 1 to 4 of 4 have begun"):
        store.redraw(run_id, [1.7], skip_begun=True)


def test_a_torn_line_is_dropped_and_other_damage_named(store):
    run_id = store.create(filtered())
    store.redraw(run_id, [1.9])
    path = store.folder / run_id / COURSE
    with path.open("ab") as file:
        file.write(b'{"sigmas": [1.5')
    assert store.get(run_id).course.sigmas == (2.0, 2.0, 2.0, 1.9)
    assert store.redraw(run_id, [1.8]).sigmas == (2.0, 2.0, 2.0, 1.8)
    assert [json.loads(line)["sigmas"] for line in path.read_text().splitlines()] == [[1.9], [1.8]]
    for line in ('{"epoch": 3, "noise_multiplier": 2.0}', '{"sigmas": [0.1], "at": ""}', "[]", '{"sigmas": 3}'):
        path.write_text(line + "\n")
        with pytest.raises(InputError, match=r"course.jsonl, line 1 is damaged"):
            store.get(run_id)
    assert COURSE in FILES  # deleting a run takes it along


def test_what_is_not_under_a_filter_is_not_changed(store):
    run_id = store.create(small_spec())
    with pytest.raises(InputError, match="--filter-epsilon"):
        store.redraw(run_id, [2.0])
    assert not (store.folder / run_id / COURSE).exists()
    assert store.get(run_id).course is None
    assert "course" not in store.export(run_id)


# --- training


def test_a_change_reaches_the_loop_at_the_next_epoch_and_the_records_say_the_budget(store):
    other_process = Store(store.folder)
    runner = Foreground(store, threads=1, on_epoch=redraw_after(store, 2, [1.7, 1.6], through=other_process))
    run = store.get(runner.start(filtered()))
    assert (run.status, run.error) == ("done", "")
    assert [record.noise_multiplier for record in run.epochs] == [2.0, 2.0, 1.7, 1.6]
    assert {(record.epsilon_claimed, record.epsilon_sound) for record in run.epochs} == {(None, BUDGET)}
    assert (run.spent.epsilon_claimed, run.spent.epsilon_sound) == (None, BUDGET)
    assert run.audit.proven == BUDGET
    assert run.audit.failures == ()
    assert group_of(run) != group_of(dataclasses.replace(run, course=None))
    assert run.to_json()["course"]["redraws"][0]["sigmas"] == (1.7, 1.6)
    with pytest.raises(InputError, match="epochs 1 to 4 of 4 have begun"):
        store.redraw(run.id, [2.0])


def test_two_courses_of_one_spec_share_no_noise_from_where_they_part(store):
    plain = store.get(Foreground(store, threads=1).start(filtered()))
    again = store.get(Foreground(store, threads=1).start(filtered()))
    parted = Foreground(store, threads=1, on_epoch=redraw_after(store, 2, [2.0, 2.0 + 1e-9])).start(filtered())
    losses = [[record.test_loss for record in store.get(run).epochs] for run in (plain.id, again.id, parted)]
    assert losses[0] == losses[1]
    assert losses[2][:3] == losses[0][:3]
    assert abs(losses[2][3] - losses[0][3]) > 1e-6  # so small a change of sigma alone would not show


def test_the_loop_itself_takes_no_step_beyond_the_budget(store, monkeypatch):
    monkeypatch.setattr(Store, "begin_epoch", lambda self, run_id, epoch: (2.0, 2.0, 0.3, 0.3))
    run = store.get(Foreground(store, threads=1).start(filtered()))
    assert run.status == "failed"
    assert "times the budget" in run.error
    assert run.epochs == ()


KILLED = """
import sys
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.store.store import Store
from tests.runs.store.test_course import filtered
store = Store(sys.argv[1])
def on_epoch(run_id, record):
    print(run_id, record.epoch, flush=True)
    sys.stdin.readline()  # between this epoch and the next
runner = QueueRunner(store, threads=1, on_epoch=on_epoch)
runner.wait(runner.start(filtered()))
"""


def test_kill_9_between_a_change_and_its_epoch_loses_nothing(store, python):
    process = python(KILLED, store.folder)
    run_id, epoch = process.stdout.readline().split()
    assert epoch == "1"
    store.redraw(run_id, [1.9, 1.8, 1.7])
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    cut = store.get(run_id)
    assert (cut.status, len(cut.epochs)) == ("interrupted", 1)
    assert cut.course.sigmas == (2.0, 1.9, 1.8, 1.7)
    Foreground(store, threads=1).resume(run_id)
    resumed = store.get(run_id)
    assert resumed.status == "done"
    assert [record.noise_multiplier for record in resumed.epochs] == [2.0, 1.9, 1.8, 1.7]
    whole = store.get(Foreground(store, threads=1, on_epoch=redraw_after(store, 1, [1.9, 1.8, 1.7])).start(filtered()))
    same = [dataclasses.replace(record, seconds=0.0) for record in resumed.epochs]
    assert same == [dataclasses.replace(record, seconds=0.0) for record in whole.epochs]


def test_an_epoch_that_has_begun_keeps_its_noise_through_stop_change_and_resume(store):
    runner = QueueRunner(store, threads=1, on_progress=lambda progress: progress.step == 13 and runner.stop(run_id))
    run_id = runner.start(filtered())
    runner.wait(run_id)
    runner.close()
    stopped = store.get(run_id)
    assert (stopped.status, stopped.course.begun) == ("stopped", 2)
    with pytest.raises(InputError, match="have begun"):
        store.redraw(run_id, [1.5, 1.5, 1.5])
    store.redraw(run_id, [1.8, 1.8])
    Foreground(store, threads=1).resume(run_id)
    assert [record.noise_multiplier for record in store.get(run_id).epochs] == [2.0, 2.0, 1.8, 1.8]


def test_a_custom_plan_and_screening_go_under_a_filter_too(store):
    spec = filtered(
        schedule=Schedule.custom([3.0, 2.0]),
        epochs=2,
        method="screening",
        knobs=(("method.public_examples", 100),),
    )
    run = store.get(Foreground(store, threads=1).start(spec))
    assert (run.status, run.error) == ("done", "")
