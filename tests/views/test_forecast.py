"""Forecasts in words and pictures: a run against what was expected of it, and errors that fall with runs."""

from __future__ import annotations

import pytest

from dpviz.forecast.library import Fit
from dpviz.forecast.response import Forecast
from dpviz.views.forecast import (
    basis_words,
    error_figure,
    error_frame,
    error_words,
    expected_words,
    forecast_frame,
    outcome_words,
)
from dpviz.views.runs import FORECAST, FORECAST_BAND, run_figure, run_frame
from tests.views.made_runs import made_run

FORECASTED = Forecast("made up", (0.9, 0.9712), (0.85, 0.968), (0.95, 0.974), rests_on=24)
OUTSIDE = Forecast("made up", (0.9,), (0.8,), (1.0,), rests_on=24, why_not="sigma 9 is above the measured 5")


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (0.97, "Forecast 97.12 % (96.80–97.40), measured 97.00 %: within the band."),
        (0.99, "Forecast 97.12 % (96.80–97.40), measured 99.00 %: 1.60 points above the band."),
        (0.963, "Forecast 97.12 % (96.80–97.40), measured 96.30 %: 0.50 points below the band."),
    ],
)
def test_after_a_run_the_words_say_how_good_its_forecast_was(measured, words):
    assert outcome_words(FORECASTED, measured, fitted_to_it=False) == words
    assert outcome_words(FORECASTED, measured, fitted_to_it=True).endswith("it was fitted to this run, too.")


def test_what_a_forecast_rests_on_is_said_and_so_is_a_guess():
    assert expected_words(FORECASTED) == "97.1 % (96.8–97.4)"
    assert basis_words(FORECASTED).startswith("The forecast rests on 24 runs")
    assert "guess" not in basis_words(FORECASTED)
    assert basis_words(OUTSIDE).endswith("the band is a guess: sigma 9 is above the measured 5.")


def test_the_forecast_lies_behind_the_curves_of_a_run():
    figure = run_figure(run_frame([made_run()]), "epoch", "accuracy", {}, 4, forecast_frame(FORECASTED))
    assert [trace.name for trace in figure.data[:2]] == [FORECAST_BAND, FORECAST]
    assert list(figure.data[1].y) == pytest.approx([90.0, 97.12])
    assert list(figure.data[0].y) == pytest.approx([95.0, 97.4, 96.8, 85.0])
    assert FORECAST not in [trace.name for trace in run_figure(run_frame([made_run()])).data]


def test_errors_are_drawn_in_points_against_the_runs_learnt_from():
    fits = (Fit(8, 0.02), Fit(9, 0.0125))
    (line,) = error_figure(error_frame(fits)).data
    assert (list(line.x), list(line.y)) == ([8, 9], [2.0, 1.25])
    assert len(error_figure(error_frame(())).data[0].x) == 0
    assert error_words(fits[1]).startswith("off by 1.25 points")
    assert "(9 runs)" in error_words(fits[1])
