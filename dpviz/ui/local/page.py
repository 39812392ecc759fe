"""The parts of the Local privacy page."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import streamlit as st

from dpviz.papers import PAPERS
from dpviz.privacy.local import METHODS, local_guarantee
from dpviz.privacy.registry import InputError
from dpviz.runs.local_results import LocalResult
from dpviz.training.limits import LIMITS, read_only
from dpviz.training.local.experiments import BUDGETS, specs_for
from dpviz.training.local.parsing import LABEL_NAMES, csv_header
from dpviz.training.local.prestige_reference import walk
from dpviz.training.local.spec import LOSSES, TRUE, LocalSpec
from dpviz.training.local.tabular import TABULARS, Tabular, available, load_tabular, picture_data, read_upload
from dpviz.ui.common.cards import guarantee_card, input_error
from dpviz.ui.common.downloads import download_buttons
from dpviz.ui.common.export_figures import FIGURE_FORMATS
from dpviz.ui.common.image_buttons import image_buttons
from dpviz.ui.common.runs import cached_local, show_warnings
from dpviz.ui.local.job import Job
from dpviz.ui.local.settings import GRADIENT_LABELS, key
from dpviz.views.local import (
    batch_rows,
    difference_frame,
    epoch_figure,
    epoch_frame,
    error_figure,
    error_frame,
    reported_frame,
    table3_frame,
    verdict,
)
from dpviz.views.plane import plane_figure

JOB = "local.job"
UPLOAD = "upload"
ERRORS = "local_errors"
PICTURE: dict[str, Any] = {"length": 4.0, "radius": 1.5, "epochs": 4, "batch_size": 1}
PICTURE_VISITS = 64
_one_file_at_a_time = threading.Lock()  # reading takes some hundred MB
TABLE_3 = {"a7a": "Adult (a7a)", "mnist38": "MNIST 3 / 8"}


# --- the picture --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _picture(spec: LocalSpec) -> Any:
    small = dataclasses.replace(spec, **PICTURE)
    data = picture_data()
    visits = list(walk(data, small))[:: max(1, data.people * small.epochs // PICTURE_VISITS)]
    return plane_figure(data, visits, small)


def picture(spec: LocalSpec) -> None:
    st.plotly_chart(
        _picture(dataclasses.replace(spec, **PICTURE)),
        key="local.figure.picture",
        config={"displayModeBar": False},
        alt="People in a plane, the model's line and the region in which people are used; below, the private gradient "
        "and the half-circle it was drawn from.",
    )
    st.caption(
        "48 real breast-cancer records, two measurements of each (circles: malignant, +1; squares: benign, −1). "
        "Grey: the line of the current model. Green points are on its right side (beneficial), orange ones are not "
        "(adverse). Blue: where a person who gives the current answer is used. Below: the person's own gradient and "
        "what is sent instead, drawn from the shaded half."
    )


def card(spec: LocalSpec, people: int) -> None:
    what = "labels only" if METHODS[spec.method].flips_labels else "whole records"
    guarantee_card(
        local_guarantee(spec.method, spec.budget(people)),
        title=f"{METHODS[spec.method].title}, {what}: one visit (claimed) and all {spec.epochs} of a person (sound)",
    )


# --- data ---------------------------------------------------------------------------------------------------------


def choose_data() -> Tabular | None:
    """A dataset that is there, or a file that the person brings; None until there is one."""
    names = [*available(), *([] if read_only() else [UPLOAD])]
    name = st.selectbox(
        "Data",
        names,
        index=names.index("breast-cancer"),
        format_func=lambda name: "My own file" if name == UPLOAD else TABULARS[name].title,
        help="a7a and Diabetes-130 show up when DPVIZ_DATA names a folder that holds them.",
        **key("data"),
    )
    return _load(name) if name != UPLOAD else _uploaded()


@st.cache_resource(max_entries=4, show_spinner="Reading the data")
def _load(name: str) -> Tabular:
    return load_tabular(name)


def _uploaded() -> Tabular | None:
    """The uploaded file as data; it stays in this session's memory and is never written."""
    most = min(LIMITS["upload"].most, st.get_option("server.maxUploadSize"))
    file = st.file_uploader(
        "CSV with a label column, or LIBSVM",
        ["csv", "libsvm", "svm", "txt"],
        max_upload_size=most,
        help=f"At most {most:,} MB, two classes, numbers only. The file stays in memory and goes with it.",
        key="local.file",
    )
    if file is None:
        return None
    try:
        content = file.getvalue()
        label = _label(content) if file.name.lower().endswith(".csv") else None
        found = _parsed(content, file.name, label)
    except InputError as error:
        found = error
    if isinstance(found, InputError):
        input_error(found)
        return None
    return found


