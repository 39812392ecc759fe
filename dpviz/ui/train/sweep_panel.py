"""Sweeps on the Train page: launching one, the progress of the whole, stop and resume, and what came of it."""

from __future__ import annotations

from collections.abc import Callable

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
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.markdown import plain, sentence
from dpviz.ui.common.runs import runner, store
from dpviz.ui.train.run_form import key
from dpviz.ui.train.sweep_form import OPEN, setting_title, sweep_form
from dpviz.views.sweeps import front_figure, front_frame, progress_text, sweep_frame

ASKED = "sweep.asked"
PROBLEM = "sweep.problem"
LIVE_SECONDS, IDLE_SECONDS = 1.0, 5.0
SHOWN = 5  # sweeps that are listed; older ones are still in the store


def sweep_launcher(spec: RunSpec) -> None:
    """Below the run's form: the same settings, some of them varied."""
    with st.expander("Sweep: many runs at once", expanded=st.session_state.get(OPEN, False)):
        title = st.text_input("Title of the sweep", key="sweep.title", max_chars=80, placeholder="optional")
        try:
            sweep = sweep_form(spec, st.session_state[key("seeds")], title)
        except InputError as error:
            st.session_state.pop(ASKED, None)
            st.markdown(f":small[{sentence(error)}]")
            return
        locked = read_only()
        st.markdown(f":small[{sweep.size} candidates, {sweep.runs} runs.]")
        st.button("Launch sweep", type="primary", disabled=bool(locked), help=locked or None, on_click=_ask)
        if st.session_state.pop(ASKED, False) and not locked:
            _act(start, sweep)
            st.rerun()


def _ask() -> None:
    st.session_state[ASKED] = True


def start(sweep: Sweep) -> None:
    """Drive a sweep in the background of this server: in its queue, or on the cluster that DPVIZ_RAY names."""
    launch(SweepDriver(sweep, store(), runner(ray_address())))


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
    problem = st.session_state.pop(PROBLEM, "")
    if problem:
        input_error(InputError(problem))
    runs = own.list().runs
    for place, sweep_id in enumerate(ids):
        try:
            _sweep(own, result(own, sweep_id, runs), first=place == 0)
        except InputError as error:
            input_error(error)


def _sweep(own: Store, found: Result, *, first: bool) -> None:
    sweep = found.sweep
    here, anywhere = sweep_drivers(own).get(sweep.id), SweepFolder(own, sweep.id).driven
    name = sweep.title or ", ".join(setting_title(name) for name in sweep.varied)
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.progress(found.share, text=f"**{plain(name)}** — {progress_text(found)}")
            if anywhere and here is not None:
                _button("Stop sweep", sweep.id, here.stop, help="Ends its runs within a step; it can be resumed.")
            elif not anywhere:
                if not found.finished or (found.failed and not sweep.search):  # a search has learnt from what failed
                    _button("Resume sweep", sweep.id, start, sweep, help="Trains what is left or failed.")
                forgets = "Its runs stay. What it spent on runs that are deleted is forgotten with it."
                _button("Forget", sweep.id, SweepFolder(own, sweep.id).delete, help=forgets)
        if here is not None and here.problem:
            input_error(InputError(here.problem))
        with st.expander("Results", expanded=first):
            _results(found, running=anywhere)


def _results(found: Result, *, running: bool) -> None:
    st.dataframe(
        sweep_frame(found),
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
    st.markdown(f"**Winner: {plain(found.winner.candidate.label)}.** What having chosen it costs:")
    st.markdown("\n".join(f"- {sentence}" for sentence in price_words(found)))


def _front(found: Result) -> None:
    """What a search is after: accuracy against epsilon, and the candidates that no other beats in both."""
    frame = front_frame(found)
    if len(frame):
        told = f"Test accuracy against epsilon of {len(frame)} candidates, {frame['front'].sum()} of them on the front."
        st.plotly_chart(front_figure(frame), key=f"sweep.front.{found.sweep.id}", alt=told)


def _button(label: str, sweep_id: str, action: Callable[..., None], *arguments: object, help: str) -> None:
    locked = read_only()
    st.button(
        label,
        key=f"sweep.{label}.{sweep_id}",
        on_click=_act,
        args=(action, *arguments),
        disabled=bool(locked),
        help=locked or help,
    )


def _act(action: Callable[..., None], *arguments: object) -> None:
    """Do it; what goes wrong is shown as a sentence at the top."""
    try:
        action(*arguments)
    except InputError as error:
        st.session_state[PROBLEM] = str(error)
