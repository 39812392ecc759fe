"""Suggestions: within the budget, within what was measured, and no gain is claimed that may be chance."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from dpviz.forecast.library import shelf
from dpviz.forecast.response import scale_to_accuracy
from dpviz.forecast.suggest import Plan, QuickPrice, Suggestion, shape, suggest
from dpviz.papers import recipe
from dpviz.privacy import epoch_phases, epsilon
from dpviz.privacy.registry import InputError

CURRICULA = recipe("curricula/constant-1.54").spec
RESPONSE = shelf().of(CURRICULA)


def test_a_suggestion_keeps_the_budget_and_the_domain_and_is_no_worse_than_constant_noise():
    shares = []
    found = suggest(RESPONSE, 0.5, 0.01, 1e-5, on_progress=shares.append)
    for plan in (found.best, found.constant):
        assert plan.epsilon == epsilon(epoch_phases(plan.sigmas, 0.01), 1e-5).upper
        assert 0.49 <= plan.epsilon <= 0.5
        assert plan.accuracy == RESPONSE.forecast(plan.sigmas).accuracy[-1]
        assert plan.why_not == ""
    assert len(set(found.constant.sigmas)) == 1
    assert found.best.sigmas[0] > 1.3 * found.best.sigmas[-1]  # late noise is what hurts
    assert 0.0005 < found.gain < 0.005
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_gain_within_the_band_is_called_simple_and_one_beyond_it_is_not():
    constant = Plan((2.0, 2.0), 1.0, 0.95, 0.947, 0.953)
    near, far = (dataclasses.replace(constant, accuracy=a, lower=a - 0.003, upper=a + 0.003) for a in (0.951, 0.96))
    simple, better = (Suggestion("r", 9, plan, constant) for plan in (near, far))
    assert simple.uncertainty == pytest.approx(math.hypot(0.003, 0.003))
    assert (simple.worth_it, better.worth_it) == (False, True)
    assert simple.words.endswith("so keep it simple.")
    assert better.words == (
        "Expected to end 1.00 points (give or take 0.42) above constant noise 2 over 2 epochs, the best of equal "
        "epsilon."
    )


def test_constant_noise_that_is_best_is_called_simple():
    constant = Plan((2.0, 2.0), 1.0, 0.95, 0.947, 0.953)
    assert Suggestion("r", 9, constant, constant).words == (
        "No shape is expected to end above constant noise 2 over 2 epochs, the best of equal epsilon: keep it simple."
    )


def test_what_lies_outside_of_the_domain_is_said():
    found = suggest(dataclasses.replace(RESPONSE, most_sigma=1.2), 0.3, 0.01, 1e-5)
    assert "Outside of what was measured: sigma" in found.words


def test_the_quick_price_is_the_rdp_price():
    quick = QuickPrice(0.01, 1e-5, 0.1, 20.0)
    for curve in (np.linspace(5, 1, 20), np.full(7, 0.8)):
        truth = epsilon(epoch_phases(curve, 0.01), 1e-5, accountant="rdp").upper
        assert quick.epsilon(curve) == pytest.approx(truth, rel=0.01)
        assert quick.epsilon(quick.scaled(curve, 1.0)) == pytest.approx(1.0, rel=1e-3)


def test_a_shape_goes_through_its_knots():
    assert shape([-1.0, 0.5], 5) == pytest.approx(np.exp([0.0, -0.5, -1.0, -0.25, 0.5]))
    assert shape([0.0] * 3, 4) == pytest.approx(np.ones(4))


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf])
def test_a_budget_must_be_a_number_above_zero(target):
    with pytest.raises(InputError, match="target epsilon"):
        suggest(RESPONSE, target, 0.01, 1e-5)


# --- fit to accuracy ------------------------------------------------------------------------------------------------


def test_a_shape_is_scaled_to_the_accuracy_that_is_asked_for():
    curve = np.linspace(5, 1, 20)
    factor = scale_to_accuracy(RESPONSE, curve, 0.945)
    assert factor > 1
    assert RESPONSE.forecast(factor * curve).accuracy[-1] == pytest.approx(0.945, abs=1e-6)


@pytest.mark.parametrize(
    ("sigmas", "target", "words"),
    [
        ([1.5] * 20, 0.99, "out of reach: even without noise 20 epochs are expected to end at 95"),
        ([1.5] * 20, math.nan, "must be a share above 0"),
        ([1.5] * 20, 95.0, "must be a share above 0"),
        ([0.0] * 20, 0.9, "without noise cannot be scaled"),
    ],
)
def test_an_accuracy_that_cannot_be_met_is_refused(sigmas, target, words):
    with pytest.raises(InputError, match=words):
        scale_to_accuracy(RESPONSE, sigmas, target)
