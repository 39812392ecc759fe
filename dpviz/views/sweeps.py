"""A sweep's result: its candidates folded over seeds, whether one is best, and accuracy against epsilon.

How settings are called is the caller's: `ValueTitle` and `Title`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pandas as pd
import plotly.graph_objects as go

from dpviz.privacy.registry import Value
from dpviz.runs.differences import Difference, paired_difference
from dpviz.runs.sweeps.result import CandidateResult, Result
from dpviz.runs.sweeps.spec import Candidate
from dpviz.views.axes import AXES, COLOURS, layout, tinted
from dpviz.views.numbers import epsilon_cell

NO_NUMBER = math.nan
ValueTitle = Callable[[str, Value], str]  # a setting's key and value
Title = Callable[[Candidate], str]


def sweep_frame(found: Result, value_title: ValueTitle, *, running: bool) -> pd.DataFrame:
    """The varied settings, then accuracy (percent) with its spread, epsilon, runs done, and what there is to say."""
    varied = found.sweep.varied
    rows = sorted(found.rows, key=lambda row: -(row.mean if row.mean is not None else -1.0))
    leads = leads_of_best(found)
    best = "winner" if leads and all(lead.decided for _, lead in leads) else "highest"
    cells = [
        (
            *(value_title(key, settings[key]) if key in settings else "" for key in varied),
            NO_NUMBER if row.mean is None else 100 * row.mean,
            NO_NUMBER if row.std is None else 100 * row.std,
            NO_NUMBER if row.epsilon is None else epsilon_cell(row.epsilon),
            f"{len(row.done)} of {len(found.sweep.seeds)}",
            best if row is found.winner else _note(found, row, running),
        )
        for row, settings in ((row, dict(row.candidate.settings)) for row in rows)
    ]
    return pd.DataFrame(cells, columns=[*varied, "accuracy", "spread", "epsilon", "runs", "note"])


def _note(found: Result, row: CandidateResult, running: bool) -> str:
    if row.problem:
        return f"failed: {row.problem}"
    if found.sweep.search and row in found.front:
        return "on the front"
    if row.complete:
        return ""
    return "in progress" if running else "stopped" if any(row.runs) else "not begun"


def progress_text(found: Result, *, running: bool) -> str:
    """How far the whole sweep is: "5 of 12 runs done, 1 failed, stopped"."""
    failed = f", {found.failed} failed" if found.failed else ""
    stopped = "" if running or found.finished else ", stopped"
    return f"{found.done} of {found.total} runs done{failed}{stopped}"


# --- which is best, and whether that may be chance


def leads_of_best(found: Result) -> list[tuple[CandidateResult, Difference]]:
    """How far the highest candidate is ahead of each other complete one, the closest first, in percentage points.

    It was picked as the highest of all, so the intervals are widened to hold together.
    """
    best = found.winner
    others = [row for row in found.rows if row.complete and row is not best and row.mean is not None]
    if best is None or best.mean is None:
        return []
    others.sort(key=lambda row: -(row.mean or 0.0))
    return [(row, paired_difference(_by_seed(best), _by_seed(row), comparisons=len(others))) for row in others]


def _by_seed(row: CandidateResult) -> dict[int, float]:
    return {run.seed: 100 * run.test_accuracy for run in row.done if run.test_accuracy is not None}


def verdict_words(found: Result, title: Title) -> tuple[str, str]:
    """Whether there is a winner, in a few words, and the difference on which that rests; empty before one is done."""
    best, leads = found.winner, leads_of_best(found)
    if best is None:
        return "", ""
    name = title(best.candidate)
    if not leads:
        return f"{name} is the only candidate that is done", ""
    second, lead = leads[0]
    difference = f"Against {title(second.candidate)}: {lead.words}."
    if all(lead.decided for _, lead in leads):
        return f"Winner: {name}", difference
    alike = sum(not lead.decided for _, lead in leads)
    why = "too close to call" if lead.judged else "too few seeds to judge chance"
    others = "The other" if len(leads) == 1 else f"{alike} of the {len(leads)} others"
    return f"No winner, {why}", f"{name} is highest. {difference} {others} may be as good."


def front_frame(found: Result, title: Title) -> pd.DataFrame:
    """Finished candidates that cost a finite epsilon, cheapest first, and which of them no other beats in both."""
    front = found.front
    rows = [
        (title(row.candidate), row.epsilon, 100 * row.mean, row in front)
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
