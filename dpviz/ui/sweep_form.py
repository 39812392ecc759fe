"""The form of a sweep: which of a run's settings vary, over which values, for which seeds, at equal epsilon or not."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dpviz.privacy import SCHEDULES
from dpviz.privacy.schedules import CUSTOM
from dpviz.privacy.tables import InputError, Table, Value
from dpviz.runs.settings import PLAIN
from dpviz.runs.sweep import RESERVED, Grid, Sweep
from dpviz.training.spec import CHOICES, RunSpec
from dpviz.ui.knobs import entry_title, knob_title
from dpviz.ui.run_form import parse_seeds

KEY = "sweep"
MOST_RUNS = 200  # from a page; a file may ask for more


def sweep_form(spec: RunSpec, seeds: str, title: str) -> Sweep:
    """The widgets; the sweep that they make up around the run's settings, or an InputError."""
    keys = st.multiselect(
        "What to vary",
        variable(spec),
        key=f"{KEY}.keys",
        format_func=setting_title,
        persist_state="session",
        help="Every combination of the values below is trained, once a seed; all else is as in the form above.",
    )
    grid: Grid = tuple((key, _values(key, spec)) for key in keys)
    equal = st.toggle(
        "At equal epsilon",
        key=f"{KEY}.equal",
        persist_state="session",
        help="Scales each candidate's noise, keeping its shape, until its sound epsilon meets the same budget.",
    )
    epsilon = st.number_input("ε of every run", 0.01, 1000.0, 2.0, 0.1, key=f"{KEY}.epsilon") if equal else None
    if not grid:
        raise InputError("choose at least one setting to vary")
    sweep = Sweep(spec, parse_seeds(seeds), (grid,), None, epsilon, title).check()
    if sweep.runs > MOST_RUNS:
        raise InputError(f"from here at most {MOST_RUNS} runs, got {sweep.runs:,}; python -m dpviz sweep takes more")
    return sweep


def variable(spec: RunSpec) -> list[str]:
    """Settings that can be varied around these: choices, numbers, and the knobs of what is chosen."""
    plain = [key for key in PLAIN if key not in RESERVED and key != "secure"]
    noise = [] if spec.schedule.name == CUSTOM else [f"schedule.{name}" for name, _ in spec.schedule.knobs]
    return ["schedule", *noise, *CHOICES, *plain, *(key for key, _ in spec.knobs)]


def setting_title(key: str) -> str:
    """schedule.start -> Noise: start."""
    table, _, knob = key.partition(".")
    name = "Noise" if table == "schedule" else knob_title(table)
    return f"{name}: {knob.replace('_', ' ')}" if knob else name


def _values(key: str, spec: RunSpec) -> tuple[Value, ...]:
    table: Table | None = SCHEDULES if key == "schedule" else CHOICES.get(key)
    if table is None:
        typed = st.text_input(setting_title(key), _now(key, spec), key=f"{KEY}.values.{key}", persist_state="session")
        return parse_values(key, typed)
    chosen = st.multiselect(
        setting_title(key),
        [name for name in table if name != CUSTOM],
        default=None,
        key=f"{KEY}.values.{key}",
        format_func=lambda name: entry_title(table[name]),
        persist_state="session",
    )
    if not chosen:
        raise InputError(f"choose at least one value for {setting_title(key)}")
    return tuple(chosen)


def parse_values(key: str, text: str) -> tuple[Value, ...]:
    """Values as typed, with commas between: numbers where they are numbers, else words."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or len(set(words)) != len(words):
        raise InputError(f"{setting_title(key)} needs different values with commas between, got {text.strip()[:40]!r}")
    return tuple(_number(word) for word in words)


def _number(word: str) -> Value:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return word


def _now(key: str, spec: RunSpec) -> str:
    """The value that the form has at present, to start from."""
    table, _, knob = key.partition(".")
    here: dict[str, Any] = dict(spec.schedule.knobs) if table == "schedule" else spec.knobs_of(table) if knob else {}
    value = here[knob] if knob in here else getattr(spec, key)
    return f"{value:g}" if isinstance(value, float) else str(value)
