"""Local privacy: PRESTIGE, DJW and SGD. What leaves a person is random already."""

from __future__ import annotations

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.training.local.tabular import picture_data
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.local.page import adopt, card, choose_data, launch, numbers, picture, results, settings, table3

ensure_navigation()
adopt()
st.title("Local privacy")
st.caption(
    "Nobody is trusted with the data: each person answers with a random half-truth, at every visit. PRESTIGE asks "
    "first whether the person agrees with the model so far, and uses those who do."
)
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
st.header("The paper's Table 3 beside ours")
table3()
