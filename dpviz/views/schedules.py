"""Schedules as data and as pictures: the curves, what has been spent after each epoch, what each epoch costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Unpack

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dpviz.privacy import (
    ACCOUNTANTS,
    ADJACENCIES,
    SAMPLINGS,
    Assumptions,
    Ledger,
    epoch_phases,
    epsilon,
    epsilon_path,
    price_tags,
)
from dpviz.privacy.assumptions import Named
from dpviz.views.axes import COLOURS, GREY, layout
from dpviz.views.numbers import epsilon_number, epsilon_text, sigma_text

SYMBOLS = ("circle", "diamond", "square")
# 1, 2 and 5 in full: Plotly's own logarithmic ticks write 20 as a small 2.
TICKS = [digit * 10.0**power for power in range(-4, 7) for digit in (1, 2, 5)]
LOG_TICKS = {"tickvals": TICKS, "ticktext": [f"{tick:,.7g}" for tick in TICKS]}


def schedule_frame(curves: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    """One row for each epoch of each named curve."""
    rows = [(name, epoch, float(s)) for name, sigmas in curves.items() for epoch, s in enumerate(sigmas, start=1)]
    return pd.DataFrame(rows, columns=["name", "epoch", "sigma"])


def schedule_figure(frame: pd.DataFrame, *, log: bool = True, height: int = 300) -> go.Figure:
    """Sigma by epoch, one line a curve."""
    figure = go.Figure(layout=layout("Epoch", "Noise multiplier σ", height=height))
    for index, (name, rows) in enumerate(frame.groupby("name", sort=False)):
        figure.add_scatter(
            x=rows["epoch"],
            y=rows["sigma"],
            name=str(name),
            mode="lines+markers" if len(rows) <= 40 else "lines",
            line={"color": COLOURS[index % len(COLOURS)], "width": 2},
            marker={"size": 5},
            hovertemplate="epoch %{x}: σ = %{y:.4g}<extra>" + str(name) + "</extra>",
        )
    if log and (frame["sigma"] > 0).all():
        figure.update_yaxes(type="log", **LOG_TICKS)
    return figure


def path_frame(
    sigmas: Sequence[float],
    sample_rate: float,
    delta: float,
    assumptions: Assumptions | None = None,
    **named: Unpack[Named],
) -> pd.DataFrame:
    """Sigma of each epoch and the epsilon spent by its end, as a band; its lower end is NaN where there is none."""
    path = epsilon_path(epoch_phases(sigmas, sample_rate), delta, assumptions, **named)
    return pd.DataFrame(
        {
            "epoch": np.arange(1, len(path) + 1),
            "sigma": np.asarray(sigmas, dtype=float),
            "epsilon_lower": [math.nan if point.lower == 0 < point.upper else point.lower for point in path],
            "epsilon_upper": [point.upper for point in path],
        }
    )


def path_figure(frames: Mapping[str, pd.DataFrame], *, height: int = 300) -> go.Figure:
    """Epsilon spent by epoch (upper bounds), one line a schedule."""
    figure = go.Figure(layout=layout("Epoch", "Epsilon spent", height=height))
    for index, (name, frame) in enumerate(frames.items()):
        figure.add_scatter(
            x=frame["epoch"],
            y=frame["epsilon_upper"],
            name=name,
            mode="lines",
            line={"color": COLOURS[index % len(COLOURS)], "width": 2},
            customdata=[epsilon_number(upper) for upper in frame["epsilon_upper"]],
            hovertemplate="after epoch %{x}: ε = %{customdata}<extra>" + name + "</extra>",
        )
    figure.update_yaxes(rangemode="tozero")
    return figure


def price_tag_frame(
    sigmas: Sequence[float],
    sample_rate: float,
    delta: float,
    assumptions: Assumptions | None = None,
    **named: Unpack[Named],
) -> pd.DataFrame:
    """Each epoch's sigma and its share of the cost in percent."""
    phases = epoch_phases(sigmas, sample_rate)
    shares = price_tags(phases, delta, assumptions, **named)
    epochs = np.arange(1, len(phases) + 1)
    return pd.DataFrame({"epoch": epochs, "sigma": np.asarray(sigmas, dtype=float), "share": 100 * shares})


