"""Reproducing the papers: what is missing is made once, survives a stop, and says how it was made."""

from __future__ import annotations

import dataclasses
import threading
from contextlib import closing

import pytest

from dpviz.papers import RECIPES
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.reproduce import SEEDS, PaperRun, Reproduction, paper_runs
from dpviz.runs.store.cached import cached_runs, write_cached
from tests.runs.conftest import Foreground

ONE, TWIN, OTHER = "curricula/linear-decreasing", "curricula/linear-increasing", "screening/mnist"


@pytest.fixture
def small(monkeypatch, spec):
    """Three recipes small enough to train here: two of equal settings, one that screens."""
    for name, changes in {ONE: {}, TWIN: {}, OTHER: {"method": "screening"}}.items():
        recipe = RECIPES[name]
        monkeypatch.setitem(RECIPES, name, dataclasses.replace(recipe, spec=spec(recipe=name, **changes)))


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cached"


@pytest.fixture
def reproduction(store, folder, small):
    return Reproduction(store, folder)


def made(reproduction, *wanted, until=None, **options):
    with closing(QueueRunner(reproduction.store, threads=1)) as runner:
        outcomes = list(reproduction.run(wanted, runner, options=RunOptions(until=until), **options))
    return [(outcome.wanted.recipe, outcome.state) for outcome in outcomes]


def test_every_recipe_comes_once_with_every_seed():
    every = paper_runs()
    assert len(set(every)) == len(every) == len(RECIPES) * len(SEEDS)


def test_what_decides_a_claim_comes_before_more_seeds_and_before_what_takes_hours():
    every = paper_runs()
    at = {task: place for place, task in enumerate(every)}
    assert at[PaperRun("curricula/constant-1.54", 0)] < at[PaperRun("curricula/linear-decreasing", 1)]
    assert at[PaperRun("curricula/linear-decreasing", 1)] < at[PaperRun("optimizers/dp-sgd-b256", 0)]


def test_a_paper_an_experiment_and_seeds_can_be_chosen():
    assert paper_runs("curricula/constant-1", (0, 7)) == (
        PaperRun("curricula/constant-1", 0),
        PaperRun("curricula/constant-1", 7),
    )
    assert {task.recipe.partition("/")[0] for task in paper_runs("screening")} == {"screening"}


@pytest.mark.parametrize(
    ("which", "words"),
    [("curiculla", "curricula"), ("curricula/linear", "linear-decreasing"), ("prestige", "no runs")],
)
def test_a_wrong_name_is_answered_with_what_there_is(which, words):
    with pytest.raises(InputError, match=words):
        paper_runs(which)


def test_what_is_missing_is_trained_and_cached_with_how_it_was_made(reproduction, folder):
    assert made(reproduction, PaperRun(ONE, 0), PaperRun(ONE, 1)) == [(ONE, "cached"), (ONE, "cached")]
    first, second = cached_runs(folder).runs
    assert (first.seed, second.seed) == (0, 1)
    assert len(first.run.epochs) == first.run.spec.epochs
    provenance = first.run.provenance
    assert (provenance.source, provenance.device, provenance.threads) == ("dpviz", "cpu", 1)
    assert provenance.minutes > 0
    assert {"python", "torch", "opacus"} <= set(provenance.versions)


def test_nothing_is_trained_twice(reproduction, store, folder):
    made(reproduction, PaperRun(ONE, 0))
    again = Reproduction(store, folder)
    assert again.state(PaperRun(ONE, 0)) == "cached"
    assert made(again, PaperRun(ONE, 0)) == []


def test_no_file_of_a_cached_run_names_a_folder_of_this_machine(reproduction, folder, tmp_path):
    made(reproduction, PaperRun(ONE, 0))
    for file in folder.rglob("*.json*"):
        assert str(tmp_path) not in file.read_text(), file.name
        assert "/home/" not in file.read_text(), file.name


