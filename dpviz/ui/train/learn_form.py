"""Learn the response of the form's settings: how many pilots, how long they take, what they cost, and the button."""

from __future__ import annotations

import streamlit as st

from dpviz.forecast.fit import FEWEST
from dpviz.forecast.learner import Learner, LessonPlan
from dpviz.forecast.library import Fit, settings_key
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.pace import duration_words
from dpviz.runs.execution.runners import ray_address
from dpviz.training.limits import LIMITS, read_only
from dpviz.training.spec import RunSpec
from dpviz.ui.common.actions import PROBLEM, action_buttons, wish_button
from dpviz.ui.common.markdown import plain, sentence
from dpviz.ui.common.runs import runner, store, watch
from dpviz.ui.train.forecasts import fit_again, response_for, runs_alike
from dpviz.ui.train.launch import expected_pace
from dpviz.ui.train.state import LEARN, LEARN_ASKED
from dpviz.views.forecast import error_words

PILOTS, MOST_PILOTS = 24, 200  # from a page; the command line takes more
ABOUT = (
    "Pilot runs of these settings under schedules that fill the space: levels, slopes, bends, steps and spikes, from "
    "half to four times the noise of the form. From them dpviz learns which accuracy to expect of any schedule."
)


def learn_launcher(spec: RunSpec) -> None:
    """Below the run's form; nothing is priced while it is folded."""
    fold = st.expander("Learn the response: which accuracy to expect", key=LEARN("open"), on_change="rerun")
    if not fold.open:
        LEARN_ASKED.take()
        return
    with fold:
        st.caption(ABOUT)
        st.session_state.setdefault(LEARN("pilots"), PILOTS)
        count = st.number_input("Pilot runs", FEWEST, MOST_PILOTS, key=LEARN("pilots"), persist_state="session")
        try:
            plan = LessonPlan.of(spec, count, runs_alike(spec), store())
            if not ray_address():
                LIMITS["queue"].check(len(plan.missing))
        except InputError as error:
            LEARN_ASKED.take()
            st.markdown(f":small[{sentence(error)}]")
            return
        st.markdown("\n".join(f"- {words}" for words in plan_words(plan)))
        with st.container(horizontal=True, vertical_alignment="center"):
            wish_button("Learn the response", LEARN_ASKED)
            action_buttons(LEARN, "form", fit_again(spec, plan.begun))
        if LEARN_ASKED.take() and not read_only():
            _start(plan)
            st.rerun()


def plan_words(plan: LessonPlan) -> list[str]:
    """What is known, what is to be made, how long that takes and what it costs."""
    response = response_for(plan.spec)
    known = [f"Known so far: {error_words(Fit(len(response.runs), response.held_out_error))}."] if response else []
    there = len(plan.wanted) - len(plan.missing)
    made = f"{len(plan.missing)} runs to make" + (f", {there} are there already" if there else "")
    epochs = [pilot.epochs for pilot in plan.missing]
    length = f", of {min(epochs)} to {max(epochs)} epochs each" if epochs else ""
    return [*known, f"{made}{length}: {_time(plan)}.", plain(plan.price.words)]


def _time(plan: LessonPlan) -> str:
    if not plan.missing:
        return "only a fit"
    pace, source = expected_pace(plan.missing[0])
    if pace is None:
        return "nothing alike was timed so far; “Time a few steps” above does it"
    return f"about {duration_words(sum(map(pace.seconds, plan.missing)))} one after another, from {source}"


def _start(plan: LessonPlan) -> None:
    """In the background of this server: in its queue, or on the cluster that DPVIZ_RAY names."""
    try:
        Learner(plan.spec, plan.wanted, store(), runner(ray_address())).start()
    except InputError as error:
        PROBLEM.set(str(error))
        return
    watch(settings_key(plan.spec))
