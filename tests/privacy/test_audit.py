"""Bounds from counts: how tight they are, and that honest runs keep below their true epsilon."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, binomtest, norm

from benchmarks.one_run_oracle import coins_and_scores
from dpviz.privacy import InputError, Phase, epsilon
from dpviz.privacy.audit import (
    Audit,
    Guesses,
    OneRunBound,
    StepBound,
    audited_sigma,
    one_run_bound,
    one_run_p_value,
    step_bound,
)

DELTA = 1e-5
GOLDENS = list(csv.DictReader(Path(__file__).with_name("one_run_goldens.csv").read_text().splitlines()))
RUNS = 1000


def honest_counts(random: np.random.Generator, sigma: float, steps: int, each: int = 100) -> Guesses:
    """Counts of an honest run: noise above 1/2, and above -1/2 (where a canary lifts it over the threshold)."""
    above = float(norm.sf(0.5 / sigma))
    false, between, _ = random.multinomial(steps * each, [above, 1 - 2 * above, above])
    return Guesses(sigma, steps, steps * each, int(false), int(false + between))


# --- step audit


@pytest.mark.parametrize(
    "sigmas", [[1.23] * 40, list(np.linspace(5.0, 1.0, 20)), [0.5, 4.0]], ids=["constant", "falling", "two levels"]
)
def test_at_most_one_honest_run_in_twenty_is_bounded_above_its_epsilon(sigmas):
    random, rate, steps = np.random.default_rng(0), 512 / 60_000, 117
    phases = [Phase(sigma, rate, steps) for sigma in sigmas]
    true = epsilon(phases, DELTA).upper
    levels = {sigma: sigmas.count(sigma) * steps for sigma in dict.fromkeys(sigmas)}
    above = 0
    for _ in range(RUNS):
        guesses = [honest_counts(random, float(f"{sigma:.9g}"), count) for sigma, count in levels.items()]
        # Only less noise than there was can cost more than there was: the others need no price.
        if any(audited_sigma(level, 0.05 / len(guesses)) < level.noise_multiplier for level in guesses):
            above += step_bound(guesses, phases, DELTA).lower > true
    assert binomtest(above, RUNS).proportion_ci(0.95).low <= 0.05, f"{above} of {RUNS}"
    assert above <= 0.05 * RUNS


def test_the_bound_of_the_mnist_recipe_is_close_to_its_epsilon():
    phases = [Phase(1.23, 512 / 60_000, 40 * 117)]
    counts = honest_counts(np.random.default_rng(1), 1.23, 40 * 117)
    true, bound = epsilon(phases, DELTA).lower, step_bound([counts], phases, DELTA)
    assert 2.1 < 0.97 * true < bound.lower < true
    assert (bound.trials, round(bound.fpr, 2), round(bound.tpr, 2)) == (468_000, 0.34, 0.66)


def test_a_level_is_bounded_by_clopper_pearson_and_the_gaussian_trade_off():
    """10 of 100 and 90 of 100 at 2.5 % each: 0.1762 at most and 0.8238 at least (Clopper & Pearson 1934, exact)."""
    sigma = audited_sigma(Guesses(1.0, 1, 100, 10, 90))
    assert 1 / sigma == pytest.approx(2 * norm.isf(0.17622), rel=1e-4)


def test_counts_that_show_nothing_bound_nothing():
    assert audited_sigma(Guesses(5.0, 1, 100, 48, 52)) == math.inf
    assert audited_sigma(Guesses(5.0, 1, 100, 100, 0)) == math.inf
    assert step_bound([Guesses(5.0, 1, 100, 48, 52)], [Phase(5.0, 0.01, 1)], DELTA).lower == 0
    assert step_bound([], [Phase(5.0, 0.01, 1)], DELTA).lower == 0


def test_levels_share_the_probability_of_a_mistake():
    levels = [Guesses(1.0, 10, 1000, 300, 700), Guesses(2.0, 10, 1000, 400, 600)]
    phases = [Phase(1.0, 0.01, 10), Phase(2.0, 0.01, 10)]
    priced = [(audited_sigma(level, 0.05 / 2), 0.01, 10) for level in levels]
    assert step_bound(levels, phases, DELTA).lower == epsilon(priced, DELTA).lower


def test_steps_at_a_level_that_was_not_seen_add_nothing():
    counts = honest_counts(np.random.default_rng(2), 1.0, 500)
    seen, unseen = Phase(1.0, 0.01, 500), Phase(0.5, 0.01, 500)
    assert step_bound([counts], [seen, unseen], DELTA).lower == step_bound([counts], [seen], DELTA).lower


# --- one-run audit


@pytest.mark.parametrize("row", GOLDENS, ids=lambda row: f"{row['canaries']}-{row['distance']}-{row['delta']}")
def test_the_one_run_bound_is_jax_privacys_on_the_same_scores(row):
    """Figures of CanaryScoreAuditor.epsilon_one_run, jax_privacy 2.0.0, from benchmarks/one_run_oracle.py."""
    included, scores = coins_and_scores(int(row["canaries"]), float(row["distance"]))
    guesses = int(row["guesses"])
    correct = int(included[np.argsort(-scores)[:guesses]].sum())
    bound = one_run_bound(len(scores), guesses, correct, float(row["delta"]))
    assert bound.lower == pytest.approx(float(row["epsilon"]), abs=1e-3)


def test_without_delta_the_p_value_is_a_binomial_tail():
    assert one_run_p_value(0.0, 1000, 100, 60, 1e-300) == pytest.approx(binom.sf(59, 100, 0.5))


def test_more_correct_guesses_never_bound_less_and_half_of_them_nothing():
    bounds = [one_run_bound(1000, 100, correct, DELTA).lower for correct in range(101)]
    assert bounds == sorted(bounds)
    assert bounds[50] == 0 < bounds[65]


# --- records


AUDIT = Audit(2.0, StepBound(1.5, (Guesses(1.23, 10, 940, 320, 620),)), OneRunBound(0.4, 1000, 100, 66))


def test_an_audit_is_read_as_it_was_written():
    assert Audit.from_json(AUDIT.to_json()) == AUDIT
    assert Audit.from_json(Audit(2.0).to_json()) == Audit(2.0)
    assert AUDIT.lower == 1.5


def test_an_audit_fails_where_a_bound_exceeds_the_proven_epsilon_or_a_check_did():
    assert AUDIT.failures == ()
    above = Audit(1.4, AUDIT.step, AUDIT.one_run)
    assert above.failures == ("the step audit shows an epsilon of at least 1.500, above the proven 1.400",)
    assert Audit(0.3, one_run=AUDIT.one_run).failures[0].startswith("the one-run audit shows")
    assert Audit(9.0, StepBound(0.0, (), ("odd",))).failures == ("odd",)


@pytest.mark.parametrize(
    "data", [{}, [], None, {"proven": 1.0, "step": {"lower": 1.0}, "one_run": None}, {"proven": "x"}]
)
def test_what_is_no_audit_is_refused(data):
    with pytest.raises(InputError, match="not a run's audit"):
        Audit.from_json(data)


def test_impossible_counts_are_refused():
    with pytest.raises(InputError, match="at most 5 hits"):
        Guesses(1.0, 1, 5, 6, 2)
    with pytest.raises(InputError, match="noise above 0"):
        Guesses(math.nan, 1, 5, 1, 2)
    with pytest.raises(InputError, match="correct <= guesses"):
        OneRunBound(0.0, 10, 20, 3)
    for make in (Audit, lambda lower: StepBound(lower, ()), lambda lower: OneRunBound(lower, 10, 2, 1)):
        with pytest.raises(InputError, match="finite numbers >= 0, got nan"):
            make(math.nan)
