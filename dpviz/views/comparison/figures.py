"""Figures of a comparison: a few curves in colour, named at their ends, the rest pale behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dpviz.runs.differences import CONFIDENCE
from dpviz.views.axes import AXES, GREY, PALE, epoch_ticks, tinted
from dpviz.views.comparison.experiments import SPREAD_OF, endpoints, placed
from dpviz.views.comparison.fit import frontier, log_fit
from dpviz.views.comparison.marks import OTHER, Mark
from dpviz.views.comparison.scene import Scene, add_cursor, add_names, canvas, limits, name_room, panels, place
from dpviz.views.comparison.settings import setting_text, setting_title, varying
from dpviz.views.comparison.table import MEASURED

Summary = Callable[[go.Figure, pd.DataFrame, Mapping[str, int]], None]
MOST_RANKED = 25
MOST_DIMENSIONS = 8
ACCURACY = AXES["test_accuracy"].title


# --- curves


def curves_figure(frame: pd.DataFrame, scene: Scene, x: str, y: str) -> go.Figure:
    """Curves along x; seeds as a mean with a band of one standard deviation; reported results as open points."""
    log_x = scene.log and x == scene.column
    shown = placed(frame, x, y).sort_values(["group", "point", "epoch", x], kind="stable")
    shown = shown[shown[x] > 0] if log_x else shown
    parts = panels(scene, shown, scene.facet)
    figure = canvas([title for title, _ in parts], AXES[x].title, AXES[y].title, log_x=log_x)
    for k, (_, part) in enumerate(parts):
        where = place(k, len(parts))
        lit = part[part["group"].isin(scene.marks)]
        if scene.rest:
            _add_rest(figure, part[~part["group"].isin(scene.marks)], x, y, where)
        ends = [_add_curve(figure, own, x, y, scene, where) for _, own in lit.groupby("group", sort=False)]
        if x == "epoch" and len(part):
            figure.update_xaxes(**epoch_ticks(part[x].max()), **where)
        points = _points(part if scene.rest else lit, x, y)
        room = name_room(len(parts))
        _close_panel(figure, scene, ends, where, points, room=room, log_x=log_x, cursor=x == scene.column)
    _add_key(figure, scene)
    return figure


def _close_panel(
    figure: go.Figure,
    scene: Scene,
    ends: list[tuple[str, float, float]],
    where: Mapping[str, int],
    points: pd.DataFrame,
    *,
    room: float,
    log_x: bool,
    cursor: bool,
) -> None:
    """Limits, names and cursor, once a panel's curves are drawn; `points` are all of its x and y."""
    room = 0.0 if scene.key else room
    last = max((x for _, x, _ in ends), default=0.0)
    budget = scene.budget if cursor else 0.0
    ranges = limits(points, log_x=log_x, last=last, room=room, cursor=budget)
    figure.update_xaxes(range=ranges[:2], **where)
    figure.update_yaxes(range=ranges[2:], **where)
    tips = pd.DataFrame(ends, columns=["group", "x", "y"])
    tips["x"] = np.log10(tips["x"].astype(float)) if log_x else tips["x"]
    add_names(figure, tips, scene, where, ranges, room)
    if cursor:
        add_cursor(figure, scene, where, ranges, log_x)


