"""Local privacy as pictures: test error against budget, epoch by epoch, Table 3 beside ours. Frames and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dpviz.papers import LOCAL_RECIPES, REPORTED
from dpviz.privacy.local import METHODS
from dpviz.runs.local_results import LocalResult, rows_of
from dpviz.training.local.spec import LOSSES, LocalSpec
from dpviz.views.axes import COLOURS, layout, tinted

METHOD_COLOURS = {"prestige": COLOURS[1], "djw": COLOURS[0], "masked": COLOURS[2], "sgd": "#808080"}
ERROR, BUDGET = "Test error (%)", "ε of one visit"
ERROR_COLUMNS = ("method", "budget", "error", "std", "average_error", "epsilon_per_person", "loss", "batch_size")
DASHES = ("solid", "dash", "dot")


def error_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row per method and budget; errors in percent."""
    return pd.DataFrame(
        [
            (
                row["method"],
                row["budget"],
                100 * row["mean_error"],
                100 * row["std_error"],
                100 * row.get("mean_error_average", np.nan),
                row.get("epsilon_per_person"),
                row["loss"],
                row["batch_size"],
            )
            for row in rows
        ],
        columns=list(ERROR_COLUMNS),
    )


def error_figure(frame: pd.DataFrame, reported: pd.DataFrame | None = None, column: str = "error") -> go.Figure:
    """Test error against epsilon of a visit, one line a method and batch size, with one standard deviation around it.

    `reported` (method, budget, error, place) are a paper's own numbers: open diamonds.
    """
    figure = go.Figure(layout=layout(BUDGET, ERROR, height=380))
    batches = sorted(frame["batch_size"].unique())
    for (method, batch), lines in frame.groupby(["method", "batch_size"], sort=False):
        method = str(method)
        name = METHODS[method].title + (f", batch {batch}" if len(batches) > 1 else "")
        _add_errors(figure, lines.sort_values("budget"), name, method, DASHES[batches.index(batch) % 3], column)
    for method, points in reported.groupby("method") if reported is not None else ():
        method = str(method)
        figure.add_scatter(
            x=points["budget"],
            y=points["error"],
            mode="markers",
            name=f"{METHODS[method].title}, reported",
            marker={"symbol": "diamond-open", "size": 12, "color": METHOD_COLOURS[method], "line": {"width": 2}},
            hovertemplate=f"{METHODS[method].title}, reported: %{{y:.2f}} %<br>ε %{{x}}<extra></extra>",
        )
    return figure.update_layout(yaxis_rangemode="tozero")


def _add_errors(figure: go.Figure, lines: pd.DataFrame, name: str, method: str, dash: str, column: str) -> None:
    colour = METHOD_COLOURS[method]
    if column == "error":
        figure.add_scatter(
            x=[*lines["budget"], *lines["budget"][::-1]],
            y=[*(lines["error"] + lines["std"]), *(lines["error"] - lines["std"])[::-1]],
            mode="lines",
            fill="toself",
            fillcolor=tinted(colour, 0.16),
            line={"width": 0},
            hoverinfo="skip",
            showlegend=False,
            legendgroup=name,
        )
    figure.add_scatter(
        x=lines["budget"],
        y=lines[column],
        name=name,
        legendgroup=name,
        mode="lines+markers",
        line={"color": colour, "width": 2.2, "dash": dash if METHODS[method].private else "dash"},
        marker={"size": 6},
        customdata=np.stack([lines["std"], lines["epsilon_per_person"].astype(float)], axis=1),
        hovertemplate=f"{name}: %{{y:.2f}}"
        + (" ± %{customdata[0]:.2f} %" if column == "error" else " %")
        + "<br>ε %{x} a visit"
        + (", %{customdata[1]:.3g} a person" if METHODS[method].private else "")
        + "<extra></extra>",
    )


# --- epoch by epoch -----------------------------------------------------------------------------------------------

EPOCH_COLUMNS = ("method", "budget", "epoch", "error", "used")


def epoch_frame(rows: Sequence[Mapping[str, Any]], budget: float) -> pd.DataFrame:
    """One row per method and epoch at one budget: mean test error and the share of visits that led to an update."""
    found = [
        (row["method"], row["budget"], epoch, 100 * error, 100 * used)
        for row in rows
        if np.isclose(row["budget"], budget)
        for epoch, (error, used) in enumerate(zip(row["epoch_errors"], row["used"], strict=True), start=1)
    ]
    return pd.DataFrame(found, columns=list(EPOCH_COLUMNS))