def test_equal_settings_are_computed_once_and_say_so(reproduction, folder):
    assert made(reproduction, PaperRun(ONE, 0), PaperRun(TWIN, 0)) == [(ONE, "cached"), (TWIN, "shared")]
    one, twin = cached_runs(folder).runs
    assert twin.run.epochs == one.run.epochs
    assert twin.run.provenance.place == f"computed for {ONE}"
    assert twin.run.spec.recipe == TWIN


def test_a_changed_recipe_is_missing_again(reproduction, store, folder, monkeypatch, spec):
    made(reproduction, PaperRun(ONE, 0))
    monkeypatch.setitem(RECIPES, ONE, dataclasses.replace(RECIPES[ONE], spec=spec(recipe=ONE, sigma=2.0)))
    again = Reproduction(store, folder)
    assert again.state(PaperRun(ONE, 0)) == "missing"
    assert made(again, PaperRun(ONE, 0)) == [(ONE, "cached")]
    (run,) = cached_runs(folder).runs
    assert run.run.spec.schedule.sigmas(1)[0] == 2.0


def test_no_time_means_no_run(reproduction, folder):
    assert made(reproduction, PaperRun(ONE, 0), seconds=0.0) == []
    assert cached_runs(folder).runs == ()


def test_a_budget_that_runs_out_stops_the_run_and_nothing_half_done_is_cached(reproduction, folder, monkeypatch, spec):
    monkeypatch.setitem(RECIPES, ONE, dataclasses.replace(RECIPES[ONE], spec=spec(recipe=ONE, epochs=150)))
    assert made(reproduction, PaperRun(ONE, 0), PaperRun(OTHER, 0), seconds=1.0) == [(ONE, "stopped")]
    assert cached_runs(folder).runs == ()
    assert reproduction.state(PaperRun(ONE, 0)) == "begun"


def test_a_stopped_run_goes_on_and_ends_as_if_it_had_never_stopped(reproduction, store, folder, tmp_path):
    with closing(QueueRunner(store, threads=1, on_epoch=lambda run_id, record: runner.stop_all())) as runner:
        (outcome,) = reproduction.run([PaperRun(ONE, 0)], runner)
    assert (outcome.state, len(outcome.run.epochs)) == ("stopped", 1)
    assert made(Reproduction(store, folder), PaperRun(ONE, 0)) == [(ONE, "cached")]
    straight = Reproduction(type(store)(tmp_path / "other"), tmp_path / "straight")
    made(straight, PaperRun(ONE, 0))
    (resumed,), (whole,) = cached_runs(folder).runs, cached_runs(tmp_path / "straight").runs
    assert [r.test_loss for r in resumed.run.epochs] == [r.test_loss for r in whole.run.epochs]


def test_runs_that_are_to_be_short_are_cached_as_such_and_the_next_one_follows(reproduction, store, folder):
    assert made(reproduction, PaperRun(ONE, 0), PaperRun(ONE, 1), until=1) == [(ONE, "shortened"), (ONE, "shortened")]
    for item in cached_runs(folder).runs:
        assert (item.run.status, len(item.run.epochs)) == ("stopped", 1)
    assert made(Reproduction(store, folder), PaperRun(ONE, 0), until=1) == []


def test_a_shortened_run_is_made_whole_from_its_checkpoint(reproduction, store, folder, tmp_path):
    made(reproduction, PaperRun(ONE, 0), until=1)
    (short,) = cached_runs(folder).runs
    elsewhere = Reproduction(type(store)(tmp_path / "other"), folder)
    assert elsewhere.state(PaperRun(ONE, 0)) == "shortened"
    assert Reproduction(store, folder).state(PaperRun(ONE, 0)) == "begun"
    assert made(elsewhere, PaperRun(ONE, 0)) == [(ONE, "cached")]
    (item,) = cached_runs(folder).runs
    assert (item.run.status, len(item.run.epochs)) == ("done", item.run.spec.epochs)
    assert item.run.epochs[:1] == short.run.epochs  # to the seconds: it went on from its checkpoint
    assert not (folder / item.run.id / "checkpoint.pt").exists()
    assert made(elsewhere, PaperRun(ONE, 0), until=1) == []


