"""Train: fill in a run's settings, see what it will cost, launch it, watch it."""

from __future__ import annotations

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.train.launch import ASKED, launch_panel
from dpviz.ui.train.run_form import NOTE, prepare, settings_form, start_from
from dpviz.ui.train.run_panel import runs_panel
from dpviz.ui.train.sweep_form import prepare_sweep
from dpviz.ui.train.sweep_panel import sweep_launcher, sweeps_panel

ensure_navigation()
st.title("Train")
prepare()
prepare_sweep()

form, runs = st.columns([5, 7], gap="large")
with form:
    st.header("New run")
    if NOTE in st.session_state:
        st.info(st.session_state.pop(NOTE))
    start_from()
    try:
        spec = settings_form()
        launch_panel(spec)
        sweep_launcher(spec)
    except InputError as error:
        st.session_state.pop(ASKED, None)
        input_error(error)
with runs:
    sweeps_panel()
    runs_panel()
