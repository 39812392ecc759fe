"""Three ways to start, in front of the long form: at once, from a paper's experiment, or with one's own drawing."""

from __future__ import annotations

import streamlit as st

from dpviz.ui.common.actions import Action, action_buttons, wish_button
from dpviz.ui.schedule.board import BOARD, current_board, handover
from dpviz.ui.schedule.settings import read_settings
from dpviz.ui.train.run_form import QUICK_EPOCHS, QUICK_EXAMPLES, start_from, take_over
from dpviz.ui.train.state import ASKED, QUICK_LOOK, TRAIN
from dpviz.views.numbers import sigma_text


def start_cards() -> None:
    for place, card in zip(st.columns(3), (_quick_look, _paper, _drawing), strict=True):
        with place, st.container(border=True, height="stretch"):
            card()


def _quick_look() -> None:
    st.markdown(f"**{QUICK_LOOK}**")
    st.markdown(
        f":small[The settings below with {QUICK_EXAMPLES:,} examples and {QUICK_EPOCHS} epochs, launched at once: a "
        "first curve in seconds. Its ε is that of the small run.]"
    )
    wish_button(QUICK_LOOK, ASKED)


def _paper() -> None:
    st.markdown("**A paper's experiment**")
    start_from()


def _drawing() -> None:
    st.markdown("**My drawn schedule**")
    if BOARD not in st.session_state:
        st.markdown(":small[Draw one noise multiplier for each epoch and watch epsilon follow; then train it here.]")
        st.page_link("pages/schedule.py", label="Draw a schedule", icon=":material/draw:")
        return
    sigmas = current_board().sigmas
    st.markdown(
        f":small[{len(sigmas)} epochs, σ from {sigma_text(sigmas[0])} to {sigma_text(sigmas[-1])}, with its dataset, "
        "batch size and δ.]"
    )
    take = Action(
        "Use my drawing", lambda: take_over(handover(current_board(), read_settings())), "Fills in the form below."
    )
    action_buttons(TRAIN, "drawing", [take])
