"""Cached runs: the same files as a person's own, through the same code, each with how it was measured."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest

from dpviz.privacy.registry import InputError
from dpviz.runs.store.cached import cached_runs, write_cached
from dpviz.runs.store.records import Provenance


@pytest.fixture
def run(store, spec, record):
    run_id = store.create(spec(seed=7))
    provenance = Provenance("measured", "dpviz", commit="abc", device="cpu", threads=1, minutes=1.5)
    store.set_status(run_id, "running", provenance=provenance)
    for epoch in (1, 2, 3):
        store.append(run_id, record(epoch))
    store.set_status(run_id, "done")
    store.release(run_id)
    return store.get(run_id)


def test_a_cached_run_reads_back_as_the_run_it_was(run, tmp_path):
    folder = write_cached(run, "curricula", "constant-1.05", folder=tmp_path)
    assert folder == tmp_path / "curricula" / "constant-1.05" / "7"
    assert sorted(path.name for path in folder.iterdir()) == [
        "epochs.jsonl",
        "provenance.json",
        "spec.json",
        "status.json",
    ]
    listing = cached_runs(tmp_path)
    assert listing.warnings == ()
    (cached,) = listing.runs
    assert (cached.paper, cached.experiment, cached.seed) == ("curricula", "constant-1.05", 7)
    assert cached.run == dataclasses.replace(run, id="curricula/constant-1.05/7")


def test_one_paper_can_be_asked_for(run, tmp_path):
    write_cached(run, "curricula", "linear", folder=tmp_path)
    write_cached(run, "screening", "mnist", folder=tmp_path)
    assert [cached.paper for cached in cached_runs(tmp_path, paper="screening").runs] == ["screening"]


def test_an_existing_cached_run_is_kept_unless_it_is_to_be_replaced(run, tmp_path):
    write_cached(run, "curricula", "linear", folder=tmp_path)
    with pytest.raises(InputError, match="curricula/linear/7 is cached already"):
        write_cached(run, "curricula", "linear", folder=tmp_path)
    write_cached(dataclasses.replace(run, epochs=run.epochs[:2]), "curricula", "linear", folder=tmp_path, replace=True)
    assert len(cached_runs(tmp_path).runs[0].run.epochs) == 2


@pytest.mark.parametrize(
    "change",
    [{"status": "failed"}, {"status": "running"}, {"epochs": ()}, {"provenance": None}],
)
def test_only_measured_runs_that_ended_well_are_cached(run, tmp_path, change):
    with pytest.raises(InputError, match="only a measured run"):
        write_cached(dataclasses.replace(run, **change), "curricula", "linear", folder=tmp_path)
    assert list(tmp_path.glob("curricula")) == []


@pytest.mark.parametrize("name", ["", "..", "a/b", "/a", "A", "a b", ".hidden"])
def test_names_never_lead_out_of_the_folder(run, tmp_path, name):
    with pytest.raises(InputError, match="names of papers and experiments"):
        write_cached(run, "curricula", name, folder=tmp_path)
    with pytest.raises(InputError, match="names of papers and experiments"):
        write_cached(run, name, "linear", folder=tmp_path)


def test_bad_and_foreign_folders_are_skipped_with_a_warning(run, tmp_path):
    good = write_cached(run, "curricula", "linear", folder=tmp_path)

    def broken(name, change):
        folder = tmp_path / "curricula" / name / "7"
        shutil.copytree(good, folder)
        change(folder)

    broken("no-provenance", lambda folder: (folder / "provenance.json").unlink())
    broken("no-spec", lambda folder: (folder / "spec.json").unlink())
    broken("bad-spec", lambda folder: (folder / "spec.json").write_text("{}"))
    broken("odd-spec", lambda folder: (folder / "spec.json").write_text('{"schedule": 3, "epochs": "x"}'))
    broken("torn", lambda folder: (folder / "epochs.jsonl").write_text('{"epoch"\n{}\n'))
    broken("bad-status", lambda folder: (folder / "status.json").write_bytes(b"\xff"))
    broken("bad-provenance", lambda folder: (folder / "provenance.json").write_text(json.dumps({"kind": "guessed"})))
    broken("other-seed", lambda folder: folder.rename(folder.with_name("8")))
    broken("no-seed", lambda folder: folder.rename(folder.with_name("seed 7")))
    (tmp_path / "README.md").write_text("files are ignored")
    listing = cached_runs(tmp_path)
    assert [cached.experiment for cached in listing.runs] == ["linear"]
    assert len(listing.warnings) == 9
    assert all(str(tmp_path) not in warning for warning in listing.warnings)


def test_a_missing_folder_has_no_cached_runs(tmp_path):
    assert cached_runs(tmp_path / "nowhere").runs == ()


def test_reported_numbers_need_their_place():
    with pytest.raises(InputError, match="needs its place"):
        Provenance("reported", "curricula")
    assert Provenance.from_json(Provenance("reported", "curricula", "Table 2").to_json()).place == "Table 2"


def test_a_run_was_shared_by_one_worker_at_least():
    with pytest.raises(InputError, match="workers must be a whole number >= 1, got 0"):
        Provenance.from_json({"kind": "measured", "source": "dpviz", "workers": 0})
