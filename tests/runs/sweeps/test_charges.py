"""What a sweep's choice pays for: every run that was begun, with the steps it took, failed and deleted ones too."""

from __future__ import annotations

import dataclasses
import json

import pytest

from dpviz.privacy import InputError, Spent, epsilon, selection
from dpviz.privacy.records import Ledger
from dpviz.privacy.selection import composed
from dpviz.runs import QueueRunner
from dpviz.runs.store.records import Summary
from dpviz.runs.store.spending import Spending, spent_phases
from dpviz.runs.sweeps.charges import charges_of, spent_of
from dpviz.runs.sweeps.driver import SweepDriver
from dpviz.runs.sweeps.folder import BEGUN, Begun, SweepFolder
from dpviz.runs.sweeps.result import price_words, result, result_json, result_of
from dpviz.runs.sweeps.spec import Candidate, Range, Search, Sweep
from tests.runs.conftest import small_spec
from tests.runs.store.test_spending import train
from tests.runs.sweeps.test_driver import RATES, Clumsy


@pytest.fixture
def runner(store):
    runner = QueueRunner(store, threads=1)
    yield runner
    runner.close()


def sweep_of(**changes) -> Sweep:
    """Two learning rates, one seed, two epochs of ten steps."""
    start = small_spec(epochs=2, **changes)
    return Sweep(start, (0,), RATES)


def price(store, sweep) -> float:
    return result(store, sweep.id).selection.composed.upper


def losers(store, sweep) -> list[str]:
    found = result(store, sweep.id)
    return [run.id for row in found.rows if row is not found.winner for run in row.runs]


# --- with real runs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure", [False, True])
def test_deleting_the_losers_does_not_lower_the_winners_price(store, runner, secure):
    sweep = sweep_of(secure=secure)
    SweepDriver(sweep, store, runner).run()
    before = price(store, sweep)
    for run_id in losers(store, sweep):
        store.delete(run_id)
    found = result(store, sweep.id)
    assert found.winner is not None
    assert found.selection.composed.upper == before > found.selection.single.upper
    assert "1 is done, 1 is no longer there and counts in full" in " ".join(price_words(found))
    assert result_json(found)["selection"]["charged"] == {"done": 1, "unfinished": 0, "gone": 1, "live": 0}


def test_runs_of_one_seed_draw_batches_and_noise_of_their_own_and_compose(store, runner):
    sweep = sweep_of()
    SweepDriver(sweep, store, runner).run()
    assert price(store, sweep) == composed([Spent(spent_phases(sweep.start, 20))] * 2, 1e-5).upper


def test_a_failed_run_is_charged_with_the_steps_it_took(store, runner):
    sweep = sweep_of()
    first = next(sweep.combinations())
    train(store, sweep.candidate(first).specs[0], fail_at=13)
    SweepDriver(sweep, store, Clumsy(runner, 2), width=1).run()
    found = result(store, sweep.id)
    assert (found.done, found.failed) == (1, 1)
    one, other = spent_phases(sweep.start, 13), spent_phases(sweep.start, 20)
    assert found.selection.composed == composed([Spent(one), Spent(other)], 1e-5)
    assert found.selection.composed.upper > epsilon(Ledger(other), 1e-5).upper
    assert "1 did not finish and counts with the steps that it took" in " ".join(price_words(found))


def test_what_a_secure_run_lost_before_it_was_tried_again_is_charged(store, runner):
    sweep = sweep_of(secure=True)
    run_id = train(store, sweep.candidate(next(sweep.combinations())).specs[0], fail_at=13)
    SweepDriver(sweep, store, runner).run()
    assert store.get(run_id).status == "done"
    whole, again = spent_phases(sweep.start, 20), spent_phases(sweep.start, 20, ((10, 13),))
    assert price(store, sweep) == composed([Spent(whole), Spent(again)], 1e-5).upper


def test_a_run_is_written_down_before_it_starts_and_a_finished_one_when_it_is_used(store, runner):
    sweep = sweep_of()
    reused = train(store, sweep.candidate(next(sweep.combinations())).specs[0])
    folder, seen = SweepFolder(store, sweep.id), []

    class Watching(Clumsy):
        def start(self, spec, *, run_id, **options):
            seen.append(folder.begun())
            return super().start(spec, run_id=run_id, **options)

    SweepDriver(sweep, store, Watching(runner, 0)).run()
    keys = [sweep.candidate(settings).specs[0].key for settings in sweep.combinations()]
    begun = folder.begun()
    assert seen == [begun]
    assert begun[0] == Begun(keys[0], reused)
    assert (begun[1].key, begun[1].run_id in {run.id for run in store.list().runs}) == (keys[1], True)
    SweepDriver(sweep, store, runner).run()
    assert folder.begun() == begun


def test_a_sweep_from_before_that_record_charges_all_its_candidates_and_goes_on(store, runner):
    sweep = sweep_of()
    SweepDriver(sweep, store, runner).run()
    before = price(store, sweep)
    folder = SweepFolder(store, sweep.id)
    for run_id in losers(store, sweep):
        store.delete(run_id)
    (folder.path / BEGUN).unlink()
    assert folder.begun() is None
    assert price(store, sweep) == before
    SweepDriver(sweep, store, runner).run()
    assert result(store, sweep.id).done == 2
    assert len(folder.begun()) == 3  # one is done, one may have been deleted, and was made anew
    assert price(store, sweep) == before


