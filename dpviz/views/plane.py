"""The moving picture of local privacy: people in a plane, the model's line, who is used, and what a person sends.

Every frame is one visit of a real walk of Algorithm 1; all frames are in the figure, so playing asks no server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import plotly.graph_objects as go

from dpviz.privacy.local import METHODS
from dpviz.training.local.prestige_reference import Visit
from dpviz.training.local.spec import LocalSpec
from dpviz.training.local.tabular import Tabular
from dpviz.views.axes import COLOURS, GREY, tinted

FloatArray = npt.NDArray[np.float64]

EDGE = 1.12
BENEFICIAL, ADVERSE = COLOURS[2], COLOURS[1]
SENT, OWN = COLOURS[3], COLOURS[0]
SQUARE = np.array([[-EDGE, -EDGE], [EDGE, -EDGE], [EDGE, EDGE], [-EDGE, EDGE]])
PLANE, SPHERE = {"xaxis": "x", "yaxis": "y"}, {"xaxis": "x2", "yaxis": "y2"}


def half_square(normal: FloatArray, offset: float) -> FloatArray:
    """Corners of the part of the square where <normal, p> >= offset; none if it is empty."""
    corners: list[FloatArray] = []
    heights = SQUARE @ normal - offset
    for k in range(4):
        here, there = SQUARE[k], SQUARE[(k + 1) % 4]
        high, next_high = heights[k], heights[(k + 1) % 4]
        if high >= 0:
            corners.append(here)
        if (high >= 0) != (next_high >= 0):
            corners.append(here + (there - here) * high / (high - next_high))
    return np.array(corners).reshape(-1, 2)


def half_disc(direction: FloatArray) -> FloatArray:
    """Corners of the half of the unit disc around a direction."""
    middle = np.arctan2(direction[1], direction[0])
    angles = np.linspace(middle - np.pi / 2, middle + np.pi / 2, 33)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def describe(visit: Visit, spec: LocalSpec) -> str:
    """What happened at a visit, in a line."""
    answer = f"answers {visit.answered:+.0f}"
    if not METHODS[spec.method].curriculum:
        return f"Epoch {visit.epoch}: the person is used"
    rule = f"z = {visit.z:.2f} {'≥' if visit.inside else '<'} D = {visit.threshold:.2f}"
    silent = "sends a fair coin" if visit.sent is not None else "silent"
    return f"Epoch {visit.epoch}: {answer}, {rule}: {'used' if visit.inside else silent}"


def plane_figure(data: Tabular, visits: Sequence[Visit], spec: LocalSpec) -> go.Figure:
    """Above, the plane: circles are +1, squares -1; below, the private gradient and the half it was drawn from."""
    figure = go.Figure(layout=_layout())
    if not visits:
        return figure
    frames = [go.Frame(name=str(k), data=_moment(data, visit, spec)) for k, visit in enumerate(visits)]
    circle = np.linspace(0, 2 * np.pi, 97)
    first = next((k for k, visit in enumerate(visits) if visit.inside and visit.sent is not None), 0)
    figure.add_traces(frames[first].data)
    figure.add_scatter(
        x=np.cos(circle), y=np.sin(circle), mode="lines", line={"color": GREY, "width": 1}, hoverinfo="skip", **SPHERE
    )
    figure.frames = frames
    figure.update_traces(showlegend=False)
    _add_legend(figure)
    return figure.update_layout(_controls(len(visits), first))


def _moment(data: Tabular, visit: Visit, spec: LocalSpec) -> list[go.Scatter]:
    """The traces of one frame, always the same number in the same order."""
    weights = visit.before * spec.length
    region = (
        half_square(visit.answered * weights, visit.threshold - visit.answered * spec.intercept)
        if np.isfinite(visit.threshold)
        else SQUARE
    )
    along = np.array([-weights[1], weights[0]]) / max(float(np.linalg.norm(weights)), 1e-12)
    line = 2 * EDGE * np.array([-along, along])
    benefit = data.train_labels * (data.train_rows @ weights + spec.intercept) >= 0
    person = data.train_rows[visit.person : visit.person + 1]
    own, sent, half = _answer(visit, spec)
    return [
        _area(region, tinted(COLOURS[0], 0.12), PLANE),
        _path(line, GREY, PLANE),
        go.Scatter(
            x=data.train_rows[:, 0],
            y=data.train_rows[:, 1],
            mode="markers",
            marker={
                "size": 9,
                "symbol": ["circle" if label > 0 else "square" for label in data.train_labels],
                "color": [BENEFICIAL if good else ADVERSE for good in benefit],
            },
            hoverinfo="skip",
            **PLANE,
        ),
        go.Scatter(
            x=person[:, 0],
            y=person[:, 1],
            mode="markers",
            marker={"size": 18, "symbol": "circle-open", "color": SENT, "line": {"width": 3}},
            hoverinfo="skip",
            **PLANE,
        ),
        _area(half, tinted(SENT, 0.18), SPHERE),
        _path(own, OWN, SPHERE, arrow=True),
        _path(sent, SENT, SPHERE, arrow=True),
        go.Scatter(
            x=[0],
            y=[1.4],
            mode="text",
            text=[describe(visit, spec)],
            textfont={"size": 13},
            cliponaxis=False,
            hoverinfo="skip",
            **SPHERE,
        ),
    ]


def _answer(visit: Visit, spec: LocalSpec) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Arrow of the gradient (1 is the bound L), arrow of what was sent (1 is B), and the half that it came from."""
    nothing = np.empty((0, 2))
    length = float(np.linalg.norm(visit.gradient))
    own = np.stack([np.zeros(2), visit.gradient / max(length, spec.bound)])
    if visit.sent is None:
        return nothing, nothing, nothing
    if not spec.private:
        return own, nothing, nothing
    sent = visit.sent / np.linalg.norm(visit.sent)
    arrow = np.stack([np.zeros(2), sent])
    if length == 0 or not visit.inside:
        return nothing, arrow, nothing
    return own, arrow, half_disc(visit.gradient if sent @ visit.gradient > 0 else -visit.gradient)


