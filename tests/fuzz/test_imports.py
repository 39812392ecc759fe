"""Files of other programs' runs: any damage is a sentence or a run whose numbers are whole; nothing is left behind."""

from __future__ import annotations

import io
import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpviz.runs.store.store import Store
from dpviz.runs.tracking.importers import import_run
from dpviz.runs.tracking.track import track
from tests.fuzz.inputs import fuzzed, outcome
from tests.fuzz.test_files import FILES, VALUES, read_after

CSV = "epoch,sigma,q,steps,test_accuracy,eps\n1,2.0,0.1,10,0.5,1.5\n2,1.0,0.1,10,0.7,3.5\n"
STATE = {"history": [(1.0, 0.1, 10), (2.0, 0.1, 5)], "mechanism": "rdp"}
EVENT = ["dp_accounting.dp_event", "SelfComposedDpEvent", ["dp_accounting.dp_event", "GaussianDpEvent", 1.0], 3]
ROWS = [{"epoch": 0, "sigma": 1.0, "q": 0.1, "steps": 10, "acc": 0.5}]


def saved(state: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


WHOLE = (CSV.encode(), saved(STATE), *(json.dumps(data).encode() for data in (STATE, EVENT, ROWS)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("imports")


def is_a_run_or_a_sentence(folder, content: bytes) -> None:
    path, store = folder / "run", Store(folder / "runs")
    path.write_bytes(content)
    run, refusal = outcome(lambda: import_run(path, delta=1e-5, store=store))
    assert "\n" not in refusal
    assert len(refusal) < 400
    assert str(folder) not in refusal
    assert len(store.list().runs) == (1 if run else 0)
    if run:
        assert run.epochs
        assert all(phase.noise_multiplier >= 0 for phase in run.spec.phases)
        assert sum(phase.steps for phase in run.spec.phases) == run.epochs[-1].step
        assert not math.isnan(run.spent.epsilon_sound)
        store.delete(run.id)


@fuzzed("imports", 0.6)
@given(st.sampled_from(WHOLE), st.data())
def test_a_file_with_damaged_bytes(folder, content, data):
    at = data.draw(st.integers(0, len(content)))
    cut = data.draw(st.integers(0, 9))
    is_a_run_or_a_sentence(folder, content[:at] + data.draw(st.binary(max_size=6)) + content[at + cut :])


JSON = st.recursive(
    st.none() | st.integers() | st.floats(0, 2) | st.sampled_from(["dp_accounting.dp_event", "ComposedDpEvent", "x"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["history", "mechanism", "epoch", "sigma", "q", "steps", "acc"]), inner, max_size=5
        )
    ),
)


@fuzzed("imports", 0.2)
@given(JSON)
def test_any_json(folder, data):
    is_a_run_or_a_sentence(folder, json.dumps(data).encode())


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A store with one imported run of two epochs, and its files' content."""
    store, steps = Store(tmp_path_factory.mktemp("runs")), []
    with track(ledger=steps, delta=1e-5, name="Kept", dataset="hospital", store=store, model="line") as run:
        for sigma in (2.0, 1.0):
            steps.append((sigma, 0.1, 10))
            run.log(test_accuracy=0.5, other=1.0)
    return store, store.get(run.id), {name: (store.folder / run.id / name).read_bytes() for name in FILES}


@fuzzed("imports", 0.2)
@given(name=st.sampled_from(FILES), data=st.data(), value=VALUES)
def test_a_file_of_an_imported_run_with_a_field_of_another_kind(kept, name, data, value):
    lines = [json.loads(line) for line in kept[2][name].splitlines()]
    line = data.draw(st.sampled_from(lines))
    line[data.draw(st.sampled_from([*line, "new"]))] = value
    read_after(kept, name, b"".join(json.dumps(line).encode() + b"\n" for line in lines))
