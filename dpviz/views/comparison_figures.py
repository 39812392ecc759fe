"""Figures of a comparison: curves, frontier, fit. A few groups in colour, the rest pale, instead of a long legend."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dpviz.views.axes import AXES, COLOURS, GREY, PALE, epoch_ticks, layout, tinted
from dpviz.views.comparison import CONFIDENCE, SOURCES, SPREAD_OF, LogFit, endpoints, frontier, placed

SOURCE_COLOURS = {"own": COLOURS[0], "cached": COLOURS[1], "reported": COLOURS[2]}
SYMBOLS = {"own": "circle", "cached": "square", "reported": "diamond-open"}
SOURCE_TITLES = {"own": "my runs", "cached": "full-length runs", "reported": "reported by papers"}
MOST_LIT = len(COLOURS)


def lit_groups(folded: pd.DataFrame, highlight: Sequence[str] = ()) -> dict[str, str]:
    """The groups drawn in colour: those asked for; else the runs, or without runs the reported, while they are few."""
    groups = [group for group in dict.fromkeys(highlight) if group in set(folded["group"])]
    if not groups:
        trained = folded.loc[folded["source"] != "reported", "group"].unique()
        groups = list(trained) or list(folded["group"].unique())
        groups = groups if len(groups) <= MOST_LIT else []
    return dict(zip(groups[:MOST_LIT], COLOURS, strict=False))


def comparison_figure(
    folded: pd.DataFrame,
    x: str = "epsilon_sound",
    y: str = "test_accuracy",
    highlight: Sequence[str] = (),
    *,
    log_x: bool = False,
) -> go.Figure:
    """Curves of every group along x; seeds as a mean with a band of one standard deviation; reported as points."""
    figure = go.Figure(layout=layout(AXES[x].title, AXES[y].title, height=460, log_x=log_x))
    lit = lit_groups(folded, highlight)
    shown = _in_order(placed(folded, x, y), x)
    if x == "epoch" and len(shown):
        figure.update_xaxes(**epoch_ticks(shown[x].max()))
    rest = shown[~shown["group"].isin(lit)]
    for source in SOURCES:
        own = rest[rest["source"] == source]
        if len(own):
            asked = any(group in lit for group in highlight)
            colour = PALE if asked else tinted(SOURCE_COLOURS[source], 0.75 if own["group"].nunique() <= 60 else 0.4)
            _add_rest(figure, own, x, y, SOURCE_TITLES[source], colour)
    for group, colour in lit.items():
        own = shown[shown["group"] == group]
        if len(own):
            _add_band(figure, own, x, y, colour)
            _add_group(figure, own, x, y, colour)
    return figure


def _in_order(shown: pd.DataFrame, x: str) -> pd.DataFrame:
    return shown.sort_values(["group", "point", "epoch", x], kind="stable")


def _add_rest(figure: go.Figure, rows: pd.DataFrame, x: str, y: str, title: str, colour: str) -> None:
    """Many curves as one trace with gaps, which a browser draws as fast as one curve, and their ends as another."""
    source = rows["source"].iloc[0]
    if source != "reported":
        xs, ys = _with_gaps(rows, x, y)
        line = {"color": colour, "width": 1.2}
        figure.add_scatter(x=xs, y=ys, mode="lines", line=line, hoverinfo="skip", showlegend=False, legendgroup=source)
    ends = endpoints(rows)
    figure.add_scatter(
        x=ends[x],
        y=ends[y],
        mode="markers",
        name=title,
        legendgroup=source,
        marker={"color": colour, "size": 6, "symbol": SYMBOLS[source]},
        customdata=ends[["label", "seeds"]],
        hovertemplate=_hover(x, y),
    )


def _with_gaps(rows: pd.DataFrame, x: str, y: str) -> tuple[np.ndarray, np.ndarray]:
    """The groups' points one after the other, with NaN where a new group starts."""
    groups = rows["group"].to_numpy()
    starts = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    return np.insert(rows[x].to_numpy(float), starts, math.nan), np.insert(rows[y].to_numpy(float), starts, math.nan)


def _add_group(figure: go.Figure, rows: pd.DataFrame, x: str, y: str, colour: str) -> None:
    source = rows["source"].iloc[0]
    figure.add_scatter(
        x=rows[x],
        y=rows[y],
        name=rows["label"].iloc[0],
        legendgroup=rows["group"].iloc[0],
        mode="markers" if source == "reported" else "lines+markers",
        line={"color": colour, "width": 2.5, "dash": "dash" if source == "cached" else "solid"},
        marker={"color": colour, "size": 11 if source == "reported" else 5, "symbol": SYMBOLS[source]},
        error_y=_error_bars(rows, y, colour) if source == "reported" else None,
        customdata=rows[["label", "seeds"]],
        hovertemplate=_hover(x, y),
    )


