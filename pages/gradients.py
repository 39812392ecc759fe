"""Gradients: what goes on inside a run, epoch by epoch. Computed from private data, not covered by epsilon."""

from __future__ import annotations

import streamlit as st

from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.gradients.page import confusions, epoch_slider, gradient_parts, layers, pick_runs
from dpviz.views.diagnostics import NOT_COVERED

ensure_navigation()
st.title("Gradients")
st.warning(
    f"{NOT_COVERED} Look at them to understand a run; do not publish them with its model.", icon=":material/lock:"
)
run, other = pick_runs()
if run is not None:
    epoch = epoch_slider(run)
    gradient_parts(run, epoch)
    layers(run, epoch)
    confusions(run, other, epoch)