def test_a_record_that_a_crash_left_unfinished_is_read_and_damage_is_named(store, runner):
    sweep = sweep_of()
    SweepDriver(sweep, store, runner).run()
    folder = SweepFolder(store, sweep.id)
    path, whole = folder.path / BEGUN, folder.begun()
    path.write_bytes(path.read_bytes()[:-5])
    assert folder.begun() == whole[:1]
    SweepDriver(sweep, store, runner).run()
    assert folder.begun() == whole
    path.write_bytes(b"[]\n")
    with pytest.raises(InputError, match="line 1 is damaged"):
        result(store, sweep.id)


def test_runs_that_share_their_noise_have_a_winner_and_no_price(store, runner):
    sweep = sweep_of(streams=1)
    SweepDriver(sweep, store, runner).run()
    found = result(store, sweep.id)
    assert found.winner is not None
    assert found.selection.composed is None
    words = " ".join(price_words(found))
    assert "trained with the same noise" in words
    assert "the winner has no guarantee" in words
    assert json.loads(json.dumps(result_json(found)))["selection"]["composed"] is None


# --- folding ----------------------------------------------------------------------------------------------------------


def made(sweep: Sweep) -> tuple[Candidate, ...]:
    return tuple(sweep.candidate(settings) for settings in sweep.combinations())


def done(run_id: str, key: str) -> Summary:
    return Summary(run_id, "done", "", key=key, epochs=2, epochs_done=2, test_accuracy=0.9, epsilon_sound=1.0)


def test_runs_that_did_not_finish_count_with_their_steps_and_those_that_never_began_not_at_all():
    sweep = sweep_of()
    one, other = (candidate.specs[0].key for candidate in made(sweep))
    begun = [Begun(one, "a"), Begun(other, "b")]
    stopped = Summary("b", "stopped", "", key=other, epochs=2, epochs_done=1, written=Spending(17, 1.0, 1.0))
    waited = dataclasses.replace(stopped, epochs_done=0, written=Spending(0, 0.0, 0.0))
    both = result_of(sweep, made(sweep), [done("a", one), stopped], begun).selection
    alone = result_of(sweep, made(sweep), [done("a", one), waited], begun).selection
    assert (both.runs, alone.runs) == (2, 1)
    assert both.composed == composed([spent_of(sweep.start, 20), spent_of(sweep.start, 17)], 1e-5)
    assert alone.composed == alone.single


def test_seeded_runs_alike_are_one_run_and_the_longest_is_paid_for_and_secure_ones_are_paid_for_each():
    for secure, runs in ((False, 1), (True, 2)):
        sweep = sweep_of(secure=secure)
        candidates = made(sweep)[:1]
        key = candidates[0].specs[0].key
        stopped = Summary("b", "stopped", "", key=key, epochs=2, epochs_done=1, written=Spending(17, 1.0, 1.0))
        found = result_of(sweep, candidates, [done("a", key), stopped], [Begun(key, "a"), Begun(key, "b")])
        assert found.selection.runs == runs
        assert found.selection.single == selection([spent_of(sweep.start, 20)], 1e-5).single


def test_a_run_that_others_made_of_the_same_settings_is_not_the_sweeps():
    sweep = sweep_of(secure=True)
    candidates = made(sweep)[:1]
    key = candidates[0].specs[0].key
    assert len(charges_of(candidates, [done("a", key), done("x", key)], [Begun(key, "a")])) == 1


def test_a_begun_run_whose_candidate_is_lost_leaves_no_price():
    sweep = sweep_of()
    one = made(sweep)[0].specs[0].key
    found = result_of(sweep, made(sweep), [done("a", one)], [Begun(one, "a"), Begun("unknown", "b")])
    assert found.selection.composed is None


def test_only_seeded_runs_of_the_first_streams_share_their_noise():
    spec = small_spec()
    assert spent_of(spec, 5).noise is None
    assert spent_of(dataclasses.replace(spec, streams=1), 5).noise == spec.seed
    assert spent_of(dataclasses.replace(spec, streams=1, secure=True), 5).noise is None


def test_a_search_that_chose_the_noise_by_results_does_not_call_its_total_a_guarantee():
    for space, words in (
        ((("learning_rate", Range(0.1, 4.0)),), "This holds for the winner"),
        ((("schedule.sigma", Range(0.8, 3.0)),), "only if such a total was set as the limit"),
    ):
        sweep = Sweep(small_spec(epochs=2), (0,), search=Search(2, space))
        candidates = tuple(sweep.candidate(((space[0][0], value),)) for value in (1.0, 2.0))
        keys = [candidate.specs[0].key for candidate in candidates]
        runs = [done(key, key) for key in keys]
        told = " ".join(price_words(result_of(sweep, candidates, runs, [Begun(key, key) for key in keys])))
        assert words in told
