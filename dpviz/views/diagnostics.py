"""What goes on inside a run: gradient norms, the parts of an update, layer sizes, confusion. Frames and figures.

All of it is computed from private examples and not covered by epsilon: `NOT_COVERED` goes with every figure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dpviz.runs import Run
from dpviz.views.axes import COLOURS, GREY, epoch_ticks, layout

NOT_COVERED = "Computed from private data, not covered by epsilon."

# Column -> its title and the keys that lead to it in an epoch's diagnostics.
SERIES: dict[str, tuple[str, tuple[str, ...]]] = {
    "signal": ("signal: length of the mean gradient", ("update", "signal")),
    "clipping_bias": ("clipping bias: what clipping takes away", ("update", "clipping_bias")),
    "noise": ("noise: expected length", ("update", "noise")),
    "cosine": ("cosine of clipped and true mean gradient", ("cosine",)),
    "clipped_fraction": ("share of examples that are clipped", ("clipped_fraction",)),
    "clip_norm": ("clipping norm", ("clip_norm",)),
    "logit_norm": ("length of the logits", ("logit_norm",)),
    "hessian_eigenvalue": ("largest curvature of the loss", ("hessian_eigenvalue",)),
}
STRONG, FAINT = 30, "#808a98"  # share of a class from which on a cell is dark; text that is read on white and on black
LAYER_COLUMNS = ("epoch", "layer", "weight_norm", "pre_activation_norm")
LAYER_TITLES = {"weight_norm": "Length of the weights", "pre_activation_norm": "Mean length of the output"}


def has_diagnostics(run: Run) -> bool:
    return any(record.diagnostics for record in run.epochs)


def series_frame(run: Run) -> pd.DataFrame:
    """One row per epoch that has diagnostics: the numbers of SERIES, NaN where one is not finite or missing."""
    rows = [
        (record.epoch, *(_at(record.diagnostics, keys) for _, keys in SERIES.values()))
        for record in run.epochs
        if record.diagnostics
    ]
    return pd.DataFrame(rows, columns=["epoch", *SERIES])


def _at(found: Any, keys: Sequence[str]) -> float:
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return math.nan if found is None else float(found)


def layer_frame(run: Run) -> pd.DataFrame:
    """One row a layer and epoch."""
    rows = [
        (record.epoch, layer["name"], layer["weight_norm"], layer["pre_activation_norm"])
        for record in run.epochs
        for layer in record.diagnostics.get("layers", ())
    ]
    return pd.DataFrame(rows, columns=list(LAYER_COLUMNS))


def diagnostics_at(run: Run, epoch: int) -> Mapping[str, Any]:
    """The diagnostics of one epoch; empty if it has none."""
    return next((record.diagnostics for record in run.epochs if record.epoch == epoch), {})


def norm_figure(found: Mapping[str, Any]) -> go.Figure:
    """Histogram of the examples' gradient norms, with the clipping norm as a line: what is right of it is cut back."""
    figure = go.Figure(layout=layout("Gradient norm of an example", "Examples", height=320))
    norms = found.get("gradient_norms")
    if not norms:
        return figure
    edges, counts = np.array(norms["edges"], float), norms["counts"]
    clip_norm = found.get("clip_norm")
    growing = edges[0] > 0 and edges[-1] - edges[-2] > 2 * (edges[1] - edges[0])  # bins of a log axis
    places = np.log10(edges) if growing else edges
    middles = (places[:-1] + places[1:]) / 2
    values = 10**middles if growing else middles
    colours = [COLOURS[1] if clip_norm is not None and value > clip_norm else COLOURS[0] for value in values]
    figure.add_bar(
        x=middles,
        y=counts,
        width=np.diff(places),
        marker={"color": colours, "line": {"width": 0}},
        customdata=values,
        hovertemplate="norm about %{customdata:.3g}: %{y} examples<extra></extra>",
        showlegend=False,
    )
    if clip_norm is not None:
        figure.add_vline(
            x=math.log10(clip_norm) if growing else clip_norm,
            line={"color": COLOURS[5], "dash": "dash", "width": 2},
            annotation={"text": f"clipping norm {clip_norm:g}", "yanchor": "bottom", "yref": "paper", "y": 1.0},
        )
    figure.update_layout(bargap=0, xaxis=_powers(places) if growing else {"rangemode": "tozero"})
    return figure


def _powers(places: np.ndarray) -> dict[str, Any]:
    """Ticks of a log axis that is drawn as a linear one: Plotly gives bars on a log axis no width of their own."""
    powers = list(range(math.floor(places[0]), math.ceil(places[-1]) + 1))
    return {"tickvals": powers, "ticktext": [f"{10.0**power:g}" for power in powers]}


