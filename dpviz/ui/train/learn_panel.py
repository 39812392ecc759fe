"""What is being learnt, on the Train page: pilot runs folded into one box per response, and the error as it falls."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dpviz.forecast.evidence import looked_at
from dpviz.forecast.learner import Learner, PilotGroup, forget, learners, pilot_groups
from dpviz.forecast.library import history
from dpviz.forecast.pilots import Price
from dpviz.privacy.registry import InputError
from dpviz.runs import Run
from dpviz.runs.execution.pace import duration_words, pace_from
from dpviz.runs.execution.runners import ray_address
from dpviz.training.limits import refuse_if_read_only
from dpviz.training.spec import RunSpec
from dpviz.ui.common.actions import Action, action_buttons, progress_bar, show_problem
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.markdown import plain
from dpviz.ui.common.runs import load, load_all, runner, store, watch
from dpviz.ui.train.forecasts import fit_again, runs_alike, settings_name
from dpviz.ui.train.state import LEARN
from dpviz.views.forecast import error_figure, error_frame, error_words

LIVE_SECONDS, IDLE_SECONDS = 1.0, 5.0
SHOWN = 5  # groups that are listed; the runs of older ones are still in the store


def forecasts_panel() -> None:
    """A box per group of pilot runs; looks again by itself. Nothing is shown where nothing was ever learnt."""
    if _groups() or learners(store()):
        live = _live()
        st.fragment(_panel, run_every=LIVE_SECONDS if live else IDLE_SECONDS)(live)


def _groups() -> tuple[PilotGroup, ...]:
    return pilot_groups(store().list().runs, load)[:SHOWN]


def _live() -> bool:
    return any(group.live for group in _groups()) or any(learner.running for learner in learners(store()).values())


def _panel(live_before: bool) -> None:
    if _live() != live_before:
        st.rerun()  # a fragment cannot change its own rhythm
    st.header("Forecasts")
    show_problem()
    for learner in learners(store()).values():
        if learner.problem:
            input_error(InputError(f"{settings_name(learner.spec)}: {learner.problem}"))
    for place, group in enumerate(_groups()):
        _box(group, first=place == 0)


def _box(group: PilotGroup, *, first: bool) -> None:
    spec = group.specs[0]
    learner = learners(store()).get(group.settings)
    running = learner is not None and learner.running
    fits, alike = history(group.settings, store()), runs_alike(spec)
    with st.container(border=True):
        runs, _ = load_all(group.runs)
        progress_bar(group.share, f"Pilot runs of {settings_name(spec)}", progress_words(group, runs))
        if fits:
            with st.expander(f"Forecast: {error_words(fits[-1])}", expanded=first):
                alt = f"Error of the forecast against the runs that it rests on, {len(fits)} fits"
                st.plotly_chart(error_figure(error_frame(fits)), key=LEARN("error", group.settings), alt=alt)
        st.caption(plain(_price_words(spec, alike)))
        with st.container(horizontal=True, vertical_alignment="center"):
            actions = _actions(group, running=running)
            action_buttons(LEARN, group.settings, actions if running else [*actions, *fit_again(spec, alike)])


def _price_words(spec: RunSpec, alike: Sequence[Run]) -> str:
    try:
        return Price.of(spec, looked_at(spec, alike, store()), final=False).words
    except InputError as error:
        return f"What these runs cost together is not known: {error}."


def progress_words(group: PilotGroup, runs: Sequence[Run]) -> str:
    """How many pilots are done, and what becomes of the others."""
    done = f"{group.done} of {len(group.runs)} done"
    if not group.live:
        return f"{done}, {len(group.resumable)} can be resumed" if group.resumable else done
    pace = pace_from(runs, group.specs[0])
    return done if pace is None else f"{done}, {duration_words(group.seconds_left(pace))} left"


def _actions(group: PilotGroup, *, running: bool) -> list[Action]:
    """What can be done to the pilots; those that another process works on are left alone."""
    here = runner(ray_address())
    at_work = [run.id for run in group.live if run.id in here.live()]
    actions = []
    if at_work:
        actions.append(Action("Stop pilots", lambda: _stop(at_work), "Ends them within a step; they can be resumed."))
    if group.resumable and not running and not group.live:
        resume = Action("Resume pilots", lambda: _resume(group), "Goes on where they stopped.", primary=True)
        actions.append(resume)
    if not group.live and not running:
        confirm = "Their curves are removed for good; the forecast stays, and what they spent stays spent."
        actions.append(Action("Delete pilots", lambda: _delete(group), confirm=confirm))
    return actions


def _stop(ids: Sequence[str]) -> None:
    """Those that wait go first: none of them starts in the meantime."""
    refuse_if_read_only()
    here = runner(ray_address())
    for run_id in reversed(ids):
        if run_id in here.live():
            here.stop(run_id)


def _resume(group: PilotGroup) -> None:
    Learner(group.specs[0], group.specs, store(), runner(ray_address())).start()
    watch(group.settings)


def _delete(group: PilotGroup) -> None:
    for run in group.runs:
        store().delete(run.id)
    forget(group.settings, store())
