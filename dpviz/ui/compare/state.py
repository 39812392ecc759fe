"""The state of the Compare page: what its widgets hold, where it comes from, and what acts on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.ui.common.cards import input_error
from dpviz.ui.compare.link import AT, Comparison, parse_link
from dpviz.views.comparison.marks import keep_slots

OPENED = "compare.opened"
FIGURE = "compare.figure"
TABLE = "compare.table"
ORDER = "compare.order"  # the groups of the table's rows, as they were last sent to the browser
SLOTS = "compare.slots"  # who had which mark, so that colours stay


def key(field: str) -> str:
    return f"compare.{field}"


def bound(field: str) -> dict[str, Any]:
    """What ties a widget to a field of the page's state."""
    return {"key": key(field), "persist_state": "session"}


def open_link(newest_dataset: Callable[[], str]) -> None:
    """Take over what the address says, once for each address; a first visit without one starts at one's own runs."""
    asked = dict(st.query_params)
    if st.session_state.get(OPENED) == asked:
        return
    first = OPENED not in st.session_state
    st.session_state[OPENED] = asked
    if not (asked or first):
        return
    try:
        newest = "" if asked else newest_dataset()
        shown = parse_link(asked or ({"dataset": newest} if newest else {}))
    except InputError as error:
        input_error(error)
        shown = Comparison()
    put(shown)


def put(shown: Comparison) -> None:
    for field in fields(Comparison):
        value = getattr(shown, field.name)
        st.session_state[key(field.name)] = list(value) if isinstance(value, tuple) else value
    st.session_state[SLOTS] = shown.highlight


def current() -> Comparison:
    """The page's choices as one record."""
    chosen = {field.name: st.session_state[key(field.name)] for field in fields(Comparison)}
    values: dict[str, Any]
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in chosen.items()}
    return Comparison(**values)


def slots(chosen: Sequence[str]) -> tuple[str, ...]:
    """The coloured groups by mark; who had a mark keeps it."""
    st.session_state[SLOTS] = keep_slots(st.session_state.get(SLOTS, ()), chosen)
    kept: tuple[str, ...] = st.session_state[SLOTS]
    return kept


def take_selection() -> None:
    """Rows that a person selected in the table are the coloured curves; none: chosen automatically again."""
    order = st.session_state[ORDER]
    chosen = [order[row] for row in st.session_state[TABLE]["selection"]["rows"] if row < len(order)]
    hidden = [group for group in st.session_state[key("highlight")] if group and group not in order]
    st.session_state[key("highlight")] = list(slots([*chosen, *hidden])) if chosen else []


def show_selection(order: Sequence[str], coloured: Sequence[str]) -> None:
    """Tick the rows of the coloured curves, wherever sorting has put them."""
    places = {group: row for row, group in enumerate(order)}
    rows = sorted(places[group] for group in coloured if group in places)
    st.session_state[ORDER] = list(order)
    st.session_state[TABLE] = {"selection": {"rows": rows, "columns": [], "cells": []}}


def take_click() -> None:
    """A click on a point moves the cursor to its epsilon."""
    points = st.session_state[FIGURE]["selection"]["points"]
    x = points[0].get("x") if points else None
    if isinstance(x, int | float) and AT.low <= x <= AT.high:
        st.session_state[key("at")] = _three_digits_up(float(x))


def _three_digits_up(value: float) -> float:
    """Rounded up, so that the point that was clicked is within the budget."""
    scale = 10.0 ** (2 - math.floor(math.log10(value)))
    return float(f"{math.ceil(round(value * scale, 6)) / scale:.6g}")


def automatic() -> None:
    """Back to the colours of the first sight."""
    st.session_state[key("highlight")] = []
