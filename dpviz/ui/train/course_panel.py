"""A run that may be changed on the way: its noise so far and to come, a field to change it, and what holds."""

from __future__ import annotations

import re

import streamlit as st

from dpviz.runs import Run
from dpviz.runs.store.course import Course
from dpviz.training.limits import read_only
from dpviz.training.pricing import course_guarantee
from dpviz.ui.common.actions import Action, action_buttons
from dpviz.ui.common.cards import guarantee_card
from dpviz.ui.common.runs import store
from dpviz.ui.train.state import TRAIN
from dpviz.views.schedules import schedule_figure, schedule_frame

LOOK_AT = (
    "Choose by test accuracy. Training loss, training accuracy and diagnostics come from private data without noise: a "
    "change that follows them has no guarantee."
)


def course_panel(run: Run) -> None:
    """The panel of one run. Its course is read anew: another tab or the command line may have changed it."""
    course = store().get(run.id).course
    if course is None:
        return
    with st.container(border=True):
        st.markdown("**Noise, changed on the way**")
        plan = {"as planned first": Course.planned(course.spec).sigmas} if course.redraws else {}
        figure = schedule_figure(schedule_frame({"as it stands": course.sigmas} | plan), log=False, height=220)
        st.plotly_chart(figure, key=TRAIN("course"), alt="Noise by epoch, as it stands and as planned first")
        st.caption(course.budget_words())
        if course.coming:
            _field(run, course)
        with st.expander("What holds, and the price of this freedom"):
            guarantee_card(course_guarantee(course.spec, course.phases))


def _field(run: Run, course: Course) -> None:
    """Its text stays while epochs begin: it is about the last epochs, and those that began meanwhile are left out.

    Each change makes a new field: a text that is set from here is lost where the script is cut short.
    """
    change = len(course.redraws)
    key, first = TRAIN("sigmas", run.id, change), TRAIN("coming", run.id, change)
    text = st.session_state.setdefault(first, sigmas_text(course.coming))

    def apply() -> None:
        store().redraw(run.id, parse_sigmas(st.session_state[key]))

    def undo() -> None:
        store().redraw(run.id, course.undone)

    label = f"σ of the epochs to come, up to epoch {course.spec.epochs}"
    st.text_input(label, text, key=key, disabled=bool(read_only()), help=LOOK_AT)
    with st.container(horizontal=True, vertical_alignment="center"):
        undoing = "Puts back what the last change replaced, as far as its epochs have not begun."
        buttons = [Action("Apply", apply, "Holds from the next epoch that begins.", primary=True)]
        buttons += [Action("Undo change", undo, undoing)] if course.undone else []
        action_buttons(TRAIN, run.id, buttons)
        st.caption(LOOK_AT)


def sigmas_text(sigmas: tuple[float, ...]) -> str:
    return ", ".join(f"{sigma:.6g}" for sigma in sigmas)


def parse_sigmas(text: str) -> list[str]:
    """Sigmas as typed, separated by commas or spaces; what is no number is refused by the record that takes it."""
    return [word for word in re.split(r"[,;\s]+", text.strip()) if word]