def epoch_figure(frame: pd.DataFrame, column: str = "error") -> go.Figure:
    """A number over the epochs, one line a method."""
    title = ERROR if column == "error" else "Visits that led to an update (%)"
    figure = go.Figure(layout=layout("Epoch (visits of each person)", title, height=320))
    for method, lines in frame.groupby("method", sort=False):
        method = str(method)
        name = METHODS[method].title
        figure.add_scatter(
            x=lines["epoch"],
            y=lines[column],
            name=name,
            mode="lines+markers",
            line={
                "color": METHOD_COLOURS[method],
                "width": 2.2,
                "dash": "solid" if METHODS[method].private else "dash",
            },
            hovertemplate=f"{name}: %{{y:.2f}} %<br>epoch %{{x}}<extra></extra>",
        )
    return figure.update_layout(yaxis_rangemode="tozero")


# --- the paper's numbers ------------------------------------------------------------------------------------------


def reported_frame(data: str, loss: str = "hinge") -> pd.DataFrame:
    """What Table 3 reports for the data at epsilon 1: method, budget, error and deviation in percent, place."""
    rows = [
        (method, number.epsilon, 100 * number.value, 100 * (number.spread or 0.0), number.place)
        for number in REPORTED
        for method in ("djw", "prestige")
        if (number.paper, number.experiment) == ("prestige", f"{data}-{method}-{loss}")
        and number.quantity == "test_error"
    ]
    return pd.DataFrame(rows, columns=["method", "budget", "error", "std", "place"])


def table3_frame(results: Sequence[LocalResult], data: str) -> pd.DataFrame:
    """Table 3 beside ours, one row a loss and method; ours is cross-validated, at epsilon 1, if it was run."""
    rows = []
    for loss, title in LOSSES.titles.items():
        for number in reported_frame(data, loss).to_dict("records"):
            own = next(rows_of(LOCAL_RECIPES[f"prestige/{data}-{number['method']}-{loss}"], results), None)
            rows.append(
                (
                    title,
                    METHODS[number["method"]].title,
                    _plus_minus(number["error"], number["std"]),
                    _plus_minus(100 * own["mean_error"], 100 * own["std_error"]) if own else "not run",
                )
            )
    return pd.DataFrame(rows, columns=["Loss", "Method", "Reported (Table 3)", "Ours"])


def _as_printed(result: LocalResult) -> bool:
    """Whether the curriculum is the paper's: its share of epsilon, its first threshold and how that falls."""
    usual = LocalSpec()
    names = ("share", "threshold", "mu")
    return all(result.settings.get(name, getattr(usual, name)) == getattr(usual, name) for name in names)


def _plus_minus(value: float, spread: float) -> str:
    return f"{value:.2f} ± {spread:.2f} %"


def batch_rows(results: Sequence[LocalResult], data: str) -> list[Mapping[str, Any]]:
    """Rows of the hinge loss at one lambda that differ in batch size only (Fig. 6); none if there is but one size."""
    rows = [
        row
        for result in results
        if result.data == data and not result.settings.get("cross_validated") and _as_printed(result)
        for row in result.rows
        if row["loss"] == "hinge" and row.get("gradient_label") == "answered" and row["method"] in ("prestige", "djw")
    ]
    return rows if len({row["batch_size"] for row in rows}) > 1 else []


def difference_frame(differences: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Paired differences in percentage points, worded."""
    return pd.DataFrame(
        [
            (
                f"{METHODS[row['first']].title} − {METHODS[row['second']].title}",
                row["budget"],
                f"{100 * row['mean']:+.2f}",
                f"{100 * row['low']:+.2f} … {100 * row['high']:+.2f}",
                "< 0.001" if row["p_value"] < 0.001 else f"{row['p_value']:.3f}",
                f"{row['first_better']} of {row['repeats']}",
            )
            for row in differences
        ],
        columns=["Difference", BUDGET, "Mean (points)", "95 % interval", "p (paired t)", "First is better"],
    )


def verdict(differences: Sequence[Mapping[str, Any]], first: str = "prestige") -> str:
    """The outcome in a sentence, as it came out."""
    rows = [row for row in differences if row["first"] == first]
    if not rows:
        return ""
    clear = [row for row in rows if row["p_value"] < 0.05]
    better = sum(row["mean"] < 0 for row in clear)
    worse = len(clear) - better
    gaps = [100 * row["mean"] for row in rows]
    return (
        f"{METHODS[first].title} has a lower test error than {METHODS[rows[0]['second']].title} at {better} and a "
        f"higher one at {worse} of {len(rows)} budgets (paired t-test, p < 0.05); the mean difference is "
        f"{min(gaps):+.1f} to {max(gaps):+.1f} points."
    )
