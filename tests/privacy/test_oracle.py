"""The oracle against closed forms and published numbers: it must be right before it may judge the accountant."""

import math

import pytest
from scipy.special import ndtr

from dpviz.privacy.gaussian import gaussian_epsilon, log_delta
from tests.privacy.oracle import NotConverged, Step, _direction_epsilon, oracle_delta, oracle_epsilon
from tests.privacy.test_accounting import one_step_epsilon


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("steps", [1, 30, 100_000])
@pytest.mark.parametrize("sigma", [0.05, 0.5, 1.0, 10.0, 1000.0])
def test_full_batches_have_the_gaussian_closed_form(sigma: float, steps: int, adjacency: str) -> None:
    mu = math.sqrt(steps) / sigma * (2 if adjacency == "replace-one" else 1)
    for delta in (1e-3, 1e-7, 1e-12):
        exact = gaussian_epsilon(mu, delta)
        found = oracle_epsilon([(sigma, 1.0, steps)], delta, adjacency)
        assert found.epsilon == pytest.approx(exact, rel=2e-8, abs=1e-12)
        assert abs(found.epsilon - exact) <= found.error + 1e-12


@pytest.mark.parametrize("adjacency", ["add-remove", "replace-one"])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize(("sigma", "q"), [(0.1, 1e-4), (0.1, 0.3), (0.5, 0.3), (1.0, 0.3), (5.0, 0.3), (40.0, 0.95)])
def test_one_step_has_a_closed_form(sigma: float, q: float, delta: float, adjacency: str) -> None:
    """Normal distribution functions on both sides of the outcome whose loss is epsilon, in both directions."""
    exact = one_step_epsilon(sigma, q, delta, adjacency)
    found = oracle_epsilon([(sigma, q, 1)], delta, adjacency)
    assert abs(found.epsilon - exact) <= found.error + 1e-9 * exact
    assert found.error <= 1e-6 * exact + 1e-9


@pytest.mark.parametrize(("sigma", "q", "epsilon"), [(1.0, 0.3, 0.2), (2.0, 0.9, 1.0)])
def test_adding_an_example_has_a_closed_form_too(sigma: float, q: float, epsilon: float) -> None:
    """The direction that seldom is the worst, alone: its losses are at most -log(1-q)."""
    place = -0.5 - sigma**2 * math.log((math.exp(-epsilon) - 1 + q) / q)
    above = float(ndtr(-place / sigma))
    delta = above - math.exp(epsilon) * ((1 - q) * above + q * float(ndtr(-(place + 1) / sigma)))
    found = _direction_epsilon([Step(sigma, q, 1, 0, -1)], delta)
    assert abs(found.epsilon - epsilon) <= found.error + 1e-9


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 2.0, 5.0])
def test_delta_has_the_closed_form_of_a_gaussian(epsilon: float) -> None:
    phases = [(2.0, 1.0, 3), (1.5, 1.0, 1)]  # two phases of different noise
    mu = math.sqrt(3 / 4 + 1 / 2.25)
    assert math.log(oracle_delta(phases, epsilon)) == pytest.approx(log_delta(epsilon, mu), rel=1e-8)


# dp_accounting 0.6.0, PLDAccountant with interval 1e-4 (an upper bound, some 1e-4 above the truth); jax_privacy's test.
@pytest.mark.parametrize(
    ("phases", "delta", "published"),
    [
        ([(1.0, 0.01, 2000)], 1e-5, 2.5839),
        ([(1.54, 0.01, 2000)], 1e-5, 1.2745),
        ([(5.0, 0.01, 2000)], 1e-5, 0.3075),
        ([(4.0, 0.02048, 10_000)], 1e-5, 2.09245),
    ],
)
def test_published_epsilons(phases: list[tuple[float, float, int]], delta: float, published: float) -> None:
    assert oracle_epsilon(phases, delta).epsilon == pytest.approx(published, abs=1.5e-3)


def test_splitting_and_reordering_phases_changes_nothing() -> None:
    phases = [(0.9, 0.02, 40), (3.0, 0.1, 25), (0.9, 0.02, 60)]
    whole = oracle_epsilon([(3.0, 0.1, 25), (0.9, 0.02, 100)], 1e-6)
    assert oracle_epsilon(phases, 1e-6).epsilon == pytest.approx(whole.epsilon, rel=1e-12)


def test_what_does_not_converge_is_refused() -> None:
    with pytest.raises(NotConverged):
        oracle_epsilon([(13.71, 1.1e-6, 1_248_600)], 1e-11)
