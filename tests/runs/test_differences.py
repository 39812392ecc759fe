"""Differences over seeds: their intervals hold what they promise, and their words say what they rest on."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
from scipy import stats

from dpviz.runs import differences
from dpviz.runs.differences import Difference, paired_difference, points


def seeds(values, first: int = 0) -> dict[int, float]:
    return dict(enumerate(map(float, values), first))


@pytest.mark.parametrize("first", [0, 100], ids=["same seeds", "different seeds"])
def test_the_interval_holds_the_true_difference_as_often_as_it_says(first):
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(1000):
        count = random.integers(3, 8)
        shared = random.normal(85, 1.0, count)  # what seeds have in common
        baseline = seeds(shared + random.normal(0, 0.3, count))
        shared = shared if first == 0 else random.normal(85, 1.0, count)
        ours = seeds(shared + 0.7 + random.normal(0, 0.2, count), first)
        difference = paired_difference(ours, baseline)
        covered += difference.low <= 0.7 <= difference.high
    assert 930 <= covered <= 970


def test_of_many_comparisons_all_intervals_hold_together():
    random = np.random.default_rng(8)
    together = 0
    for _ in range(500):
        baseline, rows = seeds(random.normal(0, 1, 4)), random.normal(0, 1, (10, 4))
        best = max(rows, key=np.mean)
        difference = paired_difference(seeds(best), baseline, comparisons=10)
        together += difference.low <= 0 <= difference.high
    assert together / 500 >= 0.95


def test_shared_seeds_are_compared_one_by_one_and_the_rest_is_left_out():
    ours, baseline = seeds([86.9, 86.4, 86.8]), seeds([85.9, 85.6, 85.9, 40.0])
    difference = paired_difference(ours, baseline)
    expected = stats.ttest_rel([86.9, 86.4, 86.8], [85.9, 85.6, 85.9]).confidence_interval(0.95)
    assert (difference.low, difference.high) == pytest.approx((expected.low, expected.high))
    assert (difference.paired, difference.pairs, difference.decided) == (True, 3, True)


def test_without_two_shared_seeds_the_interval_is_welchs():
    first, second = [86.9, 86.4, 87.3], [85.0, 85.9]
    difference = paired_difference(seeds(first), seeds(second, 2))
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert (difference.low, difference.high) == pytest.approx((expected.low, expected.high))
    assert not difference.paired


def test_one_seed_bounds_nothing_and_says_so():
    difference = paired_difference({0: 90.0}, {0: 80.0})
    assert (difference.low, difference.high) == (-math.inf, math.inf)
    assert not difference.judged
    assert not difference.decided
    assert difference.words == "10.00 points above, one seed each: chance cannot be judged"
    assert "one seed against 2" in paired_difference({0: 90.0}, {1: 80.0, 2: 80.5}).words


@pytest.mark.parametrize(
    ("difference", "words"),
    [
        (Difference(0.9, 0.3, 1.5, 3, True), "0.90 points above, 95 % interval 0.30 to 1.50, same seeds"),
        (
            Difference(-0.03, -0.061, -0.001, 0, False),
            "0.03 points below, 95 % interval -0.06 to 0.00, different seeds",
        ),
        (
            Difference(0.03, -0.2, 0.26, 2, True, comparisons=7),
            "0.03 points above, too close to call, 95 % interval -0.20 to 0.26, same seeds, widened for 7 comparisons",
        ),
        (Difference(-0.001, -1, 1, 2, True), "equal, too close to call, 95 % interval -1.00 to 1.00, same seeds"),
    ],
)
def test_words(difference, words):
    assert difference.words == words


def test_equal_values_on_all_seeds_leave_no_doubt_and_no_winner():
    for first in (0, 5):
        difference = paired_difference(seeds([80.0, 80.0]), seeds([80.0, 80.0], first))
        assert (difference.low, difference.mean, difference.high) == (0, 0, 0)
        assert not difference.decided


def test_a_number_that_rounds_to_nothing_has_no_sign():
    assert points(-0.001) == "0.00"


def test_the_example_in_the_module_runs():
    assert doctest.testmod(differences).failed == 0
