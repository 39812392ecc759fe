"""A run that may be changed on the way: its noise so far and to come, the pen to change it, and what holds."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import partial

import streamlit as st

from dpviz.privacy import epoch_phases, rdp_table
from dpviz.privacy.filters import SLACK
from dpviz.privacy.records import steps_per_epoch
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import delta_text, rounded_up
from dpviz.runs import Run
from dpviz.runs.store.course import Course
from dpviz.training.limits import read_only
from dpviz.training.pricing import course_guarantee
from dpviz.ui.common.actions import Action, action_buttons
from dpviz.ui.common.cards import guarantee_card, input_error
from dpviz.ui.common.editor import (
    MAX_EPOCHS,
    MAX_SIGMA,
    Certified,
    Curve,
    EditorState,
    LiveBudget,
    LiveForecast,
    schedule_editor,
)
from dpviz.ui.common.runs import store
from dpviz.ui.train.forecasts import response_for
from dpviz.ui.train.state import TRAIN
from dpviz.views.schedules import schedule_figure, schedule_frame

LOOK_AT = (
    "Choose by test accuracy. Training loss, training accuracy and diagnostics come from private data without noise: a "
    "change that follows them has no guarantee."
)
TABLE_ROWS = 3600  # of one order: the browser's sum is then good to less than a thousandth of a percent


@dataclass
class Drawing:
    """What was drawn over a course and not applied yet; `redraws` counts the changes that it starts from."""

    editor: EditorState
    redraws: int
    note: str = ""


def course_panel(run: Run) -> None:
    """The panel of one run. Its course is read anew: another tab or the command line may have changed it."""
    course = store().get(run.id).course
    if course is None:
        return
    with st.container(border=True):
        st.markdown("**Noise, changed on the way**")
        drawn = bool(course.coming) and not read_only() and can_be_drawn(course)
        if drawn:
            _pen(run, course)
        else:
            _picture(course)
        st.caption(course.budget_words())
        if course.coming:
            with st.expander("Type the noise to come", expanded=not drawn):
                _field(run, course)
        with st.expander("What holds, and the price of this freedom"):
            guarantee_card(course_guarantee(course.spec, course.phases))


def can_be_drawn(course: Course) -> bool:
    return len(course.sigmas) <= MAX_EPOCHS and max(course.sigmas) <= MAX_SIGMA


def _picture(course: Course) -> None:
    plan = {"as planned first": Course.planned(course.spec).sigmas} if course.redraws else {}
    figure = schedule_figure(schedule_frame({"as it stands": course.sigmas} | plan), log=False, height=220)
    st.plotly_chart(figure, key=TRAIN("course"), alt="Noise by epoch, as it stands and as planned first")


# --- drawn


def _pen(run: Run, course: Course) -> None:
    """The editor of the Schedule page over the epochs to come; what has begun is locked."""
    drawing = _drawing(run, course)
    state, renyi_filter, spec = drawing.editor, course.filter, course.spec
    used = renyi_filter.spent(epoch_phases(state.sigmas, spec.sample_rate)) / renyi_filter.budget
    first = Course.planned(spec).sigmas
    schedule_editor(
        state,
        key=TRAIN("editor", run.id),
        table=rdp_table(spec.sample_rate, TABLE_ROWS, renyi_filter.order),
        steps_per_epoch=steps_per_epoch(spec.sample_rate),
        delta=spec.delta,
        ghost=Curve("as it stands", course.sigmas),
        pinned=[Curve("as planned first", first)] if course.redraws else [],
        target=1.0,
        certified=Certified(used, used, share_text(used), f"exact, Renyi order {renyi_filter.order:g}"),
        forecast=live_forecast(run, course),
        budget=LiveBudget(
            renyi_filter.budget / (1 + SLACK), f"ε {renyi_filter.epsilon:g} declared, δ = {delta_text(spec.delta)}"
        ),
        locked=course.sigmas[: course.begun],
        slot=f"redraw.{run.id}",
        draft=True,
        height=430,
        on_draw=lambda _: setattr(drawing, "note", ""),
    )
    _verdict(run, course, drawing)


def _drawing(run: Run, course: Course) -> Drawing:
    """What was drawn so far; the course as it stands where nothing was, or where the course was changed since."""
    key = TRAIN("drawing", run.id)
    drawing: Drawing = st.session_state.setdefault(key, Drawing(EditorState((), ""), -1))
    if drawing.redraws != len(course.redraws):
        drawing.editor.push(course.sigmas)
        drawing.redraws = len(course.redraws)
    drawing.editor.lock(course.sigmas[: course.begun])
    return drawing


def live_forecast(run: Run, course: Course) -> LiveForecast | None:
    """The accuracy to expect, moved by what was seen; None where nobody learnt how these settings respond to noise."""
    response = response_for(course.spec)
    if response is None:
        return None
    seen = [record.accuracy for record in run.epochs]
    return LiveForecast.of(response, course.spec.batch_size, course.sigmas, seen)


def _verdict(run: Run, course: Course, drawing: Drawing) -> None:
    """What can be done with a drawing: apply it, or take the least noise of its shape that fits the budget."""
    sigmas, rate = drawing.editor.sigmas, course.spec.sample_rate
    past, coming = epoch_phases(sigmas[: course.begun], rate) if course.begun else (), sigmas[course.begun :]
    buttons, problem = [], ""
    try:
        course.filter.check(past, epoch_phases(coming, rate))
    except InputError as error:
        problem = str(error)
        scale = course.filter.scale(past, epoch_phases(coming, rate))
        fitting = tuple(rounded_up(scale * sigma) for sigma in coming)
        take = partial(drawing.editor.push, (*sigmas[: course.begun], *fitting))
        if scale * max(coming) <= MAX_SIGMA:
            buttons += [
                Action(f"Take {scale:g} times the noise", take, "The least noise of this shape that fits the budget.")
            ]
    same = sigmas == course.sigmas
    apply = partial(_apply, run.id, course, drawing)
    help = "Holds from the next epoch that begins."
    buttons.insert(0, Action("Apply", apply, help, primary=True, disabled=bool(problem) or same))
    undo = "Puts back what the last change replaced, as far as its epochs have not begun."
    buttons += [Action("Undo change", partial(store().redraw, run.id, course.undone), undo)] if course.undone else []
    if problem:
        input_error(InputError(f"{problem[:1].upper()}{problem[1:]}."))
    with st.container(horizontal=True, vertical_alignment="center"):
        action_buttons(TRAIN, run.id, buttons)
        if drawing.note:
            st.caption(drawing.note)
    st.caption(LOOK_AT)


def _apply(run_id: str, course: Course, drawing: Drawing) -> None:
    """From the first epoch that differs; the store looks again, under the run's lock, which epochs have begun."""
    sigmas = drawing.editor.sigmas
    pairs = enumerate(zip(sigmas, course.sigmas, strict=True), 1)
    first = next((epoch for epoch, (drawn, planned) in pairs if drawn != planned), None)
    if first is None:  # undone while the button was being pressed
        raise InputError("the drawing is the course as it stands; change the noise to come first")
    changed = store().redraw(run_id, sigmas[first - 1 :], skip_begun=True).redraws[-1].first
    began = f" Epoch {changed - 1} had begun by then and keeps its noise." if changed > first else ""
    drawing.note = f"Applied from epoch {changed} on.{began}"


