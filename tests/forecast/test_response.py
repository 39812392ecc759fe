"""The response: what a schedule is expected to do, and how it says where it has not been measured."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from dpviz.forecast.library import read, shelf, write
from dpviz.forecast.response import BOUNDS, FURTHEST, Response, expected
from dpviz.papers import recipe
from dpviz.privacy.registry import InputError
from dpviz.runs.store.store import Store

CURRICULA = recipe("curricula/constant-1.54").spec


@pytest.fixture(scope="module")
def response() -> Response:
    """What comes with dpviz, as if nothing had been measured beyond sigma 5 and 20 epochs."""
    known = shelf().of(CURRICULA)
    half_widths, scatter = known.half_widths[:20], known.seed_scatter[:20]
    return dataclasses.replace(known, most_sigma=5.0, half_widths=half_widths, seed_scatter=scatter)


def test_the_formula_step_by_step():
    """Every line of the docstring's recursion, written out for three epochs."""
    parameters = (0.5, -0.3, -3.5, -0.4, -6.0, 0.8, -1.2, 0.1)
    k, power, floor, q, d, memory, last, kappa = parameters
    p, rho, w = 1 + math.exp(power), 1 / (1 + math.exp(-memory)), 1 / (1 + math.exp(-last))
    left, noise, truth = math.exp(q), 0.0, []
    for sigma in (3.0, 0.0, 1.5):
        left = (left ** (1 - p) + (p - 1) * math.exp(k)) ** (1 / (1 - p))
        noise = rho * noise + (1 - rho) * sigma**2
        mixed = w * sigma**2 + (1 - w) * noise
        truth.append(1 - math.exp(floor) - left - math.exp(d) * mixed ** math.exp(kappa))
    assert expected(parameters, np.array([3.0, 0.0, 1.5]))[0] == pytest.approx(truth, abs=1e-12)


def test_any_parameters_within_their_bounds_give_accuracies_without_a_warning():
    corners = np.random.default_rng(0).choice([0, 1], (200, len(BOUNDS)))
    least, most = np.array(list(BOUNDS.values())).T
    for corner in corners:
        accuracies = expected(np.where(corner, most, least), np.array([[0.0, 1e-6, 1.0, 1e6]]))
        assert ((accuracies >= 0.05) & (accuracies <= 1)).all()


def test_less_noise_is_never_worse_and_late_noise_hurts_more_than_early_noise(response):
    falling, rising = response.forecast(np.linspace(5, 1, 20)), response.forecast(np.linspace(1, 5, 20))
    assert response.forecast([1.0] * 20).accuracy[-1] > response.forecast([2.0] * 20).accuracy[-1]
    assert falling.accuracy[-1] > rising.accuracy[-1] + 0.005


def test_inside_of_what_was_measured_the_band_is_the_measured_one(response):
    forecast = response.forecast([1.5] * 20)
    assert (forecast.in_domain, forecast.why_not, forecast.rests_on) == (True, "", len(response.runs))
    widths = np.subtract(forecast.upper, forecast.lower) / 2
    assert widths == pytest.approx(response.half_widths)
    assert (widths >= 1.645 * np.array(response.seed_scatter) - 1e-9).all()


@pytest.mark.parametrize(
    ("sigmas", "batch_size", "words", "doublings"),
    [
        ([1.5] * 19 + [10.0], 600, "sigma 10 is above the measured 5", 1.0),
        ([1.5] * 40, 600, "40 epochs are more than the measured 20", 1.0),
        ([1.5] * 20, 300, "batch size 300 is not the measured 600", 1.0),
        ([1.5] * 20, 2400, "batch size 2400 is not the measured 600", 2.0),
        ([1e6] * 20, 600, "sigma 1e+06 is above the measured 5", FURTHEST),
    ],
)
def test_outside_of_what_was_measured_the_band_is_wider_and_says_why(response, sigmas, batch_size, words, doublings):
    forecast = response.forecast(sigmas, batch_size)
    assert (forecast.in_domain, forecast.why_not) == (False, words)
    half = response.half_widths[min(len(sigmas), response.epochs) - 1]
    assert forecast.accuracy[-1] - forecast.lower[-1] == pytest.approx(
        min(2 * (1 + doublings) * half, forecast.accuracy[-1])
    )
    assert forecast.to_json()["why_not"] == words


def test_less_noise_than_was_ever_measured_is_outside(response):
    noisy = dataclasses.replace(response, least_sigma=1.0)
    assert noisy.forecast([0.5] * 5).why_not == "sigma 0.5 is below the measured 1"
    assert noisy.forecast([0.0] * 5).why_not == "sigma 0 is below the measured 1"
    assert response.forecast([0.0] * 5).in_domain


@pytest.mark.parametrize("sigmas", [[], [math.nan], [1.0, -1.0], [math.inf]])
def test_what_is_no_schedule_has_no_forecast(response, sigmas):
    with pytest.raises(InputError):
        response.forecast(sigmas)


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_response_reads_back_as_it_was_written_and_an_own_one_goes_first(response, tmp_path):
    mine = dataclasses.replace(response, recipe="mine")
    assert read(write(mine, tmp_path / ".forecasts")) == mine
    assert shelf(Store(tmp_path)).of(CURRICULA) == mine
    assert shelf(Store(tmp_path)).responses[0] == mine
    assert Store(tmp_path).list().warnings == ()


@pytest.mark.parametrize(
    "change",
    [
        {"version": 1},
        {"more": 1},
        {"runs": []},
        {"runs": ["../etc"]},
        {"runs": 3},
        {"settings": "x"},
        {"recipe": ""},
        {"batch_size": 10**400},
        {"batch_size": True},
        {"least_sigma": -1.0},
        {"most_sigma": None},
        {"half_widths": []},
        {"half_widths": ["a"] * 20},
        {"half_widths": [2.0] * 20},
        {"seed_scatter": [0.1]},
        {"held_out_error": "0"},
        {"parameters": {}},
        {"parameters": [1.0] * len(BOUNDS)},
        {"parameters": dict.fromkeys(BOUNDS, 1000.0)},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_damaged_file_is_skipped_with_a_sentence(response, change, tmp_path):
    path = write(response, tmp_path / ".forecasts")
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    found = shelf(Store(tmp_path))
    assert found.responses == shelf().responses
    assert len(found.warnings) == 1
    assert "no forecast" in found.warnings[0]


@pytest.mark.parametrize("text", ["", "[", "null", "[]", '{"version": 1}', '{"version": NaN}', "x" * 1_000_001])
def test_what_is_no_forecast_at_all_is_skipped_too(text, tmp_path):
    (tmp_path / ".forecasts").mkdir()
    (tmp_path / ".forecasts" / f"{'0' * 16}.json").write_text(text)
    assert len(shelf(Store(tmp_path)).warnings) == 1


def test_a_file_under_another_name_is_refused(response, tmp_path):
    path = write(response, tmp_path)
    path.rename(tmp_path / f"{'0' * 16}.json")
    with pytest.raises(InputError, match="holds the forecast of other settings"):
        read(tmp_path / f"{'0' * 16}.json")


def test_a_recipe_without_a_fit_says_how_to_get_one():
    with pytest.raises(InputError, match=r"nothing is known yet of how screening/mnist .* dpviz forecast fit"):
        shelf().of(recipe("screening/mnist").spec)
