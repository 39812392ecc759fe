"""What a ledger reveals about one person: closed forms, published numbers, properties, and calibration to a risk."""

import importlib
import math
import time

import numpy as np
import pytest
from riskcal.calibration.dpsgd import find_noise_multiplier_for_advantage, find_noise_multiplier_for_err_rates
from scipy.special import ndtr, ndtri

from dpviz.privacy import (
    ADJACENCIES,
    SAMPLINGS,
    InputError,
    Target,
    calibrate,
    delta,
    epoch_phases,
    epsilon,
    risk,
)
from dpviz.privacy.pld import loss_curves as curves
from dpviz.privacy.pld.composition import Contradiction
from dpviz.privacy.trade_off import TradeOff, _convex, from_attacks, from_guarantees

risk_module = importlib.import_module("dpviz.privacy.risk")  # the function hides it in its package
FPRS = (1e-6, 1e-3, 0.05, 0.3, 0.5, 0.8, 1.0)
BOTH = ("upper", "lower")
LEDGER = [(1.1, 0.01, 2000)]
LINE = epoch_phases(np.linspace(5.0, 1.0, 20), 0.01)


def gaussian_tpr(mu: float, fpr: float) -> float:
    return float(ndtr(ndtri(fpr) + mu))


# --- closed forms and published numbers -------------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [1e-7, 0.05, 1.0, 4.0, 12.0])
def test_full_batches_have_the_gaussian_curve(mu: float) -> None:
    found = risk([(1 / mu, 1.0, 1)])
    for fpr in FPRS:
        bounds, truth = found.tpr(fpr), gaussian_tpr(mu, fpr)
        assert bounds.lower <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= bounds.upper
        assert bounds.upper - bounds.lower <= 2e-5 * truth
    assert found.advantage.upper == pytest.approx(2 * ndtr(mu / 2) - 1, rel=1e-4)
    assert found.gdp == (pytest.approx(mu, rel=1e-12), 0.0)


@pytest.mark.parametrize(
    ("sampling", "adjacency", "mu"),
    [("fixed-order", "zero-out", 1.0), ("shuffled", "zero-out", 1.0), ("fixed-order", "replace-one", 2.0)],
)
def test_without_sampling_each_example_is_met_once_per_epoch(sampling: str, adjacency: str, mu: float) -> None:
    found = risk(epoch_phases([2.0] * 4, 0.01), sampling=sampling, adjacency=adjacency)
    assert found.gdp.mu == pytest.approx(mu)
    assert found.tpr(0.01).upper == pytest.approx(gaussian_tpr(mu, 0.01), rel=1e-4)


def test_mu_and_regret_are_the_published_ones() -> None:
    """The example of gdpnum, the software of Gomez et al. (2025), arXiv:2503.10945."""
    mu, regret = risk([(9.4, 0.328, 2000)]).gdp
    assert mu == pytest.approx(1.56856, rel=1e-4)
    assert regret == pytest.approx(0.00102, abs=5e-6)


def test_mu_and_regret_of_a_curve_are_the_least_that_do() -> None:
    found = risk(LEDGER)
    mu, regret = found.gdp
    fprs = np.geomspace(1e-10, 0.5, 500)
    misses, gaussian = 1 - found.upper.tpr(fprs), ndtr(-ndtri(fprs) - mu)
    assert (misses >= gaussian - 1e-12).all()
    assert (misses < ndtr(-ndtri(fprs) - 0.999 * mu)).any()

    def below(shift: float) -> bool:
        return bool((1 - found.upper.tpr(fprs + shift) - shift <= gaussian + 1e-7).all())

    assert below(regret + 1e-6)
    assert not below(0.98 * regret)


# --- properties -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_the_profile_agrees_with_delta_under_every_assumption(sampling: str, adjacency: str, accountant: str) -> None:
    named = {"sampling": sampling, "adjacency": adjacency, "accountant": accountant}
    if adjacency not in SAMPLINGS[sampling].adjacencies:
        with pytest.raises(InputError, match="no price"):
            risk(LINE, **named)
        return
    found = risk(LINE, **named)
    for at in (0.1, 0.7, 1.5):
        bounds, truth = found.delta(at), delta(LINE, at, **named)
        assert bounds.lower <= truth.upper
        assert truth.lower <= bounds.upper
        assert bounds.upper == pytest.approx(truth.upper, rel=0.02, abs=1e-12)