def _points(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    return frame[[x, y]].set_axis(["x", "y"], axis=1)


def _add_rest(figure: go.Figure, rows: pd.DataFrame, x: str, y: str, where: Mapping[str, int]) -> None:
    """Many curves as one trace with gaps, which a browser draws as fast as one curve, and their ends as another."""
    if rows.empty:
        return
    runs = rows[rows["source"].isin(MEASURED)]
    groups = runs["group"].to_numpy()
    starts = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    if len(runs):
        figure.add_scatter(
            x=np.insert(runs[x].to_numpy(float), starts, math.nan),
            y=np.insert(runs[y].to_numpy(float), starts, math.nan),
            mode="lines",
            line={"color": PALE, "width": 1},
            hoverinfo="skip",
            **where,
        )
    ends = endpoints(rows)
    points = ends["source"].map(lambda source: "circle" if source in MEASURED else "diamond-open")
    _add_points(figure, ends, x, y, Mark(PALE), where, size=5, symbols=points)


def _add_curve(
    figure: go.Figure, rows: pd.DataFrame, x: str, y: str, scene: Scene, where: Mapping[str, int]
) -> tuple[str, float, float]:
    """One group in colour; where it ends."""
    group, mark = rows["group"].iloc[0], scene.marks[rows["group"].iloc[0]]
    measured = rows["source"].iloc[0] in MEASURED
    if not measured:
        _add_points(figure, rows, x, y, mark, where, size=11, symbols=f"{mark.symbol}-open")
    else:
        _add_band(figure, rows, x, y, mark, where)
        figure.add_scatter(
            x=rows[x],
            y=rows[y],
            mode="lines+markers",
            line={"color": mark.colour, "width": 2.5, "dash": mark.dash},
            marker={"color": mark.colour, "size": 6, "symbol": mark.symbol, "maxdisplayed": 12},
            unselected={"marker": {"opacity": 1}},
            customdata=rows[["label", "seeds"]],
            hovertemplate=_hover(x, y),
            **where,
        )
    return group, float(rows[x].iloc[-1]), float(rows[y].iloc[-1])


def _add_band(figure: go.Figure, rows: pd.DataFrame, x: str, y: str, mark: Mark, where: Mapping[str, int]) -> None:
    spread = rows[SPREAD_OF[y]].fillna(0.0) if y in SPREAD_OF else pd.Series(dtype=float)
    if spread.gt(0).any():
        add_area(figure, rows[x], rows[y] - spread, rows[y] + spread, tinted(mark.colour, 0.16), where)


def add_area(
    figure: go.Figure, x: pd.Series, low: pd.Series, high: pd.Series, colour: str, where: Mapping[str, int]
) -> None:
    figure.add_scatter(
        x=np.concatenate([x, x[::-1]]),
        y=np.concatenate([high, low[::-1]]),
        fill="toself",
        fillcolor=colour,
        line={"width": 0},
        mode="lines",
        hoverinfo="skip",
        **where,
    )


def _add_points(
    figure: go.Figure,
    rows: pd.DataFrame,
    x: str,
    y: str,
    mark: Mark,
    where: Mapping[str, int],
    *,
    size: int,
    symbols: pd.Series | str,
) -> None:
    spread = rows[SPREAD_OF[y]] if y in SPREAD_OF else pd.Series(dtype=float)
    bars = {"type": "data", "array": spread.fillna(0.0), "color": mark.colour, "thickness": 1.2}
    figure.add_scatter(
        x=rows[x],
        y=rows[y],
        mode="markers",
        marker={"color": mark.colour, "size": size, "symbol": symbols},
        unselected={"marker": {"opacity": 1}},
        error_y=bars if size > 5 and spread.notna().any() else None,
        customdata=rows[["label", "seeds"]],
        hovertemplate=_hover(x, y),
        **where,
    )


def _hover(x: str, y: str) -> str:
    return (
        f"<b>%{{customdata[0]}}</b><br>{AXES[x].hovered('x')}<br>{AXES[y].hovered('y')}"
        "<br>Seeds: %{customdata[1]}<extra></extra>"
    )


def _add_key(figure: go.Figure, scene: Scene) -> None:
    """A legend of values, where colours stand for the values of a setting."""
    figure.update_traces(showlegend=False)
    for value, mark in scene.key.items():
        line, marker = {"color": mark.colour, "dash": mark.dash, "width": 2.5}, {"color": mark.colour}
        style = {"line": line, "marker": marker | {"symbol": mark.symbol}}
        figure.add_scatter(x=[None], y=[None], mode="lines+markers", name=value, showlegend=True, **style)
    figure.update_layout(showlegend=bool(scene.key))


# --- differences


def difference_figure(frame: pd.DataFrame, scene: Scene, x: str) -> go.Figure:
    """Accuracy minus the baseline's, with its interval; 0 is the baseline."""
    log_x = scene.log and x == scene.column
    parts = panels(scene, frame, scene.facet)
    title = "Accuracy minus the baseline's (points)"
    figure = canvas([title for title, _ in parts], AXES[x].title, title, log_x=log_x)
    for k, (_, part) in enumerate(parts):
        where = place(k, len(parts))
        ends = []
        for group, own in part.groupby("group", sort=False):
            mark = scene.marks.get(str(group), OTHER)
            judged = own[own["low"].notna()]
            if len(judged):
                add_area(figure, judged["x"], judged["low"], judged["high"], tinted(mark.colour, 0.12), where)
            figure.add_scatter(
                x=own["x"],
                y=own["difference"],
                mode="lines+markers",
                line={"color": mark.colour, "width": 2.5, "dash": mark.dash},
                marker={"color": mark.colour, "size": 6, "symbol": mark.symbol, "maxdisplayed": 12},
                unselected={"marker": {"opacity": 1}},
                customdata=own["judged"],
                hovertemplate=f"<b>{scene.names().get(str(group), '')}</b><br>{AXES[x].hovered('x')}"
                "<br>%{customdata}<extra></extra>",
                **where,
            )
            ends.append((str(group), float(own["x"].iloc[-1]), float(own["difference"].iloc[-1])))
        figure.add_hline(y=0, line={"color": GREY, "width": 1.5}, **where)
        around = pd.DataFrame({"x": part["x"].iloc[:2], "y": [-0.2, 0.2][: len(part)]})  # 0 stays in sight
        points = pd.concat([_points(part, "x", "difference"), around])
        room = name_room(len(parts))
        _close_panel(figure, scene, ends, where, points, room=room, log_x=log_x, cursor=x == scene.column)
    _add_key(figure, scene)
    return figure


# --- ends: ranking, frontier, fit


def ranking_figure(frame: pd.DataFrame, scene: Scene) -> go.Figure:
    """Accuracy at the cursor with one standard deviation, the best on top; the 25 best of each dataset."""
    parts = panels(scene, frame.reset_index(names="group"), "dataset")
    parts = [(title, part.head(MOST_RANKED)) for title, part in parts]
    tall = max((len(part) for _, part in parts), default=1)
    figure = canvas([title for title, _ in parts], ACCURACY, "", height=max(220, 90 + 24 * tall))
    for k, (_, part) in enumerate(parts):
        where = place(k, len(parts))
        marks = [scene.marks.get(group, OTHER) for group in part["group"]]
        figure.add_scatter(
            x=part["accuracy"],
            y=part["short"].str.slice(0, 44),
            mode="markers",
            marker={"color": [m.colour for m in marks], "symbol": [m.symbol for m in marks], "size": 10},
            error_x={"type": "data", "array": part["deviation"].fillna(0.0), "color": GREY, "thickness": 1.5},
            customdata=part[["label", "judged"]],
            hovertemplate="<b>%{customdata[0]}</b><br>%{x:.2f} %<br>%{customdata[1]}<extra></extra>",
            **where,
        )
        figure.update_yaxes(autorange="reversed", automargin=True, **where)
    return figure


def frontier_figure(frame: pd.DataFrame, scene: Scene) -> go.Figure:
    """Where every curve ends, and per dataset the staircase of the best accuracy that each epsilon buys."""

    def staircase(figure: go.Figure, part: pd.DataFrame, where: Mapping[str, int]) -> None:
        best = frontier(part, scene.column)
        line = {"shape": "hv", "dash": "dot", "color": GREY, "width": 2}
        figure.add_scatter(x=best[scene.column], y=best["test_accuracy"], mode="lines", line=line, **where)

    return _ends_figure(frame, scene, staircase, log_x=scene.log)


def fit_figure(frame: pd.DataFrame, scene: Scene) -> go.Figure:
    """Final accuracy against log epsilon, per dataset with the fitted line and its band (`curricula`, Fig. 4)."""

    def line(figure: go.Figure, part: pd.DataFrame, where: Mapping[str, int]) -> None:
        fit = log_fit(part, scene.column)
        if fit is None:
            return
        grid = np.geomspace(part[scene.column].min(), part[scene.column].max(), 60)
        middle, half = pd.Series(fit.line(grid)), pd.Series(fit.band(grid))
        add_area(figure, pd.Series(grid), middle - half, middle + half, "rgba(128, 128, 128, 0.18)", where)
        name = f"r = {fit.r:.3f}, p = {fit.p:.2g}, {fit.points} points; {CONFIDENCE:.0%} band"
        figure.add_scatter(x=grid, y=middle, mode="lines", name=name, line={"color": GREY, "width": 2}, **where)

    return _ends_figure(frame, scene, line, log_x=True)


def _ends_figure(frame: pd.DataFrame, scene: Scene, summary: Summary, *, log_x: bool) -> go.Figure:
    """Ends of all curves as points, per dataset: epsilons of different datasets are never on one frontier or fit."""
    x = scene.column
    shown = placed(frame, x)
    shown = shown[shown[x] > 0]
    parts = panels(scene, shown, "dataset")
    figure = canvas([title for title, _ in parts], AXES[x].title, ACCURACY, log_x=log_x)
    for k, (_, part) in enumerate(parts):
        where = place(k, len(parts))
        rest = part[~part["group"].isin(scene.marks)]
        symbols = rest["source"].map(lambda source: "circle" if source in MEASURED else "diamond-open")
        _add_points(figure, rest, x, "test_accuracy", Mark(GREY), where, size=5, symbols=symbols)
        ends = [
            _add_end(figure, own, x, scene, where)
            for _, own in part[part["group"].isin(scene.marks)].groupby("group", sort=False)
        ]
        summary(figure, part, where)
        points = _points(part, x, "test_accuracy")
        _close_panel(figure, scene, ends, where, points, room=name_room(len(parts)), log_x=log_x, cursor=True)
    _add_key(figure, scene)
    return figure


def _add_end(
    figure: go.Figure, rows: pd.DataFrame, x: str, scene: Scene, where: Mapping[str, int]
) -> tuple[str, float, float]:
    group = rows["group"].iloc[0]
    mark, open_ = scene.marks[group], "" if rows["source"].iloc[0] in MEASURED else "-open"
    _add_points(figure, rows, x, "test_accuracy", mark, where, size=11, symbols=mark.symbol + open_)
    return group, float(rows[x].iloc[-1]), float(rows["test_accuracy"].iloc[-1])


# --- sweeps


def parallel_figure(frame: pd.DataFrame, scene: Scene) -> go.Figure:
    """One line per experiment through the settings that vary, coloured by accuracy at the cursor."""
    settings = scene.settings.reindex(frame.index)
    names = [name for name in varying(settings) if name not in ("run", "noise", "source")][: MOST_DIMENSIONS - 1]
    dimensions = [_dimension(name, settings[name]) for name in names]
    accuracies = frame["accuracy"].astype(float)
    dimensions.append({"label": "Accuracy (%)", "values": accuracies, "tickformat": ".2f"})
    line = {"color": accuracies, "colorscale": "Viridis", "showscale": True}
    figure = go.Figure(go.Parcoords(dimensions=dimensions, line=line, labelangle=-20, labelside="bottom"))
    return figure.update_layout(height=440, margin={"l": 80, "r": 40, "t": 30, "b": 90})


def _dimension(name: str, values: pd.Series) -> dict[str, object]:
    """An axis: numbers as they are, words by number with the words as ticks."""
    if pd.api.types.is_numeric_dtype(values):
        return {"label": setting_title(name), "values": values.astype(float)}
    texts = values.map(lambda value: setting_text(name, value) or "not set")
    words = sorted(texts.unique())
    ticks = [word if len(word) <= 18 else word[:17] + "…" for word in words]
    codes = texts.map({word: k for k, word in enumerate(words)})
    return {"label": setting_title(name), "values": codes, "tickvals": list(range(len(words))), "ticktext": ticks}


def heat_figure(frame: pd.DataFrame, scene: Scene) -> go.Figure:
    """The best accuracy at the cursor for each pair of values of two settings."""
    down, across = scene.cells if len(scene.cells) == 2 else ("", "")
    figure = go.Figure(
        go.Heatmap(
            z=frame.to_numpy(float) if frame.size else [],
            x=[setting_text(across, value) for value in frame.columns],
            y=[setting_text(down, value) for value in frame.index],
            colorscale="Viridis",
            texttemplate="%{z:.2f}",
            colorbar={"title": {"text": "%"}},
            hovertemplate="%{y} · %{x}: %{z:.2f} %<extra></extra>",
        )
    )
    axis = {"type": "category", "automargin": True}
    figure.update_xaxes(title={"text": setting_title(across)}, **axis)
    figure.update_yaxes(title={"text": setting_title(down)}, **axis)
    return figure.update_layout(height=max(260, 120 + 36 * len(frame)), margin={"l": 60, "r": 16, "t": 30, "b": 50})
