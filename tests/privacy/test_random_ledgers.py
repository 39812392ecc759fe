"""The certified band around dp_accounting's PLD, on random ledgers. DPVIZ_LEDGERS=200 for the full check (slow)."""

import os

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from dpviz.privacy import Epsilon, Ledger, calibrate, epsilon
from tests.privacy.ledgers import KINDS, random_ledger

COUNT = int(os.environ.get("DPVIZ_LEDGERS", "16"))


def dp_accounting_epsilon(ledger: Ledger, delta: float, interval: float) -> float:
    accountant = PLDAccountant(value_discretization_interval=interval)
    for phase in ledger.phases:
        event = dp_accounting.GaussianDpEvent(phase.noise_multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(phase.sample_rate, event), phase.steps)
    return float(accountant.get_epsilon(delta))


def affordable(ledger: Ledger, found: Epsilon) -> bool:
    """Whether interval 1e-4 is fine enough for this epsilon, and answers within minutes and gigabytes."""
    return 0.05 < found.upper < 60 and min(phase.noise_multiplier for phase in ledger.phases) > 0.3


@pytest.mark.parametrize("number", range(COUNT))
def test_the_band_holds_the_true_epsilon(number: int) -> None:
    usual = number % 2 == 0
    ledger, delta = random_ledger(np.random.default_rng([2026, number]), KINDS[number // 2 % 4], usual)
    found = epsilon(ledger, delta)
    assert found.upper <= epsilon(ledger, delta, accountant="rdp").upper
    width = found.upper - found.lower
    if usual:
        assert found.fallback is None
        assert width <= max(0.01 * found.upper, 0.005)
    elif found.fallback is None:
        assert width <= max(0.1 * found.upper, 0.005)
    if affordable(ledger, found):
        # Theirs is an upper bound too, so it lies above our lower one. Its error falls with the square of its interval,
        # so the step from the double interval is more than what it may lie above the truth, and so above our upper.
        theirs, coarser = (dp_accounting_epsilon(ledger, delta, interval) for interval in (1e-4, 2e-4))
        # It takes spectra to the power of the steps without a tilt: that rounding is an absolute error of its delta.
        rounding = ledger.steps * np.finfo(float).eps
        assert epsilon(ledger, delta + rounding).lower <= theirs * (1 + 1e-6) + 1e-9
        if delta > rounding:
            upper = epsilon(ledger, delta - rounding).upper
            assert theirs - max(0.0, coarser - theirs) <= upper * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("number", range(COUNT))
def test_calibration_meets_its_promise_on_them(number: int) -> None:
    ledger, delta = random_ledger(np.random.default_rng([2026, number]), KINDS[number // 2 % 4], usual=True)
    sigmas = [phase.noise_multiplier for phase in ledger.phases]
    target = float(np.random.default_rng(number).uniform(0.3, 8))
    found = calibrate(sigmas, 0.01, target, delta)
    assert 0.999 * target <= found.epsilon.upper <= target
