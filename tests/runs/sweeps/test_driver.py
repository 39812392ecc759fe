"""Sweeps at work in the queue: to their end, stopped and resumed, failing, searching; with the real trainer."""

from __future__ import annotations

import dataclasses
import json
import math
import threading

import pytest

from dpviz.privacy import InputError
from dpviz.privacy.rounding import epsilon_number
from dpviz.runs import QueueRunner
from dpviz.runs.store.records import Summary
from dpviz.runs.sweeps.driver import SweepDriver, launch, sweep_drivers
from dpviz.runs.sweeps.folder import CANDIDATES, SweepFolder, sweep_ids
from dpviz.runs.sweeps.result import by_key, price_words, result, result_json, result_of
from dpviz.runs.sweeps.spec import Range, Search, Sweep
from tests.runs.conftest import small_spec

RATES = ((("learning_rate", (0.5, 2.0)),),)


def sweep_of(**changes) -> Sweep:
    return Sweep(small_spec(epochs=2), **({"seeds": (0, 1), "grids": RATES} | changes))


@pytest.fixture
def runner(store):
    runner = QueueRunner(store, threads=1)
    yield runner
    runner.close()


def curves(store) -> dict:
    runs = [store.get(run.id) for run in store.list().runs]
    return {run.spec.key: [dataclasses.replace(epoch, seconds=0.0) for epoch in run.epochs] for run in runs}


def test_a_sweep_runs_to_its_end_and_is_folded_into_mean_and_std(store, runner):
    sweep, ended = sweep_of(title="Rates"), []
    SweepDriver(sweep, store, runner, on_end=lambda candidate, run: ended.append(run.status)).run()
    found = result(store, sweep.id)
    assert ended == ["done"] * 4
    assert (found.done, found.failed, found.total, found.share, found.finished) == (4, 0, 4, 1.0, True)
    for row in found.rows:
        one, two = (store.get(run.id).epochs[-1].test_accuracy for run in row.runs)
        assert row.mean == pytest.approx((one + two) / 2)
        assert row.std == pytest.approx(abs(one - two) / math.sqrt(2))
    assert found.winner.mean == max(row.mean for row in found.rows)
    assert store.list().runs[0].title == "Rates: learning_rate=0.5"
    assert sweep_ids(store) == (sweep.id,)


def test_the_winner_is_shown_with_what_choosing_it_costs(store, runner):
    sweep = sweep_of()
    SweepDriver(sweep, store, runner).run()
    found = result(store, sweep.id)
    cost = found.selection
    assert cost.runs == 4
    assert cost.single.upper == pytest.approx(found.winner.epsilon)
    assert cost.composed.upper > cost.single.upper
    words = " ".join(price_words(found))
    assert f"{epsilon_number(cost.composed.upper)}. This holds" in words
    assert "Charged are all runs that were begun: 4 are done." in words
    assert "not a guarantee" in words
    assert json.loads(json.dumps(result_json(found)))["selection"]["composed"] == cost.composed.upper


def test_the_same_sweep_again_trains_nothing_anew(store, runner):
    sweep = sweep_of(seeds=(0,))
    SweepDriver(sweep, store, runner).run()
    before = [run.id for run in store.list().runs]
    SweepDriver(sweep, store, runner, on_end=lambda *_: pytest.fail("a run was made again")).run()
    assert [run.id for run in store.list().runs] == before


def test_a_stopped_sweep_goes_on_where_it_was_and_ends_as_if_it_had_not_been_stopped(store, runner, tmp_path):
    sweep = sweep_of()
    drive = SweepDriver(sweep, store, runner)
    drive._on_end = lambda *_: drive.stop()
    drive.run()
    halfway = result(store, sweep.id)
    assert 1 <= halfway.done < 4
    assert not halfway.finished
    assert runner.live() == ()
    SweepDriver(sweep, store, runner).run()
    assert result(store, sweep.id).done == 4

    whole = type(store)(tmp_path / "whole")
    other = QueueRunner(whole, threads=1)
    SweepDriver(sweep, whole, other).run()
    other.close()
    assert curves(store) == curves(whole)