def share_text(share: float) -> str:
    """A share of a budget, rounded up, in the browser's words."""
    if share >= 10:
        return f"{math.ceil(share):,} times" if share < math.inf else "∞"
    return f"{math.ceil(1000 * share - 1e-9) / 10:.1f} %"


# --- typed


def _field(run: Run, course: Course) -> None:
    """Its text stays while epochs begin: it is about the last epochs, and those that began meanwhile are left out.

    Each change makes a new field: a text that is set from here is lost where the script is cut short.
    """
    change = len(course.redraws)
    key, first = TRAIN("sigmas", run.id, change), TRAIN("coming", run.id, change)
    text = st.session_state.setdefault(first, sigmas_text(course.coming))

    def apply() -> None:
        store().redraw(run.id, parse_sigmas(st.session_state[key]))

    label = f"σ of the epochs to come, up to epoch {course.spec.epochs}"
    st.text_input(label, text, key=key, disabled=bool(read_only()), help=LOOK_AT)
    action_buttons(TRAIN, run.id, [Action("Apply list", apply, "Holds from the next epoch that begins.")])


def sigmas_text(sigmas: tuple[float, ...]) -> str:
    return ", ".join(f"{sigma:.6g}" for sigma in sigmas)


def parse_sigmas(text: str) -> list[str]:
    """Sigmas as typed, separated by commas or spaces; what is no number is refused by the record that takes it."""
    return [word for word in re.split(r"[,;\s]+", text.strip()) if word]