def test_zero_out_is_the_risk_of_add_remove_under_sampling() -> None:
    assert risk(LINE, adjacency="zero-out").tpr(0.001) == risk(LINE).tpr(0.001)


def test_more_noise_never_tells_more_and_more_steps_never_less() -> None:
    first, quieter, longer = (risk(ledger) for ledger in (LEDGER, [(1.3, 0.01, 2000)], [(1.1, 0.01, 3000)]))
    for fpr in FPRS[:-1]:
        assert quieter.tpr(fpr).upper < first.tpr(fpr).upper < longer.tpr(fpr).upper
    assert quieter.advantage.upper < first.advantage.lower < longer.advantage.lower
    assert quieter.gdp.mu < first.gdp.mu < longer.gdp.mu


def test_success_is_what_the_prior_says_and_a_share_of_what_it_leaves_open() -> None:
    found = risk(LEDGER)
    assert found.success(0.5).upper == pytest.approx((1 + found.advantage.upper) / 2)
    assert found.success(0.9).upper == pytest.approx(0.9 + 0.1 * found.delta(math.log(9)).upper)
    assert found.success(0.1) == pytest.approx(found.success(0.9))
    assert found.success(0.0) == found.success(1.0) == (1.0, 1.0)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("rate", [1.0, 0.01])
def test_a_step_without_noise_tells_everything_about_those_who_are_in_it(rate: float, accountant: str) -> None:
    found = risk([(1.0, rate, 10), (0.0, rate, 100)], accountant=accountant)
    least, most = 1 - (1 - rate) ** 100 if accountant == "pld" else 0.0, 1 - (1 - rate) ** 110
    assert found.tpr(0.0) == (pytest.approx(least), pytest.approx(most))
    assert found.advantage == (pytest.approx(least), pytest.approx(most))
    assert found.gdp.mu == math.inf


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("sigma", [0.05, 1e-3, 1e-9])
def test_an_example_that_is_in_no_batch_is_safe_at_any_noise(accountant: str, adjacency: str, sigma: float) -> None:
    found = risk([(1.0, 0.02, 10), (sigma, 0.01, 50)], accountant=accountant, adjacency=adjacency)
    exposed, used = 1 - 0.99**50, 1 - 0.99**50 * 0.98**10
    assert exposed * (1 - 1e-9) <= found.advantage.upper <= used * (1 + 1e-9)
    assert found.tpr(0.001).upper <= (used + 0.001) * (1 + 1e-9)
    assert found.gdp.mu < math.inf


@pytest.mark.parametrize(
    "ledger",
    [
        [(1e-3, 0.5, 10)],
        [(0.02, 1e-6, 10**6)],
        [(1e-120, 1.0, 1)],
        [(1e-90, 0.5, 1)],
        [(1e9, 0.01, 100)],
        [(1e7, 1e-9, 10**7)],
        [(50.0, 0.999999, 1)],
    ],
)
@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
def test_extreme_ledgers_have_ordered_bounds_and_no_nan(ledger: list[tuple[float, float, int]], adjacency: str) -> None:
    found = risk(ledger, adjacency=adjacency)
    for fpr in (0.0, 1e-300, *FPRS):
        assert fpr <= found.tpr(fpr).lower <= found.tpr(fpr).upper <= 1
    for at in (0.0, 1e-9, 1.0, 700.0, 1e6):
        assert 0 <= found.delta(at).lower <= found.delta(at).upper <= 1
    assert found.gdp.mu >= 0
    assert found.gdp.regret >= 0


def test_beyond_the_largest_number_delta_still_falls() -> None:
    """P and Q are told apart by a loss of 800: at epsilon 2,000 nothing is left of delta."""
    found = risk([(0.025, 1.0, 1)])
    assert found.delta(650.0).lower > 0.99
    assert found.delta(2000.0).lower == 0.0


