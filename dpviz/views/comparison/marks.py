"""How curves are told apart: eight marks of colour, line style and symbol, and who has which."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from dpviz.views.axes import COLOURS, GREY
from dpviz.views.comparison.settings import setting_text


@dataclass(frozen=True)
class Mark:
    """A colour, and a line style and a symbol for those who do not tell colours apart."""

    colour: str
    dash: str = "solid"
    symbol: str = "circle"


DASHES = ("solid", "7px,3px", "2px,2px", "9px,3px,2px,3px", "14px,3px", "5px,2px,1px,2px,1px,2px", "4px,4px", "1px,3px")
SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "star", "x")
MARKS = tuple(Mark(*channels) for channels in zip(COLOURS, DASHES, SHAPES, strict=True))
OTHER = Mark(GREY)
OTHER_TITLE = "other"


def keep_slots(before: Sequence[str], chosen: Iterable[str]) -> tuple[str, ...]:
    """The chosen groups in slots, one per mark: who had a slot keeps it, newcomers take the free ones. "" is free."""
    wanted = list(dict.fromkeys(chosen))
    slots = [group if group in wanted else "" for group in before]
    for group in wanted:
        if group not in slots:
            free = slots.index("") if "" in slots else len(slots)
            slots[free : free + 1] = [group]
    while slots and not slots[-1]:
        slots.pop()
    return tuple(slots)


def marks_of(slots: Sequence[str]) -> dict[str, Mark]:
    """A mark per slot; beyond the eighth slot curves share the mark of the rest."""
    return {group: MARKS[k] if k < len(MARKS) else OTHER for k, group in enumerate(slots) if group}


def marks_by(values: pd.Series, name: str) -> tuple[dict[str, Mark], dict[str, Mark]]:
    """A mark per group by its value of a setting, and per value, as a key; the eight most frequent, the rest "other".

    `values` are those of all groups, whatever is shown, so that a value keeps its mark under other filters.
    """
    texts = values.map(lambda value: setting_text(name, value) or "not set")
    frequent = texts.value_counts(sort=False).sort_values(ascending=False, kind="stable").index[: len(MARKS)]
    key = dict(zip(frequent, MARKS, strict=False))
    if texts.nunique() > len(MARKS):
        key[OTHER_TITLE] = OTHER
    return {str(group): key.get(text, OTHER) for group, text in texts.items()}, key


def swatch(mark: Mark | None, line: bool = True) -> str:
    """The mark as a small picture for a table: a line in its style with a dot, or a ring for a reported point."""
    if mark is None:
        return ""
    dashes = "" if mark.dash == "solid" else f' stroke-dasharray="{mark.dash.replace("px", "")}"'
    stroke = f'<path d="M2 10h44" stroke="{mark.colour}" stroke-width="2.5"{dashes}/>' if line else ""
    fill = mark.colour if line else "none"
    dot = f'<circle cx="24" cy="10" r="4" fill="{fill}" stroke="{mark.colour}" stroke-width="2"/>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="48" height="20">{stroke}{dot}</svg>'
    return "data:image/svg+xml," + urllib.parse.quote(svg)


def coloured(marks: Mapping[str, Mark], groups: Iterable[str]) -> dict[str, Mark]:
    """The marks of these groups alone."""
    return {group: marks.get(group, OTHER) for group in groups if group}