def test_one_sweep_is_driven_once_at_a_time(store, runner):
    sweep = sweep_of()
    drive = SweepDriver(sweep, store, runner)
    assert SweepFolder(store, sweep.id).driven
    with pytest.raises(InputError, match="running already"):
        SweepDriver(sweep, store, runner)
    drive.stop()
    drive.run()
    assert not SweepFolder(store, sweep.id).driven


class Clumsy:
    """The real runner, but the first so many starts and resumes end as failed."""

    def __init__(self, runner, failures):
        self.runner, self.failures, self.resumed = runner, failures, 0
        self.slots, self.width = runner.slots, runner.width

    def start(self, spec, *, run_id, **options):
        self.runner.store.create(spec, run_id=run_id)
        self._fail_or(run_id, lambda: (self.runner.store.release(run_id), self.runner.resume(run_id)))
        return run_id

    def resume(self, run_id, **options):
        self.resumed += 1
        self.runner.store.claim(run_id)
        self._fail_or(run_id, lambda: (self.runner.store.release(run_id), self.runner.resume(run_id)))

    def _fail_or(self, run_id, go):
        if self.failures:
            self.failures -= 1
            self.runner.store.set_status(run_id, "failed", error="the lights went out")
            self.runner.store.release(run_id)
        else:
            go()

    def stop(self, run_id):
        self.runner.stop(run_id)

    def wait(self, run_id, timeout=None):
        return self.runner.wait(run_id, timeout)


@pytest.mark.parametrize(("failures", "done", "failed"), [(1, 2, 0), (2, 1, 1)])
def test_a_failed_run_is_tried_once_more_and_then_reported(store, runner, failures, done, failed):
    sweep = sweep_of(seeds=(0,))
    crew = Clumsy(runner, failures)
    SweepDriver(sweep, store, crew, width=1).run()
    found = result(store, sweep.id)
    assert (found.done, found.failed, crew.resumed) == (done, failed, 1)
    assert found.finished
    if failed:
        assert "the lights went out" in found.rows[0].problem


def test_a_sweep_that_cannot_go_on_says_why_and_lets_go(store, runner):
    sweep = sweep_of()
    runner.close()
    drive = SweepDriver(sweep, store, runner)
    drive.run()
    assert "takes no more runs" in drive.problem
    assert not SweepFolder(store, sweep.id).driven


def test_a_launched_sweep_is_found_by_everyone_in_the_process(store, runner):
    sweep = sweep_of(seeds=(0,))
    launch(SweepDriver(sweep, store, runner))
    drive = sweep_drivers(type(store)(store.folder))[sweep.id]
    for thread in threading.enumerate():
        if thread.name == "dpviz-sweep":
            thread.join(60)
    assert drive.problem == ""
    assert result(store, sweep.id).finished


def test_a_line_that_a_crash_left_unfinished_is_dropped_and_damage_is_named(store, runner):
    sweep = sweep_of(seeds=(0,))
    SweepDriver(sweep, store, runner).run()
    folder = SweepFolder(store, sweep.id)
    path = folder.path / CANDIDATES
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert len(folder.candidates()) == 1
    SweepDriver(sweep, store, runner).run()
    assert path.read_bytes() == whole
    path.write_bytes(b"{}\n" + whole)
    with pytest.raises(InputError, match="line 1 is damaged"):
        folder.candidates()


@pytest.mark.parametrize("name", ["", "..", "../../x", "A" * 16, "0" * 15, 5])
def test_a_sweeps_id_cannot_leave_the_folder(store, name):
    with pytest.raises(InputError, match="not a sweep's id"):
        SweepFolder(store, name)


def test_forgetting_a_sweep_keeps_its_runs(store, runner):
    sweep = sweep_of(seeds=(0,))
    SweepDriver(sweep, store, runner).run()
    SweepFolder(store, sweep.id).delete()
    assert sweep_ids(store) == ()
    assert len(store.list().runs) == 2


# --- search -----------------------------------------------------------------------------------------------------------


