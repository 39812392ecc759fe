"""Whatever is in a run's files, reading them gives a run or one readable sentence; what is written survives a crash."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpviz.privacy.registry import InputError
from dpviz.runs.store import run_files as files
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps.folder import Begun, SweepFolder
from dpviz.runs.sweeps.spec import Sweep

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
VALUES = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.text(max_size=8), LEAVES, max_size=2)
FILES = ("spec.json", "status.json", "epochs.jsonl")


@pytest.fixture(scope="module")
def example(tmp_path_factory, spec, record):
    """A store with one finished run, and its files' content."""
    store = Store(tmp_path_factory.mktemp("runs"))
    run_id = store.create(spec(model="cnn-mnist"))
    store.set_status(run_id, "running")
    store.append(run_id, record(1))
    store.set_status(run_id, "done")
    store.release(run_id)
    return store, run_id, {name: (store.folder / run_id / name).read_bytes() for name in FILES}


def reads_or_says_why(store: Store, run_id: str) -> None:
    try:
        answer = store.get(run_id).id
    except InputError as error:
        answer = str(error)
    assert "\n" not in answer
    assert str(store.folder) not in answer
    listing = store.list()
    assert len(listing.runs) + len(listing.warnings) == 1


@settings(max_examples=400, deadline=None)
@given(name=st.sampled_from(FILES), data=st.data(), value=VALUES)
def test_any_value_in_any_field(example, name, data, value):
    store, run_id, files = example
    content = json.loads(files[name])
    key = data.draw(st.sampled_from([*content, "knobs", "summary", "new"]))
    inner = content.get(key)
    if isinstance(inner, dict) and inner and data.draw(st.booleans()):
        inner[data.draw(st.sampled_from(list(inner)))] = value
    else:
        content[key] = value
    path = store.folder / run_id / name
    path.write_text(json.dumps(content) + "\n")
    try:
        reads_or_says_why(store, run_id)
    finally:
        path.write_bytes(files[name])


@settings(max_examples=200, deadline=None)
@given(name=st.sampled_from(FILES), cut=st.integers(0, 600), extra=st.binary(max_size=20))
def test_any_bytes_at_any_place(example, name, cut, extra):
    store, run_id, files = example
    path = store.folder / run_id / name
    path.write_bytes(files[name][:cut] + extra + files[name][cut + len(extra) :])
    try:
        reads_or_says_why(store, run_id)
    finally:
        path.write_bytes(files[name])


# --- after a power cut: a rename may reach the disk before the data, and a name only with its folder ------------------


@pytest.fixture
def disk(monkeypatch):
    """What the system was asked to do, in order: (call, name of the file or folder, bytes that it holds by then)."""
    calls = []
    fsync, replace, rename = os.fsync, os.replace, os.rename

    def name(path) -> str:
        own = os.path.basename(path)
        return "temporary" if own.startswith(files.TEMPORARY) else own.removeprefix(".new-")

    def spy_fsync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        fsync(descriptor)
        calls.append(("sync", name(path), b"" if os.path.isdir(path) else files.read_bytes(path)))

    def spy_move(move):
        def moved(source, target) -> None:
            move(source, target)
            calls.append(("move", name(target), b""))

        return moved

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_move(replace))
    monkeypatch.setattr(os, "rename", spy_move(rename))
    return calls


def test_a_file_is_on_the_disk_before_it_takes_its_name_and_its_name_before_anything_else(disk, tmp_path):
    path = tmp_path / "status.json"
    path.write_bytes(b"old")
    files.replace(path, b"new")
    assert path.read_bytes() == b"new"
    assert disk == [("sync", "temporary", b"new"), ("move", "status.json", b""), ("sync", tmp_path.name, b"")]


def test_whoever_has_opened_a_file_reads_the_old_one_to_its_end(tmp_path):
    path = tmp_path / "status.json"
    path.write_bytes(b"old")
    with open(path, "rb") as reader:
        files.replace(path, b"a new one")
        assert reader.read() == b"old"
    assert os.listdir(tmp_path) == ["status.json"]


def test_an_epoch_is_on_the_disk_when_it_counts(disk, store, running, record):
    disk.clear()
    store.append(running, record(1))
    line = (store.folder / running / files.EPOCHS).read_bytes()
    assert disk[0] == ("sync", files.EPOCHS, line)
    assert disk[2] == ("move", files.STATUS, b""), "a list never counts an epoch that a crash could take back"


def test_a_new_run_is_in_the_store_for_good(disk, store, spec):
    run_id = store.create(spec())
    assert disk[-2:] == [("move", run_id, b""), ("sync", store.folder.name, b"")]


def test_a_run_that_a_sweep_begins_is_on_the_disk_before_it_starts(disk, store, spec):
    sweep = Sweep(spec(epochs=1), grids=((("learning_rate", (0.1, 0.2)),),))
    folder = SweepFolder(store, sweep.id)
    folder.save(sweep)
    folder.begin(Begun("key", "0-0"))
    call, name, content = disk[-1]
    assert (call, name) == ("sync", "begun.jsonl")
    assert json.loads(content) == {"key": "key", "run_id": "0-0"}
