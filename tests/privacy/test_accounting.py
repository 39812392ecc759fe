"""Golden numbers, properties that hold for any ledger, and the promises of calibration."""

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ndtr

from dpviz.privacy import (
    ACCOUNTANTS,
    ADJACENCIES,
    SAMPLINGS,
    Epsilon,
    InputError,
    Ledger,
    Phase,
    Schedule,
    adjacency_of,
    calibrate,
    epoch_phases,
    epsilon,
    epsilon_path,
    matching_constant,
    most_epochs,
    price_tags,
    steps_per_epoch,
)
from dpviz.privacy.calibrate import _meet
from dpviz.privacy.gaussian import composed_mu, gaussian_epsilon, log_delta
from dpviz.privacy.pld.bands import band, bound_curve
from dpviz.privacy.pld.composition import Composed, epsilon_at
from dpviz.privacy.pld.dominating_pairs import REMOVE
from dpviz.privacy.pld.grids import Shape, usual_moments

DELTA = 1e-5


def curve(name: str, **knobs: float) -> Ledger:
    return Ledger(epoch_phases(Schedule.of(name, **knobs).sigmas(20), 0.01))


# (schedule, RDP improved, RDP classic, PLD at interval 1e-4): Opacus 1.6.0 and dp_accounting 0.6.0,
# N = 60,000, batch 600, 20 epochs, delta = 1e-5. The improved column is the epsilon of An & Shi (2021), Table 2.
GOLDEN = [
    (curve("exponential", start=5, end=1), 2.6130, 3.0714, 2.3444),
    (curve("exponential", start=1, end=5), 2.6130, 3.0714, 2.3444),
    (curve("piecewise", start=5, end=1), 1.6398, 2.0557, 1.3116),
    (curve("linear", start=5, end=1), 1.3994, 1.7988, 1.0038),
    (curve("quadratic", start=5, end=1), 1.3213, 1.7203, 0.8800),
    (curve("quadratic", start=1, end=5), 1.6949, 2.1019, None),
    (curve("logarithmic", start=1, end=5), 1.2859, 1.6844, None),
    (curve("constant", sigma=1), 2.8665, 3.3430, 2.5839),
    (curve("constant", sigma=1.54), 1.3982, 1.6799, 1.2745),
    (curve("constant", sigma=5), 0.3395, 0.4423, 0.3075),
]


@pytest.mark.parametrize(("ledger", "improved", "classic", "tight"), GOLDEN)
def test_golden_numbers(ledger: Ledger, improved: float, classic: float, tight: float | None) -> None:
    assert epsilon(ledger, DELTA, accountant="rdp").upper == pytest.approx(improved, abs=5e-4)
    assert epsilon(ledger, DELTA, accountant="rdp-classic").upper == pytest.approx(classic, abs=5e-4)
    found = epsilon(ledger, DELTA)
    assert found.fallback is None
    assert found.upper - found.lower <= max(0.01 * found.upper, 0.005)
    if tight is not None:
        assert found.lower <= tight + 1e-4
        assert tight - 1e-4 <= found.upper


# An & Shi's equal budgets are equal under RDP only; the tight matches say how much a decreasing schedule gains.
@pytest.mark.parametrize(
    ("name", "rdp", "pld"),
    [("exponential", 1.047, 1.052), ("piecewise", 1.381, 1.509), ("linear", 1.539, 1.837), ("quadratic", 1.604, 2.036)],
)
def test_matching_constants(name: str, rdp: float, pld: float) -> None:
    sigmas = Schedule.of(name).sigmas(20)
    assert matching_constant(sigmas, 0.01, DELTA, accountant="rdp").sigmas[0] == pytest.approx(rdp, abs=2e-3)
    assert matching_constant(sigmas, 0.01, DELTA).sigmas[0] == pytest.approx(pld, abs=4e-3)


def test_without_amplification_the_closed_form_holds() -> None:
    assert epsilon(curve("constant", sigma=1), DELTA, sampling="fixed-order").upper == pytest.approx(28.37, abs=0.01)
    assert epsilon(curve("constant", sigma=5), DELTA, sampling="fixed-order").upper == pytest.approx(3.85, abs=0.01)
    assert epsilon(curve("linear"), DELTA, sampling="shuffled").upper == pytest.approx(10.54, abs=0.01)
    full_batch = epsilon(Ledger([Phase(2.0, 1.0, 9)]), DELTA)
    assert full_batch.upper == full_batch.lower == pytest.approx(gaussian_epsilon(1.5, DELTA))


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 4.472, 30.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-12])
def test_the_gaussian_solver_inverts_its_delta(mu: float, delta: float) -> None:
    found = gaussian_epsilon(mu, delta)
    assert found == 0 or log_delta(found, mu) == pytest.approx(math.log(delta), rel=1e-9)
    assert log_delta(found, mu) <= math.log(delta), "rounding too is on the safe side"


