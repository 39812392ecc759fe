"""Train: three ways to start, the form of a run with what it will cost, and the runs to watch."""

from __future__ import annotations

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.ui.common.actions import show_problem
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.train.add_data import add_data
from dpviz.ui.train.launch import launch_panel
from dpviz.ui.train.learn_form import learn_launcher
from dpviz.ui.train.learn_panel import forecasts_panel
from dpviz.ui.train.run_form import prepare, settings_form
from dpviz.ui.train.run_panel import runs_panel
from dpviz.ui.train.start_cards import start_cards
from dpviz.ui.train.state import ASKED, LEARN_ASKED, NOTE
from dpviz.ui.train.sweep_form import prepare_sweep
from dpviz.ui.train.sweep_panel import sweep_launcher, sweeps_panel

ensure_navigation()
st.title("Train")
prepare()
prepare_sweep()
show_problem()
start_cards()
form, runs = st.columns([5, 7], gap="large")
with form:
    st.header("New run")
    note = NOTE.take()
    if note:
        st.info(note)
    add_data()
    try:
        spec = settings_form()
        launch_panel(spec)
        sweep_launcher(spec)
        learn_launcher(spec)
    except InputError as error:
        ASKED.take()
        LEARN_ASKED.take()
        input_error(error)
with runs:
    sweeps_panel()
    forecasts_panel()
    runs_panel()