def test_where_there_is_no_band_the_rdp_bound_answers_and_says_so(monkeypatch) -> None:
    truth = risk(LEDGER)

    def refuse(*_: object) -> None:
        raise Contradiction("its lower and upper bounds contradict each other")

    monkeypatch.setattr(risk_module, "loss_curves", refuse)
    found = risk(LEDGER)
    assert found.fallback == "RDP upper bound, because its lower and upper bounds contradict each other"
    for fpr in (1e-4, 0.01, 0.3):
        assert found.tpr(fpr).lower == fpr
        assert truth.tpr(fpr).lower < found.tpr(fpr).upper < min(1.0, 20 * truth.tpr(fpr).upper)


def test_bounds_that_contradict_each_other_are_not_shown(monkeypatch) -> None:
    real = curves.loss_curves
    monkeypatch.setattr(risk_module, "loss_curves", lambda *a: _with_better_attacks(real(*a)))
    assert "contradict" in str(risk(LEDGER).fallback)


def _with_better_attacks(found: curves.LossCurves) -> curves.LossCurves:
    return curves.LossCurves(found.epsilons, found.deltas, found.fprs, np.minimum(1.01 * found.tprs, 1.0))


def test_every_direction_is_asked(monkeypatch) -> None:
    asked, real = [], curves.composed
    monkeypatch.setattr(curves, "composed", lambda *a: asked.append((a[0], a[1].name)) or real(*a))
    risk([(1.234, 0.01, 100)])
    assert set(asked) == {("upper", "remove"), ("upper", "add"), ("lower", "remove")}


