"""One picture for each paper's idea, drawn from its formulas."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from scipy.special import erf

from dpviz.papers import RECIPES, TITLES, Paper, reported_of
from dpviz.papers.records import TEST_ACCURACY
from dpviz.privacy.registry import title_of
from dpviz.training.local.spec import LocalSpec
from dpviz.training.tables import DATASETS
from dpviz.views.axes import COLOURS, layout

Curves = Mapping[str, tuple[np.ndarray, np.ndarray]]
HEIGHT = 320
CLASSES = 10
FOCUS = 5.0


def curves_frame(curves: Curves) -> pd.DataFrame:
    """Named curves in one long frame."""
    rows = [(name, x, y) for name, (xs, ys) in curves.items() for x, y in zip(xs, ys, strict=True)]
    return pd.DataFrame(rows, columns=["name", "x", "y"])


def _lines(frame: pd.DataFrame, x: str, y: str, *, shape: str = "linear") -> go.Figure:
    figure = go.Figure(layout=layout(x, y, height=HEIGHT))
    for index, (name, rows) in enumerate(frame.groupby("name", sort=False)):
        dashed = "rising" in str(name) or "no privacy" in str(name)
        figure.add_scatter(
            x=rows["x"],
            y=rows["y"],
            name=str(name),
            mode="lines",
            line={"color": COLOURS[index % len(COLOURS)], "width": 2, "dash": "dot" if dashed else "solid"},
            line_shape=shape,
            hovertemplate="%{x:.3g}: %{y:.3g}<extra>" + str(name) + "</extra>",
        )
    return figure


def schedules_figure() -> go.Figure:
    """Curricula: noise falls from 5 to 1; the dotted mirror image costs the same."""
    names = {
        "exponential": "exponential-decreasing",
        "steps": "piecewise-decreasing",
        "line": "linear-decreasing",
        "quadratic": "quadratic-decreasing",
        "line, rising": "linear-increasing",
    }
    curves = {}
    for label, name in names.items():
        spec = RECIPES[f"curricula/{name}"].spec
        curves[label] = (np.arange(1, spec.epochs + 1), spec.schedule.sigmas(spec.epochs))
    return _lines(curves_frame(curves), "Epoch", "Noise multiplier σ")


def losses_figure() -> go.Figure:
    """Losing less: cross-entropy always asks for a larger logit, squared error stops at 1.

    One true logit z, the other nine at 0: p = e^z / (e^z + 9).
    """
    z = np.linspace(-2, 6, 161)
    p = np.exp(z) / (np.exp(z) + CLASSES - 1)
    curves = {
        "squared error, (z - 1)² / 2": (z, (z - 1) ** 2 / 2),
        "cross-entropy, -log p": (z, -np.log(p)),
        f"focal, -(1 - p)^{FOCUS:g} log p": (z, -((1 - p) ** FOCUS) * np.log(p)),
    }
    figure = _lines(curves_frame(curves), "Logit z of the true class (the others are 0)", "Loss of one example")
    figure.update_yaxes(range=[0, 5])
    return figure


def steps_figure() -> go.Figure:
    """Optimizers: the mean step along a gradient of mean m under noise of size s.

    DP-SGD m / s; DP-RMSProp and DP-Adam about m / sqrt(m^2 + s^2); DP-Lion P(+) - P(-) = erf(m / (s sqrt 2)).
    """
    ratio = np.linspace(0, 3, 121)
    curves = {
        "DP-SGD": (ratio, ratio),
        "DP-Adam, DP-RMSProp": (ratio, ratio / np.sqrt(1 + ratio**2)),
        "DP-Lion": (ratio, erf(ratio / np.sqrt(2))),
    }
    return _lines(curves_frame(curves), "Gradient over noise, m / s", "Mean step (learning rate 1)")


def threshold_figure() -> go.Figure:
    """PRESTIGE: how sure the model must be of an answered label before the person is used, epoch by epoch."""
    spec = LocalSpec()
    epochs = np.arange(1, 7)
    curves = {"agreement needed, D_th": (epochs, np.array([spec.threshold_at(int(epoch)) for epoch in epochs]))}
    return _lines(curves_frame(curves), "Epoch", "Agreement y(⟨w, x⟩ + b) needed", shape="hv")


def acceptance_figure() -> go.Figure:
    """Screening: a worse update is kept with probability exp(-dE Q0 t), t updates having been kept before."""
    worse = np.linspace(0, 0.1, 121)
    heat = RECIPES["screening/mnist"].spec.knobs_of("method")["temperature"]
    curves = {
        f"after {t:,} update{'s' if t > 1 else ''}": (worse, np.exp(-worse * float(heat) * t))
        for t in (1, 10, 100, 1000)
    }
    return _lines(curves_frame(curves), "Rise of the loss ΔE", "Probability that it is kept")


def state_of_the_art_figure() -> go.Figure:
    """What other papers report at each epsilon, a colour per dataset; a circle that is open is only claimed."""
    figure = go.Figure(layout=layout("Epsilon, as reported", "Test accuracy (%)", height=HEIGHT))
    numbers = [number for number in reported_of("state-of-the-art") if number.quantity == TEST_ACCURACY]
    for colour, dataset in zip(COLOURS, dict.fromkeys(number.dataset for number in numbers), strict=False):
        rows = [number for number in numbers if number.dataset == dataset]
        figure.add_scatter(
            x=[number.epsilon for number in rows],
            y=[100 * number.value for number in rows],
            text=[TITLES[number.name] for number in rows],
            name=title_of(DATASETS, dataset),
            mode="markers",
            marker={
                "color": colour,
                "size": 9,
                "symbol": ["circle" if number.epsilon_sound else "circle-open" for number in rows],
            },
            hovertemplate="%{text}: %{y:.2f} % at epsilon %{x:g}<extra></extra>",
        )
    return figure


def idea_figure(paper: Paper) -> go.Figure:
    """The paper's idea as a picture, by the function that its `paper.toml` names."""
    figure: go.Figure = pkgutil.resolve_name(paper.picture)()
    return figure