def test_replace_one_doubles_the_gaussian_shift() -> None:
    assert composed_mu([(2.0, 4)], "replace-one") == 2 * composed_mu([(2.0, 4)]) == 2.0


COMBINATIONS = [(name, adjacency) for name, entry in SAMPLINGS.items() for adjacency in entry.adjacencies]


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize(("sampling", "adjacency"), COMBINATIONS)
def test_every_combination_prices_a_curve_and_its_path(accountant: str, adjacency: str, sampling: str) -> None:
    options = {"accountant": accountant, "adjacency": adjacency, "sampling": sampling}
    phases = epoch_phases(Schedule.of("linear", start=4, end=1).sigmas(6), 0.02)
    path = epsilon_path(phases, DELTA, **options)
    uppers = [point.upper for point in path]
    assert len(path) == 6
    assert uppers == sorted(uppers)
    assert path[-1] == epsilon(Ledger(phases), DELTA, **options)
    shares = price_tags(phases, DELTA, adjacency=adjacency, sampling=sampling)
    assert shares.sum() == pytest.approx(1)
    assert np.all(np.diff(shares) > 0), "less noise costs more"


def test_an_adjacency_that_is_not_given_is_the_one_that_the_price_holds_for() -> None:
    assert [adjacency_of(name) for name in SAMPLINGS] == ["add-remove", "zero-out", "zero-out"]
    for sampling in ("fixed-order", "shuffled"):
        for ask in (epsilon, lambda ledger, delta, **names: price_tags(ledger.phases, delta, **names)):
            with pytest.raises(InputError, match="would shift all later batches; choose zero-out or replace-one"):
                ask(curve("linear"), DELTA, adjacency="add-remove", sampling=sampling)


def test_zero_out_is_priced_as_add_remove_also_around_an_epoch_without_noise() -> None:
    phases = epoch_phases([2, 0, 2], 0.01)
    zeroed = epsilon_path(phases, DELTA, sampling="fixed-order", adjacency="zero-out")
    assert [point.upper for point in zeroed] == [pytest.approx(gaussian_epsilon(0.5, DELTA)), math.inf, math.inf]
    assert epsilon_path(phases, DELTA, adjacency="zero-out") == epsilon_path(phases, DELTA)


@pytest.mark.parametrize(
    "given",
    [
        [Phase(2.0, 0.01, 100), Phase(1.0, 0.01, 50)],
        [(2.0, 0.01, 100), (1.0, 0.01, 50)],
        [[2.0, 0.01, 100], Phase(1.0, 0.01, 50)],
        np.array([[2.0, 0.01, 100], [1.0, 0.01, 50]]),
        Ledger([Phase(2.0, 0.01, 100), Phase(1.0, 0.01, 50)]),
    ],
)
def test_a_plain_list_is_as_good_as_a_ledger(given) -> None:
    phases = (Phase(2.0, 0.01, 100), Phase(1.0, 0.01, 50))
    assert Ledger(given) == Ledger(phases)
    assert epsilon(given, DELTA) == epsilon(Ledger(phases), DELTA)
    assert epsilon_path(given, DELTA) == epsilon_path(phases, DELTA)
    assert price_tags(given, DELTA).tolist() == price_tags(phases, DELTA).tolist()


@pytest.mark.parametrize("given", [3, None, "abc", [1, 2, 3], [(1.0, 0.1)], [("a", 0.1, 1)], [(1.0, None, 1)]])
@pytest.mark.parametrize("ask", [epsilon, epsilon_path, price_tags])
def test_what_is_no_ledger_is_refused_with_an_example(ask, given) -> None:
    with pytest.raises(InputError, match=r"for example \[\(1.1, 0.01, 2000\)\], got"):
        ask(given, DELTA)


@pytest.mark.parametrize("ask", [epsilon, epsilon_path, price_tags])
def test_an_empty_list_is_no_ledger(ask) -> None:
    with pytest.raises(InputError, match="at least one phase"):
        ask([], DELTA)


def test_an_epoch_rounded_up_is_a_step_longer_only_where_something_is_left_over() -> None:
    assert [steps_per_epoch(256 / 60_000, rounding) for rounding in ("round", "ceil")] == [234, 235]
    for batches in range(1, 3000):  # 1 / (1 / 49) is a hair above 49
        assert steps_per_epoch(1 / batches, "ceil") == steps_per_epoch(1 / batches) == batches


