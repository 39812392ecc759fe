"""The risk band on random ledgers, around riskcal's numbers and below dp_accounting's; calibration to it.

`make certify` takes 200 ledgers, as many to compare with both, and 100 calibrations in each measure.
"""

import math
from functools import cache
from itertools import count

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as loss_distribution
from riskcal import analysis

from dpviz.privacy import (
    MEASURES,
    Assumptions,
    Bounds,
    InputError,
    Ledger,
    Risk,
    Target,
    calibrate,
    epoch_phases,
    epsilon,
    risk,
)
from tests.privacy.ledgers import KINDS, random_ledger
from tests.privacy.oracle import NotConverged, oracle_delta
from tests.privacy.test_random_ledgers import COUNT, RELATIONS, affordable, case

FPRS = np.array([1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.9])
PRIORS = np.array([0.5, 0.7, 0.9])
INTERVAL = 1e-3  # of theirs; on finer grids riskcal's rates at small FPRs lose their digits
CLOSE = 1e-3  # relative


@cache
def peer(number: int, interval: float) -> loss_distribution.PrivacyLossDistribution:
    ledger, _, adjacency, _ = case(number)
    total = None
    for phase in ledger.phases:
        step = loss_distribution.from_gaussian_mechanism(
            phase.noise_multiplier,
            sampling_prob=phase.sample_rate,
            value_discretization_interval=interval,
            neighboring_relation=RELATIONS[adjacency],
        ).self_compose(phase.steps)
        total = total.compose(step) if total else step
    return total


@cache
def comparable(rank: int) -> int:
    """The number of the ledger with this rank among those for which dp_accounting is fast and fine enough."""

    def answers(number: int) -> bool:
        ledger, delta, adjacency, _ = case(number)
        return affordable(ledger, epsilon(ledger, delta, adjacency=adjacency))

    return next(filter(answers, count(comparable(rank - 1) + 1 if rank else 0)))


def ours(number: int) -> tuple[Ledger, Risk]:
    ledger, _, adjacency, _ = case(number)
    return ledger, risk(ledger, adjacency=adjacency)


def assert_around(bounds: Bounds, fine: float, coarse: float, rounding: float) -> None:
    """Theirs is pessimistic, by an error that falls at least with the root of its interval: so where a step's losses
    are smaller than the interval, and with its square elsewhere."""
    slack = CLOSE * fine + rounding
    assert bounds.lower <= fine + slack
    assert fine - abs(coarse - fine) / (math.sqrt(2) - 1) <= bounds.upper + slack


@pytest.mark.parametrize("rank", range(COUNT))
def test_riskcals_numbers_lie_in_the_band(rank: int) -> None:
    number = comparable(rank)
    ledger, found = ours(number)
    fine, coarse = peer(number, INTERVAL), peer(number, 2 * INTERVAL)
    # dp_accounting divides differences of deltas by the interval, so a cell of a step is off by eps / interval, and
    # raises what fell below 0: over 1 / interval cells that adds up. riskcal reads the one rate off "remove" and the
    # other off "add", so that their errors do not cancel.
    rounding = ledger.steps * float(np.finfo(float).eps) / INTERVAL**2
    for fpr, *betas in zip(FPRS, *(analysis.get_beta_from_pld(each, FPRS) for each in (fine, coarse)), strict=True):
        tpr = 1 - betas[0]
        # An FPR that is off moves the TPR by the curve's slope, which is at most TPR / FPR: the curve is concave.
        assert_around(found.tpr(fpr), tpr, 1 - betas[1], rounding * (1 + tpr / fpr))
        assert found.reconstruction(fpr) == found.tpr(fpr).upper
    assert_around(found.advantage, *map(analysis.get_advantage_from_pld, (fine, coarse)), rounding)
    for prior, *errors in zip(
        PRIORS, *(analysis.get_bayes_risk_from_pld(each, PRIORS) for each in (fine, coarse)), strict=True
    ):
        assert_around(found.success(prior), *(1 - error for error in errors), rounding)
        assert found.success(1 - prior) == pytest.approx(found.success(prior))


