"""The full-length runs that come with dpviz: read like a person's own, with epsilons that follow from their ledgers."""

from __future__ import annotations

import dataclasses
import functools
import re
import shutil

import pytest

from dpviz.papers import RECIPES
from dpviz.paths import cached_runs_folder
from dpviz.privacy import epoch_phases, guarantee_path
from dpviz.runs.experiments import measured
from dpviz.runs.reproduce import same
from dpviz.runs.store.cached import cached_runs
from dpviz.runs.store.store import Store
from dpviz.views.comparison.experiments import comparison_frame

LISTING = cached_runs()
RUNS = [pytest.param(item, id=item.run.id) for item in LISTING.runs]


@functools.cache
def path(method, curriculum, sigmas, sample_rate, delta, accepted):
    phases = epoch_phases(sigmas, sample_rate)
    return guarantee_path(method, curriculum, phases, delta, accepted)


def test_there_are_cached_runs_and_every_one_can_be_read():
    assert LISTING.runs
    assert LISTING.warnings == ()


def test_every_cached_run_counts_as_its_recipe():
    found, warnings = measured(LISTING.runs)
    assert warnings == ()
    assert sum(len(result.runs) for result in found.values()) == len(LISTING.runs)


@pytest.mark.parametrize("item", RUNS)
def test_the_epsilons_of_a_cached_run_follow_from_its_ledger(item):
    spec, records = item.run.spec, item.run.epochs
    sigmas = tuple(spec.schedule.sigmas(spec.epochs)[: len(records)].tolist())
    accepted = None
    if spec.method == "screening":
        accepted = tuple(record.diagnostics["screening"]["accepted"] for record in records)
    expected = path(spec.method, spec.curriculum, sigmas, spec.sample_rate, spec.delta, accepted)
    for record, (claimed, sound) in zip(records, expected, strict=True):
        # Another processor's logarithm may differ in its last bit.
        assert record.noise_multiplier == pytest.approx(sigmas[record.epoch - 1], rel=1e-12)
        for stored, derived in ((record.epsilon_claimed, claimed), (record.epsilon_sound, sound)):
            assert (stored is None) == (derived is None)
            if stored is not None:
                # The band's upper end may tighten as the accountant gets better; a small epsilon has a wide band.
                assert stored == pytest.approx(derived, rel=0.01, abs=2e-3), f"epoch {record.epoch}"


@pytest.mark.parametrize("item", RUNS)
def test_a_cached_run_is_read_by_the_same_code_as_a_persons_own(item, tmp_path):
    shutil.copytree(cached_runs_folder() / item.run.id, tmp_path / "own-run")
    store = Store(tmp_path)
    own = store.get("own-run")
    # An own run that never noted its steps may hold some of one more epoch in its checkpoint; a cached one has none.
    assert dataclasses.replace(own, id=item.run.id, written=item.run.written) == item.run
    assert item.run.written in (None, own.written)
    (summary,) = store.list().runs
    assert summary.test_accuracy == own.epochs[-1].test_accuracy
    assert len(comparison_frame(runs=[own])) == len(own.epochs)


@pytest.mark.parametrize("item", RUNS)
def test_a_cached_run_is_its_recipe_and_says_how_it_was_made(item):
    recipe = f"{item.paper}/{item.experiment}"
    assert same(item.run.spec, dataclasses.replace(RECIPES[recipe].spec, seed=item.seed))
    assert item.run.spec.recipe == recipe
    provenance = item.run.provenance
    assert re.fullmatch(r"[0-9a-f]{12}\+?", provenance.commit)
    assert provenance.device
    assert provenance.threads >= 1
    assert provenance.minutes > 0
    assert provenance.versions["torch"]
    assert [record.step for record in item.run.epochs] == [
        record.epoch * round(1 / item.run.spec.sample_rate) for record in item.run.epochs
    ]


@pytest.mark.parametrize("item", RUNS)
def test_a_cached_run_is_small_and_names_no_folder_of_a_machine(item):
    folder = cached_runs_folder() / item.run.id
    checkpoint = folder / "checkpoint.pt"  # of one that was stopped early
    assert not checkpoint.exists() or (item.run.status == "stopped" and checkpoint.stat().st_size < 4_000_000)
    files = [file for file in folder.iterdir() if file != checkpoint]
    assert sum(file.stat().st_size for file in files) < 400_000
    for file in files:
        assert not re.search(r"/(home|work|tmp|root|Users)/", file.read_text()), file.name


def test_bad_and_foreign_files_among_cached_runs_are_skipped_with_a_warning(tmp_path):
    good = next(item for item in LISTING.runs)
    shutil.copytree(cached_runs_folder() / good.run.id, tmp_path / good.run.id)
    (tmp_path / "notes.txt").write_text("a file that does not belong here")
    for name, file, text in (
        ("9", "spec.json", "not json"),
        ("10", "epochs.jsonl", '{"epoch": 1}\n{"epoch": 2}\n'),
        ("11", "provenance.json", '{"kind": "guessed", "source": "me"}'),
    ):
        folder = tmp_path / good.paper / good.experiment / name
        shutil.copytree(tmp_path / good.run.id, folder)
        (folder / file).write_text(text)
    (tmp_path / "Not A Paper").mkdir()
    (tmp_path / good.paper / good.experiment / "seed-one").mkdir()
    listing = cached_runs(tmp_path)
    assert [item.run for item in listing.runs] == [good.run]
    assert len(listing.warnings) == 5
    assert all(warning.startswith("skipped: ") and str(tmp_path) not in warning for warning in listing.warnings)


def test_a_run_of_other_settings_or_without_a_recipe_is_left_out_with_a_warning():
    good = next(item for item in LISTING.runs)
    other = dataclasses.replace(
        good, run=dataclasses.replace(good.run, spec=dataclasses.replace(good.run.spec, learning_rate=0.123))
    )
    stray = dataclasses.replace(good, experiment="no-such-experiment")
    found, warnings = measured([good, other, stray])
    assert [len(result.runs) for result in found.values()] == [1]
    assert ["other settings" in warnings[0], "no recipe" in warnings[1]] == [True, True]
