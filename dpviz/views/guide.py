"""Pictures of what epsilon means: two worlds that differ by one person, and what an attacker may conclude."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dpviz.views.axes import COLOURS, GREY, layout, tinted

WORLDS = ("without you", "with you")
PRIORS = (0.5, 0.1, 0.01)


def worlds_frame(sigma: float, points: int = 401) -> pd.DataFrame:
    """Density of one noisy gradient sum in clipping norms: N(0, sigma^2) without you, N(1, sigma^2) with you."""
    x = np.linspace(-3.2 * sigma, 1 + 3.2 * sigma, points)
    densities = [np.exp(-(((x - centre) / sigma) ** 2) / 2) / (sigma * np.sqrt(2 * np.pi)) for centre in (0.0, 1.0)]
    return pd.DataFrame(
        {
            "world": np.repeat(WORLDS, points),
            "output": np.tile(x, 2),
            "density": np.concatenate(densities),
        }
    )


def worlds_figure(frame: pd.DataFrame, *, height: int = 280) -> go.Figure:
    """Two bells: the more they overlap, the less an output says about you."""
    figure = go.Figure(layout=layout("What an update shows (in clipping norms)", "Likelihood", height=height))
    for index, world in enumerate(WORLDS):
        rows = frame[frame["world"] == world]
        figure.add_scatter(
            x=rows["output"],
            y=rows["density"],
            name=world,
            mode="lines",
            line={"color": COLOURS[index], "width": 2},
            fill="tozeroy",
            fillcolor=tinted(COLOURS[index], 0.15),
            hoverinfo="skip",
        )
    figure.update_yaxes(showticklabels=False, rangemode="tozero")
    return figure


def belief(epsilon: float, prior: float) -> float:
    """The most an attacker may believe after seeing the result: e^eps p / (e^eps p + 1 - p), apart from delta.

    Bayes' rule with a likelihood ratio of at most e^eps.
    """
    return float(prior / (prior + (1 - prior) * np.exp(-epsilon)))


def belief_frame(priors: Sequence[float] = PRIORS, points: int = 121) -> pd.DataFrame:
    """The largest belief in percent, by epsilon, for attackers who start out with different beliefs."""
    epsilons = np.geomspace(0.01, 20, points)
    rows = [(prior, epsilon, 100 * belief(epsilon, prior)) for prior in priors for epsilon in epsilons]
    return pd.DataFrame(rows, columns=["prior", "epsilon", "belief"])


def belief_figure(frame: pd.DataFrame, epsilon: float | None = None, *, height: int = 280) -> go.Figure:
    """Belief after against epsilon, one line a starting belief; a dotted line marks the epsilon at hand."""
    figure = go.Figure(layout=layout("Epsilon", "Belief after, at most (%)", height=height, log_x=True))
    for index, (prior, rows) in enumerate(frame.groupby("prior", sort=False)):
        figure.add_scatter(
            x=rows["epsilon"],
            y=rows["belief"],
            name=f"{prior:.0%} before",
            mode="lines",
            line={"color": COLOURS[index % len(COLOURS)], "width": 2},
            hovertemplate="ε = %{x:.3g}: at most %{y:.1f} %<extra></extra>",
        )
    if epsilon is not None and 0.01 <= epsilon <= 20:
        figure.add_vline(x=epsilon, line={"color": GREY, "dash": "dot", "width": 1.5})
    figure.update_xaxes(tickvals=[0.01, 0.1, 1, 10], ticktext=["0.01", "0.1", "1", "10"])
    figure.update_yaxes(range=[0, 103])
    return figure