def test_steps_are_refused_where_only_epochs_count() -> None:
    """Gaussian composition counts visits, one per epoch: fewer steps per epoch must not look like fewer visits."""
    for solve in (
        lambda: calibrate([1.0], 0.01, 1.0, DELTA, sampling="fixed-order", steps=50),
        lambda: matching_constant([1.0], 0.01, DELTA, sampling="shuffled", steps=50),
        lambda: most_epochs(Schedule.of("constant"), 0.01, 9.0, DELTA, sampling="shuffled", steps=50),
    ):
        with pytest.raises(InputError, match="met once per epoch"):
            solve()


SIGMAS = st.lists(st.floats(0.5, 20.0), min_size=1, max_size=6)
RATES = st.sampled_from([0.002, 0.01, 0.1, 0.7])
DELTAS = st.sampled_from([1e-3, 1e-5, 1e-8, 1e-11])


@settings(max_examples=30)
@given(SIGMAS, RATES, DELTAS)
def test_order_and_splitting_do_not_matter(sigmas: list[float], rate: float, delta: float) -> None:
    phases = [Phase(sigma, rate, 10) for sigma in sigmas]
    halves = [Phase(sigma, rate, 5) for sigma in sigmas for _ in (0, 1)]
    found = epsilon(Ledger(phases), delta).upper
    assert epsilon(Ledger(phases[::-1]), delta).upper == pytest.approx(found, rel=1e-6, abs=1e-9)
    assert epsilon(Ledger(halves), delta).upper == pytest.approx(found, rel=1e-6, abs=1e-9)


@settings(max_examples=30)
@given(SIGMAS, RATES, DELTAS)
def test_more_noise_costs_less(sigmas: list[float], rate: float, delta: float) -> None:
    """A fifth more noise saves more than the bands are wide, unless nothing is spent at all."""
    found = epsilon(Ledger([Phase(sigma, rate, 20) for sigma in sigmas]), delta)
    noisier = epsilon(Ledger([Phase(1.2 * sigma, rate, 20) for sigma in sigmas]), delta)
    assert noisier.upper < found.lower or noisier.upper == found.upper == 0


@settings(max_examples=30)
@given(SIGMAS, RATES, DELTAS)
def test_the_band_itself_lies_under_rdp(sigmas: list[float], rate: float, delta: float) -> None:
    ledger = Ledger([Phase(sigma, rate, 20) for sigma in sigmas])
    _, upper = band(ledger, delta)
    assert upper <= epsilon(ledger, delta, accountant="rdp").upper


@settings(max_examples=15)
@given(SIGMAS, RATES, DELTAS, st.floats(0.2, 8.0))
def test_calibration_keeps_its_promise(sigmas: list[float], rate: float, delta: float, target: float) -> None:
    found = calibrate(sigmas, rate, target, delta)
    assert 0.999 * target <= found.epsilon.upper <= target
    assert np.allclose(np.array(found.sigmas), found.factor * np.array(sigmas))
    again = epsilon(Ledger(epoch_phases(found.sigmas, rate)), delta)
    assert again.upper == pytest.approx(found.epsilon.upper, rel=1e-9)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_calibration_works_under_any_accountant(accountant: str, sampling: str) -> None:
    found = calibrate([5, 3, 1], 0.01, 2.0, DELTA, accountant=accountant, sampling=sampling)
    assert 0.999 * 2 <= found.epsilon.upper <= 2


def test_where_the_price_jumps_over_the_target_calibration_stays_on_the_cheap_side() -> None:
    def cost(factor: float) -> Epsilon:
        return Epsilon(0.0, 2.0 if factor < 1.3 else 0.5, DELTA, "pld")

    factor, found = _meet(cost, target=1.0, tolerance=0.001, largest=1e6)
    assert found.upper == cost(factor).upper == 0.5
    assert factor == pytest.approx(1.3, rel=1e-9)


def test_the_most_epochs_fit_and_one_more_does_not() -> None:
    schedule = Schedule.of("constant", sigma=1.1)

    def cost(epochs: int) -> Epsilon:
        return epsilon(epoch_phases(schedule.sigmas(epochs), 0.01), DELTA)

    epochs, found = most_epochs(schedule, 0.01, 3.0, DELTA)
    assert found == cost(epochs)
    assert found.upper <= 3.0 < cost(epochs + 1).upper
    inside = (cost(7).lower + cost(7).upper) / 2  # a band that holds the target is not within it
    assert most_epochs(schedule, 0.01, inside, DELTA)[0] == 6