@st.cache_resource(scope="session", max_entries=1, show_spinner="Reading the file")
def _parsed(content: bytes, name: str, label: str | None) -> Tabular | InputError:
    """The file as data, or what is wrong with it: found out once, since pages rerun at every click."""
    with _one_file_at_a_time:
        try:
            return read_upload(content, name, label)
        except InputError as error:
            return error


def _label(content: bytes) -> str | None:
    header = csv_header(content)
    guess = next((place for place, name in enumerate(header) if name.lower() in LABEL_NAMES), None)
    return st.selectbox("Label column", header, index=guess, placeholder="choose the column with the two classes")


# --- trials -------------------------------------------------------------------------------------------------------


def launch(spec: LocalSpec, data: Tabular | None) -> None:
    """What to compare, and the button that starts it in the background."""
    methods = st.pills(
        "Methods",
        list(METHODS),
        default=["prestige", "djw", "sgd"],
        selection_mode="multi",
        format_func=METHODS.titles.__getitem__,
        **key("methods"),
    )
    repeats = st.slider("Repeats", 2, 20, 5, help="The paper has 20.", **key("repeats"))
    job = st.session_state.get(JOB)
    busy = job is not None and job.running
    locked = read_only()
    disabled = data is None or busy or not methods or bool(locked)
    if st.button("Run", type="primary", disabled=disabled, help=locked or None, key="local.run") and data:
        try:
            st.session_state[JOB] = Job(data, specs_for(spec, methods, BUDGETS), repeats)
        except InputError as error:
            input_error(error)
        else:
            st.rerun()
    if busy:
        st.fragment(_progress, run_every=0.5)()
    elif job is not None and job.error:
        st.warning(job.error)


def _progress() -> None:
    job: Job = st.session_state[JOB]
    if not job.running:
        st.rerun()
    left = "" if job.seconds_left is None else f", about {math.ceil(job.seconds_left)} s left"
    st.progress(job.share, f"{100 * job.share:.0f} %{left}")
    st.button("Stop", on_click=job.stop, key="local.stop")


def results(spec: LocalSpec | None, data: Tabular | None) -> None:
    """The person's own trials if they are of this data, else the full-length ones that come with dpviz."""
    job = st.session_state.get(JOB)
    if job is not None and job.rows and data is not None and job.data.name == data.name:
        first = job.specs[0]
        source = (
            f"Your run: {job.repeats} repeats, {first.epochs} epochs, {first.loss} loss, λ = {first.regularization:g}"
        )
        show(job.rows, job.differences, data.name, first.loss, source)
        return
    found = _cached()
    chosen = {result.name: result for result in found if data is not None and result.data == data.name}
    if not chosen:
        st.info("Press Run: trials take seconds on small data, and the page stays free meanwhile.")
        return
    loss = spec.loss if spec else ""
    # The chosen loss first, and of those the most methods and budgets.
    names = sorted(chosen, key=lambda name: (chosen[name].rows[0]["loss"] != loss, -len(chosen[name].rows)))
    name = st.selectbox(
        "Full-length results", names, format_func=lambda name: _title(chosen[name]), key=f"local.result.{names[0]}"
    )
    result = chosen[name]
    repeats, epochs, command = result.settings["repeats"], result.settings["epochs"], result.provenance["command"]
    source = f"Measured with dpviz, {repeats} repeats, {epochs} epochs: `{command}`"
    show(result.rows, result.differences, result.data, result.rows[0]["loss"], source)
    if batches := batch_rows(found, result.data):
        with st.expander("Mini-batches (Fig. 6): larger batches average private gradients"):
            st.plotly_chart(error_figure(error_frame(batches)), key="local.figure.batches", alt="Error by batch size.")


