"""How far one experiment is ahead of another, over seeds, and whether that may be chance.

>>> paired_difference({0: 86.9, 1: 86.4, 2: 86.8}, {0: 85.9, 1: 85.6, 2: 85.9}).words
'0.90 points above, 95 % interval 0.65 to 1.15, same seeds'
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95
ONE_SEED = "one seed each: chance cannot be judged"
TOO_CLOSE = "too close to call"


@dataclass(frozen=True)
class Difference:
    """The mean of ours minus the baseline's, in the values' own unit, and its confidence interval.

    Without a second seed on both sides nothing bounds chance: the interval is the whole line. `pairs` counts the seeds
    that both have, `seeds` those of each; `paired` says whether seeds were compared one by one; `comparisons` widened
    the interval.
    """

    mean: float
    low: float
    high: float
    pairs: int
    paired: bool
    confidence: float = CONFIDENCE
    comparisons: int = 1
    seeds: tuple[int, int] = (1, 1)

    @property
    def judged(self) -> bool:
        """Whether there are seeds enough for an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def decided(self) -> bool:
        """Whether the interval leaves 0 out."""
        return self.low > 0 or self.high < 0

    @property
    def interval(self) -> str:
        """The interval and what it rests on; one seed has none."""
        if not self.judged:
            return ONE_SEED if max(self.seeds) == 1 else f"one seed against {max(self.seeds)}: chance cannot be judged"
        seeds = "same seeds" if self.paired else "different seeds"
        many = f", widened for {self.comparisons} comparisons" if self.comparisons > 1 else ""
        return f"{100 * self.confidence:g} % interval {points(self.low)} to {points(self.high)}, {seeds}{many}"

    @property
    def words(self) -> str:
        """The difference and its interval; what chance may explain is called too close to call."""
        side = "equal" if points(self.mean) == "0.00" else f"{points(abs(self.mean))} points {self.side}"
        close = f"{TOO_CLOSE}, " if self.judged and not self.decided else ""
        return f"{side}, {close}{self.interval}"

    @property
    def side(self) -> str:
        return "above" if self.mean > 0 else "below"


def points(value: float) -> str:
    """Two decimals, and never "-0.00"."""
    return f"{round(value, 2) + 0.0:.2f}"


def paired_difference(
    ours: Mapping[int, float], baseline: Mapping[int, float], confidence: float = CONFIDENCE, comparisons: int = 1
) -> Difference:
    r"""Ours minus the baseline's, each a value per seed, with a t interval: mean +- t s / sqrt(n).

    Two shared seeds or more are compared one by one, since they share their first weights; s is then the
    deviation of their differences. Else Welch's interval, with two seeds or more on both sides. Else no interval.

    The best of many is ahead by luck too: with `comparisons` = m each interval has confidence 1 - (1 - confidence) / m
    (Bonferroni), so that all m hold together, whichever is picked afterwards.
    """
    if not (ours and baseline):
        raise ValueError("a difference needs a value on both sides")
    shared = sorted(ours.keys() & baseline.keys())
    tail = (1 - confidence) / 2 / comparisons
    first, second = np.array(list(ours.values()), float), np.array(list(baseline.values()), float)
    if paired := len(shared) > 1:
        leads = np.array([ours[seed] - baseline[seed] for seed in shared])
        mean, error, freedom = leads.mean(), leads.std(ddof=1) / math.sqrt(len(leads)), len(leads) - 1.0
    elif min(len(first), len(second)) > 1:
        mean, (error, freedom) = first.mean() - second.mean(), _welch(first, second)
    else:
        mean, error, freedom = first.mean() - second.mean(), math.inf, 1.0
    half = float(-stdtrit(freedom, tail) * error)
    mean = float(mean)
    seeds = (len(first), len(second))
    return Difference(mean, mean - half, mean + half, len(shared), paired, confidence, comparisons, seeds)


def _welch(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Standard error of a difference of means and its degrees of freedom (Welch 1947)."""
    parts = [(values.var(ddof=1) / len(values), len(values) - 1) for values in (first, second)]
    variance = sum(part for part, _ in parts)
    squares = sum(part**2 / freedom for part, freedom in parts)
    return math.sqrt(variance), float(variance**2 / squares) if squares > 0 else 1.0
