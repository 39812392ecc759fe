"""The form of a sweep: which settings vary, as a grid or as a search, for which seeds, at equal epsilon or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import streamlit as st

from dpviz.privacy import SCHEDULES, epoch_phases
from dpviz.privacy.registry import Entry, InputError, Knob, Value, in_words
from dpviz.privacy.schedules import CUSTOM
from dpviz.runs.settings import PLAIN, parse_seeds
from dpviz.runs.sweeps.spec import RESERVED, Candidate, Grid, Range, Search, Sweep
from dpviz.training.pricing import AS_TRAINED, steps_guarantee
from dpviz.training.spec import RunSpec
from dpviz.training.tables import CHOICES
from dpviz.ui.common.handover import PLAIN as DP_SGD
from dpviz.ui.common.knobs import knob_inputs
from dpviz.ui.train.run_form import MOST_SEEDS
from dpviz.ui.train.state import CURVE, HANDED, SWEEP, SWEEP_HANDED, SWEEP_OPEN, TRAIN

MOST_RUNS = 200  # from a page; a file may ask for more
TRIALS = 20
GRID, SEARCH = "Grid", "Search"
DRAWN = "Your drawn curve"
HELP = {
    GRID: "Every combination of the values below is trained, once per seed; all else is as in the form above.",
    SEARCH: "Each trial takes values from the ranges below, proposed from what those before it gave: high accuracy at "
    "low epsilon. All else is as in the form above.",
}
LOG = Knob(False, help="As many trials from 0.1 to 1 as from 1 to 10.")


def sweep_form(spec: RunSpec, seeds: str, title: str) -> Sweep:
    """The widgets; the sweep that they make up around the run's settings, or an InputError."""
    kind = st.radio("Candidates", (GRID, SEARCH), key=SWEEP("kind"), horizontal=True, persist_state="session")
    keys = st.multiselect(
        "What to vary",
        variable(spec),
        key=SWEEP("keys"),
        format_func=setting_title,
        persist_state="session",
        help=HELP[kind],
    )
    asked = {key: _ask(key, spec, kind) for key in keys}
    trials = _trials() if kind == SEARCH else 0
    equal = st.toggle(
        "At equal epsilon",
        key=SWEEP("equal"),
        persist_state="session",
        help="Scales each candidate's noise, keeping its shape, until its sound epsilon meets the same budget.",
    )
    epsilon = _epsilon() if equal else None
    if not keys:
        raise InputError("choose at least one setting to vary")
    varied = tuple((key, read(key, inputs)) for key, inputs in asked.items())
    # Only a search asks for ranges.
    grids, search = ((cast(Grid, varied),), None) if kind == GRID else ((), Search(trials, varied))
    sweep = Sweep(spec, parse_seeds(seeds, MOST_SEEDS), grids, search, epsilon, title).check()
    if sweep.runs > MOST_RUNS:
        raise InputError(f"from here at most {MOST_RUNS} runs, got {sweep.runs:,}; dpviz sweep takes more")
    return sweep


def prepare_sweep() -> None:
    """Before the widgets: a drawn curve that shall be swept meets the constant of its own epsilon, over three seeds."""
    wanted, handed = SWEEP_HANDED.take(), HANDED.get()
    if wanted is None or handed is None:
        return
    state = st.session_state
    state.pop(SWEEP("values", "schedule"), None)  # may name the curve of an earlier visit
    SWEEP_OPEN.set(wanted)
    if not wanted:
        return
    phases = epoch_phases(handed.schedule.values, handed.batch_size / handed.dataset_size)
    cost = steps_guarantee(*DP_SGD, phases, handed.delta, AS_TRAINED).sound
    assert cost is not None  # DP-SGD has one
    state[SWEEP("kind")], state[SWEEP("keys")] = GRID, ["schedule"]
    state[SWEEP("values", "schedule")] = [drawn_value(handed.schedule.values), "constant"]
    state[SWEEP("equal")], state[SWEEP("epsilon")] = True, cost.upper
    state[SWEEP("title")] = "Drawn curve against its constant"
    state[TRAIN("seeds")] = "0, 1, 2"


def drawn_value(sigmas: Sequence[float]) -> str:
    """A curve as the value of a sweep's setting `schedule`."""
    return ",".join(map(str, sigmas))


def variable(spec: RunSpec) -> list[str]:
    """Settings that can be varied around these: choices, numbers, and the knobs of what is chosen."""
    plain = [key for key in PLAIN if key not in RESERVED and key != "secure"]
    noise = [] if spec.schedule.name == CUSTOM else [f"schedule.{name}" for name, _ in spec.schedule.knobs]
    return ["schedule", *noise, *CHOICES, *plain, *(key for key, _ in spec.knobs)]


def setting_title(key: str) -> str:
    """schedule.start -> Noise: start."""
    table, _, knob = key.partition(".")
    name = "Noise" if table == "schedule" else in_words(table)
    return f"{name}: {knob.replace('_', ' ')}" if knob else name


