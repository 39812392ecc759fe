"""Sweeps on the Train page: launching one, the progress of the whole, stop and resume, and what came of it."""

from __future__ import annotations

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.runs import Store
from dpviz.runs.execution.runners import ray_address
from dpviz.runs.sweeps.driver import SweepDriver, launch, sweep_drivers
from dpviz.runs.sweeps.folder import SweepFolder, sweep_ids
from dpviz.runs.sweeps.result import Result, price_words, result
from dpviz.runs.sweeps.spec import Sweep
from dpviz.training.limits import read_only
from dpviz.training.spec import RunSpec
from dpviz.ui.common.actions import PROBLEM, Action, action_buttons, progress_bar, show_problem, wish_button
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.markdown import plain, sentence
from dpviz.ui.common.runs import load_all, runner, store, watch
from dpviz.ui.train.runs_list import compare_button
from dpviz.ui.train.state import SWEEP, SWEEP_ASKED, SWEEP_OPEN, TRAIN
from dpviz.ui.train.sweep_form import candidate_title, setting_title, sweep_form, value_title
from dpviz.views.sweeps import front_figure, front_frame, progress_text, sweep_frame, verdict_words

LIVE_SECONDS, IDLE_SECONDS = 1.0, 5.0
SHOWN = 5  # sweeps that are listed; older ones are still in the store


def sweep_launcher(spec: RunSpec) -> None:
    """Below the run's form: the same settings, some of them varied."""
    with st.expander("Sweep: many runs at once", expanded=SWEEP_OPEN.get()):
        title = st.text_input("Title of the sweep", key=SWEEP("title"), max_chars=80, placeholder="optional")
        try:
            sweep = sweep_form(spec, st.session_state[TRAIN("seeds")], title)
        except InputError as error:
            SWEEP_ASKED.take()
            st.markdown(f":small[{sentence(error)}]")
            return
        st.markdown(f":small[{sweep.size} candidates, {sweep.runs} runs.]")
        wish_button("Launch sweep", SWEEP_ASKED)
        if SWEEP_ASKED.take() and not read_only():
            try:
                start(sweep)
            except InputError as error:
                PROBLEM.set(str(error))
            st.rerun()


def sweep_name(sweep: Sweep) -> str:
    """Its title, or what it varies."""
    return sweep.title or ", ".join(setting_title(name) for name in sweep.varied)


def start(sweep: Sweep) -> None:
    """Drive a sweep in the background of this server: in its queue, or on the cluster that DPVIZ_RAY names."""
    launch(SweepDriver(sweep, store(), runner(ray_address())))
    watch(sweep.id)


def sweeps_panel() -> None:
    """Every sweep with its progress; looks again by itself. Nothing is shown where there is none."""
    own = store()
    ids = sweep_ids(own)
    if not ids:
        return
    live = any(SweepFolder(own, sweep_id).driven for sweep_id in ids[:SHOWN])
    st.fragment(_panel, run_every=LIVE_SECONDS if live else IDLE_SECONDS)(live)


def _panel(live_before: bool) -> None:
    own = store()
    ids = sweep_ids(own)[:SHOWN]
    if any(SweepFolder(own, sweep_id).driven for sweep_id in ids) != live_before:
        st.rerun()  # a fragment cannot change its own rhythm
    st.header("Sweeps")
    show_problem()
    runs = own.list().runs
    for place, sweep_id in enumerate(ids):
        try:
            _sweep(own, result(own, sweep_id, runs), first=place == 0)
        except InputError as error:
            input_error(error)


def _sweep(own: Store, found: Result, *, first: bool) -> None:
    here, running = sweep_drivers(own).get(found.sweep.id), SweepFolder(own, found.sweep.id).driven
    with st.container(border=True):
        progress_bar(found.share, sweep_name(found.sweep), progress_text(found, running=running))
        if here is not None and here.problem:
            input_error(InputError(here.problem))
        with st.expander("Results", expanded=first):
            _results(found, running=running)
        with st.container(horizontal=True, vertical_alignment="center"):
            action_buttons(SWEEP, found.sweep.id, _actions(own, found, here if running else None, running=running))
            runs, _ = load_all([run for row in found.rows for run in row.done])
            if runs:
                compare_button(runs, "Compare these")


def _actions(own: Store, found: Result, here: SweepDriver | None, *, running: bool) -> list[Action]:
    """What can be done to a sweep: one that another process drives is left alone."""
    if running:
        return [Action("Stop sweep", here.stop, "Ends its runs within a step; it can be resumed.")] if here else []
    left = not found.finished or bool(found.failed and not found.sweep.search)  # a search has learnt from what failed
    resume = Action("Resume sweep", lambda: start(found.sweep), "Trains what is left or failed.")
    forget = Action(
        "Forget",
        SweepFolder(own, found.sweep.id).delete,
        confirm="Its runs stay. What it spent on runs that are deleted is forgotten with it.",
    )
    return [*([resume] if left else []), forget]


def _results(found: Result, *, running: bool) -> None:
    st.dataframe(
        sweep_frame(found, value_title, running=running),
        hide_index=True,
        column_config={
            "accuracy": st.column_config.NumberColumn("Test accuracy (%)", format="%.2f"),
            "spread": st.column_config.NumberColumn("± over seeds", format="%.2f"),
            "epsilon": st.column_config.NumberColumn("Sound ε", format="%.3f"),
            "runs": "Runs done",
            "note": "",
            **{name: setting_title(name) for name in found.sweep.varied},
        },
    )
    if found.sweep.search and found.sweep.epsilon is None:
        _front(found)
    if found.winner is None or running:
        return
    verdict, difference = verdict_words(found, candidate_title)
    st.markdown(f"**{plain(verdict)}.** {plain(difference)}")
    st.markdown("What having chosen among them costs:")
    st.markdown("\n".join(f"- {words}" for words in price_words(found)))


def _front(found: Result) -> None:
    """What a search is after: accuracy against epsilon, and the candidates that no other beats in both."""
    frame = front_frame(found, candidate_title)
    if len(frame):
        alt = f"Test accuracy against epsilon of {len(frame)} candidates, {frame['front'].sum()} of them on the front."
        st.plotly_chart(front_figure(frame), key=SWEEP("front", found.sweep.id), alt=alt)