def update_figure(frame: pd.DataFrame, epoch: int | None = None) -> go.Figure:
    """The three parts of an update over the epochs: noise above the signal means steps that are mostly noise.

    They differ by orders of magnitude, so the axis is logarithmic; a bias of 0, where nothing is clipped, is not on it.
    """
    figure = go.Figure(layout=layout("Epoch", "Length in one update (log scale)", height=320))
    figure.update_yaxes(type="log", exponentformat="power")
    for column, colour in zip(("signal", "clipping_bias", "noise"), COLOURS, strict=False):
        _add_line(figure, frame, column, SERIES[column][0], colour)
    return _at_epoch(figure, epoch)


def cosine_figure(frame: pd.DataFrame, epoch: int | None = None) -> go.Figure:
    """How well the clipped mean gradient points along the true one (1: the same way), and how many are clipped."""
    figure = go.Figure(layout=layout("Epoch", "Cosine; share of examples", height=320))
    for column, colour in (("cosine", COLOURS[0]), ("clipped_fraction", COLOURS[1])):
        _add_line(figure, frame, column, SERIES[column][0], colour)
    return _at_epoch(figure, epoch)


def series_figure(frame: pd.DataFrame, column: str, epoch: int | None = None) -> go.Figure:
    """One number over the epochs."""
    title = SERIES[column][0]
    figure = go.Figure(layout=layout("Epoch", title[:1].upper() + title[1:], height=320))
    _add_line(figure, frame, column, title, COLOURS[0])
    figure.update_layout(showlegend=False)
    return _at_epoch(figure, epoch)


def layer_figure(frame: pd.DataFrame, column: str, epoch: int | None = None) -> go.Figure:
    """A size of each layer over the epochs, first layer first."""
    figure = go.Figure(layout=layout("Epoch", LAYER_TITLES[column], height=320))
    for place, layer in enumerate(frame["layer"].unique()):
        rows = frame[frame["layer"] == layer]
        _add_line(figure, rows, column, f"layer {place + 1}", COLOURS[place % len(COLOURS)])
    return _at_epoch(figure, epoch)


def _add_line(figure: go.Figure, frame: pd.DataFrame, column: str, name: str, colour: str) -> None:
    figure.add_scatter(
        x=frame["epoch"],
        y=frame[column],
        name=name,
        mode="lines+markers",
        line={"color": colour, "width": 2.2},
        marker={"size": 5},
        hovertemplate=f"{name}: %{{y:.4g}}<br>epoch %{{x}}<extra></extra>",
    )


def _at_epoch(figure: go.Figure, epoch: int | None) -> go.Figure:
    last = max((max(trace.x) for trace in figure.data if len(trace.x)), default=0)
    if last:
        figure.update_xaxes(**epoch_ticks(last))
    if epoch is not None:
        figure.add_vline(x=epoch, line={"color": GREY, "dash": "dot", "width": 1.5})
    return figure


def confusion_figure(matrix: Sequence[Sequence[int]], classes: Sequence[str] = ()) -> go.Figure:
    """Examples by true class (rows) and predicted class (columns), coloured by their share of the true class."""
    figure = go.Figure(layout=layout("Predicted class", "True class", height=380))
    if not len(matrix):
        return figure
    counts = np.array(matrix, float)
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    names = list(classes) or [str(k) for k in range(len(counts))]
    figure.add_heatmap(
        z=shares,
        x=names,
        y=names,
        customdata=counts.astype(int),
        zmin=0,
        zmax=100,
        colorscale=[[0, "rgba(47, 126, 216, 0.03)"], [0.2, "rgba(47, 126, 216, 0.45)"], [1, "rgb(47, 126, 216)"]],
        showscale=False,
        hovertemplate="true %{y}, predicted %{x}: %{customdata} examples, %{z:.1f} % of the class<extra></extra>",
    )
    # Text of its own colours: a heatmap's is chosen as if the page behind it were white.
    figure.add_scatter(
        x=names * len(names),
        y=np.repeat(names, len(names)),
        text=counts.astype(int).ravel(),
        mode="text",
        textfont={"size": 10, "color": ["white" if share > STRONG else FAINT for share in shares.ravel()]},
        hoverinfo="skip",
        showlegend=False,
    )
    figure.update_layout(
        xaxis={"type": "category", "showgrid": False, "constrain": "domain"},
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False, "scaleanchor": "x"},
    )
    return figure
