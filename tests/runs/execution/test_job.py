"""How a run is seen through: what may have been spent counts once, whoever is gone."""

from __future__ import annotations

import pytest

from dpviz.runs.execution.job import LIVES, Ended, Job, Running, RunOptions, Saved, applied, see_through
from tests.runs.conftest import epoch_record


@pytest.fixture
def job(store, spec):
    run_id = store.create(spec(secure=True))
    made = Job(run_id, RunOptions(), 1, lambda progress: None, lambda run_id, record: None)
    yield made
    store.release(run_id)


def one_epoch(store, job) -> None:
    applied(store, job, Running())
    applied(store, job, Saved(b"", epoch_record(1)))


def test_whoever_dies_before_a_word_has_spent_nothing(store, job):
    ended = see_through(store, job, lambda: None)
    assert ended.error == f"{LIVES} times a worker died under this run"
    assert (ended.spent, store.get(job.run_id).written.epsilon_sound) == (None, 0.0)


def test_each_death_after_a_word_is_charged_once(store, job):
    charges = []

    def attend() -> None:
        if not charges:
            one_epoch(store, job)
        charges.append(store.get(job.run_id).written)

    ended = see_through(store, job, attend)
    assert (ended.status, ended.spent) == ("failed", None)  # it is on record already
    assert store.get(job.run_id).written == charges[1]
    assert charges[1].redone


def test_what_may_have_been_spent_is_charged_where_the_one_who_listens_fails(store, job):
    def attend() -> Ended:
        one_epoch(store, job)
        raise KeyError("a bug")

    ended = see_through(store, job, attend)
    assert (ended.status, ended.error) == ("failed", "KeyError: 'a bug'")
    assert ended.spent.at_most
    assert ended.spent.epsilon_sound > 0.5


def test_a_worker_that_tells_the_end_knows_what_it_spent(store, job):
    def attend() -> Ended:
        one_epoch(store, job)
        return Ended("failed", "no data")

    assert see_through(store, job, attend).spent is None
