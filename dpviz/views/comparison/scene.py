"""What a view of a comparison draws from, and the canvas it draws on: panels, room for names, the epsilon cursor."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from dpviz.training.spec import RunSpec
from dpviz.views.axes import GREY, layout
from dpviz.views.comparison.marks import Mark
from dpviz.views.comparison.settings import setting_text
from dpviz.views.comparison.table import dataset_title

MOST_PANELS = 6
PANEL_HEIGHT = {1: 460, 2: 400}
NAME_LENGTH = 30
NAME_SIZE = 12  # pixels

CURSORS = tuple(
    round(digit * 10.0**power, 6)
    for power in (-2, -1, 0, 1)
    for digit in (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9)
)


@dataclass(frozen=True)
class Scene:
    """Everything that a view may show, already filtered.

    `rows` are per run, `folded` over seeds, `table` at the cursor. `marks` are the coloured groups; `key` names the
    marks where they stand for the values of a setting rather than for single curves. `specs` are of the groups that
    have one.
    """

    rows: pd.DataFrame
    folded: pd.DataFrame
    table: pd.DataFrame
    settings: pd.DataFrame
    marks: Mapping[str, Mark]
    base: Mapping[str, str] = field(default_factory=dict)
    key: Mapping[str, Mark] = field(default_factory=dict)
    budget: float = 2.0
    epsilon: str = "sound"
    log: bool = True
    facet: str = "dataset"
    rest: bool = True
    cells: tuple[str, ...] = ()
    specs: Mapping[str, RunSpec] = field(default_factory=dict)

    @property
    def column(self) -> str:
        return f"epsilon_{self.epsilon}"

    def names(self) -> dict[str, str]:
        return {str(group): name for group, name in self.table["short"].items()}


def panels(scene: Scene, frame: pd.DataFrame, by: str) -> list[tuple[str, pd.DataFrame]]:
    """The frame cut by the values of a setting, the largest first; those beyond the sixth are left out by name."""
    if frame.empty or not by:
        return [("", frame)]
    if by == "dataset":
        titles = frame["dataset"].map(dataset_title)
    else:
        values = scene.settings[by] if by in scene.settings else pd.Series(dtype=object)
        titles = frame["group"].map(values).map(lambda value: setting_text(by, value) or "not set")
    order = titles.value_counts().index[:MOST_PANELS]
    return [(str(title) if len(order) > 1 else "", frame[titles == title]) for title in order]


def canvas(titles: Sequence[str], x: str, y: str, *, log_x: bool = False, height: int | None = None) -> go.Figure:
    """Empty panels with titled axes, at most two in a row."""
    count = max(1, len(titles))
    columns = min(2, count)
    lines = math.ceil(count / columns)
    room = {"horizontal_spacing": 0.09, "vertical_spacing": 0.3 / lines} if count > 1 else {}
    figure = make_subplots(rows=lines, cols=columns, subplot_titles=list(titles) if count > 1 else None, **room)
    base = layout(x, y, height=(height or PANEL_HEIGHT[columns]) * lines, log_x=log_x)
    axes = {letter: base.pop(f"{letter}axis") for letter in "xy"}
    figure.update_layout(**base | {"showlegend": False})
    figure.update_xaxes(**axes["x"])
    figure.update_yaxes(**axes["y"])
    return figure


def place(k: int, count: int) -> dict[str, int]:
    """Row and column of the k-th of so many panels."""
    columns = min(2, count)
    return {"row": k // columns + 1, "col": k % columns + 1}


def label_heights(heights: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Where names stand so that none covers another: at least a gap apart, in the order of the curves' ends, inside."""
    order = np.argsort(heights, kind="stable")
    stands = np.clip(np.asarray(heights, float)[order], low, high)
    for k in range(1, len(stands)):
        stands[k] = max(stands[k], stands[k - 1] + gap)
    if len(stands) and stands[-1] > high:
        stands[-1] = high
        for k in range(len(stands) - 2, -1, -1):
            stands[k] = min(stands[k], stands[k + 1] - gap)
    result = np.empty(len(stands))
    result[order] = stands
    return [float(value) for value in result]


