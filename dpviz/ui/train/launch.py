"""Before a run starts: its expected epsilon and time, its seeds and title, and the button."""

from __future__ import annotations

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.runs import with_seeds
from dpviz.runs.execution.job import MOST_WORKERS
from dpviz.runs.execution.pace import Pace, duration_words, pace_from, step_timings
from dpviz.runs.execution.runners import ray_address
from dpviz.runs.settings import parse_seeds
from dpviz.runs.tracking.mirror import mirror_words
from dpviz.training.limits import check_spec, limits_words, read_only
from dpviz.training.pricing import planned_guarantee, planned_risk
from dpviz.training.spec import RunSpec
from dpviz.ui.common.actions import wish_button
from dpviz.ui.common.cards import guarantee_card, input_error
from dpviz.ui.common.runs import cached, load_all, start, store
from dpviz.ui.train.forecasts import response_for
from dpviz.ui.train.run_form import MOST_SEEDS, changed_price, quick
from dpviz.ui.train.runs_list import select
from dpviz.ui.train.state import ASKED, LAUNCH, QUICK_LOOK, TRAIN
from dpviz.views.forecast import OWN_DATA_WORDS, basis_words, expected_words
from dpviz.views.numbers import delta_text, epsilon_text
from dpviz.views.runs import NO_GUARANTEE

LOOK_BACK = 100  # own runs that are searched for one alike


def launch_panel(spec: RunSpec) -> None:
    """What the run will cost, then the last settings and Launch."""
    price = planned_guarantee(check_spec(spec))
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="top"):
            st.metric("Sound ε", epsilon_text(price.sound) if price.sound else NO_GUARANTEE, width="content")
            st.metric("Claimed ε", epsilon_text(price.claimed), width="content")
            _accuracy(spec)
            _time(spec)
        if spec.own and response_for(spec):
            st.caption(OWN_DATA_WORDS)
        changed = changed_price(spec)
        if changed:
            st.info(changed)
        if spec.delta > 1 / spec.size:
            st.warning(
                f"δ = {delta_text(spec.delta)} is above 1/N = {1 / spec.size:.2g}: publishing one random person's "
                "record in full would count as private."
            )
        with st.expander("What these epsilons rest on"):
            guarantee_card(price, planned_risk(spec))
    left, right = st.columns(2)
    seeds = left.text_input("Seeds", key=TRAIN("seeds"), persist_state="session", help="One run per seed: 0, 1, 2")
    title = right.text_input("Title", key=TRAIN("title"), max_chars=120, placeholder="optional")
    workers = _workers()
    wish_button(LAUNCH, ASKED, limits_words())
    mirror = mirror_words()
    if mirror:
        st.caption(mirror)
    asked = ASKED.take()
    if asked == LAUNCH:
        _launch(spec, seeds, title, workers)
    elif asked == QUICK_LOOK:
        _launch(check_spec(quick(spec)), seeds, title or QUICK_LOOK)


def _workers() -> int:
    """How many workers share the run: a question only where a cluster has them."""
    if not ray_address():
        return 1
    help = "Workers of the cluster that share one run's examples. Batches, noise and ε are those of one worker."
    return st.number_input("Workers", 1, MOST_WORKERS, key=TRAIN("workers"), persist_state="session", help=help)


def _launch(spec: RunSpec, seeds: str, title: str, workers: int = 1) -> None:
    try:
        started = start(with_seeds(spec, parse_seeds(seeds, MOST_SEEDS)), title, workers)
    except InputError as error:
        input_error(error)
        return
    select(started[0])
    st.rerun()


def _accuracy(spec: RunSpec) -> None:
    """The accuracy to expect, where runs of these settings were learnt from."""
    response = response_for(spec)
    if response:
        forecast = response.forecast(spec.schedule.sigmas(spec.epochs))
        label = "Expected accuracy" if forecast.in_domain else "Guessed accuracy"
        st.metric(label, expected_words(forecast), help=basis_words(forecast), width="content")


def _time(spec: RunSpec) -> None:
    """Expected time of one run: from a run alike, from a trial, or the way to get one."""
    pace, source = expected_pace(spec)
    if pace is None:
        st.fragment(_trial, run_every=1.0 if step_timings().pending(spec) else None)(spec)
        return
    words = f"about {duration_words(pace.seconds(spec))}"
    st.metric("Expected time", words, help=f"One run, from {source}.", width="content")


def expected_pace(spec: RunSpec) -> tuple[Pace | None, str]:
    """The pace to expect and where it is from; None if nothing alike was ever timed."""
    tried = step_timings().pace(spec)
    if tried:
        return tried, "a few steps tried on this machine"
    runs, _ = load_all(store().list().runs[-LOOK_BACK:])
    own = pace_from(runs, spec)
    if own:
        return own, "an earlier run with this model, dataset and batch size"
    other = pace_from([item.run for item in cached().runs], spec)
    return other, "a full-length run, perhaps on another machine"


def _trial(spec: RunSpec) -> None:
    if step_timings().pace(spec):
        st.rerun()
    waiting = step_timings().pending(spec)
    if waiting:
        st.metric("Expected time", "measuring …", width="content")
        return
    st.markdown(":small[Expected time]", width="content")
    help = "Nothing alike ran so far. Tries a few steps in the background, keeps nothing."
    if st.button("Time a few steps", disabled=bool(read_only()), help=read_only() or help):
        try:
            step_timings().start(spec)
        except InputError as error:
            input_error(error)
            return
        st.rerun()
    if step_timings().problem(spec):
        input_error(InputError(step_timings().problem(spec)))
