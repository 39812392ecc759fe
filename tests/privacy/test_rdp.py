"""The Renyi accountant equals Opacus, its quadrature the binomial sum, and no noise level is too small or too large."""

import base64
import math
import threading
from contextlib import suppress
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from opacus.accountants.analysis import rdp as opacus_rdp
from scipy.interpolate import PchipInterpolator

from dpviz.privacy import (
    ACCOUNTANTS,
    ADJACENCIES,
    SAMPLINGS,
    InputError,
    Ledger,
    Phase,
    Schedule,
    calibrate,
    epoch_phases,
    epsilon,
    epsilon_path,
    price_tags,
    rdp_table,
)
from dpviz.privacy.accountants import LAST_ORDER
from dpviz.privacy.gaussian import gaussian_epsilon, log_delta
from dpviz.privacy.pld.spectra import Cache
from dpviz.privacy.rdp import (
    ORDERS,
    _binomial,
    _quadrature,
    improved_conversion,
    least_epsilon,
    ledger_rdp,
    log_moments,
    smallest_epsilon,
)


@pytest.mark.parametrize("sample_rate", [1e-6, 1e-3, 0.01, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.7, 1.0, 5.0, 1000.0])
@pytest.mark.filterwarnings("ignore:Optimal order is the")
def test_epsilon_equals_opacus(sample_rate: float, sigma: float) -> None:
    rdp = opacus_rdp.compute_rdp(q=sample_rate, noise_multiplier=sigma, steps=1000, orders=list(ORDERS))
    theirs, order = opacus_rdp.get_privacy_spent(orders=list(ORDERS), rdp=rdp, delta=1e-5)
    ours = epsilon(Ledger([Phase(sigma, sample_rate, 1000)]), 1e-5, accountant="rdp").upper
    assert ours < theirs if order == ORDERS[-1] else ours == pytest.approx(theirs, rel=1e-9)


# Where an order above 63 is the best: by Opacus with every even order up to 1,500.
@pytest.mark.parametrize(
    ("phase", "delta"),
    [
        (Phase(5.0, 0.01, 100), 1e-6),
        (Phase(6.1, 0.001, 1000), 1e-8),
        (Phase(20.0, 0.01, 50), 1e-5),
        (Phase(300.0, 0.5, 100), 1e-9),
        (Phase(40.0, 1.0, 1), 1e-5),
    ],
)
def test_small_epsilons_equal_opacus_with_large_orders(phase: Phase, delta: float) -> None:
    orders = [*ORDERS, *range(64, 1500, 2)]
    rdp = opacus_rdp.compute_rdp(
        q=phase.sample_rate, noise_multiplier=phase.noise_multiplier, steps=phase.steps, orders=orders
    )
    theirs, order = opacus_rdp.get_privacy_spent(orders=orders, rdp=rdp, delta=delta)
    found = epsilon(Ledger([phase]), delta, accountant="rdp")
    assert 63 < order < 1490
    assert found.upper == pytest.approx(theirs, rel=5e-3)
    assert found.fallback is None


def test_a_bound_at_the_largest_order_says_so() -> None:
    tiny = Ledger([Phase(1e6, 0.01, 1)])
    assert epsilon(tiny, 1e-5, accountant="rdp-classic").fallback == LAST_ORDER
    assert epsilon(Ledger([Phase(1e8, 1.0, 1)]), 1e-5, accountant="rdp-classic").fallback == LAST_ORDER
    assert epsilon(tiny, 1e-5, accountant="rdp").upper == 0
    assert epsilon(tiny, 1e-5, accountant="rdp").fallback is None


def test_epsilon_falls_up_to_its_best_order_and_rises_after_it() -> None:
    """What lets the search stop: no second valley among larger orders."""
    every = np.concatenate([ORDERS, np.geomspace(64, 20_000, 150)])
    for sigma, q in ((0.8, 0.01), (2.0, 1e-4), (9.0, 0.001), (50.0, 0.3)):

        def rdp(orders: np.ndarray, sigma: float = sigma, q: float = q) -> np.ndarray:
            return 100 * log_moments(orders, np.array([sigma]), q)[0] / (orders - 1)

        epsilons = improved_conversion(rdp(every), every, 1e-6)
        epsilons = epsilons[np.isfinite(epsilons)]
        falls = np.diff(epsilons) < 0
        assert not np.any(falls[1:] & ~falls[:-1]), "it never falls again"
        found, order = least_epsilon(rdp, 1e-6)
        assert found <= epsilons.min() * (1 + 2e-3)
        assert order == pytest.approx(every[int(np.argmin(epsilons))], rel=0.1)


