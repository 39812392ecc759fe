"""Local privacy: what it costs when nobody is trusted with the data, and whether asking people first helps."""

from __future__ import annotations

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.training.local.tabular import picture_data
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.local.page import adopt, card, numbers, picture, settings
from dpviz.ui.local.trials import choose_data, launch, results, table3

ensure_navigation()
adopt()
st.title("Local privacy")
st.markdown(
    "You want to learn from people who trust nobody with their record, not even you. Under *local* privacy each person "
    "adds the noise before anything is sent, so that no answer gives much away; the price is accuracy. **PRESTIGE** "
    "asks a person first whether the model gets them right so far, and learns from those who say yes. Does that help?"
)
spec, data = None, None
left, right = st.columns([6, 5], gap="large")
with right:
    try:
        spec = settings()
        numbers_place, card_place = st.container(), st.expander("What a person gives away: the guarantee in full")
    except InputError as error:
        input_error(error)
with left:
    if spec is not None:
        picture(spec)
st.header("What it costs in accuracy")
form, shown = st.columns([1, 3], gap="large")
with form:
    try:
        data = choose_data()
    except InputError as error:
        input_error(error)
    if spec is not None:
        launch(spec, data)
with shown:
    results(spec, data)
if spec is not None:
    people = data or picture_data()
    with numbers_place:
        numbers(spec, people)
    with card_place:
        card(spec, people.people)
table3()