def _title(result: LocalResult) -> str:
    """A result by what sets it apart: loss, batch size, how lambda was found, and what differs from the paper."""
    row, usual = result.rows[0], LocalSpec()
    words = [f"{LOSSES[row['loss']].title} loss", f"batch {row['batch_size']}"]
    words += ["λ by cross-validation" if result.settings.get("cross_validated") else f"λ = {row['regularization']:g}"]
    words += [f"gradients with {GRADIENT_LABELS[TRUE]}"] if row.get("gradient_label") == TRUE else []
    changed = {name: result.settings.get(name) for name in ("share", "threshold", "mu")}
    words += [f"{name} = {value:g}" for name, value in changed.items() if value not in (None, getattr(usual, name))]
    return ", ".join(words)


def show(
    rows: Sequence[Mapping[str, Any]], gaps: Sequence[Mapping[str, Any]], data: str, loss: str, source: str
) -> None:
    frame = error_frame(rows)
    reported = reported_frame(data, loss)
    averaged = st.toggle(
        "Averaged weights",
        help="The mean of the weights after every update, which Theorem 1 speaks of; off: the last, as Alg. 1 returns.",
        **key("averaged"),
    )
    figure = error_figure(frame, reported, "average_error" if averaged else "error")
    with st.container(key=ERRORS):
        st.plotly_chart(figure, key="local.figure.errors", alt="Test error against epsilon of one visit, by method.")
    diamonds = "" if reported.empty else " Open diamonds: the paper's Table 3."
    st.caption(f"{source}. Bands: one standard deviation over repeats.{diamonds}")
    for first in ("prestige", "masked"):
        if sentence := verdict(gaps, first):
            st.markdown(sentence)
    with st.container(horizontal=True):
        download_buttons(FIGURE_FORMATS, f"dpviz-local-{data}", frame, figure)
        image_buttons(ERRORS, f"dpviz-local-{data}")
    if gaps:
        with st.expander("Paired differences, budget by budget"):
            st.dataframe(difference_frame(gaps), hide_index=True)
    budgets = sorted({row["budget"] for row in rows})
    budget = 1.0 if 1.0 in budgets else budgets[0]
    if len(budgets) > 1:
        budget = st.select_slider("Epoch by epoch at ε", budgets, budget, key=f"local.at.{budgets}")
    by_epoch = epoch_frame(rows, budget)
    left, right = st.columns(2)
    left.plotly_chart(epoch_figure(by_epoch), key="local.figure.epochs", alt="Test error by epoch.")
    right.plotly_chart(
        epoch_figure(by_epoch, "used"), key="local.figure.used", alt="Share of visits with an update, by epoch."
    )


def _cached() -> tuple[LocalResult, ...]:
    found, warnings = cached_local()
    show_warnings(warnings)
    return found


def table3() -> None:
    """Table 3 as reported, and ours where the data can be had."""
    cached = _cached()
    with st.expander("Its Table 3, reported and ours"):
        for place, (name, title) in zip(st.columns(2), TABLE_3.items(), strict=True):
            place.markdown(f"**{title}**")
            place.dataframe(table3_frame(cached, name), hide_index=True)
        st.caption(
            "ε = 1 per visit, batch 1, 20 repeats, λ chosen by cross-validation for every row on its own. The "
            "paper's MNIST38 has 450,000 training rows, MNIST itself 11,982. SUSY, REAL-SIM, Cyberbully and MarketScan "
            "diabetes cannot be had: their rows stay reported only."
        )
    with st.expander("Why PRESTIGE does not come out ahead here, and what was tried"):
        st.markdown("\n".join(f"- {line}" for line in PAPERS["prestige"].tried))