@pytest.mark.parametrize("sample_rate", [1e-5, 0.01, 0.4])
def test_quadrature_equals_the_binomial_sum_at_whole_orders(sample_rate: float) -> None:
    orders, sigmas = np.arange(2.0, 12.0), np.array([0.08, 0.4, 1.0, 3.0, 50.0])
    np.testing.assert_allclose(
        _quadrature(orders, sigmas, sample_rate, "add-remove"),
        _binomial(orders, sigmas, sample_rate, "add-remove"),
        rtol=2e-8,
    )


@pytest.mark.parametrize("order", [64, 300, 2000])
def test_quadrature_equals_the_binomial_sum_at_large_orders(order: int) -> None:
    rng = np.random.default_rng(order)
    finite = 0
    for _ in range(40):
        q, sigma = float(np.exp(rng.uniform(np.log(1e-12), 0))), np.exp(rng.uniform(0, np.log(1e5), 1))
        large = log_moments(np.array([float(order)]), sigma, q)[0, 0]
        if math.isfinite(large):
            exact = _binomial(np.array([float(order)]), sigma, q, "add-remove")[0, 0]
            assert large == pytest.approx(exact, rel=1e-9)
            finite += 1
    assert finite > 20


@pytest.mark.parametrize("sigma", [1.0, 7.0, 300.0])
def test_replace_one_at_nearly_full_batches_nears_the_closed_form(sigma: float) -> None:
    """As q -> 1: the moments of two Gaussians 2 apart, 4 a (a - 1) / (2 sigma^2)."""
    orders = np.array([1.1, 2.0, 4.0])
    closed = 2 * orders * (orders - 1) / sigma**2
    np.testing.assert_allclose(log_moments(orders, np.array([sigma]), 1.0, "replace-one")[0], closed)
    for rest in (1e-6, 1e-9, 1e-12):
        nearly = log_moments(orders, np.array([sigma]), 1 - rest, "replace-one")[0]
        np.testing.assert_allclose(nearly, closed, rtol=1e3 * rest + 1e-11)
    # The outcomes that count are around x = 2 a - 1, far beyond a.
    assert log_moments(np.array([63.0]), np.array([3.0]), 1 - 1e-13, "replace-one")[0, 0] == pytest.approx(
        4 * 63 * 62 / (2 * 3.0**2), rel=1e-7
    )


@pytest.mark.parametrize(
    ("order", "sigma", "q"),
    [
        (1.5, 1.0, 0.5),
        (3.0, 0.5, 0.9),
        (63.0, 30.0, 0.99),
        (500.0, 300.0, 0.7),
        (200.0, 50.0, 1e-3),
        (1.1, 0.1, 0.5),  # at little noise a part of its own lies around x = -1
    ],
)
def test_replace_one_equals_a_high_precision_integral(order: float, sigma: float, q: float) -> None:
    with mpmath.workdps(40):
        a, s, rate = mpmath.mpf(order), mpmath.mpf(sigma), mpmath.mpf(q)

        def mixture(x: mpmath.mpf, shift: int) -> mpmath.mpf:
            return 1 - rate + rate * mpmath.exp((2 * shift * x - 1) / (2 * s * s))

        def integrand(x: mpmath.mpf) -> mpmath.mpf:
            return mpmath.npdf(x, 0, s) * mixture(x, 1) ** a * mixture(x, -1) ** (1 - a)

        exact = mpmath.log(mpmath.quad(integrand, mpmath.linspace(-20 * s - 1, 2 * a + 20 * s, 41)))
    assert log_moments(np.array([order]), np.array([sigma]), q, "replace-one")[0, 0] == pytest.approx(
        float(exact), rel=1e-10
    )


def test_replace_one_is_between_add_remove_and_its_double_shift() -> None:
    orders, sigmas = ORDERS[::10], np.array([0.7, 1.0, 4.0])
    one = log_moments(orders, sigmas, 0.05)
    replaced = log_moments(orders, sigmas, 0.05, "replace-one")
    unsampled = log_moments(orders, sigmas, 1.0, "replace-one")
    assert np.all(one < replaced)
    assert np.all(replaced < unsampled)


def test_no_noise_costs_infinity() -> None:
    assert np.all(np.isinf(log_moments(ORDERS, np.array([0.0]), 0.01)))


def test_all_sigmas_at_once_equal_one_at_a_time() -> None:
    sigmas = np.linspace(0.3, 5.0, 7)
    together = log_moments(ORDERS, sigmas, 0.01)
    for row, sigma in zip(together, sigmas, strict=True):
        np.testing.assert_allclose(row, log_moments(ORDERS, np.array([sigma]), 0.01)[0], rtol=1e-12)