def _area(corners: FloatArray, colour: str, place: dict[str, str]) -> go.Scatter:
    x, y = corners.T
    return go.Scatter(x=x, y=y, fill="toself", fillcolor=colour, mode="none", hoverinfo="skip", **place)


def _path(points: FloatArray, colour: str, place: dict[str, str], *, arrow: bool = False) -> go.Scatter:
    x, y = points.T
    marker = {"symbol": "arrow", "size": [0, 13], "angleref": "previous", "color": colour}
    shape: dict[str, Any] = {"mode": "lines+markers", "marker": marker} if arrow else {"mode": "lines"}
    return go.Scatter(x=x, y=y, line={"color": colour, "width": 3}, hoverinfo="skip", **shape, **place)


def _add_legend(figure: go.Figure) -> None:
    for name, marker in (
        ("beneficial", {"color": BENEFICIAL}),
        ("adverse", {"color": ADVERSE}),
        ("update region", {"color": tinted(COLOURS[0], 0.3), "symbol": "square"}),
        ("own gradient", {"color": OWN, "symbol": "arrow-up"}),
        ("sent, and its half", {"color": SENT, "symbol": "arrow-up"}),
    ):
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker={"size": 11, **marker})


def _layout() -> dict[str, Any]:
    fixed = {"range": [-EDGE, EDGE], "showgrid": False, "zeroline": False, "showticklabels": False, "fixedrange": True}
    below = fixed | {"range": [-1.05, 1.65], "visible": False}
    return {
        "height": 720,
        "margin": {"l": 12, "r": 12, "t": 12, "b": 12},
        "xaxis": fixed | {"domain": [0, 1], "constrain": "domain", "title": {"text": "worst concave points"}},
        "yaxis": fixed | {"domain": [0.46, 1], "scaleanchor": "x", "title": {"text": "worst texture"}},
        "xaxis2": below | {"range": [-1.35, 1.35]} | {"domain": [0, 1], "anchor": "y2", "constrain": "domain"},
        "yaxis2": below | {"domain": [0.12, 0.4], "anchor": "x2", "scaleanchor": "x2"},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom"},
        "hovermode": False,
    }


def _controls(visits: int, first: int) -> dict[str, Any]:
    """Play, pause, and a slider over the visits."""
    at_once = {"mode": "immediate", "transition": {"duration": 0}, "frame": {"duration": 0, "redraw": False}}
    running = at_once | {"fromcurrent": True, "frame": {"duration": 450, "redraw": False}}
    steps = [{"method": "animate", "label": str(k + 1), "args": [[str(k)], at_once]} for k in range(visits)]
    buttons = [
        {"method": "animate", "label": "▶ Play", "args": [None, running]},
        {"method": "animate", "label": "❚❚ Pause", "args": [[None], at_once]},
    ]
    return {
        "updatemenus": [
            {"type": "buttons", "direction": "left", "buttons": buttons, "x": 0, "y": 0.055, "yanchor": "bottom"}
            | {"xanchor": "left", "showactive": False, "pad": {"t": 0}}
        ],
        "sliders": [
            {"steps": steps, "active": first, "x": 0, "len": 1, "y": 0.0, "yanchor": "bottom", "pad": {"t": 0}}
            | {"currentvalue": {"visible": False}, "ticklen": 0, "minorticklen": 0, "font": {"size": 1}}
        ],
    }