def test_the_path_of_a_very_long_run_is_a_sound_staircase() -> None:
    phases = epoch_phases([2.0] * 1000, 0.1)
    path = epsilon_path(phases, DELTA)
    assert len(path) == 1000
    assert path[-1] == epsilon(Ledger(phases), DELTA)
    assert all(before.upper <= after.upper for before, after in pairwise(path))
    for k in (3, 77, 500, 800):
        exact = epsilon(Ledger(phases[: k + 1]), DELTA)
        assert path[k].lower <= exact.upper
        assert exact.lower <= path[k].upper <= 1.1 * exact.upper


def test_an_epoch_without_noise_costs_infinity_from_then_on() -> None:
    path = epsilon_path(epoch_phases([2, 0, 2], 0.01), DELTA)
    assert [math.isinf(point.upper) for point in path] == [False, True, True]
    assert list(price_tags(epoch_phases([2, 0, 2], 0.01), DELTA)) == [0, 1, 0]


def one_step_epsilon(sigma: float, q: float, delta: float, adjacency: str) -> float:
    """The exact epsilon of one step: delta(eps) = first(x > x*) - e^eps second(x > x*), where the loss at x* is eps."""

    def mixture(x: float, shift: int) -> float:
        return (1 - q) * float(ndtr(-x / sigma)) + q * float(ndtr(-(x - shift) / sigma))

    def loss(x: float, first: int, second: int) -> float:
        def log(shift: int) -> float:
            return float(np.logaddexp(np.log1p(-q), np.log(q) + (2 * shift * x - 1) / (2 * sigma**2))) if shift else 0.0

        return log(first) - log(second)

    def excess(x: float, first: int, second: int) -> float:
        return mixture(x, first) - math.exp(min(loss(x, first, second), 700)) * mixture(x, second) - delta

    worst = 0.0
    for first, second in {"add-remove": [(1, 0), (0, -1)], "zero-out": [(1, 0), (0, -1)], "replace-one": [(1, -1)]}[
        adjacency
    ]:
        low, high = -12 * sigma - 1, 12 * sigma + 1
        if excess(low, first, second) > 0 > excess(high, first, second):
            worst = max(worst, loss(brentq(excess, low, high, args=(first, second), xtol=1e-13), first, second))
    return worst


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("q", [1e-4, 0.01, 0.3, 0.95])
@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 5.0, 40.0])
def test_the_band_holds_the_exact_epsilon_of_one_step(sigma: float, q: float, delta: float, adjacency: str) -> None:
    exact = one_step_epsilon(sigma, q, delta, adjacency)
    found = epsilon(Ledger([Phase(sigma, q, 1)]), delta, adjacency=adjacency)
    assert found.lower <= exact * (1 + 1e-9) + 1e-12
    assert exact * (1 - 1e-9) - 1e-12 <= found.upper


# Far corners of what is promised, each with its epsilon and where that comes from.
EXTREMES = [
    (Phase(1000.0, 1e-6, 1), 1e-12, 2.7219166822e-9),  # one step: first(x > x*) - e^eps second(x > x*)
    (Phase(0.05, 1e-6, 1), 1e-12, 280.3562756997),  # the same
    (Phase(1000.0, 1e-6, 10_000_000), 1e-3, 0.0),  # delta(0) = 1.3e-6: nothing is spent
    (Phase(1000.0, 1e-6, 10_000_000), 1e-7, 4.637306e-6),  # Gaussian limit, mu^2 = n q^2 (e^(1/sigma^2) - 1)
    (Phase(1000.0, 3e-8, 10_000_000), 1e-11, 3.177452e-7),  # the same
    (Phase(0.05, 0.5, 10_000_000), 1e-3, 9.940555e8),  # central limit: n E[L] + sqrt(n Var[L]) Phi^-1(1 - delta)
    (Phase(1.0, 0.999, 3), 1e-9, 11.4539967310),  # contour integration of the moment-generating function
    (Phase(0.3, 1e-4, 100_000), 1e-6, 27.113966),  # the same
]


@pytest.mark.parametrize(("phase", "delta", "exact"), EXTREMES)
def test_extremes_get_a_narrow_band_around_their_epsilon(phase: Phase, delta: float, exact: float) -> None:
    found = epsilon(Ledger([phase]), delta)
    assert found.fallback is None
    assert found.lower <= exact * (1 + 1e-6)
    assert exact * (1 - 1e-6) <= found.upper
    assert found.upper - found.lower <= 0.03 * found.upper


