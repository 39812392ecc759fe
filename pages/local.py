"""Local privacy: PRESTIGE, DJW and SGD. What leaves a person is random already."""

from __future__ import annotations

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.training.local.tabular import picture_data
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.local.page import card, choose_data, launch, picture, results, table3
from dpviz.ui.local.settings import adopt, numbers, settings

PURPOSE = (
    "What if nobody may see the data? Then each person adds noise before anything leaves them, every time they are "
    "asked. A model can still learn from many such answers, but it learns less from each. This page shows how much "
    "is lost at which epsilon, and whether it helps to learn first from those who agree with the model (PRESTIGE)."
)
TEXT_WIDTH = 720  # pixels: a line that is read without losing the next one

ensure_navigation()
adopt()
st.title("Local privacy")
st.markdown(PURPOSE, width=TEXT_WIDTH)
spec, data = None, None
left, right = st.columns([5, 6], gap="large")
with right:
    try:
        spec = settings()
        card_place, numbers_place = st.container(), st.container()
    except InputError as error:
        input_error(error)
with left:
    if spec is not None:
        picture(spec)
st.header("Test error against budget")
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
st.header("Beside the paper")
table3()
