"""The accuracy to expect on the Schedule page: whose it is, what the browser needs for it, what can be asked of it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import streamlit as st

from dpviz.forecast.check import spec_behind
from dpviz.forecast.library import response_name, shelf
from dpviz.forecast.response import Response, scale_to_accuracy
from dpviz.privacy import InputError
from dpviz.runs.store.cached import FORECASTS
from dpviz.runs.store.records import Summary
from dpviz.runs.store.store import Store
from dpviz.training.spec import RunSpec
from dpviz.training.tables import DATASETS
from dpviz.ui.common.editor import LiveForecast
from dpviz.ui.common.runs import cached, store
from dpviz.ui.schedule.board import Board, act
from dpviz.ui.schedule.search import start_search
from dpviz.ui.schedule.settings import Settings, read_settings, session_key
from dpviz.views.numbers import epsilon_text

CHOICE = session_key("forecast")
AIM = session_key("aim")
NONE = "none"
USUAL_AIM = 95.0  # percent


def chosen_response(settings: Settings) -> Response | None:
    """The response that was chosen; until somebody chooses, the first for the dataset. None: no forecast."""
    known = _known(settings)
    return known.get(_choice(known))


def live_forecast(settings: Settings) -> LiveForecast | None:
    response = chosen_response(settings)
    return LiveForecast.of(response, settings.batch_size) if response else None


def forecast_choice(settings: Settings) -> None:
    """The widget; a recipe that nobody fitted is not on its list."""
    known = _known(settings)
    st.session_state[CHOICE] = _choice(known)
    st.selectbox(
        "Accuracy to expect of",
        [*known, NONE],
        format_func=lambda key: response_name(known[key]) if key in known else "none",
        help="Settings whose response to noise was learnt from runs on all of this dataset. *Learn the response* on "
        "Train learns more.",
        key=CHOICE,
        persist_state="session",
    )
    if _choice(known) != NONE and DATASETS[settings.dataset].own:
        from dpviz.views.forecast import OWN_DATA_WORDS  # with pandas

        st.caption(OWN_DATA_WORDS)


def _known(settings: Settings) -> dict[str, Response]:
    """By settings: a person's own, then what comes with dpviz."""
    return {response.settings: response for response in shelf(store()).responses if _same_data(response, settings)}


def _same_data(response: Response, settings: Settings) -> bool:
    """Whether its runs had the page's data, all of them: with fewer examples an epoch has other steps."""
    if response.dataset != settings.dataset:
        return False
    try:
        spec = _spec_behind(response, store().folder, store().owner)
        return spec.size == settings.dataset_size and spec.own == DATASETS[spec.dataset].own
    except InputError:  # its runs or its data are gone
        return False


@lru_cache(maxsize=256)  # a page asks at every stroke
def _spec_behind(response: Response, folder: Path, owner: str) -> RunSpec:
    return spec_behind(response, Store(folder, owner=owner))


def _choice(known: dict[str, Response]) -> str:
    choice = st.session_state.get(CHOICE)
    return choice if choice in (*known, NONE) else next(iter(known), NONE)


# --- buttons


def forecast_buttons(settings: Settings) -> None:
    """What can be asked of a forecast, nothing where there is none."""
    if chosen_response(settings) is None:
        return
    with st.popover("Fit to accuracy", help="Keep the shape and scale it until it is expected to reach an accuracy."):
        st.session_state.setdefault(AIM, USUAL_AIM)
        st.number_input("Accuracy to aim at (%)", step=0.1, format="%.2f", key=AIM, persist_state="session")
        st.button("Fit", key="schedule.fit_accuracy", on_click=act, args=(fit_to_accuracy,))
    help = "Search the schedule with the best accuracy to expect at the target ε."
    st.button("Suggest", help=help, on_click=act, args=(ask_for_suggestion,))


def ask_for_suggestion(board: Board) -> None:
    """Search for the best schedule at the target, in the background."""
    settings = read_settings()
    start_search(board, settings, chosen_response(settings))


def fit_to_accuracy(board: Board) -> None:
    """Keep the shape, reach an accuracy: the most noise with which that is expected."""
    from dpviz.views.forecast import expected_words  # with pandas

    settings = read_settings()
    response, aim = chosen_response(settings), st.session_state[AIM]
    if response is None or aim is None:
        raise InputError("there is no accuracy to aim at; type one, and choose whose accuracy is forecast")
    factor = scale_to_accuracy(response, board.sigmas, aim / 100)
    board.editor.push([float(f"{factor * sigma:.4g}") for sigma in board.sigmas])
    forecast = response.forecast(board.sigmas, settings.batch_size)
    outside = "" if forecast.in_domain else f" Outside of what was measured: {forecast.why_not}."
    price = epsilon_text(settings.price(board.sigmas))
    board.say(f"Scaled by {factor:.4g}: accuracy to expect {expected_words(forecast)} at ε {price}.{outside}")


def known_runs() -> list[Summary]:
    """Cached and own runs, some of which lie behind a forecast."""
    there = (*cached().runs, *cached(FORECASTS).runs)
    return [*(item.run.summary for item in there if item.run.kind == "measured"), *store().list().runs]