@pytest.mark.parametrize("sample_rate", [0.001, 512 / 60_000, 0.2])
def test_the_browsers_table_interpolates_to_a_thousandth(sample_rate: float) -> None:
    table = rdp_table(sample_rate)
    orders = np.array(table["orders"])
    values = np.frombuffer(base64.b64decode(table["values"]), "<f4").reshape(table["rows"], orders.size)
    grid = np.log(np.geomspace(table["low"], table["high"], table["rows"]))
    assert np.isfinite(values).all()
    assert len(table["values"]) < 185_000
    curves = [Schedule.of("linear").sigmas(20), np.geomspace(8, 0.5, 37), np.full(10, 1.234)]
    for sigmas in [*curves, np.full(3, 15.3), np.geomspace(20, 3, 10)]:
        phases = epoch_phases(sigmas, sample_rate)
        rows = np.exp(PchipInterpolator(grid, values.astype(float))(np.log(sigmas)))
        interpolated, _ = smallest_epsilon(phases[0].steps * rows.sum(axis=0), 1e-5, orders=orders)
        exact = epsilon(Ledger(phases), 1e-5, accountant="rdp").upper
        assert interpolated == pytest.approx(exact, rel=3e-3 if exact > 0.1 else 0.05)


SIGMAS = [1e-300, 1e-160, 1e-100, 1e-30, 1e-8, 1e-5, 0.1, 1.0, 1e3, 1e8, 1e30, 1e160, 1e300]


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("q", [1e-12, 1e-6, 0.01, 0.3, 1 - 1e-13, 1.0])
def test_any_noise_and_any_sample_rate_have_a_price(q: float, adjacency: str) -> None:
    """Never NaN, an exception or a warning; and more noise never costs more."""
    for accountant in ACCOUNTANTS:
        alone = [epsilon(Ledger([Phase(s, q, 100)]), 1e-9, accountant=accountant, adjacency=adjacency) for s in SIGMAS]
        assert alone[0].upper == math.inf
        assert all(more.lower <= less.upper for less, more in pairwise(alone))
        assert all(0 <= price.lower <= price.upper for price in alone)
        for sigma in SIGMAS[:5]:
            path = epsilon_path(
                [Phase(1.0, q, 100), Phase(sigma, q, 100)], 1e-9, accountant=accountant, adjacency=adjacency
            )
            assert path[0].upper <= 1e6 < path[1].upper


@pytest.mark.parametrize(
    ("sampling", "adjacency"),
    [(sampling, adjacency) for sampling in SAMPLINGS for adjacency in SAMPLINGS[sampling].adjacencies],
)
def test_any_noise_has_its_share_and_is_calibrated_or_refused(sampling: str, adjacency: str) -> None:
    for sigma in SIGMAS:
        options = {"adjacency": adjacency, "sampling": sampling}
        shares = price_tags([Phase(1.0, 0.01, 100), Phase(sigma, 0.01, 100)], 1e-5, **options)
        assert shares.sum() == pytest.approx(1)
        assert shares[1] == pytest.approx(1 if sigma < 1e-2 else 0.5 if sigma == 1 else shares[1], abs=1e-2)
        with suppress(InputError):  # its sentence: no scale of this schedule costs epsilon 1
            found = calibrate([1.0, sigma], 0.01, 1.0, 1e-5, accountant="rdp", **options)
            assert 0.999 <= found.epsilon.upper <= 1


@pytest.mark.parametrize("mu", [1e-18, 1e-10, 1e-7, 0.9e-4, 1.1e-4, 1.0, 1e5, 1e9])
def test_the_gaussian_delta_keeps_its_precision_at_any_shift(mu: float) -> None:
    for place in (0, 1, 8, 30):
        found = mu * place + mu * mu / 2
        with mpmath.workdps(60):
            e, m = mpmath.mpf(found), mpmath.mpf(mu)
            exact = float(mpmath.log(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)))
        assert log_delta(found, mu) == pytest.approx(exact, rel=1e-6 if mu > 1e8 else 1e-9)
    assert gaussian_epsilon(1e-18, 1e-20) == pytest.approx(1.938e-18, rel=1e-3)


def test_sessions_may_share_the_cache_of_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads that fill and evict at once get whole rows."""
    monkeypatch.setattr("dpviz.privacy.rdp.ROWS", Cache(5 * ORDERS.nbytes))
    sigmas = 1 + np.arange(100) / 100
    expected = log_moments(ORDERS, sigmas, 0.01) / (ORDERS - 1)
    failed: list[BaseException] = []

    def session(start: int) -> None:
        try:
            for first in range(start, start + 100):
                at = np.arange(first, first + 10) % 100
                rows = ledger_rdp(Ledger(Phase(float(sigma), 0.01, 1) for sigma in sigmas[at]))
                np.testing.assert_allclose(rows, expected[at], rtol=1e-9)
        except BaseException as problem:
            failed.append(problem)

    threads = [threading.Thread(target=session, args=(start,)) for start in (0, 25, 50, 75)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