@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda: Phase(float("nan"), 0.1, 1), "noise_multiplier must be a finite number >= 0, got nan"),
        (lambda: Phase(1.0, 1.5, 1), "at most 1, got 1.5"),
        (lambda: Phase(1.0, 0.1, 0), "steps must be a whole number >= 1"),
        (lambda: Ledger([]), "the schedule is empty"),
        (lambda: Ledger([Phase(1.0, 0.1, 10**8)]), "at most 10,000,000 steps"),
        (lambda: epoch_phases([1, -2], 0.1), "got -2 (epoch 2)"),
        (lambda: epsilon(Ledger([Phase(1.0, 0.1, 1)]), 1.5), "delta must be above 0 and below 1"),
        (lambda: epsilon(Ledger([Phase(1.0, 0.1, 1)]), float("nan")), "delta must be above 0 and below 1"),
        (lambda: epsilon(Ledger([Phase(1.0, 0.1, 1)]), 0.1, accountant="prv"), "unknown accountant 'prv'"),
        (lambda: epsilon(Ledger([Phase(1.0, 0.1, 1)]), 0.1, adjacency="any"), "unknown adjacency 'any'"),
        (lambda: epsilon(Ledger([Phase(1.0, 0.1, 1)]), 0.1, sampling="any"), "unknown sampling 'any'"),
        (lambda: calibrate([1, 0], 0.1, 1.0, 0.1), "costs infinity at any scale"),
        (lambda: calibrate([1], 0.1, float("nan"), 0.1), "target epsilon must be a finite number > 0"),
        (lambda: calibrate([1], 0.1, -1.0, 0.1), "target epsilon must be a finite number > 0, got -1.0"),
    ],
)
def test_what_cannot_be_priced_is_refused_in_one_sentence(work, says: str) -> None:
    with pytest.raises(InputError) as refusal:
        work()
    assert says in str(refusal.value)


def test_rare_large_losses_get_a_narrow_band() -> None:
    """At a tiny sample rate and delta the loss is a few rare jumps: only a steep tilt sees them."""
    found = epsilon(Ledger([Phase(1.467, 4.4e-6, 321_080)]), 2.2e-12)
    assert found.fallback is None
    assert found.upper - found.lower <= 0.03 * found.upper


def test_an_epsilon_below_the_window_is_not_told_apart_from_its_bottom() -> None:
    """Half of the mass lies at the window's bottom: delta falls under 0.3 somewhere at or below it."""
    discounted = np.array([0.5 * math.exp(-1.0), 0.0])
    curve = np.array([0.5, 0.0]) - discounted
    composed = Composed(np.array([1.0, 2.0]), curve, discounted, 0.0, 0.0, 0.0, 0.0, 1.0)
    assert composed.epsilon(0.35) == 1.0
    assert 1.0 < composed.epsilon(0.3) < 2.0


def test_a_window_above_epsilon_gives_no_lower_bound() -> None:
    phases, delta = [Phase(1.007, 1.46e-6, 372_720)], 1.6e-11
    ledger = Ledger(phases)
    usual = Shape.of(ledger, delta, usual_moments(ledger, "add-remove"))
    tilt = 64 * usual.tilt  # far too steep: its window lies elsewhere
    grid = dataclasses.replace(usual, tilt=tilt, tilt_up=2 * tilt).grid(0.1)
    (lower,) = bound_curve("lower", REMOVE, grid, phases, epsilon_at(delta), [0])
    assert lower <= epsilon(ledger, delta).upper


@pytest.mark.parametrize(
    ("rate", "steps", "visits"), [(1 / 234.6, 235 * 20, 20), (1 / 234.6, 234_000, 1000), (0.01, 100, 1), (0.01, 101, 2)]
)
def test_an_example_is_met_as_often_as_the_shortest_epochs_allow(rate: float, steps: int, visits: int) -> None:
    found = epsilon(Ledger([Phase(3.0, rate, steps)]), 1e-5, sampling="fixed-order")
    assert found.upper == pytest.approx(gaussian_epsilon(math.sqrt(visits) / 3.0, 1e-5), rel=1e-9)


@pytest.mark.parametrize("delta", [1e-5, 1e-7, 1e-10])
def test_early_epochs_have_a_lower_end_as_well(delta):
    phases = epoch_phases(np.linspace(5.0, 1.0, 30), 0.01)
    path = epsilon_path(phases, delta)
    assert all(0.97 * point.upper < point.lower <= point.upper for point in path)
    for epochs in (1, 8, 16):
        assert path[epochs - 1].lower <= epsilon(phases[:epochs], delta).upper