def value_title(key: str, value: Value) -> str:
    """A setting's value: the title of what it names, Yes or No, a number in a few digits."""
    table: Mapping[str, Entry] = SCHEDULES if key == "schedule" else CHOICES.get(key, {})
    if isinstance(value, str):
        if key == "schedule" and value not in table:
            return f"drawn curve, σ from {value.partition(',')[0]} to {value.rpartition(',')[2]}"
        return table[value].title if value in table else in_words(value)
    if isinstance(value, bool):
        return "Yes" if value else "No"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def candidate_title(candidate: Candidate) -> str:
    """What sets a candidate apart: "Noise Constant, Noise sigma 2"."""
    settings = ((setting_title(key).replace(":", ""), value_title(key, value)) for key, value in candidate.settings)
    return ", ".join(f"{title} {value}" for title, value in settings)


# --- the inputs of one setting

Inputs = tuple[Value, ...] | str | dict[str, Any]  # names that were chosen, numbers as typed, or a range


def _ask(key: str, spec: RunSpec, kind: str) -> Inputs:
    """A list for names; for numbers a line to type them, or low, high and whether the range is logarithmic."""
    title, at = setting_title(key), SWEEP("values", key)
    names = named_values(key, spec)
    if names:
        titles = names.__getitem__
        return tuple(st.multiselect(title, list(names), key=at, format_func=titles, persist_state="session"))
    if kind == GRID:
        now = value_of(key, spec)
        return st.text_input(title, f"{now:g}" if isinstance(now, float) else str(now), key=at, persist_state="session")
    knob, first = knob_of(key, spec), first_range(key, spec)
    entry = Entry(key, "", {"low": knob, "high": knob, "log": LOG})
    at = SWEEP("range", f"{knob.high:g}")  # a knob of the same name with another limit starts anew
    with st.container(horizontal=True, vertical_alignment="bottom"):
        return knob_inputs(entry, at, values=vars(first), title=title)


def read(key: str, inputs: Inputs) -> tuple[Value, ...] | Range:
    """The values or the range that a setting's inputs make up."""
    if isinstance(inputs, str):
        return parse_values(key, inputs)
    if isinstance(inputs, tuple):
        if not inputs:
            raise InputError(f"choose at least one value for {setting_title(key)}")
        return inputs
    try:
        return Range(**inputs)
    except InputError as error:
        raise InputError(f"{setting_title(key)}: {error}") from None


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


def _epsilon() -> float:
    st.session_state.setdefault(SWEEP("epsilon"), 2.0)
    return st.number_input(
        "ε of every run",
        1e-6,
        1e6,
        step=0.1,
        format="%.6g",
        key=SWEEP("epsilon"),
        persist_state="session",
        help="From “Sweep against its constant” on Schedule: the sound ε of the drawn curve.",
    )


def _trials() -> int:
    return st.number_input(
        "Trials",
        1,
        MOST_RUNS,
        TRIALS,
        key=SWEEP("trials"),
        persist_state="session",
        help="Candidates in all, each trained once per seed. The first half of them, at most ten, is drawn at random.",
    )


# --- where they start from


def named_values(key: str, spec: RunSpec) -> dict[Value, str]:
    """What a setting that is no number can be, with its titles; empty for a number."""
    table = SCHEDULES if key == "schedule" else CHOICES.get(key)
    if table is not None:
        curve = CURVE.get() if key == "schedule" else None
        drawn: dict[Value, str] = {drawn_value(curve): DRAWN} if curve else {}
        return {**drawn, **{name: table[name].title for name in table if name != CUSTOM}}
    knob = knob_of(key, spec)
    if isinstance(knob.default, bool):
        return {False: "No", True: "Yes"}
    return {choice: in_words(choice) for choice in knob.choices}


def knob_of(key: str, spec: RunSpec) -> Knob:
    """The limits of a number, or of a knob of what the spec has chosen."""
    if key in PLAIN:
        return PLAIN[key]
    table, _, name = key.partition(".")
    chosen = SCHEDULES[spec.schedule.name] if table == "schedule" else CHOICES[table][getattr(spec, table)]
    return chosen.knobs[name]


def value_of(key: str, spec: RunSpec) -> Value:
    """The value that the form has at present."""
    table, _, knob = key.partition(".")
    if not knob:
        value: Value = getattr(spec, key)
        return value
    return (dict(spec.schedule.knobs) if table == "schedule" else spec.knobs_of(table))[knob]


def first_range(key: str, spec: RunSpec) -> Range:
    """A range to begin with: from a quarter of the present value to its fourfold, within what the setting allows."""
    knob = knob_of(key, spec)
    least = float(spec.batch_size if key == "subset" else knob.low)
    most = float(spec.examples if key in ("batch_size", "subset") else knob.high)
    now = float(spec.examples if key == "subset" else value_of(key, spec))
    ends = sorted((now / 4, now * 4)) if now else (0.0, 1.0)
    low, high = max(ends[0], least), min(ends[1], most)
    if isinstance(knob.default, int):
        return Range(int(low), max(int(low) + 1, int(high)))
    return Range(low, high, low > 0 and high >= 10 * low)
