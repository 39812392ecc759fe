"""Forecasts in words and pictures: the trade-off of a shape, a run against its forecast, errors that fall with runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from dpviz.forecast.library import Fit, response_name
from dpviz.forecast.response import Forecast, Response
from dpviz.privacy.records import Epsilon
from dpviz.runs.store.records import Summary
from dpviz.views.axes import COLOURS, GREY, epoch_ticks, layout
from dpviz.views.numbers import epsilon_number

FACTORS = 2.0 ** np.linspace(-1, 2, 10)  # 1 among them
BAND = "rgba(21, 155, 119, 0.2)"
OWN_DATA_WORDS = (
    "The accuracy to expect was learnt from runs on your own data. To choose a schedule by it is to have looked at "
    "those runs: their price, under *Learn the response* on Train, comes on top of ε."
)


def shape_frame(
    response: Response, sigmas: Sequence[float], price: Callable[[Sequence[float]], Epsilon], batch_size: int
) -> pd.DataFrame:
    """One row per factor: the upper epsilon, and the accuracy to expect at the end, in percent."""
    rows = []
    for factor in FACTORS:
        curve = tuple(float(factor * sigma) for sigma in sigmas)
        forecast = response.forecast(curve, batch_size)
        ends = (100 * each[-1] for each in (forecast.accuracy, forecast.lower, forecast.upper))
        rows.append((float(factor), price(curve).upper, *ends, forecast.in_domain))
    return pd.DataFrame(rows, columns=["factor", "epsilon", "accuracy", "lower", "upper", "in_domain"])


def runs_frame(response: Response, runs: Iterable[Summary]) -> pd.DataFrame:
    """Finished runs of the same settings: sound epsilon and test accuracy in percent."""
    rows = [
        (run.epsilon_sound, 100 * run.test_accuracy, run.recipe or run.title or run.id)
        for run in runs
        if run.key in response.runs and run.epsilon_sound is not None and run.test_accuracy is not None
    ]
    return pd.DataFrame(rows, columns=["epsilon", "accuracy", "name"])


def shape_figure(frame: pd.DataFrame, runs: pd.DataFrame) -> go.Figure:
    """Accuracy to expect against epsilon, with its band; the curve as drawn is the large point, runs are dots."""
    figure = go.Figure(layout=layout("Epsilon", "Test accuracy (%)", log_x=True))
    shown = frame[np.isfinite(frame["epsilon"])].sort_values("epsilon")
    dots = runs[np.isfinite(runs["epsilon"].astype(float))]
    figure.add_scatter(
        x=[*shown["epsilon"], *shown["epsilon"][::-1]],
        y=[*shown["upper"], *shown["lower"][::-1]],
        name="nine of ten runs",
        fill="toself",
        fillcolor=BAND,
        line={"width": 0},
        hoverinfo="skip",
        mode="lines",
    )
    figure.add_scatter(
        x=shown["epsilon"],
        y=shown["accuracy"],
        name="this shape, scaled",
        customdata=list(zip(shown["factor"], map(epsilon_number, shown["epsilon"]), strict=True)),
        line={"color": COLOURS[2]},
        hovertemplate="%{customdata[0]:.3g} times the noise: ε %{customdata[1]}, %{y:.2f} %<extra></extra>",
    )
    drawn = shown[shown["factor"] == 1.0]
    figure.add_scatter(
        x=drawn["epsilon"],
        y=drawn["accuracy"],
        name="as drawn",
        mode="markers",
        marker={"color": COLOURS[2], "size": 13},
        customdata=[(epsilon_number(epsilon),) for epsilon in drawn["epsilon"]],
        hovertemplate="as drawn: ε %{customdata[0]}, %{y:.2f} %<extra></extra>",
    )
    figure.add_scatter(
        x=dots["epsilon"],
        y=dots["accuracy"],
        name="runs",
        mode="markers",
        text=dots["name"],
        marker={"color": GREY, "size": 6},
        customdata=[(epsilon_number(epsilon),) for epsilon in dots["epsilon"]],
        hovertemplate="%{text}: ε %{customdata[0]}, %{y:.2f} %<extra></extra>",
    )
    return figure


def shape_words(frame: pd.DataFrame, response: Response) -> str:
    """What the picture shows, in a sentence."""
    finite = frame[np.isfinite(frame["epsilon"])]
    if finite.empty:
        return "An epoch without noise costs infinity at any scale."
    least, most = finite.loc[finite["epsilon"].idxmin()], finite.loc[finite["epsilon"].idxmax()]
    outside = (
        "" if frame["in_domain"].all() else " Part of it lies outside of what was measured; the band is wider there."
    )
    return (
        f"From half to four times its noise this shape goes from ε {epsilon_number(most['epsilon'])} and "
        f"{most['accuracy']:.1f} % to ε {epsilon_number(least['epsilon'])} and {least['accuracy']:.1f} %, as expected "
        f"from {len(response.runs)} runs of “{response_name(response)}”.{outside}"
    )


# --- a run and its forecast


def forecast_frame(forecast: Forecast) -> pd.DataFrame:
    """One row per epoch: the accuracy to expect and its band, in percent."""
    rows = zip(forecast.accuracy, forecast.lower, forecast.upper, strict=True)
    percent = [(epoch, *(100 * value for value in row)) for epoch, row in enumerate(rows, start=1)]
    return pd.DataFrame(percent, columns=["epoch", "accuracy", "lower", "upper"])


def expected_words(forecast: Forecast) -> str:
    """The accuracy to expect at the end with its band: "97.1 % (96.8–97.4)"."""
    return _band_words(forecast, 1)


def _band_words(forecast: Forecast, digits: int) -> str:
    accuracy, lower, upper = (100 * each[-1] for each in (forecast.accuracy, forecast.lower, forecast.upper))
    return f"{accuracy:.{digits}f} % ({lower:.{digits}f}–{upper:.{digits}f})"


def basis_words(forecast: Forecast) -> str:
    """What a forecast rests on, and where it leaves what was measured."""
    runs = f"The forecast rests on {forecast.rests_on} runs; nine of ten runs should end in its band."
    if forecast.in_domain:
        return runs
    return f"{runs} Outside of what was measured, so the band is a guess: {forecast.why_not}."


def outcome_words(forecast: Forecast, measured: float, *, fitted_to_it: bool) -> str:
    """How good a forecast was, once the run has ended."""
    lower, upper = forecast.lower[-1], forecast.upper[-1]
    if lower <= measured <= upper:
        verdict = "within the band"
    else:
        far, side = (measured - upper, "above") if measured > upper else (lower - measured, "below")
        verdict = f"{100 * far:.2f} points {side} the band"
    known = " No test of the forecast: it was fitted to this run, too." if fitted_to_it else ""
    return f"Forecast {_band_words(forecast, 2)}, measured {100 * measured:.2f} %: {verdict}.{known}"


# --- learning


def error_frame(fits: Iterable[Fit]) -> pd.DataFrame:
    """One row per fit: the runs that it rests on, and its error on schedules left out, in points."""
    return pd.DataFrame([(fit.runs, 100 * fit.held_out_error) for fit in fits], columns=["runs", "error"])


def error_figure(frame: pd.DataFrame) -> go.Figure:
    """The error of a forecast against the runs that it rests on."""
    figure = go.Figure(layout=layout("Runs learnt from", "Error (points)", height=180))
    figure.add_scatter(
        x=frame["runs"],
        y=frame["error"],
        mode="lines+markers",
        line={"color": COLOURS[2]},
        hovertemplate="%{x} runs: off by %{y:.2f} points<extra></extra>",
    )
    if len(frame):
        figure.update_xaxes(**epoch_ticks(frame["runs"].max()))
    return figure.update_yaxes(rangemode="tozero").update_layout(margin={"t": 12}, showlegend=False)


def error_words(fit: Fit) -> str:
    return f"off by {100 * fit.held_out_error:.2f} points on average at the end of schedules left out ({fit.runs} runs)"