def test_what_the_window_leaves_open_is_on_the_safe_side() -> None:
    """On a window that is far too narrow the bounds are far apart, not wrong."""
    ledger, truth = curves.merged(curves.Ledger(LEDGER)), risk(LEDGER)
    grid = curves.good_grid(ledger, "add-remove")
    for points in (grid.points // 4, grid.points // 8):
        narrow = curves.Grid(grid.interval, points, grid.tilt, grid.tilt_up, grid.tilt_down, grid.cut)
        upper, lower = (curves.composed(b, curves.DIRECTIONS["add-remove"][0], narrow, ledger.phases) for b in BOTH)
        above, below = from_guarantees(*curves._guarantees(upper)), from_attacks(*curves._attacks(lower))
        for fpr in FPRS:
            assert below.tpr(fpr) <= truth.tpr(fpr).upper
            assert truth.tpr(fpr).lower <= above.tpr(fpr) * (1 + 1e-9)


def test_guarantees_and_attacks_of_one_curve_are_each_others_inverse() -> None:
    epsilons = np.linspace(0.0, 8.0, 4000)
    deltas = np.array([delta([(1.0, 1.0, 1)], at).upper for at in epsilons])
    curve = from_guarantees(epsilons, deltas)
    again = from_attacks(curve.fprs, curve.tprs)
    for at in (0.0, 0.5, 3.0):
        assert curve.delta(at) == pytest.approx(delta([(1.0, 1.0, 1)], at).upper, rel=1e-5)
        assert again.delta(at) == pytest.approx(curve.delta(at), rel=1e-9)
    mirrored = TradeOff(1 - curve.tprs[::-1], 1 - curve.fprs[::-1])
    assert mirrored.tpr(0.2) == pytest.approx(curve.tpr(0.2))


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_a_rate_that_is_none_is_refused(rate: float) -> None:
    found = risk(LEDGER)
    for question in (found.tpr, found.success, found.reconstruction):
        with pytest.raises(InputError, match="probability"):
            question(rate)
    with pytest.raises(InputError, match="epsilon must be"):
        found.delta(math.nan)


@pytest.mark.parametrize(
    ("sigmas", "rate"),
    [(np.linspace(5.0, 1.0, 20), 0.01), (np.linspace(2.0, 0.7, 20), 0.001), (np.repeat([4.0, 2.0, 1.0], 10), 0.02)],
)
def test_one_more_pass_costs_about_what_a_band_costs(sigmas: np.ndarray, rate: float) -> None:
    """After a moved epoch, at most four bands of the same rows, in processor time, the best of five ratios.

    Measured: 1.2 to 1.6 of a band; 2.6 for few distinct steps, whose grid is finer. The rest is for a busy machine.
    """

    def timed(work: object) -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    def moved(factor: float) -> tuple[float, float]:
        phases = epoch_phases(np.append(sigmas[:-1], factor * sigmas[-1]), rate)
        return timed(lambda: epsilon(phases, 1e-5)), timed(lambda: risk(phases))

    moved(1.0)
    ratios = [risks / bands for bands, risks in map(moved, (1.01, 1.02, 1.03, 1.04, 1.05))]
    assert min(ratios) < 4


def test_the_hull_of_a_profile_is_convex_and_nowhere_above_it() -> None:
    rng = np.random.default_rng(3)
    for size in (1, 2, 3, 50, 500):
        x, y = np.sort(rng.uniform(size=size)), rng.uniform(size=size)
        corners, heights = _convex(x, y)
        assert (np.interp(x, corners, heights) <= y + 1e-12).all()
        assert set(zip(corners, heights, strict=True)) <= set(zip(x, y, strict=True))
        assert (np.diff(np.diff(heights) / np.diff(corners)) > -1e-9).all()


# --- calibration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("advantage", [0.05, 0.3])
def test_a_constant_calibrated_to_an_advantage_is_riskcals(advantage: float) -> None:
    theirs = find_noise_multiplier_for_advantage(
        advantage, 0.01, 500, grid_step=1e-3, advantage_tol=1e-5, noise_min=0.5, noise_max=5.0
    )
    found = calibrate([1.0], 0.01, Target(advantage, "advantage"), 1e-5, steps=500)
    assert found.sigmas[0] == pytest.approx(theirs, rel=5e-3)


@pytest.mark.parametrize(("fpr", "tpr"), [(0.001, 0.01), (0.05, 0.2)])
def test_a_constant_calibrated_to_error_rates_is_riskcals(fpr: float, tpr: float) -> None:
    theirs = find_noise_multiplier_for_err_rates(
        fpr, 1 - tpr, 0.01, 500, grid_step=1e-3, beta_tol=1e-5, noise_min=0.5, noise_max=5.0
    )
    found = calibrate([1.0], 0.01, Target(tpr, "tpr", fpr), 1e-5, steps=500)
    assert found.sigmas[0] == pytest.approx(theirs, rel=5e-3)


@pytest.mark.parametrize(
    ("value", "measure", "reached"), [(0.7, "advantage", 0.6339), (0.7, "tpr", 0.6349), (7.0, "mu", 6.703)]
)
@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_a_target_above_what_hardly_any_noise_reaches_is_refused(
    value: float, measure: str, reached: float, accountant: str
) -> None:
    """One epoch of batches of 1 %: an example is in any of them with chance 0.63397."""
    words = rf"meets the target {value:g}: with hardly any noise it comes to {reached}; choose a smaller one"
    with pytest.raises(InputError, match=words):
        calibrate([1.0], 0.01, Target(value, measure), 1e-5, accountant=accountant)
    met = calibrate([1.0], 0.01, Target(reached, measure), 1e-5, accountant=accountant)
    assert 0.999 * reached <= met.achieved <= reached


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1.0, "advantage"), "target advantage must be above 0 and below 1, got 1.0"),
        ((0.001, "tpr", 0.001), "target tpr must be above 0.001 and below 1, got 0.001"),
        ((math.nan, "mu"), "target mu must be a finite number > 0, got nan"),
        ((1.0, "beta"), "unknown measure 'beta'; choose one of epsilon, advantage, tpr, mu"),
        ((0.5, "tpr", math.nan), "fpr is a probability"),
    ],
)
def test_a_target_that_cannot_be_met_is_refused(arguments: tuple, words: str) -> None:
    with pytest.raises(InputError, match=words):
        Target(*arguments)