def test_a_run_that_is_further_than_asked_for_is_cached_as_it_stands(reproduction, store, folder, monkeypatch, spec):
    monkeypatch.setitem(RECIPES, ONE, dataclasses.replace(RECIPES[ONE], spec=spec(recipe=ONE, epochs=4)))
    Foreground(store, threads=1).start(PaperRun(ONE, 0).spec, until=2)
    assert made(reproduction, PaperRun(ONE, 0), until=1) == [(ONE, "shortened")]
    (item,) = cached_runs(folder).runs
    assert len(item.run.epochs) == 2


def test_a_run_that_was_interrupted_further_than_asked_for_is_cached_as_well(
    reproduction, store, folder, monkeypatch, spec
):
    monkeypatch.setitem(RECIPES, ONE, dataclasses.replace(RECIPES[ONE], spec=spec(recipe=ONE, epochs=150)))
    begun = threading.Event()
    with closing(QueueRunner(store, threads=1, on_epoch=lambda run_id, record: begun.set())) as runner:
        run_id = runner.start(PaperRun(ONE, 0).spec)
        assert begun.wait(30)
    assert store.get(run_id).status == "interrupted"
    assert made(reproduction, PaperRun(ONE, 0), until=1) == [(ONE, "shortened")]


def test_a_shortened_run_of_an_older_version_is_taken_over_once(store, folder, small, tmp_path):
    spec = dataclasses.replace(PaperRun(ONE, 0).spec, streams=2)
    run_id = Foreground(store, threads=1).start(spec, until=1)
    write_cached(store.get(run_id), *ONE.split("/"), folder=folder, checkpoint=store.read_checkpoint(run_id))
    elsewhere = type(store)(tmp_path / "other")
    assert made(Reproduction(elsewhere, folder), PaperRun(ONE, 0), seconds=0.0) == []
    for until in (2, None):
        made(Reproduction(elsewhere, folder), PaperRun(ONE, 0), until=until)
        assert len(elsewhere.list().runs) == 1
    assert cached_runs(folder).runs[0].run.status == "done"


def test_a_runs_folder_that_is_a_file_is_refused_in_a_sentence(folder, small, store):
    store.folder.write_text("not a folder")
    with pytest.raises(InputError, match="no run can be kept in the runs folder"):
        made(Reproduction(store, folder), PaperRun(ONE, 0))


def test_a_run_has_no_epoch_before_the_first():
    with pytest.raises(InputError, match="1 or later, got 0"):
        RunOptions(until=0)


def test_screening_keeps_how_many_updates_it_accepted(reproduction, folder):
    made(reproduction, PaperRun(OTHER, 0))
    (cached,) = cached_runs(folder).runs
    for record in cached.run.epochs:
        assert 0 < record.diagnostics["screening"]["accepted"] <= record.diagnostics["screening"]["generated"]


def test_a_damaged_cached_run_is_named_and_made_again(reproduction, store, folder):
    made(reproduction, PaperRun(ONE, 0))
    (folder / ONE / "0" / "spec.json").write_text("{}")
    again = Reproduction(store, folder)
    assert any(ONE in warning for warning in again.warnings)
    assert again.state(PaperRun(ONE, 0)) != "cached"


def test_two_processes_on_one_store_share_the_work(reproduction, folder):
    """The second started before the first had made anything, and comes to the same paper_runs later."""
    second = Reproduction(reproduction.store, folder)
    with reproduction._claimed(PaperRun(ONE, 0)) as ours:
        assert ours
        assert made(second, PaperRun(ONE, 0), PaperRun(OTHER, 0)) == [(OTHER, "cached")]
    assert made(reproduction, PaperRun(ONE, 0), PaperRun(OTHER, 0)) == [(ONE, "cached")]
    assert made(second, PaperRun(ONE, 0), PaperRun(OTHER, 0)) == []
    assert len(reproduction.store.list().runs) == 2
    assert reproduction.store.list().warnings == ()
