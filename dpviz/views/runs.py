"""Curves of single runs: one row an epoch, and the figure of a measure against epochs, epsilon or time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import pandas as pd
import plotly.graph_objects as go

from dpviz.papers import RECIPES
from dpviz.privacy.registry import Entry
from dpviz.runs import Run
from dpviz.training.spec import EpochRecord, RunSpec
from dpviz.training.tables import DATASETS, MODELS
from dpviz.views.axes import AXES, COLOURS, GREY, PERCENT, epoch_ticks, layout
from dpviz.views.numbers import epsilon_number

TEST, TRAINING = "test data", "training data, not covered by epsilon"
NO_GUARANTEE = "no guarantee"
MEASURES = {"accuracy": "Accuracy (%)", "loss": "Loss"}


def schedule_words(spec: RunSpec) -> str:
    """The noise in a few words: "constant 1.23", "linear 5 to 1", "own curve"."""
    if not spec.private:
        return "no noise"
    knobs = dict(spec.schedule.knobs)
    if spec.schedule.name == "constant":
        return f"constant {knobs['sigma']:g}"
    if spec.schedule.name == "custom":
        return "own curve"
    ends = f" {knobs['start']:g} to {knobs['end']:g}" if {"start", "end"} <= set(knobs) else ""
    return spec.schedule.name + ends


def title_of(table: Mapping[str, Entry], name: str) -> str:
    """A table's entry as it is written on screen."""
    return table[name].title if name in table else name


def run_name(run: Run) -> str:
    """What a person calls the run: its title, its recipe's, or its settings in words."""
    if run.title:
        return run.title
    if run.spec.recipe in RECIPES:
        return RECIPES[run.spec.recipe].title
    return f"{title_of(DATASETS, run.spec.dataset)}, {title_of(MODELS, run.spec.model)}, {schedule_words(run.spec)}"


def epsilon_words(value: float | None, missing: str = NO_GUARANTEE) -> str:
    """The number, "∞", or what its absence means."""
    return missing if value is None or math.isnan(value) else epsilon_number(value)


def spent_words(value: float | None, at_most: bool, missing: str = NO_GUARANTEE) -> str:
    """An epsilon that was spent; "at most 1.235" where it is not on record how far the run came."""
    words = epsilon_words(value, missing)
    return f"at most {words}" if at_most and value is not None and math.isfinite(value) else words


def curve(run: Run) -> list[tuple[float, ...]]:
    """One row an epoch, in the order of AXES: accuracies in percent, time added up, no guarantee as NaN."""
    rows, seconds = [], 0.0
    for record in run.epochs:
        seconds += record.seconds
        rows.append(tuple(_number(record, column, seconds) for column in AXES))
    return rows


def _number(record: EpochRecord, column: str, seconds: float) -> float:
    if column == "minutes":
        return seconds / 60
    value: float | None = getattr(record, column)
    if value is None:
        return math.nan
    return 100 * value if column in PERCENT else value


def run_frame(runs: Iterable[Run]) -> pd.DataFrame:
    """One row an epoch of every run."""
    rows = [(run.id, run_name(run), *row) for run in runs for row in curve(run)]
    return pd.DataFrame(rows, columns=["run", "name", *AXES])


def run_figure(frame: pd.DataFrame, x: str = "epoch", measure: str = "accuracy") -> go.Figure:
    """Test and training curve of one run; an epoch whose epsilon is missing or infinite has no place in it."""
    figure = go.Figure(layout=layout(AXES[x].title, MEASURES[measure], height=300))
    shown = frame[frame[x].map(math.isfinite).astype(bool)]
    if x == "epoch" and len(shown):
        figure.update_xaxes(**epoch_ticks(shown[x].max()))
    for part, name, colour, dash, width in (
        ("test", TEST, COLOURS[0], "solid", 2.5),
        ("train", TRAINING, GREY, "dot", 1.5),
    ):
        axis = AXES[f"{part}_{measure}"]
        figure.add_scatter(
            x=shown[x],
            y=shown[f"{part}_{measure}"],
            name=name,
            mode="lines+markers",
            line={"color": colour, "dash": dash, "width": width},
            marker={"size": 2 * width + 1},
            hovertemplate=f"{AXES[x].hovered('x')}<br>{axis.hovered('y')}<extra></extra>",
        )
    return figure