@pytest.mark.parametrize("rank", range(COUNT))
def test_dp_accountings_rates_are_not_below_ours(rank: int) -> None:
    """It bounds the rate by lines of its (epsilon, delta), as its newer releases do themselves."""
    number = comparable(rank)
    _, found = ours(number)
    deltas = np.geomspace(1e-12, 1.0, 200)
    growth = np.exp([peer(number, INTERVAL).get_epsilon_for_delta(delta) for delta in deltas])
    for fpr in FPRS:
        theirs = min(1.0, float((deltas + growth * fpr).min()), float((1 - (1 - deltas - fpr) / growth).min()))
        assert found.tpr(fpr).lower <= theirs * (1 + 1e-9)


@pytest.mark.parametrize("number", range(COUNT))
def test_the_band_is_ordered_and_narrow_where_it_must_be(number: int) -> None:
    ledger, _, adjacency, usual = case(number)
    found = risk(ledger, adjacency=adjacency)
    fprs = np.concatenate([[0.0], np.geomspace(1e-12, 0.5, 60), np.linspace(0.5, 1, 20)])
    lower, upper = found.curve(fprs)
    assert ((fprs <= lower) & (lower <= upper) & (upper <= 1)).all()
    assert (np.diff(upper) >= -1e-15).all()
    assert (np.diff(lower) >= -1e-15).all()
    if usual:
        assert found.fallback is None
        tpr = found.tpr(0.001)
        assert tpr.upper - tpr.lower <= 0.02 * tpr.upper


@pytest.mark.parametrize("number", range(COUNT))
def test_the_profile_holds_the_oracles_delta(number: int) -> None:
    ledger, delta, adjacency, _ = case(number)
    found, top = risk(ledger, adjacency=adjacency), epsilon(ledger, max(delta, 1e-6), adjacency=adjacency).upper
    phases = [(phase.noise_multiplier, phase.sample_rate, phase.steps) for phase in ledger.phases]
    answered = 0
    for at in (top, top / 5) if COUNT >= 100 else (top,):  # each takes up to half a minute
        try:
            truth = oracle_delta(phases, at, adjacency)
        except (NotConverged, ValueError):  # the losses of one direction are all below this epsilon
            continue
        answered += 1
        assert found.delta(at).lower <= truth * (1 + 1e-5) + 1e-15
        assert truth * (1 - 1e-5) - 1e-15 <= found.delta(at).upper
    if not answered:
        pytest.skip("no oracle")


@pytest.mark.parametrize("number", range(COUNT))
def test_the_profile_holds_the_certified_epsilon(number: int) -> None:
    """Two bands of one number, from different grids: neither may lie beside the other."""
    ledger, delta, adjacency, _ = case(number)
    cost, found = epsilon(ledger, delta, adjacency=adjacency), risk(ledger, adjacency=adjacency)
    if cost.upper < 600:
        assert found.delta(cost.upper).lower <= delta * (1 + 1e-9)
        assert cost.lower == 0 or found.delta(cost.lower).upper >= delta * (1 - 1e-9)


@pytest.mark.parametrize("number", range(max(4, COUNT // 2)))
def test_calibration_keeps_its_promise_in_every_measure(number: int) -> None:
    rng = np.random.default_rng([7, number])
    ledger, _ = random_ledger(rng, KINDS[number % 4], usual=True)
    shape = [phase.noise_multiplier for phase in ledger.phases]
    used = 1 - 0.99 ** (100 * len(shape))
    limits = {"epsilon": (0.3, 8), "advantage": (0.01, 0.95), "tpr": (0.002, 0.95), "mu": (0.1, 3)}
    for measure in MEASURES:
        target = Target(float(rng.uniform(*limits[measure])), measure)
        if MEASURES[measure].most == 1 and target.value > used:
            with pytest.raises(InputError, match="with hardly any noise it comes to"):
                calibrate(shape, 0.01, target, 1e-5)
            continue
        found = calibrate(shape, 0.01, target, 1e-5)
        assert 0.999 * target.value <= found.achieved <= target.value
        assert np.allclose(found.sigmas, found.factor * np.array(shape))
        again = MEASURES[measure].cost(epoch_phases(found.sigmas, 0.01), 1e-5, Assumptions(), target.fpr)
        assert again.upper == pytest.approx(found.achieved, rel=1e-9)
