"""Closed forms without amplification: full batches, or a fixed order in which each example is met once an epoch."""

from __future__ import annotations

import math

from dpviz.privacy.records import Ledger, steps_per_epoch
from dpviz.privacy.special import log_ndtr


def visits(ledger: Ledger) -> list[tuple[float, int]]:
    """(sigma, times an example is met) per phase, when batches follow a fixed or shuffled order instead of sampling."""
    return [(p.noise_multiplier, math.ceil(p.steps / steps_per_epoch(p.sample_rate))) for p in ledger.phases]


def composed_mu(uses: list[tuple[float, int]], adjacency: str = "add-remove") -> float:
    """mu = shift * sqrt(sum of visits / sigma^2): Gaussian steps compose to one Gaussian.

    shift is 1 for add-or-remove-one neighbours and 2 for replace-one (one vector out, another in).
    Dong, Roth & Su (2019), arXiv:1905.02383, Cor. 3.3.
    """
    if any(sigma == 0 for sigma, _ in uses):
        return math.inf
    shift = 2.0 if adjacency == "replace-one" else 1.0
    return shift * math.sqrt(sum(count / sigma**2 for sigma, count in uses))


def log_delta(epsilon: float, mu: float) -> float:
    """log of Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu). Balle & Wang (2018), arXiv:1805.06530, Thm. 8."""
    first = float(log_ndtr(mu / 2 - epsilon / mu))
    second = float(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    return first + math.log(-math.expm1(second - first)) if second < first else -math.inf


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon >= 0 at which a Gaussian mechanism of this mu has this delta."""
    if mu == math.inf:
        return math.inf
    target = math.log(delta)
    if log_delta(0.0, mu) <= target:
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(-2 * target) + 1e-12  # Chernoff: delta(high) is below the target
    while low < (middle := (low + high) / 2) < high and high - low > 1e-15 * high:
        low, high = (low, middle) if log_delta(middle, mu) <= target else (middle, high)
    return high
