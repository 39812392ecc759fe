"""Risk as data and as pictures: the trade-off curve with its band, and a thousand people."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dpviz.privacy.risk import Risk
from dpviz.privacy.rounding import epsilon_number, percent_text
from dpviz.views.axes import COLOURS, GREY, PALE, layout, tinted
from dpviz.views.numbers import risk_sentence

__all__ = ["people_figure", "people_frame", "risk_sentence", "risk_table", "trade_off_figure", "trade_off_frame"]

LEAST_FPR = 1e-4
PEOPLE, PER_ROW = 1000, 50
GUESSED, EXPOSED, SAFE = "found by guessing alone", "found because of the model, at most", "not found"
TICKS = [10.0**power for power in range(-4, 1)]
PERCENT_TICKS = {"tickvals": TICKS, "ticktext": [f"{100 * tick:g} %" for tick in TICKS]}


def trade_off_frame(risk: Risk, points: int = 200) -> pd.DataFrame:
    """The share of members found (lower, upper) at false-positive rates from 0.01 % to 1."""
    fprs = np.geomspace(LEAST_FPR, 1.0, points)
    lower, upper = risk.curve(fprs)
    return pd.DataFrame({"fpr": fprs, "lower": lower, "upper": upper})


def trade_off_figure(
    frames: Mapping[str, pd.DataFrame], fpr: float = 0.001, *, log: bool = True, height: int = 360
) -> go.Figure:
    """One band per schedule, the chosen false-positive rate, and what guessing finds without any model."""
    figure = go.Figure(layout=layout("False alarms (of non-members)", "Members found", height=height))
    for index, (name, frame) in enumerate(frames.items()):
        colour = COLOURS[index % len(COLOURS)]
        figure.add_scatter(
            x=[*frame["fpr"], *frame["fpr"][::-1]],
            y=[*frame["upper"], *frame["lower"][::-1]],
            fill="toself",
            fillcolor=tinted(colour, 0.25),
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
        )
        figure.add_scatter(
            x=frame["fpr"],
            y=frame["upper"],
            name=name,
            mode="lines",
            line={"color": colour, "width": 2, "dash": "dot" if index else "solid"},  # both are seen where they meet
            customdata=frame["lower"],
            hovertemplate="%{x:.3%} false alarms: %{customdata:.3%} to %{y:.3%} of the members<extra>"
            + name
            + "</extra>",
        )
    line = np.geomspace(LEAST_FPR, 1.0, 50)
    figure.add_scatter(
        x=line, y=line, name="guessing", mode="lines", line={"color": GREY, "dash": "dash"}, hoverinfo="skip"
    )
    if fpr > 0:
        figure.add_vline(x=fpr, line={"color": GREY, "width": 1})
    axis = {"type": "log", **PERCENT_TICKS} if log else {"tickformat": ".0%"}
    return figure.update_xaxes(**axis).update_yaxes(**axis)


def risk_table(risks: Mapping[str, Risk], fpr: float = 0.001) -> pd.DataFrame:
    """A row per schedule, as a person reads it: bands, rounded outwards, and what kind of numbers they are."""
    return pd.DataFrame(_table_row(name, risk, fpr) for name, risk in risks.items())


def _table_row(name: str, risk: Risk, fpr: float) -> dict[str, str]:
    mu, regret = risk.gdp
    return {
        "Schedule": name,
        "Members found": percent_text(*risk.tpr(fpr)),
        "Advantage": percent_text(*risk.advantage),
        "μ (regret)": f"{epsilon_number(mu)} ({regret:.2g})",
        "Kind": risk.kind.partition(", because")[0],
    }


def people_frame(risk: Risk, fpr: float = 0.001) -> pd.DataFrame:
    """A thousand members, each in a place and a group. Who is found is rounded up."""
    exposed = min(PEOPLE, math.ceil(PEOPLE * risk.tpr(fpr).upper - 1e-9))
    guessed = min(exposed, round(PEOPLE * fpr))
    number = np.arange(PEOPLE)
    group = np.where(number < guessed, GUESSED, np.where(number < exposed, EXPOSED, SAFE))
    return pd.DataFrame({"column": number % PER_ROW, "row": number // PER_ROW, "group": group})


def people_figure(frame: pd.DataFrame, *, height: int = 260) -> go.Figure:
    """A dot per person, in the colour of its group."""
    figure = go.Figure(layout=layout("", "", height=height))
    for group, colour in ((GUESSED, COLOURS[0]), (EXPOSED, COLOURS[1]), (SAFE, PALE)):
        people = frame[frame["group"] == group]
        figure.add_scatter(
            x=people["column"],
            y=people["row"],
            name=f"{len(people):,} {group}",
            mode="markers",
            marker={"color": colour, "size": 5},
            hoverinfo="skip",
        )
    hidden = {"showgrid": False, "zeroline": False, "showticklabels": False, "title": None}
    return figure.update_xaxes(**hidden).update_yaxes(autorange="reversed", **hidden)
