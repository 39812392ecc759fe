"""What can be done to a run, a sweep or a job: a row of buttons from a table of actions, and a bar of its progress."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.training.limits import read_only
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.markdown import plain
from dpviz.ui.common.session import Keys, Slot

PROBLEM = Slot("problem", "")  # why the last action was not done


@dataclass(frozen=True)
class Action:
    """A button. `confirm` is what a person must agree to first; `redraws`: it changes the whole page."""

    label: str
    act: Callable[[], object]
    help: str = ""
    confirm: str = ""
    primary: bool = False
    disabled: bool = False
    redraws: bool = False


def action_buttons(keys: Keys, subject: str, actions: Sequence[Action]) -> None:
    """The buttons, in the container at hand. A server that may change nothing says so on each."""
    for action in actions:
        if action.confirm:
            with st.popover(action.label, disabled=bool(read_only()) or action.disabled):
                st.markdown(action.confirm)
                label = action.label.lower()
                _button(keys, subject, action, f"Yes, {label}" if " " in label else f"Yes, {label} it", "")
        else:
            _button(keys, subject, action, action.label, action.help)


def _button(keys: Keys, subject: str, action: Action, label: str, help: str) -> None:
    pressed = st.button(
        label,
        key=keys(action.label, subject),
        help=read_only() or help or None,
        on_click=_act,
        args=(action,),
        type="primary" if action.primary or action.confirm else "secondary",
        disabled=bool(read_only()) or action.disabled,
    )
    if pressed and action.redraws:
        st.rerun()


def wish_button(label: str, wish: Slot[str], help: str = "") -> None:
    """A button that leaves its label in `wish`, for a page that has to read its form to the end first."""
    locked = read_only()
    help_text = locked or help or None
    st.button(label, type="primary", disabled=bool(locked), help=help_text, on_click=wish.set, args=(label,))


def _act(action: Action) -> None:
    try:
        action.act()
    except InputError as error:
        PROBLEM.set(str(error))


def show_problem() -> None:
    """Why the last action was not done, once."""
    problem = PROBLEM.take()
    if problem:
        input_error(InputError(problem))


def progress_bar(share: float, name: str, words: str) -> None:
    """How far something is, and in words how long it will take."""
    st.progress(min(1.0, max(0.0, share)), text=f"**{plain(name)}** — {words}")
