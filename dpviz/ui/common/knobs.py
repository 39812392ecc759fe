"""Widgets that build themselves from a table: a choice among its entries, and one input for each knob."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from dpviz.privacy.registry import Entry, Knob, Value, in_words


def choose(
    label: str,
    table: Mapping[str, Entry],
    key: str,
    *,
    leave_out: Sequence[str] = (),
    default: str | None = None,
    on_change: Callable[[], None] | None = None,
    disabled: bool = False,
) -> Entry:
    """A list of the table's entries; the chosen one. Its sentence is the list's help text."""
    names = [name for name in table if name not in leave_out]
    st.session_state.setdefault(key, default or names[0])
    name = st.selectbox(
        label,
        names,
        key=key,
        format_func=lambda name: table[name].title,
        help="  \n".join(f"**{table[name].title}**: {table[name].help}" for name in names),
        on_change=on_change or "rerun",
        persist_state="session",
        disabled=disabled,
    )
    return table[name]


def knob_key(key: str, entry: Entry, name: str) -> str:
    """Where a knob's value lives in the session."""
    return f"{key}.{entry.name}.{name}"


def knob_values(entry: Entry, key: str) -> dict[str, Value]:
    """The knobs as the session has them, for callbacks; those that were never shown take their defaults."""
    keys = {name: knob_key(key, entry, name) for name in entry.knobs}
    return entry.complete({name: st.session_state[at] for name, at in keys.items() if at in st.session_state})


def knob_inputs(
    entry: Entry,
    key: str,
    *,
    values: Mapping[str, Value] | None = None,
    title: str = "",
    on_change: Callable[[], None] | None = None,
    disabled: bool = False,
) -> dict[str, Value]:
    """One input for each of the entry's knobs, in the container at hand; their values, checked.

    `values` are first values where they differ from the knobs' defaults; later on the session remembers. With a
    `title` the inputs are called "Title: knob".
    """
    given = values or {}
    labels = {name: f"{title}: {name}" if title else in_words(name) for name in entry.knobs}
    shown = {
        name: _input(knob, labels[name], knob_key(key, entry, name), given.get(name, knob.default), on_change, disabled)
        for name, knob in entry.knobs.items()
    }
    return entry.complete(shown)


def _input(
    knob: Knob, label: str, key: str, first: Value, on_change: Callable[[], None] | None, disabled: bool
) -> Value | None:
    st.session_state.setdefault(key, first)
    common: dict[str, Any] = {
        "key": key,
        "help": knob.help or None,
        "on_change": on_change or "rerun",
        "disabled": disabled,
        "persist_state": "session",
    }
    shown: Value | None
    if knob.choices:
        shown = st.selectbox(label, knob.choices, format_func=in_words, **common)
    elif isinstance(knob.default, bool):
        shown = st.toggle(label, **common)
    elif isinstance(knob.default, int):
        shown = st.number_input(label, _bound(knob.low, int), _bound(knob.high, int), step=1, **common)
    else:
        low, high = _bound(knob.low, float), _bound(knob.high, float)
        shown = st.number_input(label, low, high, step=_step(float(knob.default)), format="%.6g", **common)
    return shown


def _bound(limit: float, kind: type) -> Any:
    return kind(limit) if math.isfinite(limit) else None


def _step(default: float) -> float:
    """A tenth of the default's power of ten: 5 -> 0.1, 0.05 -> 0.001."""
    return 10.0 ** (math.floor(math.log10(abs(default))) - 1) if default else 0.1
