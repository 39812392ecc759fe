"""delta at an epsilon: the inverse of epsilon at a delta, and what others find."""

import math
import time

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from dpviz.privacy import (
    ACCOUNTANTS,
    ADJACENCIES,
    Delta,
    Epsilon,
    InputError,
    Ledger,
    Phase,
    delta,
    epsilon,
    epsilon_path,
)
from dpviz.privacy.gaussian import log_delta

MIXED = Ledger([Phase(1.0, 0.1, 10), Phase(2.0, 1.0, 1)])  # a full batch among sampled ones
LEDGERS = [
    (Ledger([Phase(1.0, 0.01, 2000)]), 1e-5),
    (Ledger([Phase(2.0, 0.02, 3000), Phase(1.0, 0.02, 10)]), 1e-7),
    (Ledger([Phase(0.8, 0.3, 20)]), 0.3),
    (Ledger([Phase(4.0, 0.00033, 10_000)]), 1e-15),
    (MIXED, 1e-5),
]
NEIGHBORS = {
    "add-remove": dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace-one": dp_accounting.NeighboringRelation.REPLACE_ONE,
}


def dp_accounting_pld(ledger: Ledger, adjacency: str) -> PLDAccountant:
    accountant = PLDAccountant(NEIGHBORS[adjacency], value_discretization_interval=1e-4)
    for phase in ledger.phases:
        event = dp_accounting.GaussianDpEvent(phase.noise_multiplier)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(phase.sample_rate, event), phase.steps)
    return accountant


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(("ledger", "at"), LEDGERS)
def test_delta_inverts_epsilon(ledger: Ledger, at: float, adjacency: str) -> None:
    found = epsilon(ledger, at, adjacency=adjacency)
    above, below = (delta(ledger, end, adjacency=adjacency) for end in (found.upper, found.lower))
    assert above.fallback is below.fallback is None
    assert above.lower <= at  # the true delta there is at most this one
    assert below.upper >= at
    # One percent of epsilon may be a third of delta.
    assert 0.6 * at <= above.lower <= above.upper <= 1.01 * at
    assert 0.99 * at <= below.lower <= below.upper <= 1.5 * at


@pytest.mark.parametrize("accountant", ["rdp", "rdp-classic"])
@pytest.mark.parametrize("sampling", ["poisson", "fixed-order"])
def test_the_bound_from_moments_inverts_its_conversion(accountant: str, sampling: str) -> None:
    ledger = Ledger([Phase(3.0, 0.05, 100)])
    bound = epsilon(ledger, 1e-6, accountant=accountant, sampling=sampling).upper
    found = delta(ledger, bound, accountant=accountant, sampling=sampling)
    assert found.lower == 0
    assert found.upper == pytest.approx(1e-6, rel=1e-9)


@pytest.mark.parametrize("adjacency", NEIGHBORS)
@pytest.mark.parametrize("at", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("ledger", [Ledger([Phase(1.0, 0.01, 500)]), MIXED])
def test_the_band_of_delta_holds_dp_accountings(ledger: Ledger, at: float, adjacency: str) -> None:
    theirs = dp_accounting_pld(ledger, adjacency).get_delta(at)
    found = delta(ledger, at, adjacency=adjacency)
    assert found.lower <= theirs <= found.upper * (1 + 1e-3)
    assert found.upper - found.lower <= 0.1 * found.upper


# Contour integration of e^(K(z) - z eps) / (z (z + 1)), quadrature refined until ten digits stood still.
@pytest.mark.parametrize(("phase", "at", "true"), [(Phase(1.0, 0.999, 3), 11.453996730968, 1e-9)])
def test_the_band_of_delta_holds_the_contour_integral(phase: Phase, at: float, true: float) -> None:
    found = delta(Ledger([phase]), at)
    assert found.lower <= true * (1 + 1e-9)
    assert found.upper >= true * (1 - 1e-9)
    assert found.upper - found.lower <= 0.1 * true


@pytest.mark.parametrize("at", [0.0, 1.0, 8.0])
def test_full_batches_have_the_closed_form(at: float) -> None:
    found = delta(Ledger([Phase(2.0, 1.0, 9)]), at)
    assert found.lower == found.upper == pytest.approx(math.exp(log_delta(at, 1.5)))


def test_a_step_without_noise_gives_away_whoever_is_in_it() -> None:
    found = delta(Ledger([Phase(0.0, 0.1, 2), Phase(1.0, 0.1, 50)]), 1.0)
    assert (found.lower, found.upper) == (pytest.approx(0.19), 1.0)


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
@pytest.mark.parametrize("at", [-0.1, math.nan, math.inf])
def test_an_impossible_epsilon_is_refused(at: float, accountant: str) -> None:
    with pytest.raises(InputError, match="epsilon must be a finite number >= 0"):
        delta(MIXED, at, accountant=accountant)


def test_a_band_of_delta_is_in_order() -> None:
    with pytest.raises(ValueError, match="0 <= lower <= upper <= 1"):
        Delta(0.2, 0.1, 1.0, "pld")


@pytest.mark.parametrize("adjacency", NEIGHBORS)
def test_a_full_batch_among_sampled_ones_is_priced(adjacency: str) -> None:
    theirs = dp_accounting_pld(MIXED, adjacency).get_epsilon(1e-5)
    found = epsilon(MIXED, 1e-5, adjacency=adjacency)
    assert found.lower <= theirs <= found.upper * (1 + 1e-4)
    assert found.upper - found.lower <= 0.01 * found.upper


def test_a_tiny_delta_gets_a_narrow_band() -> None:
    found = epsilon(Ledger([Phase(4.0, 0.00033, 10_000)]), 1e-15)
    assert found.fallback is None
    assert not found.wide
    assert found.upper - found.lower <= 0.02 * found.upper


def test_a_delta_below_all_precision_is_priced_by_moments() -> None:
    found = epsilon(Ledger([Phase(1.0, 0.01, 100)]), 1e-300)
    assert found.upper < math.inf
    assert "too small" in str(found.fallback)


def test_a_path_without_a_band_takes_no_time() -> None:
    phases = [Phase(float(sigma), 1e-5, 100_000) for sigma in np.geomspace(0.05, 1000, 100)]
    start = time.process_time()
    path = epsilon_path(phases, 1e-9)
    assert time.process_time() - start < 5  # a minute when each prefix was tried anew
    assert all(str(point.fallback).startswith("RDP upper bound, because") for point in path)
    for k in (0, 40, 99):
        bound = epsilon(Ledger(phases[: k + 1]), 1e-9, accountant="rdp").upper
        assert path[k].upper == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize(
    ("lower", "upper", "wide"), [(1.0, 1.02, False), (1.0, 1.04, True), (0.01, 0.014, False), (0.0, 3.0, False)]
)
def test_a_wide_band_says_so(lower: float, upper: float, wide: bool) -> None:
    assert Epsilon(lower, upper, 1e-5, "pld").wide is wide


def test_losses_too_far_apart_for_a_grid_leave_the_bound_from_moments() -> None:
    found = delta([(1e-3, 0.5, 20)], 1.3)
    assert (found.lower, found.upper) == (0.0, delta([(1e-3, 0.5, 20)], 1.3, accountant="rdp").upper)
    assert found.fallback is not None
    assert "a noise multiplier below 0.05 leaves losses too far apart" in found.fallback
