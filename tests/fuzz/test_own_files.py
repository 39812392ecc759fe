"""Own data with bytes put in, cut out or changed: kept whole, or one sentence and nothing left behind."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpviz.paths import own_data_folder
from dpviz.training.data.catalog import own_names
from dpviz.training.data.own.source import Options
from dpviz.training.data.own.store import add, remove
from dpviz.training.data.readers import load
from tests.fuzz.inputs import fuzzed, outcome
from tests.training.data.own.made_files import PEOPLE, as_csv, as_npz, as_parquet

OPTIONS = Options(label="ill", value_range=(0.0, 255.0))


def _whole(suffix: str) -> bytes:
    """A small file of each format."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"whole{suffix}"
        if suffix == ".npz":
            few = {f"{kind}_{part}": np.arange(12, dtype=np.uint8) % 3 for kind in "xy" for part in ("train", "test")}
            as_npz(path, **{name: few[name][:, None] if name[0] == "x" else few[name] for name in few})
        else:
            (as_csv if suffix == ".csv" else as_parquet)(path, PEOPLE[:40])
        return path.read_bytes()


FILES = {suffix: _whole(suffix) for suffix in (".npz", ".csv", ".parquet")}


@st.composite
def damaged(draw) -> tuple[str, bytes]:
    suffix = draw(st.sampled_from(sorted(FILES)))
    content = FILES[suffix]
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.binary(max_size=4)) + content[at + draw(st.integers(0, 5)) :]
    return suffix, content


@fuzzed("own data")
@given(damaged() | st.tuples(st.sampled_from(sorted(FILES)), st.binary(max_size=200)))
def test_a_damaged_file_is_a_sentence_or_still_whole(made):
    suffix, content = made
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, DPVIZ_DATA=f"{folder}/data"):
        path = Path(folder) / f"mine{suffix}"
        path.write_bytes(content)
        dataset, refusal = outcome(lambda: add("mine", path, OPTIONS))
        assert "\n" not in refusal
        assert len(refusal) < 400
        if dataset is None:
            assert own_names() == []
            assert not own_data_folder().exists() or list(own_data_folder().iterdir()) == []
            return
        data = load("mine")
        assert data.train_images.isfinite().all()
        assert set(data.train_labels.tolist()) == set(range(dataset.classes))
        remove("mine")
        assert list(own_data_folder().iterdir()) == []
