"""Renyi filters: a budget for steps whose noise is chosen on the way, from what earlier steps showed.

The epsilon of such a run is not the composition of its steps: which steps there are depends on the outcomes. But at one
order a, fixed ahead, Renyi divergences add up all the same: as long as the steps' RDP at a adds up to at most B, the
whole is (a, B)-RDP, however they were chosen. Feldman & Zrnic (2021), arXiv:2008.11193, Thm. 4.3 and Alg. 2.

    f = best_filter(2.0, 1e-5, epoch_phases([1.2] * 10, 0.01))
    f.check(past=epoch_phases([1.2] * 4, 0.01), coming=epoch_phases([1.0] * 6, 0.01))   # InputError if it is too much
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpviz.privacy.assumptions import ADJACENCIES, SAMPLINGS
from dpviz.privacy.guarantees import FIXED_AHEAD, ONE_EXAMPLE, rule_of
from dpviz.privacy.prices import epsilon as composed_epsilon
from dpviz.privacy.rdp import ORDERS, FloatArray, improved_conversion, log_moments, phase_rdp, smallest_epsilon
from dpviz.privacy.records import Epsilon, Guarantee, Ledger, Phase, check_delta
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import delta_text, epsilon_number, epsilon_text

FILTER_ORDERS: FloatArray = np.concatenate([ORDERS, np.round(np.geomspace(64, 4096, 33))])
SLACK = 1e-6  # by which costs are raised: far more than moments and sums are rounded by
LARGEST_SCALE = 1e6


@dataclass(frozen=True)
class RenyiFilter:
    """(epsilon, delta), declared ahead, and the order, fixed ahead. For Poisson batches and add-remove neighbours."""

    epsilon: float
    delta: float
    order: float

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not 0 < self.epsilon < math.inf:
            raise InputError(f"a filter's epsilon must be a finite number > 0, got {self.epsilon}")
        if not 1 < self.order < math.inf:
            raise InputError(f"a filter's order must be a finite number > 1, got {self.order}")
        if not self.budget > 0:
            raise InputError(
                f"a filter of order {self.order:g} has no budget at epsilon {self.epsilon:g} and delta "
                f"{delta_text(self.delta)}; declare a larger epsilon or take a larger order"
            )

    @property
    def budget(self) -> float:
        """B: the largest RDP at the order that gives (epsilon, delta), rounded down."""
        return float(self.epsilon - improved_conversion(np.zeros(1), np.array([self.order]), self.delta)[0]) - 1e-12

    def costs(self, sigmas: FloatArray, sample_rate: float, steps: int) -> FloatArray:
        """RDP at the order of so many steps with each of these sigmas, rounded up."""
        moments = log_moments(np.array([self.order]), sigmas, sample_rate)[:, 0]
        return moments / (self.order - 1) * steps * (1 + SLACK)

    def fits(self, spent: ArrayLike) -> NDArray[np.bool_]:
        """Whether what was spent is within the budget; NaN is not."""
        return np.asarray(spent) <= self.budget

    def spent(self, phases: Sequence[Phase]) -> float:
        """RDP at the order of these steps, rounded up."""
        return _spent(self, tuple(phases))

    def check(self, past: Sequence[Phase], coming: Sequence[Phase]) -> None:
        """Refuse steps to come that exceed the budget, naming the least noise of their shape that fits."""
        total = self.spent((*past, *coming))
        if self.fits(total):
            return
        scale = self.scale(past, coming)
        advice = f"multiply the noise to come by {scale:g} or more" if scale < math.inf else "no multiple of it fits"
        raise InputError(
            f"these steps would spend {total / self.budget:.4g} times the budget that was declared (epsilon "
            f"{self.epsilon:g}, Renyi order {self.order:g}); {advice}"
        )

    def scale(self, past: Sequence[Phase], coming: Sequence[Phase]) -> float:
        """The smallest factor from 1 on for the noise to come that fits, rounded up to 4 digits; infinite if none."""

        def fits(factor: float) -> bool:
            scaled = (Phase(factor * p.noise_multiplier, p.sample_rate, p.steps) for p in coming)
            return bool(self.fits(self.spent((*past, *scaled))))

        low, high = 1.0, LARGEST_SCALE
        if fits(low):
            return low
        if not fits(high):
            return math.inf
        while high / low > 1 + 1e-5:
            middle = math.sqrt(low * high)
            low, high = (low, middle) if fits(middle) else (middle, high)
        unit = 10.0 ** (math.floor(math.log10(high)) - 3)
        return float(f"{math.ceil(high / unit) * unit:.4g}")


@lru_cache(maxsize=4096)
def _spent(renyi_filter: RenyiFilter, phases: tuple[Phase, ...]) -> float:
    costs = []
    for rate, steps in dict.fromkeys((phase.sample_rate, phase.steps) for phase in phases):
        sigmas = np.array([p.noise_multiplier for p in phases if (p.sample_rate, p.steps) == (rate, steps)])
        distinct, counts = np.unique(sigmas, return_counts=True)
        costs += (counts * renyi_filter.costs(distinct, rate, steps)).tolist()
    return math.fsum(costs)


def least_filter(phases: Sequence[Phase], delta: float) -> RenyiFilter:
    """The filter with the smallest epsilon that planned steps fit under."""
    rdp = phase_rdp(phases, FILTER_ORDERS).sum(axis=0) * (1 + 2 * SLACK)
    epsilon, order = smallest_epsilon(rdp, delta, orders=FILTER_ORDERS)
    return RenyiFilter(epsilon + 1e-9, delta, order)


@lru_cache(maxsize=256)
def best_filter(epsilon: float, delta: float, phases: tuple[Phase, ...]) -> RenyiFilter:
    """The filter whose order leaves a plan the most room: the plan's noise can be scaled down furthest under it.

    Any order is sound, so a few of the plan's sigmas are enough to choose one; if the plan itself does not fit then,
    the order is that of its least filter.
    """
    least = least_filter(phases, delta)
    if not epsilon >= least.epsilon:
        raise InputError(
            f"the planned schedule needs a budget of {epsilon_number(least.epsilon)} at least, got {epsilon:g}; "
            "declare a larger epsilon or plan more noise"
        )
    budgets = epsilon - improved_conversion(np.zeros(FILTER_ORDERS.size), FILTER_ORDERS, delta)
    orders, budgets = FILTER_ORDERS[budgets > 0], budgets[budgets > 0]
    sigmas = np.quantile([phase.noise_multiplier for phase in phases], np.linspace(0, 1, min(len(phases), 16)))
    rate, steps = phases[0].sample_rate, sum(phase.steps for phase in phases) / sigmas.size

    def shares(scale: float) -> FloatArray:
        rdp: FloatArray = log_moments(orders, scale * sigmas, rate).sum(axis=0) / (orders - 1) * steps
        return rdp / budgets

    low, high = 1 / 64, 1.0
    for _ in range(12):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if shares(middle).min() <= 1 else (middle, high)
    roomy = RenyiFilter(epsilon, delta, float(orders[int(np.argmin(shares(high)))]))
    return roomy if roomy.fits(roomy.spent(phases)) else RenyiFilter(epsilon, delta, least.order)


def filter_guarantee(method: str, curriculum: str, phases: Sequence[Phase], renyi_filter: RenyiFilter) -> Guarantee:
    """What holds of a run under a filter: the declared budget, from its first step on. Nobody claims anything else.

    `phases` are the steps taken and planned; had they been fixed ahead, they would cost their composition.
    """
    words = [word for word in rule_of(method, curriculum).assumptions if word != FIXED_AHEAD]
    delta, order = delta_text(renyi_filter.delta), f"{renyi_filter.order:g}"
    ahead = composed_epsilon(Ledger(phases), renyi_filter.delta)
    return Guarantee(
        claimed=None,
        sound=Epsilon(0.0, renyi_filter.epsilon, renyi_filter.delta, "rdp", "the budget of a Renyi filter"),
        adjacency="add-remove",
        sampling="poisson",
        assumptions=(
            SAMPLINGS["poisson"].help,
            *words,
            f"a Renyi filter instead of composition, since the noise may be changed on the way: at order {order}, "
            f"fixed ahead, all steps together spend at most {renyi_filter.budget:.4g}, which gives epsilon "
            f"{epsilon_number(renyi_filter.epsilon)} however the noise to come is chosen from what the noisy model "
            "shows (Feldman & Zrnic 2021); no step is taken beyond it",
            "the declared budget holds from the first step on; a run that ends early has no smaller epsilon",
            f"the price of that freedom: had the schedule as it stands been fixed ahead, its epsilon would be "
            f"{epsilon_text(ahead)}",
            f"{ADJACENCIES['add-remove'].help}; delta = {delta}",
        ),
        not_covered=FILTER_NOT_COVERED,
    )


FILTER_NOT_COVERED = (
    ONE_EXAMPLE,
    "choosing the settings, the best seed or the best epoch by looking at results",
    "training loss, training accuracy and diagnostics: they are computed from private data without noise, so noise "
    "that is chosen by looking at them has no guarantee",
    "the people in the test data: test accuracy, by which the noise may be chosen, is computed without noise",
)
