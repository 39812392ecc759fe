"""Files that people bring, and the store's own: parse(print(x)) is x; damage is a sentence, never a wrong number."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpviz.privacy.schedules import parse_csv as parse_curve
from dpviz.runs.settings import DEFAULT, change
from dpviz.runs.store.store import Store
from dpviz.training.local.parsing import parse_csv, parse_libsvm
from dpviz.training.local.tabular import read_upload
from dpviz.training.spec import EpochRecord, RunSpec
from tests.fuzz.inputs import fuzzed, outcome
from tests.runs.conftest import epoch_record, small_spec

numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)
shapes = st.tuples(st.integers(2, 30), st.integers(1, 6))


@st.composite
def tables(draw):
    """Rows of numbers and labels of two classes."""
    rows, columns = draw(shapes)
    values = draw(st.lists(st.lists(numbers, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    labels = [1.0, -1.0, *draw(st.lists(st.sampled_from([1.0, -1.0]), min_size=rows - 2, max_size=rows - 2))]
    return np.array(values), np.array(labels)


@st.composite
def damaged(draw, text: str) -> bytes:
    """A file with some bytes put in, cut out or changed."""
    content = text.encode()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.binary(max_size=4)) + content[at + draw(st.integers(0, 5)) :]
    return content


def as_csv(rows: np.ndarray, labels: np.ndarray) -> str:
    lines = [",".join([*(f"c{k}" for k in range(rows.shape[1])), "label"])]
    lines += [
        ",".join([*(repr(float(x)) for x in row), f"{label:+.0f}"]) for row, label in zip(rows, labels, strict=True)
    ]
    return "\n".join(lines)


def as_libsvm(rows: np.ndarray, labels: np.ndarray) -> str:
    return "\n".join(
        " ".join([f"{label:+.0f}", *(f"{k}:{float(x)!r}" for k, x in enumerate(row, start=1))])
        for row, label in zip(rows, labels, strict=True)
    )


def is_right_or_a_sentence(parse, content: bytes, name: str) -> None:
    for read in (parse, lambda content: read_upload(content, name)):
        found, refusal = outcome(read, content)
        assert "\n" not in refusal
        assert len(refusal) < 400
        if isinstance(found, tuple):
            rows, labels = found
            assert len(rows) == len(labels)
            assert np.all(np.isfinite(rows))
            assert set(labels) == {-1.0, 1.0}
        elif found:
            np.testing.assert_allclose(np.linalg.norm(found.train_rows, axis=1), 1.0)


@fuzzed("csv", 0.4)
@given(tables())
def test_a_printed_csv_file_is_read_as_it_was(made):
    rows, labels = parse_csv(as_csv(*made).encode())
    np.testing.assert_array_equal(rows, made[0])
    np.testing.assert_array_equal(labels, made[1])


@fuzzed("csv", 0.6)
@given(tables().flatmap(lambda made: damaged(as_csv(*made))) | st.binary(max_size=200))
def test_a_damaged_csv_file_is_a_sentence_or_still_whole(content):
    is_right_or_a_sentence(parse_csv, content, "people.csv")


@fuzzed("libsvm", 0.4)
@given(tables())
def test_a_printed_libsvm_file_is_read_as_it_was(made):
    rows, labels = parse_libsvm(as_libsvm(*made).encode())
    np.testing.assert_array_equal(rows, made[0])
    np.testing.assert_array_equal(labels, made[1])


@fuzzed("libsvm", 0.6)
@given(tables().flatmap(lambda made: damaged(as_libsvm(*made))) | st.binary(max_size=200))
def test_a_damaged_libsvm_file_is_a_sentence_or_still_whole(content):
    is_right_or_a_sentence(parse_libsvm, content, "people.libsvm")


@fuzzed("curves", 0.5)
@given(st.lists(st.floats(0, 1000), min_size=1, max_size=50), st.sampled_from(["\n", ",", "\r\n"]))
def test_a_printed_curve_is_read_as_it_was(sigmas, between):
    assert list(parse_curve(between.join(map(repr, sigmas))).values) == sigmas


@fuzzed("curves", 0.5)
@given(st.text(max_size=200) | st.text('0123456789.,;\n"sigma-e', max_size=200))
def test_any_text_is_a_curve_or_a_sentence(text):
    curve, refusal = outcome(parse_curve, text)
    assert refusal or all(0 <= value < math.inf for value in curve.values)


# --- the store's own files --------------------------------------------------------------------------------------------

FILES = ("spec.json", "status.json", "epochs.jsonl", "title.json")
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
VALUES = LEAVES | st.lists(LEAVES, max_size=2) | st.dictionaries(st.text(max_size=8), LEAVES, max_size=2)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store with one run of three epochs, and its files' content."""
    store = Store(tmp_path_factory.mktemp("runs"))
    run_id = store.create(small_spec(model="cnn-mnist"), title="Kept")
    store.set_status(run_id, "running")
    for epoch in (1, 2, 3):
        store.append(run_id, epoch_record(epoch))
    store.set_status(run_id, "done")
    store.release(run_id)
    return store, store.get(run_id), {name: (store.folder / run_id / name).read_bytes() for name in FILES}


