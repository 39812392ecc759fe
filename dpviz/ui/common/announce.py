"""A toast when a run, a sweep or a lesson has ended, on whatever page the person is: once per run and session."""

from __future__ import annotations

import streamlit as st

from dpviz.forecast.learner import Learner, learners
from dpviz.forecast.library import history, title_of
from dpviz.forecast.pilots import is_pilot
from dpviz.privacy.registry import InputError
from dpviz.runs import Store, Summary
from dpviz.runs.sweeps.folder import SweepFolder, sweep_ids
from dpviz.runs.sweeps.result import result
from dpviz.ui.common.markdown import plain, sentence
from dpviz.ui.common.runs import WATCHED, is_live, store, summary_name
from dpviz.views.numbers import epsilon_number

LOOK_SECONDS = 2.0
LOOK_BACK = 5  # sweeps that are looked at, the newest
ICONS = {"done": ":material/check_circle:", "failed": ":material/error:", "interrupted": ":material/error:"}


def announce_ends() -> None:
    """Look once, and go on looking while something is at work."""
    busy = bool(at_work(store()) | WATCHED.get())
    st.fragment(_look, run_every=LOOK_SECONDS if busy else None)()


def at_work(own: Store) -> frozenset[str]:
    """Sweeps that are driven, responses that are learnt, and runs that wait or train.

    A sweep speaks for its own runs, and a response for its pilots.
    """
    sweeps = [folder for folder in (SweepFolder(own, one) for one in sweep_ids(own)[:LOOK_BACK]) if folder.driven]
    theirs = {begun.run_id for folder in sweeps for begun in folder.begun() or ()}
    runs = {run.id for run in own.list().runs if is_live(run) and not is_pilot(run)} - theirs
    learning = {settings for settings, learner in learners(own).items() if learner.running}
    return frozenset(runs | {folder.path.name for folder in sweeps} | learning)


def _look() -> None:
    own = store()
    now = at_work(own)
    ended = WATCHED.get() - now
    for run in own.list().runs if ended else ():
        if run.id in ended and run.status in ICONS:  # who stopped it knows
            st.toast(end_words(run), icon=ICONS[run.status], duration="long")
    for sweep_id in ended & set(sweep_ids(own)):
        try:
            found = result(own, sweep_id)
        except InputError:
            continue
        name = f"The sweep **{plain(found.sweep.title)}**" if found.sweep.title else "A sweep"
        words = f"{name} ended: {found.done} of {found.total} runs done."
        st.toast(words, icon=ICONS["done"], duration="long")
    for settings, learner in learners(own).items():
        if settings in ended:
            icon = ICONS["failed" if learner.problem else "done"]
            st.toast(learnt_words(settings, learner, own), icon=icon, duration="long")
    WATCHED.set(now)  # last: a script that is cut short by a click announces again


def learnt_words(settings: str, learner: Learner, own: Store) -> str:
    """What is known once nothing more is learnt, and what went wrong."""
    from dpviz.views.forecast import error_words  # with pandas, which no page shall wait for

    fits = history(settings, own)
    name = plain(title_of(learner.spec))
    known = f"Forecast of **{name}**: {error_words(fits[-1])}." if fits else f"**{name}** has no forecast yet."
    return f"{known} {sentence(learner.problem)}" if learner.problem else known


def end_words(run: Summary) -> str:
    """How a run ended, in a sentence."""
    name = plain(summary_name(run))
    if run.status == "failed":
        return f"**{name}** failed. {sentence(run.error)}"
    if run.status == "interrupted" or run.test_accuracy is None:
        return f"**{name}** was interrupted; it can be resumed on the Train page."
    sound = run.spent[1]
    price = "without a guarantee" if sound is None else f"at ε {epsilon_number(sound)}"
    return f"**{name}** is done: {100 * run.test_accuracy:.2f} % {price}."
