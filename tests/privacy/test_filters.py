"""Renyi filters: however noise is chosen on the way, the declared budget holds."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from opacus.accountants.analysis import rdp as opacus_rdp

from dpviz.privacy import InputError, Ledger, epoch_phases, epsilon
from dpviz.privacy.filters import RenyiFilter, best_filter, filter_guarantee, least_filter
from dpviz.privacy.guarantees import FIXED_AHEAD
from dpviz.privacy.rdp import improved_conversion

POLICIES, EPOCHS, STEPS, RATE = 10_000, 12, 100, 0.01


def spend(renyi_filter: RenyiFilter, rate: float, steps: int, choose) -> tuple[np.ndarray, list]:
    """What 10,000 policies spend, and the sigma of each in each epoch; infinite: the epoch was refused.

    `choose(epoch, loss)` gives each policy's next sigmas from the privacy loss that its outputs have shown so far,
    which is all that an adversary can know: here the outputs of neighbouring data are those of N(1, sigma^2).
    """
    rng = np.random.default_rng(20)
    spent, loss, taken = np.zeros(POLICIES), np.zeros(POLICIES), []
    for epoch in range(EPOCHS):
        sigmas = choose(rng, epoch, loss)
        cost = renyi_filter.costs(sigmas, rate, steps)
        allowed = renyi_filter.fits(spent + cost)
        spent = np.where(allowed, spent + cost, spent)
        mu = math.sqrt(steps) / sigmas
        loss = loss + np.where(allowed, mu * (mu / 2 + rng.normal(size=POLICIES)), 0.0)
        taken.append(np.where(allowed, sigmas, np.inf))
    return loss, taken


SIGMAS = np.geomspace(0.6, 6.0, 300)


def at_random(rng, epoch, loss):
    return rng.choice(SIGMAS, POLICIES)


def greedy_after_luck(rng, epoch, loss):
    """Little noise where the outputs have given much away already, much noise where they have not."""
    lucky = loss > np.median(loss)
    return np.where(lucky, rng.choice(SIGMAS[:60], POLICIES), rng.choice(SIGMAS[240:], POLICIES))


@pytest.mark.parametrize("choose", [at_random, greedy_after_luck])
def test_no_policy_out_of_ten_thousand_exceeds_the_budget_by_the_moments_of_opacus(choose):
    chosen, order = RenyiFilter(2.0, 1e-5, 8.0), np.array([8.0])
    _, taken = spend(chosen, RATE, STEPS, choose)
    sigmas = np.array(taken)
    refused = np.isinf(sigmas)
    exact = [opacus_rdp.compute_rdp(q=RATE, noise_multiplier=sigma, steps=STEPS, orders=[8.0])[0] for sigma in SIGMAS]
    places = np.searchsorted(SIGMAS, np.where(refused, SIGMAS[0], sigmas))
    spent = np.where(refused, 0.0, np.array(exact)[places]).sum(axis=0)
    assert improved_conversion(spent.max(), order, 1e-5)[0] <= 2.0
    assert spent.max() > 0.99 * chosen.budget  # the policies do go to the limit
    assert refused.any(axis=0).mean() > 0.3


def test_adversaries_who_look_at_the_outputs_gain_no_more_than_the_filter_allows():
    """Full batches, whose privacy loss L is a plain sum: E[e^((a-1) L)] <= e^((a-1) B), and delta holds."""
    chosen = RenyiFilter(1.5, 0.05, 4.0)
    loss, taken = spend(chosen, 1.0, 1, lambda rng, epoch, loss: np.where(loss > 0.2, 1.6, 3.0) + 0 * loss)
    assert np.isinf(np.array(taken)).any(axis=0).mean() > 0.5
    moment = np.exp((chosen.order - 1) * loss)
    assert moment.mean() - 3 * moment.std() / 100 <= math.exp((chosen.order - 1) * chosen.budget)
    delta = np.maximum(0.0, -np.expm1(chosen.epsilon - loss))
    assert delta.mean() + 3 * delta.std() / 100 <= chosen.delta
    assert delta.mean() > chosen.delta / 100  # it could have failed


def test_costs_are_at_least_the_exact_moments_and_the_budget_gives_at_most_the_epsilon():
    for sigma, q, order in ((0.7, 0.01, 3.0), (1.3, 0.2, 7.0), (5.0, 1e-3, 40.0), (2.0, 1.0, 5.5)):
        with mpmath.workdps(50):
            if q == 1:
                exact = mpmath.mpf(order) / (2 * mpmath.mpf(sigma) ** 2)
            else:
                a = int(order)
                terms = (
                    mpmath.binomial(a, k)
                    * (1 - mpmath.mpf(q)) ** (a - k)
                    * mpmath.mpf(q) ** k
                    * mpmath.e ** (mpmath.mpf(k * k - k) / (2 * mpmath.mpf(sigma) ** 2))
                    for k in range(a + 1)
                )
                exact = mpmath.log(mpmath.fsum(terms)) / (a - 1)
            cost = RenyiFilter(9.0, 1e-5, order).costs(np.array([sigma]), q, 1)[0]
            assert exact <= cost <= exact * (1 + mpmath.mpf(10) ** -5)
        chosen = RenyiFilter(9.0, 1e-5, order)
        assert improved_conversion(chosen.budget, np.array([order]), 1e-5)[0] <= 9.0


def test_a_change_at_the_limit_fits_and_one_above_it_is_refused_with_the_least_noise_that_fits():
    chosen = best_filter(2.0, 1e-5, epoch_phases([1.2] * 10, RATE))
    past = epoch_phases([1.2] * 4, RATE)
    with pytest.raises(InputError, match=r"times the budget.*multiply the noise to come by (\S+) or more") as refusal:
        chosen.check(past, epoch_phases([0.7] * 6, RATE))
    scale = float(str(refusal.value).rpartition("by ")[2].split()[0])
    chosen.check(past, epoch_phases([0.7 * scale] * 6, RATE))
    with pytest.raises(InputError):
        chosen.check(past, epoch_phases([0.7 * scale * 0.998] * 6, RATE))
    assert chosen.spent(epoch_phases([1.2] * 4 + [0.7 * scale] * 6, RATE)) == pytest.approx(chosen.budget, rel=5e-3)
    with pytest.raises(InputError, match="no multiple of it fits"):
        chosen.check(epoch_phases([0.5] * 4, RATE), epoch_phases([1.0], RATE))
    with pytest.raises(InputError, match="no multiple of it fits"):
        chosen.check((), epoch_phases([0.0, 1.0], RATE))


def test_a_schedule_that_was_known_ahead_never_costs_more_than_a_filter_would():
    rng = np.random.default_rng(3)
    for _ in range(12):
        rate, count = float(np.exp(rng.uniform(np.log(0.005), 0))), int(rng.integers(1, 12))
        phases = epoch_phases(np.exp(rng.uniform(np.log(0.8), np.log(8), count)), rate)
        least = least_filter(phases, 1e-5)
        assert epsilon(Ledger(phases), 1e-5).upper <= least.epsilon
        least.check((), phases)
        for budget in (least.epsilon, 2 * least.epsilon):
            best_filter(budget, 1e-5, phases).check((), phases)
        with pytest.raises(InputError, match="needs a budget of"):
            best_filter(0.999 * least.epsilon, 1e-5, phases)


def test_the_order_leaves_more_room_for_less_noise_than_its_neighbours():
    plan = epoch_phases(np.linspace(3.0, 1.5, 10), RATE)
    chosen = best_filter(2.0, 1e-5, plan)

    def fits(renyi_filter: RenyiFilter, scale: float) -> bool:
        return bool(renyi_filter.fits(renyi_filter.spent(epoch_phases(scale * np.linspace(3.0, 1.5, 10), RATE))))

    least = next(scale for scale in np.geomspace(0.3, 1, 400) if fits(chosen, float(scale)))
    for order in (0.93 * chosen.order, 1.15 * chosen.order):
        assert not fits(RenyiFilter(2.0, 1e-5, order), float(least))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((math.nan, 1e-5, 4.0), "epsilon must be"),
        ((0.0, 1e-5, 4.0), "epsilon must be"),
        ((1.0, 0.0, 4.0), "delta must be"),
        ((1.0, 1e-5, 1.0), "order must be"),
        ((1.0, 1e-5, math.nan), "order must be"),
        ((1.0, 1e-5, 2.0), "no budget"),
    ],
)
def test_what_is_no_filter_is_refused(values, words):
    with pytest.raises(InputError, match=words):
        RenyiFilter(*values)


def test_the_card_says_what_holds_and_what_the_freedom_costs():
    phases = epoch_phases([1.5] * 10, RATE)
    card = filter_guarantee("dp-sgd", "none", phases, best_filter(2.0, 1e-5, phases))
    assert card.claimed is None
    assert card.sound is not None
    assert card.sound.upper == 2.0
    text = " ".join(card.assumptions)
    assert FIXED_AHEAD not in card.assumptions
    assert "Feldman & Zrnic" in text
    assert "had the schedule as it stands been fixed ahead, its epsilon would be 0." in text
    assert any("test data" in words for words in card.not_covered)
