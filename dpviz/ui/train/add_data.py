"""Your own data on the Train page: a file, its name, and the public constants that it needs."""

from __future__ import annotations

import re
import tempfile
import threading
from pathlib import Path
from typing import Any

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.training.data.own.columns import column_names
from dpviz.training.data.own.source import Options, parse_bounds, parse_range
from dpviz.training.data.own.store import add, description
from dpviz.training.limits import LIMITS, read_only
from dpviz.ui.common.auth import person
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.markdown import plain
from dpviz.ui.train.state import ADDED, TRAIN

TABLES = (".csv", ".parquet")
UNPACKED = 10  # times the largest upload: what an upload may take once it is converted
SHARED = "People sign in here and all of them could train on what you upload; ask the operator to add it."
_one_file_at_a_time = threading.Lock()


def add_data() -> None:
    """The popover; what was added is chosen in the form at the next look."""
    reason = read_only() or (SHARED if person() else "")
    with st.popover("Add your data", icon=":material/upload:", disabled=bool(reason), help=reason or None):
        if not reason:
            _form()


def _form() -> None:
    most = min(LIMITS["upload"].most, st.get_option("server.maxUploadSize"))
    file = st.file_uploader(
        "A NumPy archive or a table",
        ["npz", "csv", "parquet"],
        max_upload_size=most,
        help=f"At most {most:,} MB. `.npz`: x_train, y_train, x_test, y_test. CSV or Parquet: one row per example, "
        "which ε is about. Larger files and folders of images: `dpviz data add`.",
        key=TRAIN("file"),
    )
    if file is None:
        return
    suffix = Path(file.name).suffix.lower()
    name = st.text_input("Name", _suggested(file.name), key=TRAIN("data name", file.file_id), max_chars=40)
    try:
        options = _options(file, suffix)
    except InputError as error:
        input_error(error)
        return
    above = st.container()  # below the button nobody would see what is wrong
    if st.button("Add", type="primary", key=TRAIN("add data")):
        with above:
            _add(file, suffix, name, options)


def _options(file: Any, suffix: str) -> Options:
    """What the person says of the file."""
    label, leave_out, lines = "", [], ""
    if suffix in TABLES:
        columns = column_names(file, suffix)
        label = st.selectbox("Label column", columns, index=len(columns) - 1, key=TRAIN("label"))
        leave_out = st.multiselect(
            "Columns to leave out", columns, key=TRAIN("leave out"), help="For example the number of a person."
        )
    text = st.text_input(
        "Range of the numbers",
        key=TRAIN("range"),
        placeholder="0,255",
        help="Lowest and highest, as you know them without looking at the data: they are public. Bytes need none.",
    )
    if suffix in TABLES:
        lines = st.text_area(
            "Ranges of single columns", key=TRAIN("bounds"), placeholder="age=0,120\nincome=0,1e6", help="One per line."
        )
    st.caption(
        "Treated as public: the numbers of examples, the classes, columns and words that occur, and these ranges. "
        "Ranges are never estimated from the data."
    )
    bounds = parse_bounds(line for line in lines.splitlines() if line.strip())
    return Options(label=label, value_range=parse_range(text), bounds=bounds, leave_out=tuple(leave_out))


def _add(file: Any, suffix: str, name: str, options: Options) -> None:
    bar = st.progress(0.0, text="Reading the file")

    def draw(share: float) -> None:
        bar.progress(share)

    try:
        with _one_file_at_a_time, tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"upload{suffix}"  # never the name that came with it
            path.write_bytes(file.getbuffer())
            dataset = add(name, path, options, on_progress=draw, most_mb=UNPACKED * LIMITS["upload"].most)
    except InputError as error:
        bar.empty()
        input_error(error)
        return
    ADDED.set(dataset.name)
    st.rerun()


def _suggested(file_name: str) -> str:
    return re.sub(r"[^a-z0-9_.-]+", "-", Path(file_name).stem.lower()).strip("-._")[:40]


def public_words(name: str) -> None:
    """What is treated as public of own data, below their choice."""
    with st.expander(f"What is treated as public of {plain(name)}"):
        st.markdown("\n".join(f"- {plain(words)}" for words in description(name)["public"]))