def add_names(
    figure: go.Figure, ends: pd.DataFrame, scene: Scene, where: Mapping[str, int], ranges: Sequence[float], room: float
) -> None:
    """Each coloured curve's name beside its end, in its colour; `ranges` are the panel's x and y limits."""
    if not room or ends.empty:
        return
    left, right, low, high = ranges
    right = min(right, max(ends["x"]) + room * (right - left) * 1.05)
    names = scene.names()
    stands = label_heights(list(ends["y"]), (high - low) / 19, low + (high - low) / 40, high - (high - low) / 40)
    for (group, x, y), stand in zip(ends[["group", "x", "y"]].itertuples(index=False), stands, strict=True):
        name = names.get(group, group)
        figure.add_annotation(
            x=x,
            y=min(max(y, low), high),
            ax=right,
            ay=stand,
            axref=f"x{_number(where, figure)}",
            ayref=f"y{_number(where, figure)}",
            text=shortened(name),
            font={"color": scene.marks[group].colour, "size": NAME_SIZE},
            xanchor="right",
            showarrow=True,
            arrowhead=0,
            arrowwidth=1,
            arrowcolor=scene.marks[group].colour,
            **where,
        )


def name_room(panels: int) -> float:
    """The share of a panel's width that names need."""
    return 0.24 if panels == 1 else 0.42


def shortened(name: str) -> str:
    """A long name without its middle: what tells two names apart is often at their end."""
    half = NAME_LENGTH // 2
    return name if len(name) <= NAME_LENGTH else f"{name[: half - 1].rstrip(' ,')}…{name[-half:].lstrip(' ,')}"


def _number(where: Mapping[str, int], figure: go.Figure) -> str:
    """The suffix of a panel's axes: empty for the first, 2 for the second."""
    axis: str = figure.get_subplot(**where).xaxis.plotly_name
    return axis.removeprefix("xaxis")


def add_cursor(figure: go.Figure, scene: Scene, where: Mapping[str, int], ranges: Sequence[float], log_x: bool) -> None:
    """The epsilon that table and answer are about, and ticks along the bottom to set it by a click."""
    left, right, low, high = ranges
    ticks = [tick for tick in CURSORS if left <= (math.log10(tick) if log_x else tick) <= right]
    figure.add_scatter(
        x=ticks,
        y=[low + 0.025 * (high - low)] * len(ticks),
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 12, "color": GREY, "opacity": 0.5},
        hovertemplate="Click: compare at ε ≤ %{x:g}<extra></extra>",
        unselected={"marker": {"opacity": 0.5}},
        **where,
    )
    figure.add_vline(x=scene.budget, line={"color": GREY, "dash": "dot", "width": 1.5}, **where)


def limits(
    points: pd.DataFrame, *, log_x: bool, last: float = -math.inf, room: float = 0.0, cursor: float = 0.0
) -> tuple[float, float, float, float]:
    """Panel limits: all of x, the cursor, and beyond the `last` end room for names; y without steep first epochs."""
    xs, ys = points["x"].to_numpy(float), points["y"].to_numpy(float)
    keep = np.isfinite(xs) & np.isfinite(ys) & ((xs > 0) | (not log_x))
    xs, ys = xs[keep], ys[keep]
    if not len(xs):
        return (-1.0, 1.0, 0.0, 1.0) if log_x else (0.0, 1.0, 0.0, 1.0)
    low, high = float(np.quantile(ys, 0.1 if len(ys) > 20 else 0.0)), float(ys.max())
    tall = (high - low) or max(abs(high) * 0.05, 1e-6)
    xs = np.append(xs[ys >= low], cursor if cursor else xs[-1])
    spots = np.log10(xs) if log_x else xs
    left, right = float(spots.min()), float(spots.max())
    width = (right - left) or 1.0
    end = (math.log10(last) if log_x else last) if last > 0 else -math.inf
    right = max(right + 0.04 * width, end + (end - left) * room / (1 - room) if room else -math.inf)
    return left - 0.03 * width, right, low - 0.06 * tall, high + 0.06 * tall