def price_tag_figure(frame: pd.DataFrame, *, height: int = 260) -> go.Figure:
    """Bars: what share of the budget each epoch takes; a line marks an even split."""
    figure = go.Figure(layout=layout("Epoch", "Share of the cost (%)", height=height))
    figure.add_bar(
        x=frame["epoch"],
        y=frame["share"],
        customdata=frame["sigma"],
        marker={"color": COLOURS[0], "line": {"width": 0}},
        hovertemplate="epoch %{x}: %{y:.2f} % at σ = %{customdata:.4g}<extra></extra>",
        showlegend=False,
    )
    if len(frame):
        figure.add_hline(y=100 / len(frame), line={"color": GREY, "dash": "dash", "width": 1})
        # Said in the margin, where no bar can hide it.
        figure.add_annotation(
            text="even split", x=1, xref="paper", y=100 / len(frame), yanchor="bottom", xanchor="right", showarrow=False
        )
    figure.update_layout(bargap=0.15)
    return figure


def price_tag_words(frame: pd.DataFrame) -> str:
    """Who pays half: one sentence."""
    shares = frame["share"].sort_values(ascending=False)
    half = int((shares.cumsum() < 50 - 1e-9).sum()) + 1
    dearest = frame.loc[shares.index[0]]
    return (
        f"Half of the cost comes from {half} of {len(frame)} epochs. The most expensive is epoch "
        f"{int(dearest['epoch'])}: σ = {sigma_text(dearest['sigma'])} takes {dearest['share']:.1f} %."
    )


def what_if_frame(sigmas: Sequence[float], sample_rate: float, delta: float) -> pd.DataFrame:
    """This very curve under every sampling, the neighbours that it has a price for, and every accountant."""
    ledger = Ledger(epoch_phases(sigmas, sample_rate))
    rows = []
    for sampling, entry in SAMPLINGS.items():
        for adjacency in entry.adjacencies:
            for accountant in ACCOUNTANTS:
                cost = epsilon(ledger, delta, Assumptions(accountant, adjacency, sampling))
                rows.append((sampling, adjacency, accountant, cost.lower, cost.upper, epsilon_text(cost)))
    return pd.DataFrame(rows, columns=["sampling", "adjacency", "accountant", "lower", "upper", "epsilon"])


def what_if_table(frame: pd.DataFrame) -> pd.DataFrame:
    """The what-if frame as a person reads it: a row for each kind of batches and neighbours, a column an accountant."""
    wide = frame.pivot(index=["sampling", "adjacency"], columns="accountant", values="epsilon")
    ordered = wide.reindex(list(dict.fromkeys(zip(frame["sampling"], frame["adjacency"], strict=True))))[
        list(ACCOUNTANTS)
    ]
    table = ordered.rename(columns=ACCOUNTANTS.titles).reset_index()
    table["sampling"] = table["sampling"].map(SAMPLINGS.titles)
    table["adjacency"] = table["adjacency"].map(ADJACENCIES.titles)
    table.columns.name = None
    return table.rename(columns={"sampling": "Batches", "adjacency": "Neighbours"})


def what_if_figure(frame: pd.DataFrame, *, height: int = 300) -> go.Figure:
    """Upper epsilons on one logarithmic axis: how far the assumptions carry."""
    figure = go.Figure(layout=layout("Epsilon (upper bound)", "", height=height, log_x=True))
    for index, (accountant, title) in enumerate(ACCOUNTANTS.titles.items()):
        rows = frame[frame["accountant"] == accountant]
        cases = rows["sampling"].map(SAMPLINGS.titles) + " · " + rows["adjacency"].map(ADJACENCIES.titles).str.lower()
        figure.add_scatter(
            x=rows["upper"],
            y=cases,
            name=title,
            mode="markers",
            marker={"color": COLOURS[index], "size": 9, "symbol": SYMBOLS[index], "opacity": 0.85},
            customdata=rows["epsilon"],
            hovertemplate="%{y}: ε %{customdata}<extra>" + title + "</extra>",
        )
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_xaxes(**LOG_TICKS)
    return figure
