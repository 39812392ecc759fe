"""Learning in the background: real pilot runs of a tiny recipe, stopped, found again and learnt from."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import time

import pytest

from dpviz.cli import main
from dpviz.forecast.designs import pilots
from dpviz.forecast.evidence import alike, looked_at, noise_of, runs_like, unseen
from dpviz.forecast.learner import Learner, LessonPlan, PilotGroup, forget, learners, pilot_groups
from dpviz.forecast.library import Fit, begin, history, keep, own_folder, response_to, settings_key, shelf
from dpviz.forecast.pilots import Price, is_pilot
from dpviz.papers import recipe
from dpviz.privacy import InputError
from dpviz.runs import QueueRunner, Store
from dpviz.runs.settings import change
from dpviz.runs.store.course import Course
from dpviz.runs.store.spending import Spending
from dpviz.training.data.catalog import OwnData
from dpviz.training.limits import READ_ONLY
from tests.views.made_runs import keep as keep_run
from tests.views.made_runs import made_run, made_spec

# Whole batches of 455 people: a step per epoch, priced in closed form.
SETTINGS = {"dataset": "breast-cancer", "model": "logistic", "batch_size": "455", "learning_rate": "2.0"}
TINY = change(recipe("curricula/constant-1.54").spec, SETTINGS)
FLAGS = "--recipe curricula/constant-1.54 " + " ".join(f"--set {name}={value}" for name, value in SETTINGS.items())
RESPONSE = dataclasses.replace(
    shelf().of(recipe("curricula/constant-1.54").spec), runs=tuple(f"{k:016x}" for k in range(12)), held_out_error=0.01
)


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return Store(tmp_path / "runs")


def group(store: Store) -> PilotGroup:
    (only,) = pilot_groups(store.list().runs, lambda summary: store.get(summary.id))
    return only


def learn(store: Store, wanted) -> Learner:
    with contextlib.closing(QueueRunner(store)) as runner:
        learner = Learner(TINY, wanted, store, runner)
        learner.start()
        learner.wait(60)
    assert not learner.running
    return learner


def test_a_response_is_learnt_stopped_found_in_the_store_and_learnt_to_the_end(store):
    wanted = sorted(pilots(TINY, 60), key=lambda pilot: pilot.epochs)[:10]  # the shortest, of 5 epochs
    with contextlib.closing(QueueRunner(store)) as runner:
        learner = Learner(TINY, wanted, store, runner)
        learner.start()
        with pytest.raises(InputError, match="being learnt already"):
            Learner(TINY, wanted, store, runner).start()
        while sum(run.status == "done" for run in store.list().runs) < 2:
            time.sleep(0.01)
        runner.stop_all()
        learner.wait(60)
    stopped = group(store)
    assert 2 <= stopped.done < 10 == len(stopped.runs)
    assert len(stopped.resumable) == 10 - stopped.done
    assert 0 < stopped.share < 1
    assert learner.problem == ""
    assert response_to(TINY, store) is None

    # What was learnt so far is in the store: a process that knows nothing goes on from there.
    forget(settings_key(TINY), store)
    assert learners(store) == {}
    assert learn(store, stopped.specs).problem == ""
    ended = group(store)
    assert [run.id for run in ended.runs] == [run.id for run in stopped.runs]
    assert (ended.done, ended.share, ended.live, ended.resumable) == (10, 1.0, (), ())
    fits = history(settings_key(TINY), store)
    assert [fit.runs for fit in fits] == [8, 9, 10]
    response = response_to(TINY, store)
    assert response is not None
    assert len(response.runs) == 10
    assert fits[-1].held_out_error == response.held_out_error

    # The command line learns the same from the same store.
    assert main(f"forecast fit {FLAGS} --from-cached --json".split()) == 0
    assert response_to(TINY, store) == response
    assert len(history(settings_key(TINY), store)) == 3

    # A finished run of the same settings is news, one that is kept away from every fit is not.
    with contextlib.closing(QueueRunner(store)) as runner:
        for run_id in runner.start_all((TINY, dataclasses.replace(TINY, seed=1000))):
            runner.wait(run_id)
    (news,) = unseen(response, runs_like(TINY, store))
    assert news.own_spec == TINY
    assert not is_pilot(news.summary)
    again = Learner(TINY, (), store)
    again.start()
    again.wait(60)
    assert [fit.runs for fit in history(settings_key(TINY), store)] == [8, 9, 10, 11]
    assert unseen(response_to(TINY, store), runs_like(TINY, store)) == ()


def test_a_pilot_that_fails_is_a_sentence(store, monkeypatch):
    monkeypatch.setattr("dpviz.training.engine.Trainer", None)
    problem = learn(store, pilots(TINY, 1)).problem
    assert problem.startswith("pilot run ")
    assert "failed: " in problem


def test_a_plan_counts_what_is_there_and_is_refused_beyond_a_limit(store, monkeypatch):
    wanted = pilots(TINY, 9)
    there = made_run(status="done")
    begun = [dataclasses.replace(there, id=str(k), spec=spec) for k, spec in enumerate(wanted[:3])]
    begun[2] = dataclasses.replace(begun[2], status="stopped")
    plan = LessonPlan.of(TINY, 9, begun, store)
    assert (len(plan.wanted), len(plan.missing)) == (9, 7)
    assert plan.price.public
    assert plan.price.runs == 9
    monkeypatch.setenv("DPVIZ_MAX_EPOCHS", "6")
    with pytest.raises(InputError, match="at most 6 epochs"):
        LessonPlan.of(TINY, 9, (), store)
    with pytest.raises(InputError, match="no noise"):
        LessonPlan.of(made_spec(method="sgd"), 9, (), store)


def test_seeded_runs_of_equal_settings_are_paid_for_once_and_secure_ones_each_time(store):
    for secure, (first, again, redone) in {False: (1, 1, 1), True: (1, 2, 3)}.items():
        spec = made_spec(secure=secure)
        begin([spec], store)
        run = dataclasses.replace(made_run(), spec=spec)
        gone = keep_run(store.folder, run)
        assert len(looked_at(spec, alike(spec, [store.get(gone)]), store)) == first
        store.delete(gone)
        begin([spec], store)
        there = store.get(keep_run(store.folder, run))
        assert len(looked_at(spec, alike(spec, [there, there]), store)) == again
        repeated = dataclasses.replace(there, written=Spending(9, 1.0, 1.0, redone=((2, 4),) if secure else ()))
        assert len(looked_at(spec, [repeated], store)) == redone
        shutil.rmtree(store.folder)


def test_a_secure_pilot_that_is_made_again_is_paid_for_again_but_not_one_that_goes_on(store):
    spec = made_spec(secure=True)
    pilot = pilots(spec, 1)[0]
    begin([pilot], store)
    assert LessonPlan.of(spec, 1, (), store).price.runs == 2  # it was deleted
    there = dataclasses.replace(made_run(status="stopped"), spec=pilot)
    keep_run(store.folder, there)
    assert LessonPlan.of(spec, 1, [there], store).price.runs == 1


def test_a_server_that_may_change_nothing_learns_nothing(store, monkeypatch):
    monkeypatch.setenv(READ_ONLY, "1")
    with pytest.raises(InputError, match="read-only"):
        Learner(TINY, pilots(TINY, 8), store)


def test_pilots_are_grouped_by_settings_and_one_with_another_title_is_an_ordinary_run(store):
    for pilot in pilots(made_spec(), 3):
        keep_run(store.folder, dataclasses.replace(made_run(), spec=pilot, title="pilot of logistic"))
        other = dataclasses.replace(pilot, learning_rate=0.1)
        newest = keep_run(store.folder, dataclasses.replace(made_run(), spec=other, title="pilot of logistic"))
    keep_run(store.folder, made_run(title="pilot of my own"))  # its schedule is none that was designed
    groups = pilot_groups(store.list().runs, lambda summary: store.get(summary.id))
    assert [len(each.runs) for each in groups] == [3, 3]
    assert groups[0].specs[0].learning_rate == 0.1  # the newest first
    store.rename(newest, "my best one")
    assert [len(each.runs) for each in pilot_groups(store.list().runs, lambda s: store.get(s.id))] == [3, 2]


def test_the_noise_of_a_changed_run_is_what_it_had_and_what_is_to_come():
    run = made_run(count=2, filter_epsilon=9.0, sigma=2.0)
    course = Course.planned(run.own_spec).begin(1).begin(2).redraw([1.8, 1.7], "now")
    assert noise_of(dataclasses.replace(run, course=course)) == (2.0, 2.0, 1.8, 1.7)
    assert noise_of(made_run(count=1, sigma=1.5)) == (1.5,) * 4


def test_a_final_run_that_may_be_changed_has_no_sum_and_neither_have_pilots_that_may():
    own = OwnData("clinic", "0" * 64, 60_000, (1, 28, 28), tuple("0123456789"))
    spec = made_spec(dataset="clinic", own=own, subset=0)
    changeable = dataclasses.replace(spec, filter_epsilon=90.0)
    price = Price.of(changeable, (spec,))
    assert price.pilots is not None
    assert price.with_final is None
    assert "adds its whole budget" in price.words
    assert Price.of(spec, (changeable,)).pilots is None
    assert "schedule" not in Price.of(spec, (spec,), final=False).words
    assert pilots(changeable, 1)[0].filter is None


def test_people_who_sign_in_have_forecasts_of_their_own(store):
    response = dataclasses.replace(RESPONSE, settings=settings_key(TINY))
    ann, bob = (Store(store.folder, owner=name) for name in ("ann", "bob"))
    keep(response, ann)
    assert own_folder(ann) != own_folder(store)
    assert response_to(TINY, ann) == response
    assert response_to(TINY, bob) is None
    assert shelf(bob).responses == shelf(store).responses == ()
    assert history(response.settings, ann) == (Fit(12, 0.01),)
    assert history(response.settings, bob) == ()


def test_a_damaged_line_of_the_history_is_left_out(store):
    keep(RESPONSE, store)
    path = own_folder(store) / f"{RESPONSE.settings}.jsonl"
    path.write_bytes(path.read_bytes() + b'{"runs": 0, "held_out_error": 2}\n[1]\n{"runs": 13, "held')
    assert history(RESPONSE.settings, store) == (Fit(12, 0.01),)
    keep(dataclasses.replace(RESPONSE, held_out_error=0.02), store)
    assert history(RESPONSE.settings, store) == (Fit(12, 0.01), Fit(12, 0.02))
    assert json.loads(path.read_bytes().splitlines()[-1])["held_out_error"] == 0.02
