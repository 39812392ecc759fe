"""Closed forms without amplification: full batches, or a fixed order in which each example is met once per epoch."""

from __future__ import annotations

import math

from scipy.special import erfcx, log_ndtr

from dpviz.privacy.records import Ledger, steps_per_epoch

SMALLEST_SIGMA = 1e-100  # below it squares overflow: it counts as no noise at all


def visits(ledger: Ledger) -> list[tuple[float, int]]:
    """(sigma, times an example is met) per phase, when batches follow a fixed or shuffled order instead of sampling.

    Whole epochs as dpviz counts them; any other number of steps may be of epochs that drop the last, smaller batch.
    """

    def epochs(steps: int, sample_rate: float) -> int:
        whole, left = divmod(steps, steps_per_epoch(sample_rate))
        return whole if not left else math.ceil(steps / max(1, math.floor(1 / sample_rate)))

    return [(phase.noise_multiplier, epochs(phase.steps, phase.sample_rate)) for phase in ledger.phases]


def composed_mu(uses: list[tuple[float, int]], adjacency: str = "add-remove") -> float:
    """mu = shift * sqrt(sum of visits / sigma^2): Gaussian steps compose to one Gaussian.

    shift is 1 for add-or-remove-one neighbours and 2 for replace-one (one vector out, another in).
    Dong, Roth & Su (2019), arXiv:1905.02383, Cor. 3.3.
    """
    if any(sigma < SMALLEST_SIGMA for sigma, _ in uses):
        return math.inf
    shift = 2.0 if adjacency == "replace-one" else 1.0
    return shift * math.hypot(*(math.sqrt(count) / sigma for sigma, count in uses))  # squares may overflow


def log_delta(epsilon: float, mu: float) -> float:
    """log of Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu). Balle & Wang (2018), arXiv:1805.06530, Thm. 8.

    With R(x) = Phi(-x) / phi(x) the second term is R(eps/mu + mu/2) / R(eps/mu - mu/2) of the first: no exponents that
    cancel. Where even these are too close, by the slope of log R, which is x - 1 / R(x).
    """
    middle = epsilon / mu
    if mu < 1e-4:
        share = -math.expm1(mu * (middle - 1 / _mills(middle)))
    else:
        share = 1 - _mills(middle + mu / 2) / _mills(middle - mu / 2)
    return float(log_ndtr(mu / 2 - middle)) + math.log(share) if share > 0 else -math.inf


def _mills(x: float) -> float:
    """R(x) = Phi(-x) / phi(x): Mills' ratio."""
    return math.sqrt(math.pi / 2) * float(erfcx(x / math.sqrt(2)))


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
