"""A sweep's result: a table of its candidates folded over seeds, and their accuracy against epsilon with its front."""

from __future__ import annotations

import math

import pandas as pd
import plotly.graph_objects as go

from dpviz.runs.sweeps.result import CandidateResult, Result
from dpviz.runs.sweeps.spec import short
from dpviz.views.axes import AXES, COLOURS, layout, tinted

NO_NUMBER = math.nan


def sweep_frame(found: Result) -> pd.DataFrame:
    """The varied settings, then accuracy (percent) with its spread, epsilon, runs done, and what there is to say."""
    varied = found.sweep.varied
    rows = sorted(found.rows, key=lambda row: -(row.mean if row.mean is not None else -1.0))
    columns = [*varied, "accuracy", "spread", "epsilon", "runs", "note"]
    return pd.DataFrame([_cells(found, row, varied) for row in rows], columns=columns)


def _cells(found: Result, row: CandidateResult, varied: tuple[str, ...]) -> tuple[object, ...]:
    settings = dict(row.candidate.settings)
    return (
        *(short(settings.get(key, "")) for key in varied),
        NO_NUMBER if row.mean is None else 100 * row.mean,
        NO_NUMBER if row.std is None else 100 * row.std,
        NO_NUMBER if row.epsilon is None else row.epsilon,
        f"{len(row.done)} of {len(found.sweep.seeds)}",
        _note(found, row),
    )


def _note(found: Result, row: CandidateResult) -> str:
    if row is found.winner:
        return "winner"
    if row.problem:
        return f"failed: {row.problem}"
    if found.sweep.search and row in found.front:
        return "on the front"
    return "" if row.complete else "in progress"


def progress_text(found: Result) -> str:
    """How far the whole sweep is: "5 of 12 runs done, 1 failed"."""
    failed = f", {found.failed} failed" if found.failed else ""
    return f"{found.done} of {found.total} runs done{failed}"


def front_frame(found: Result) -> pd.DataFrame:
    """Finished candidates that cost a finite epsilon, cheapest first, and which of them no other beats in both."""
    front = found.front
    rows = [
        (row.candidate.label, row.epsilon, 100 * row.mean, row in front)
        for row in found.rows
        if row.complete and row.mean is not None and row.epsilon is not None and math.isfinite(row.epsilon)
    ]
    columns = ["label", "epsilon_sound", "test_accuracy", "front"]
    return pd.DataFrame(rows, columns=columns).sort_values("epsilon_sound", ignore_index=True)


def front_figure(frame: pd.DataFrame) -> go.Figure:
    """Every candidate as a point; the front as the staircase of the best accuracy that each epsilon buys."""
    x, y = "epsilon_sound", "test_accuracy"
    wide = bool(len(frame)) and frame[x].max() > 10 * frame[x].min() > 0
    figure = go.Figure(layout=layout(AXES[x].title, AXES[y].title, height=320, log_x=wide))
    hover = f"<b>%{{customdata}}</b><br>{AXES[x].hovered('x')}<br>{AXES[y].hovered('y')}<extra></extra>"
    best, rest = frame[frame["front"].astype(bool)], frame[~frame["front"].astype(bool)]
    figure.add_scatter(
        x=rest[x],
        y=rest[y],
        name="beaten in both",
        mode="markers",
        marker={"color": tinted(COLOURS[0], 0.45), "size": 7},
        customdata=rest["label"],
        hovertemplate=hover,
    )
    figure.add_scatter(
        x=best[x],
        y=best[y],
        name="front: no other is better in both",
        mode="lines+markers",
        line={"color": COLOURS[1], "width": 2, "shape": "hv"},
        marker={"color": COLOURS[1], "size": 9},
        customdata=best["label"],
        hovertemplate=hover,
    )
    return figure
