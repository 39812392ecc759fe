"""Whatever is in a run's files, reading them gives a run or one readable sentence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpviz.privacy.registry import InputError
from dpviz.runs.store.store import Store

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