def read_after(kept, name: str, content: bytes) -> None:
    """The run reads as a whole run, or the damage is told in one line without a path."""
    store, run, files = kept
    path = store.folder / run.id / name
    path.write_bytes(content)
    try:
        found, refusal = outcome(store.get, run.id)
        assert "\n" not in refusal
        assert str(store.folder) not in refusal
        if found:
            assert [record.epoch for record in found.epochs] == list(range(1, len(found.epochs) + 1))
            bounds = [record.epsilon_sound for record in found.epochs if record.epsilon_sound is not None]
            assert bounds == sorted(bounds)
        listing = store.list()
        assert len(listing.runs) + len(listing.warnings) == 1
    finally:
        path.write_bytes(files[name])


@fuzzed("store", 0.4)
@given(name=st.sampled_from(FILES), data=st.data())
def test_a_store_file_with_damaged_bytes(kept, name, data):
    content = kept[2][name]
    at = data.draw(st.integers(0, len(content)))
    read_after(
        kept, name, content[:at] + data.draw(st.binary(max_size=6)) + content[at + data.draw(st.integers(0, 9)) :]
    )


@fuzzed("store", 0.4)
@given(name=st.sampled_from(FILES), data=st.data(), value=VALUES)
def test_a_store_file_with_a_field_of_another_kind(kept, name, data, value):
    lines = [json.loads(line) for line in kept[2][name].splitlines()]
    line = data.draw(st.sampled_from(lines))
    line[data.draw(st.sampled_from([*line, "new"]))] = value
    read_after(kept, name, b"".join(json.dumps(line).encode() + b"\n" for line in lines))


@fuzzed("store", 0.2)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1e6) | st.just(math.inf) | st.none(), st.floats(0, 1e9))
def test_an_epoch_reads_back_as_it_was_printed(test, train, bound, loss):
    record = epoch_record(1, test_accuracy=test, train_accuracy=train, epsilon_sound=bound, test_loss=loss)
    assert EpochRecord.from_json(json.loads(json.dumps(record.to_json(), allow_nan=False))) == record


SETTINGS = st.dictionaries(
    st.sampled_from(
        ["epochs", "batch_size", "optimizer", "optimizer.momentum", "schedule", "schedule.start", "delta", "x"]
    ),
    st.sampled_from(
        ["1", "5", "0", "-1", "nan", "inf", "1e9", "adam", "linear", "5,4,3", "", "0.5", "1e-5", "x" * 500]
    ),
    max_size=4,
)


@fuzzed("specs")
@given(SETTINGS)
def test_settings_by_name_make_a_whole_spec_or_a_sentence(settings):
    spec, refusal = outcome(change, DEFAULT, settings)
    if spec:
        assert RunSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
        assert spec.key == dataclasses.replace(spec, recipe="other").key
    else:
        assert "\n" not in refusal
