"""The Renyi accountant equals Opacus, and its quadrature equals the binomial sum."""

import base64

import numpy as np
import pytest
from opacus.accountants.analysis import rdp as opacus_rdp
from scipy.interpolate import PchipInterpolator

from dpviz.privacy import Ledger, Phase, Schedule, epoch_phases, epsilon, rdp_table
from dpviz.privacy.rdp import ORDERS, _binomial, _quadrature, ledger_rdp, log_moments, smallest_epsilon


@pytest.mark.parametrize("sample_rate", [1e-6, 1e-3, 0.01, 0.3, 0.9, 1.0])
@pytest.mark.parametrize("sigma", [0.05, 0.3, 0.7, 1.0, 5.0, 1000.0])
@pytest.mark.filterwarnings("ignore:Optimal order is the")
def test_epsilon_equals_opacus(sample_rate: float, sigma: float) -> None:
    rdp = opacus_rdp.compute_rdp(q=sample_rate, noise_multiplier=sigma, steps=1000, orders=list(ORDERS))
    theirs, _ = opacus_rdp.get_privacy_spent(orders=list(ORDERS), rdp=rdp, delta=1e-5)
    ours = epsilon(Ledger([Phase(sigma, sample_rate, 1000)]), 1e-5, accountant="rdp").upper
    assert ours == pytest.approx(theirs, rel=1e-9)


@pytest.mark.parametrize("sample_rate", [1e-5, 0.01, 0.4])
def test_quadrature_equals_the_binomial_sum_at_whole_orders(sample_rate: float) -> None:
    orders, sigmas = np.arange(2.0, 12.0), np.array([0.08, 0.4, 1.0, 3.0, 50.0])
    np.testing.assert_allclose(
        _quadrature(orders, sigmas, sample_rate, "add-remove"),
        _binomial(orders, sigmas, sample_rate, "add-remove"),
        rtol=2e-8,
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
    for sigmas in (Schedule.of("linear").sigmas(20), np.geomspace(8, 0.5, 37), np.full(10, 1.234)):
        phases = epoch_phases(sigmas, sample_rate)
        rows = np.exp(PchipInterpolator(grid, values.astype(float))(np.log(sigmas)))
        interpolated, _ = smallest_epsilon(phases[0].steps * rows.sum(axis=0), 1e-5, orders=orders)
        exact, _ = smallest_epsilon(ledger_rdp(Ledger(phases)).sum(axis=0), 1e-5)
        assert interpolated == pytest.approx(exact, rel=3e-3)
