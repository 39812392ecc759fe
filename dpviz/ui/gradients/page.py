"""The Gradients page's parts: picking a run that was looked into, the epoch, and the figures."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dpviz.runs import Run
from dpviz.ui.common.markdown import plain
from dpviz.ui.common.runs import cached, load_all, store
from dpviz.ui.common.session import Keys, Slot
from dpviz.views.diagnostics import (
    LAYER_TITLES,
    SERIES,
    confusion_figure,
    cosine_figure,
    diagnostics_at,
    has_diagnostics,
    layer_figure,
    layer_frame,
    norm_figure,
    series_figure,
    series_frame,
    update_figure,
)
from dpviz.views.runs import run_name

GRADIENTS = Keys("gradients")
RUN, OTHER, EPOCH = GRADIENTS("run"), GRADIENTS("other"), GRADIENTS("epoch")
ASKED: Slot[str | None] = Slot(GRADIENTS("asked"), None)  # the run in the address that was opened
NONE = ""
LOOK_BACK = 300


def seen_runs() -> dict[str, Run]:
    """Runs with diagnostics: own ones, newest first, then cached ones."""
    own, _ = load_all(store().list().runs[-LOOK_BACK:])
    runs = [*reversed(own), *(item.run for item in cached().runs)]
    return {run.id: run for run in runs if has_diagnostics(run)}


def pick_runs() -> tuple[Run | None, Run | None]:
    """The run to look into, and another whose confusion matrix stands beside its own."""
    runs = seen_runs()
    asked = st.query_params.get("run")
    if not runs:
        st.info(
            "No run has diagnostics yet. Switch on **Diagnostics** in the form of the Train page before you launch, or "
            "press “Repeat with diagnostics” at a finished run."
        )
        st.page_link("pages/train.py", label="Go to Train", icon=":material/play_arrow:")
        return None, None
    if asked and ASKED.get() != asked:
        ASKED.set(asked)
        if asked in runs:
            st.session_state[RUN] = asked
        else:
            st.error("The run in this link is not here or has no diagnostics; pick another.")
    left, right = st.columns(2)
    with left:
        run = _pick("Run", list(runs), RUN, runs)
    with right:
        other = _pick("Beside it", [NONE, *(run_id for run_id in runs if run_id != run)], OTHER, runs)
    return runs[run], runs.get(other)


def _pick(label: str, options: list[str], key: str, runs: dict[str, Run]) -> str:
    if st.session_state.get(key) not in options:
        st.session_state[key] = options[0]
    return st.selectbox(
        label, options, key=key, format_func=lambda i: _line(runs[i]) if i else "no other run", persist_state="session"
    )


def _line(run: Run) -> str:
    accuracy = f"{100 * run.epochs[-1].accuracy:.1f} %"
    return f"{run_name(run)} · seed {run.spec.seed} · {accuracy} · {run.created[:16].replace('T', ' ')} UTC"


def epoch_slider(run: Run) -> int:
    """The epoch to look at; a run of one epoch needs no slider."""
    epochs = [record.epoch for record in run.epochs if record.diagnostics]
    if len(epochs) == 1:
        return epochs[0]
    if st.session_state.get(EPOCH) not in epochs:
        st.session_state[EPOCH] = epochs[-1]
    return st.select_slider("Epoch", epochs, key=EPOCH)


def gradient_parts(run: Run, epoch: int) -> None:
    """Norms of single gradients, and what an update is made of."""
    found, frame = diagnostics_at(run, epoch), series_frame(run)
    st.header("Gradients of single examples")
    st.caption(
        f"From {found.get('examples', 0)} training examples, the same ones in every epoch. "
        f"{100 * found.get('clipped_fraction', 0):.0f} % of them are clipped in epoch {epoch}."
    )
    left, right = st.columns(2)
    left.markdown("**Norms**, and where clipping cuts them back")
    _chart(left, norm_figure(found), "norms")
    right.markdown("**Direction**: does clipping turn the mean gradient?")
    _chart(right, cosine_figure(frame, epoch), "cosine")
    left.markdown("**Signal, clipping bias and noise** in one update")
    _chart(left, update_figure(frame, epoch), "update")
    right.markdown("**Curvature**: largest eigenvalue of the loss's Hessian")
    _chart(right, series_figure(frame, "hessian_eigenvalue", epoch), "hessian")


def layers(run: Run, epoch: int) -> None:
    st.header("Layers")
    frame = layer_frame(run)
    for place, (column, title) in zip(st.columns(2), LAYER_TITLES.items(), strict=True):
        place.markdown(f"**{title}**, by layer")
        _chart(place, layer_figure(frame, column, epoch), column)


def confusions(run: Run, other: Run | None, epoch: int) -> None:
    """Which class is taken for which, on test data or on the examples looked at; two runs side by side."""
    st.header("Confusion")
    part = st.segmented_control(
        "Data", ["test", "train"], default="test", key=GRADIENTS("part"), format_func=PARTS.__getitem__, required=True
    )
    runs = [run] if other is None else [run, other]
    for place, (index, one) in zip(st.columns(2), enumerate(runs), strict=False):
        last = max(record.epoch for record in one.epochs if record.diagnostics)
        at = min(epoch, last)
        place.markdown(f"**{plain(run_name(one))}**, epoch {at}")
        matrix = diagnostics_at(one, at).get("confusion", {}).get(part, [])
        _chart(place, confusion_figure(matrix, one.own_spec.data.class_names), f"confusion.{index}")
    if other is None:
        st.caption("Choose a second run under “Beside it” to lay its matrix next to this one.")


PARTS = {"test": "Test data", "train": "Training examples looked at"}


def _chart(place: Any, figure: Any, name: str) -> None:
    place.plotly_chart(figure, key=GRADIENTS(name), alt=SERIES[name][0] if name in SERIES else name)
