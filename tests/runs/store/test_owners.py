"""Owners: a person's part of the store holds their runs only; a store without sign-in is unchanged."""

from __future__ import annotations

import json

import pytest

from dpviz.privacy.registry import InputError
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.store.store import Store

ANN, BOB = "a" * 32, "b" * 32


@pytest.fixture
def runs(store, spec):
    """A run of Ann, one of Bob and one of nobody, all interrupted."""
    ids = {owner: store.create(spec(), owner=owner) for owner in (ANN, BOB, "")}
    for run_id in ids.values():
        store.release(run_id)
    return ids


def test_a_person_sees_their_own_runs_and_the_operator_sees_all(store, runs):
    assert [run.id for run in Store(store.folder, owner=ANN).list().runs] == [runs[ANN]]
    assert [run.owner for run in store.list().runs] == [ANN, BOB, ""]
    assert Store(store.folder, owner=ANN).get(runs[ANN]).owner == ANN


@pytest.mark.parametrize("deed", ["get", "delete", "claim", "export", "read_checkpoint", "rename"])
@pytest.mark.parametrize("owner", [BOB, ""])
def test_another_persons_run_is_not_there_whatever_is_asked_of_it(store, runs, deed, owner):
    arguments = ("mine now",) if deed == "rename" else ()
    with pytest.raises(InputError, match="there is no run"):
        getattr(Store(store.folder, owner=ANN), deed)(runs[owner], *arguments)
    assert store.get(runs[owner]).title == ""


def test_a_person_renames_and_deletes_their_own(store, runs):
    mine = Store(store.folder, owner=ANN)
    mine.rename(runs[ANN], "Mine")
    assert store.get(runs[ANN]).title == "Mine"
    mine.delete(runs[ANN])
    assert [run.owner for run in store.list().runs] == [BOB, ""]


def test_a_folder_that_cannot_be_read_is_told_to_the_operator_only(store, runs):
    (store.folder / runs[BOB] / "status.json").write_text("{")
    assert len(store.list().warnings) == 1
    assert Store(store.folder, owner=ANN).list().warnings == ()
    with pytest.raises(InputError, match="there is no run"):
        Store(store.folder, owner=ANN).get(runs[BOB])


def test_the_owner_stays_when_a_run_goes_on_and_is_not_exported(store, runs, record):
    store.claim(runs[ANN])
    store.set_status(runs[ANN], "running")
    store.append(runs[ANN], record(1))
    store.release(runs[ANN])
    assert store.get(runs[ANN]).owner == ANN
    assert ANN not in json.dumps(store.export(runs[ANN]))


def test_without_owners_the_files_are_what_they_always_were(store, runs):
    assert "owner" not in json.loads((store.folder / runs[""] / "status.json").read_text())
    assert json.loads((store.folder / runs[ANN] / "status.json").read_text())["owner"] == ANN


def test_a_run_in_the_background_belongs_to_who_launched_it(store, spec):
    runner = QueueRunner(store)
    (run_id,) = runner.start_all((spec(epochs=1),), owner=ANN)
    assert runner.wait(run_id, 60)
    assert (store.get(run_id).status, store.get(run_id).owner) == ("done", ANN)
    runner.close()


# --- read-only and limits, behind every page and command --------------------------------------------------------------


def test_a_read_only_server_launches_resumes_renames_and_deletes_nothing(store, runs, spec, monkeypatch):
    monkeypatch.setenv("DPVIZ_READ_ONLY", "1")
    runner = QueueRunner(store)
    for deed in (
        lambda: runner.start(spec()),
        lambda: runner.resume(runs[""]),
        lambda: store.create(spec()),
        lambda: store.rename(runs[""], "x"),
        lambda: store.delete(runs[""]),
    ):
        with pytest.raises(InputError, match="read-only"):
            deed()
    assert [run.id for run in store.list().runs] == list(runs.values())
    assert store.get(runs[""]).title == ""


@pytest.mark.parametrize("variable", ["DPVIZ_MAX_EPOCHS", "DPVIZ_MAX_BATCH", "DPVIZ_MAX_WEIGHTS"])
def test_what_is_above_a_limit_neither_starts_nor_resumes(store, runs, spec, monkeypatch, variable):
    monkeypatch.setenv(variable, "2")
    runner = QueueRunner(store)
    for deed in (lambda: runner.start(spec()), lambda: runner.resume(runs[""])):
        with pytest.raises(InputError, match=variable):
            deed()
    assert len(store.list().runs) == 3
    assert store.get(runs[""]).status == "interrupted"