def search_of(trials: int, **space) -> Sweep:
    space = space or {"learning_rate": Range(0.1, 4.0, log=True), "schedule.sigma": Range(0.8, 3.0)}
    return Sweep(small_spec(epochs=1), (0,), search=Search(trials, tuple(space.items())))


def test_a_search_proposes_tells_and_keeps_its_memory_in_the_store(store, runner):
    sweep = search_of(6)
    SweepDriver(sweep, store, runner, width=1).run()
    found = result(store, sweep.id)
    assert (found.done, found.total, len(found.rows)) == (6, 6, 6)
    assert len({row.candidate.settings for row in found.rows}) == 6
    assert (SweepFolder(store, sweep.id).path / "search.journal").stat().st_size > 0
    for row in found.front:
        assert not any(other.mean > row.mean and other.epsilon < row.epsilon for other in found.rows)
    assert found.winner in found.front
    assert found.selection.drawn is None  # proposals depend on results: only composition holds
    assert "no cheaper bound" in " ".join(price_words(found))


def test_a_stopped_search_goes_on_and_makes_no_trial_twice(store, runner):
    from dpviz.runs.sweeps.search import open_study

    sweep = search_of(5)
    drive = SweepDriver(sweep, store, runner, width=1)
    drive._on_end = lambda *_: drive.stop()
    drive.run()
    assert result(store, sweep.id).done < 5
    SweepDriver(sweep, store, runner, width=1).run()
    found = result(store, sweep.id)
    assert (found.done, len(found.rows)) == (5, 5)
    study = open_study(sweep, SweepFolder(store, sweep.id))
    told = {tuple(trial.values) for trial in study.trials}
    assert told == {(row.mean, row.epsilon) for row in found.rows}


def test_a_search_learns_that_settings_failed_and_goes_on(store, runner):
    sweep = search_of(6, batch_size=(20, 5000), learning_rate=Range(0.1, 4.0))
    SweepDriver(sweep, store, runner, width=1).run()
    found = result(store, sweep.id)
    assert found.finished
    assert found.failed == sum("batch_size must be at most" in row.problem for row in found.rows) > 0


def test_a_search_whose_journal_is_damaged_says_so_and_lets_go(store, runner):
    sweep = search_of(2)
    drive = SweepDriver(sweep, store, runner, width=1)
    (SweepFolder(store, sweep.id).path / "search.journal").write_text("{}\n{}\n")
    drive.run()
    assert drive.problem
    assert not SweepFolder(store, sweep.id).driven


def test_candidates_above_a_limit_of_the_server_are_refused_ahead_and_fail_alone(store, runner, monkeypatch):
    monkeypatch.setenv("DPVIZ_MAX_EPOCHS", "2")
    sweep = search_of(3, epochs=(1, 3))
    with pytest.raises(InputError, match="at most 2 epochs"):
        search_of(3, epochs=Range(1, 3)).check()
    SweepDriver(sweep, store, runner, width=1).run()
    found = result(store, sweep.id)
    assert found.finished
    assert all(
        ("at most 2 epochs" in row.problem) == (row.candidate.settings == (("epochs", 3),)) for row in found.rows
    )


# --- folding ----------------------------------------------------------------------------------------------------------


def test_a_finished_run_speaks_for_its_settings_before_a_newer_failed_one():
    runs = [Summary("a", "failed", "", key="x"), Summary("b", "done", "", key="x"), Summary("c", "failed", "", key="x")]
    assert by_key(runs)["x"].id == "b"
    assert by_key(runs[::2])["x"].id == "c"


def test_without_a_guarantee_there_is_a_winner_but_no_price():
    sweep = sweep_of(grids=((("curriculum", ("none", "sample")),),), seeds=(0,))
    candidates = [sweep.candidate(settings) for settings in sweep.combinations()]
    runs = [
        Summary(str(k), "done", "", key=c.specs[0].key, epochs=2, epochs_done=2, test_accuracy=0.5 + k / 10)
        for k, c in enumerate(candidates)
    ]
    found = result_of(sweep, candidates, runs)
    assert found.winner.candidate.label == "curriculum=sample"
    assert found.selection.composed is None
    assert "no guarantee" in price_words(found)[0]
