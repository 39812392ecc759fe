"""The accuracy to expect on the Schedule page: whose it is, what the browser needs for it, what can be asked of it."""

from __future__ import annotations

import math

import streamlit as st

from dpviz.forecast.library import response_name, shelf
from dpviz.forecast.response import Response, scale_to_accuracy
from dpviz.privacy import InputError
from dpviz.runs.store.records import Summary
from dpviz.ui.common.runs import cached, store
from dpviz.ui.schedule.board import MAX_PINS, Board, act
from dpviz.ui.schedule.editor import Curve, LiveForecast
from dpviz.ui.schedule.settings import Settings, read_settings, session_key
from dpviz.views.numbers import epsilon_text

CHOICE = session_key("forecast")
AIM = session_key("aim")
NONE = "none"
USUAL_AIM = 95.0  # percent
SUGGESTED = "suggested"


def chosen_response(settings: Settings) -> Response | None:
    """The response that was chosen; until somebody chooses, the first for the dataset. None: no forecast."""
    known = _known(settings)
    return known.get(_choice(known))


def live_forecast(settings: Settings) -> LiveForecast | None:
    response = chosen_response(settings)
    if response is None:
        return None
    return LiveForecast(
        recipe=response_name(response),
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
        format_func=lambda key: response_name(known[key]) if key in known else "none",
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


# --- buttons


def forecast_buttons(settings: Settings) -> bool:
    """What can be asked of a forecast, nothing where there is none; whether a suggestion was asked for."""
    if chosen_response(settings) is None:
        return False
    with st.popover("Fit to accuracy", help="Keep the shape and scale it until it is expected to reach an accuracy."):
        st.session_state.setdefault(AIM, USUAL_AIM)
        st.number_input("Accuracy to aim at (%)", step=0.1, format="%.2f", key=AIM, persist_state="session")
        st.button("Fit", key="schedule.fit_accuracy", on_click=act, args=(fit_to_accuracy,))
    return st.button("Suggest", help="Search the schedule with the best accuracy to expect at the target ε.")


def show_suggestion(settings: Settings) -> None:
    """Search under a progress bar; the Cancel button reruns the page, which ends the search."""
    st.button("Cancel", key="schedule.cancel")
    act(_suggest, settings)
    st.rerun()


def fit_to_accuracy(it: Board) -> None:
    """Keep the shape, reach an accuracy: the most noise with which that is expected."""
    settings = read_settings()
    response, aim = chosen_response(settings), st.session_state[AIM]
    if response is None or aim is None:
        raise InputError("there is no accuracy to aim at; type one, and choose whose accuracy is forecast")
    factor = scale_to_accuracy(response, it.sigmas, aim / 100)
    it.editor.push([float(f"{factor * sigma:.4g}") for sigma in it.sigmas])
    forecast = response.forecast(it.sigmas, settings.batch_size)
    band = f"{forecast.accuracy[-1]:.1%} ({forecast.lower[-1]:.1%} to {forecast.upper[-1]:.1%})"
    outside = "" if forecast.in_domain else f" Outside of what was measured: {forecast.why_not}."
    price = epsilon_text(settings.price(it.sigmas))
    it.say(f"Scaled by {factor:.4g}: accuracy to expect {band} at ε {price}.{outside}")


def _suggest(it: Board, settings: Settings) -> None:
    """Pin the best schedule at the target."""
    from dpviz.forecast.suggest import suggest

    response = chosen_response(settings)
    if response is None or settings.measure != "epsilon" or settings.target is None:
        raise InputError("a suggestion needs a target ε; choose ε as the number that follows the pen and type a target")
    others = [pin for pin in it.pins if pin.name != SUGGESTED]
    if len(others) >= MAX_PINS:
        raise InputError(f"{MAX_PINS} schedules are pinned; remove one before you ask for another")
    bar = st.progress(0.0, "Searching for a schedule")
    suggestion = suggest(
        response,
        settings.target,
        settings.sample_rate,
        settings.delta,
        settings.assumptions,
        batch_size=settings.batch_size,
        on_progress=lambda share: bar.progress(share, "Searching for a schedule"),
    )
    it.pins[:] = [*others, Curve(SUGGESTED, suggestion.best.sigmas)]
    check = "Use it from Pinned; “Sweep against its constant” then checks it."
    it.say(f"Pinned as “{SUGGESTED}”, accuracy to expect {suggestion.best.accuracy:.1%}. {suggestion.words} {check}")


def known_runs() -> list[Summary]:
    """Cached and own runs, some of which lie behind a forecast."""
    own = store().list().runs
    return [*(item.run.summary for item in cached().runs if item.run.kind == "measured"), *own]
