"""Whose accuracy the editor forecasts: the choice, and what the browser needs for it."""

from __future__ import annotations

import math

import streamlit as st

from dpviz.forecast.library import shelf
from dpviz.forecast.response import Response
from dpviz.ui.common.runs import store
from dpviz.ui.schedule.editor import LiveForecast
from dpviz.ui.schedule.settings import Settings, session_key

CHOICE = session_key("forecast")
NONE = "none"


def chosen_response(settings: Settings) -> Response | None:
    """The response that was chosen; until somebody chooses, the first for the dataset. None: no forecast."""
    known = _known(settings)
    return known.get(_choice(known))


def live_forecast(settings: Settings) -> LiveForecast | None:
    response = chosen_response(settings)
    if response is None:
        return None
    return LiveForecast(
        recipe=response.recipe,
        parameters=response.parameters,
        half_widths=response.half_widths,
        least_sigma=response.least_sigma,
        most_sigma=response.most_sigma,
        rests_on=len(response.runs),
        batch_doublings=abs(math.log2(settings.batch_size / response.batch_size)),
    )


def forecast_choice(settings: Settings) -> None:
    """The widget; a recipe that nobody fitted is not on its list."""
    known = _known(settings)
    st.session_state[CHOICE] = _choice(known)
    st.selectbox(
        "Accuracy to expect of",
        [*known, NONE],
        format_func=lambda key: known[key].recipe if key in known else "none",
        help="A recipe whose response to noise was learnt from runs on this dataset; `dpviz forecast fit` learns more.",
        key=CHOICE,
        persist_state="session",
    )


def _known(settings: Settings) -> dict[str, Response]:
    """By settings; what a person fitted is theirs, so where people sign in only what comes with dpviz is shown."""
    mine = store()
    responses = shelf(None if mine.owner else mine).responses
    return {response.settings: response for response in responses if response.dataset == settings.dataset}


def _choice(known: dict[str, Response]) -> str:
    choice = st.session_state.get(CHOICE)
    return choice if choice in (*known, NONE) else next(iter(known), NONE)