def _error_bars(rows: pd.DataFrame, y: str, colour: str) -> dict[str, object] | None:
    spread = rows[SPREAD_OF[y]] if y in SPREAD_OF else None
    if spread is None or spread.isna().all():
        return None
    return {"type": "data", "array": spread.fillna(0.0), "color": colour, "thickness": 1.5}


def _add_band(figure: go.Figure, rows: pd.DataFrame, x: str, y: str, colour: str) -> None:
    if y not in SPREAD_OF or rows["source"].iloc[0] == "reported":
        return
    spread, mean = rows[SPREAD_OF[y]].fillna(0.0), rows[y]
    if not spread.gt(0).any():
        return
    figure.add_scatter(
        x=np.concatenate([rows[x], rows[x][::-1]]),
        y=np.concatenate([mean + spread, (mean - spread)[::-1]]),
        fill="toself",
        fillcolor=tinted(colour, 0.18),
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        showlegend=False,
        legendgroup=rows["group"].iloc[0],
    )


def _hover(x: str, y: str) -> str:
    return (
        f"<b>%{{customdata[0]}}</b><br>{AXES[x].hovered('x')}<br>{AXES[y].hovered('y')}"
        "<br>seeds: %{customdata[1]}<extra></extra>"
    )


def frontier_figure(
    ends: pd.DataFrame, x: str = "epsilon_sound", highlight: Sequence[str] = (), *, log_x: bool = False
) -> go.Figure:
    """Where every group ends, and the staircase of the best accuracy that each epsilon buys."""
    figure = go.Figure(layout=layout(AXES[x].title, AXES["test_accuracy"].title, height=460, log_x=log_x))
    _add_ends(figure, ends, x, highlight)
    best = frontier(ends, x)
    figure.add_scatter(
        x=best[x],
        y=best["test_accuracy"],
        mode="lines",
        name="best for its epsilon",
        line={"shape": "hv", "dash": "dot", "color": GREY, "width": 2},
        hoverinfo="skip",
    )
    return figure


def fit_figure(
    ends: pd.DataFrame, fit: LogFit | None, x: str = "epsilon_sound", highlight: Sequence[str] = ()
) -> go.Figure:
    """Final accuracy against log epsilon with the fitted line and its confidence band (`curricula`, Fig. 4)."""
    figure = go.Figure(
        layout=layout(f"{AXES[x].title}, log scale", AXES["test_accuracy"].title, height=460, log_x=True)
    )
    shown = placed(ends, x)
    shown = shown[shown[x] > 0]
    if fit is not None:
        grid = np.geomspace(shown[x].min(), shown[x].max(), 60)
        line, half = fit.line(grid), fit.band(grid)
        figure.add_scatter(
            x=np.concatenate([grid, grid[::-1]]),
            y=np.concatenate([line + half, (line - half)[::-1]]),
            fill="toself",
            fillcolor="rgba(128, 128, 128, 0.18)",
            line={"width": 0},
            mode="lines",
            name=f"{CONFIDENCE:.0%} confidence band",
            hoverinfo="skip",
        )
        name = f"fit: r = {fit.r:.3f}, p = {fit.p:.2g}, {fit.points} points"
        figure.add_scatter(x=grid, y=line, mode="lines", name=name, line={"color": GREY, "width": 2}, hoverinfo="skip")
    _add_ends(figure, shown, x, highlight)
    return figure


def _add_ends(figure: go.Figure, ends: pd.DataFrame, x: str, highlight: Sequence[str]) -> None:
    """Points by source; the highlighted ones larger, in colours of their own and named."""
    shown = placed(ends, x)
    lit = lit_groups(shown, highlight) if highlight else {}
    for source in SOURCES:
        own = shown[(shown["source"] == source) & ~shown["group"].isin(lit)]
        if len(own):
            colour = GREY if lit else SOURCE_COLOURS[source]
            _add_points(figure, own, x, SOURCE_TITLES[source], colour, 8)
    for group, colour in lit.items():
        own = shown[shown["group"] == group]
        _add_points(figure, own, x, own["label"].iloc[0], colour, 12)


def _add_points(figure: go.Figure, rows: pd.DataFrame, x: str, name: str, colour: str, size: int) -> None:
    figure.add_scatter(
        x=rows[x],
        y=rows["test_accuracy"],
        mode="markers",
        name=name,
        marker={"color": colour, "size": size, "symbol": SYMBOLS[rows["source"].iloc[0]]},
        error_y=_error_bars(rows, "test_accuracy", colour),
        customdata=rows[["label", "seeds"]],
        hovertemplate=_hover(x, "test_accuracy"),
    )
