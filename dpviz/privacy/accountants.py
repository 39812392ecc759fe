"""ACCOUNTANTS: how steps are turned into an epsilon or a delta. What they rest on besides is in assumptions.py."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from dpviz.privacy.gaussian import gaussian_epsilon, log_delta
from dpviz.privacy.pld.bands import band, band_path, delta_band
from dpviz.privacy.pld.composition import Band
from dpviz.privacy.pld.loss_grid import GridTooLarge, NoBand
from dpviz.privacy.rdp import (
    CONVERSIONS,
    LARGEST_ORDER,
    LARGEST_SIGMA,
    ORDERS,
    FloatArray,
    least_epsilon,
    ledger_rdp,
)
from dpviz.privacy.records import Ledger, Phase
from dpviz.privacy.registry import Entry, Table

LARGEST_EPSILON = 1e10  # an upper bound above which no band is computed
LEAST_SIGMA = 0.05  # below it, the grid around a small epsilon takes minutes or overflows
LAST_ORDER = f"bound at the largest Renyi order, {LARGEST_ORDER:,.0f}: a still larger one may give less"
EVERY_ORDER = np.concatenate([ORDERS, np.geomspace(64, LARGEST_ORDER, 60)])
LEAST_LOG_DELTA = -600.0  # a smaller delta is rounded up to this one

Bounds = tuple[float, float, str | None]
"""Lower and upper end of an epsilon or a delta, and what stands in for the accountant's own figure, if it has none."""


@dataclass(frozen=True, kw_only=True)
class Accountant(Entry, ABC):
    """Prices steps that all have noise: Poisson-sampled ones, and unsampled ones, which compose to one Gaussian of mu.

    `adjacency` is one that others are priced as: add-remove or replace-one.
    """

    kind: str  # of its numbers, in words
    certified: bool = False  # whether lower ends say anything

    @abstractmethod
    def sampled(self, ledger: Ledger, delta: float, adjacency: str) -> Bounds:
        """Epsilon of a whole ledger."""

    @abstractmethod
    def unsampled(self, mu: float, delta: float) -> Bounds:
        """Epsilon of one Gaussian whose means lie mu standard deviations apart."""

    @abstractmethod
    def sampled_delta(self, ledger: Ledger, epsilon: float, adjacency: str) -> Bounds:
        """The same as `sampled`, asked for the other way round."""

    @abstractmethod
    def unsampled_delta(self, mu: float, epsilon: float) -> Bounds:
        """The same as `unsampled`, asked for the other way round."""

    def sampled_path(self, phases: Sequence[Phase], at: Sequence[int], delta: float, adjacency: str) -> list[Bounds]:
        """Epsilon after each of the phases `at`, of which the last one is the last of all."""
        return [self.sampled(Ledger(phases[: k + 1]), delta, adjacency) for k in at]

    def upper_deltas(self, ledger: Ledger, epsilons: FloatArray, adjacency: str) -> FloatArray:
        """Upper ends of `sampled_delta` at many epsilons, or something larger that is sooner had."""
        return np.array([self.sampled_delta(ledger, epsilon, adjacency)[1] for epsilon in epsilons.tolist()])


@dataclass(frozen=True, kw_only=True)
class Renyi(Accountant):
    """Upper bounds from Renyi moments by one of rdp.CONVERSIONS."""

    conversion: str
    kind: str = "RDP upper bound"

    def sampled(self, ledger: Ledger, delta: float, adjacency: str) -> Bounds:
        return _bounds(*least_epsilon(partial(_total, ledger, adjacency), delta, self.conversion))

    def unsampled(self, mu: float, delta: float) -> Bounds:
        return _bounds(*least_epsilon(lambda orders: orders * (mu * mu / 2), delta, self.conversion))

    def sampled_delta(self, ledger: Ledger, epsilon: float, adjacency: str) -> Bounds:
        return 0.0, self._smallest_delta(_total(ledger, adjacency, EVERY_ORDER), epsilon), None

    def unsampled_delta(self, mu: float, epsilon: float) -> Bounds:
        return 0.0, self._smallest_delta(EVERY_ORDER * (mu * mu / 2), epsilon), None

    def sampled_path(self, phases: Sequence[Phase], at: Sequence[int], delta: float, adjacency: str) -> list[Bounds]:
        totals = _running_totals(phases, at, adjacency)
        return [_bounds(*least_epsilon(total, delta, self.conversion, finer=False)) for total in totals]

    def upper_deltas(self, ledger: Ledger, epsilons: FloatArray, adjacency: str) -> FloatArray:
        rdp = _total(ledger, adjacency, EVERY_ORDER)
        return np.array([self._smallest_delta(rdp, epsilon) for epsilon in epsilons.tolist()])

    def _smallest_delta(self, rdp: FloatArray, epsilon: float) -> float:
        """Over the orders: both conversions are epsilon(delta) = epsilon(1) - log(delta) / (a - 1)."""
        log_deltas = (EVERY_ORDER - 1) * (CONVERSIONS[self.conversion](rdp, EVERY_ORDER, 1.0) - epsilon)
        return math.exp(min(max(float(log_deltas.min()), LEAST_LOG_DELTA), 0.0))


@dataclass(frozen=True, kw_only=True)
class LossDistribution(Accountant):
    """A certified band from the privacy-loss distribution, beside the bound from moments; exact for one Gaussian."""

    moments: Renyi
    kind: str = "certified"
    certified: bool = True

    def sampled(self, ledger: Ledger, delta: float, adjacency: str) -> Bounds:
        _, bound, _ = self.moments.sampled(ledger, delta, adjacency)
        try:
            _check_grid(ledger.phases, bound)
            return settled(band(ledger, delta, adjacency), bound)
        except NoBand as reason:
            return settled(reason, bound)

    def unsampled(self, mu: float, delta: float) -> Bounds:
        exact = gaussian_epsilon(mu, delta)
        return exact, exact, None

    def sampled_delta(self, ledger: Ledger, epsilon: float, adjacency: str) -> Bounds:
        _, bound, _ = self.moments.sampled_delta(ledger, epsilon, adjacency)
        try:
            if not all(phase.noise_multiplier >= LEAST_SIGMA for phase in ledger.phases):
                raise GridTooLarge(f"a noise multiplier below {LEAST_SIGMA:g} leaves losses too far apart for a grid")
            return settled(delta_band(ledger, epsilon, bound, adjacency), bound)
        except NoBand as reason:
            return settled(reason, bound)

    def unsampled_delta(self, mu: float, epsilon: float) -> Bounds:
        exact = math.exp(log_delta(epsilon, mu))
        return exact, exact, None

    def upper_deltas(self, ledger: Ledger, epsilons: FloatArray, adjacency: str) -> FloatArray:
        return self.moments.upper_deltas(ledger, epsilons, adjacency)

    def sampled_path(self, phases: Sequence[Phase], at: Sequence[int], delta: float, adjacency: str) -> list[Bounds]:
        """Where the whole has no certified band, its prefixes are not tried one by one."""
        bounds = [bound for _, bound, _ in self.moments.sampled_path(phases, at, delta, adjacency)]
        try:
            _check_grid(phases, bounds[-1])
            band(Ledger(phases), delta, adjacency)
            bands: Sequence[Band | NoBand] = band_path(phases, at, delta, adjacency)
        except NoBand as reason:
            bands = [reason] * len(at)
        return [settled(one, bound) for one, bound in zip(bands, bounds, strict=True)]


def settled(found: Band | NoBand, bound: float) -> Bounds:
    """What holds of the certified band, or the reason why there is none, and of the bound from moments."""
    if isinstance(found, NoBand):
        return 0.0, bound, f"RDP upper bound, because {found}"
    lower, upper = found
    if bound < lower:
        return 0.0, upper, "PLD upper bound alone, because the RDP bound lies below its lower end"
    if bound < upper:
        return lower, bound, "RDP upper bound, because it is smaller than the PLD's"
    return lower, upper, None


def _bounds(bound: float, order: float) -> Bounds:
    """An upper bound, which says so if it could be smaller still."""
    return 0.0, bound, LAST_ORDER if bound > 0 and order == LARGEST_ORDER else None


def _total(ledger: Ledger, adjacency: str, orders: FloatArray) -> FloatArray:
    return ledger_rdp(ledger, orders, adjacency).sum(axis=0)


def _running_totals(
    phases: Sequence[Phase], at: Sequence[int], adjacency: str
) -> list[Callable[[FloatArray], FloatArray]]:
    """RDP of the phases up to each of `at`. All of them try the same orders, so that each is added up once."""
    since, totals = [0, *(k + 1 for k in at[:-1])], dict[bytes, FloatArray]()

    def rdp(knot: int, orders: FloatArray) -> FloatArray:
        key = orders.tobytes()
        if key not in totals:
            parts = (Ledger(phases[a : k + 1]) for a, k in zip(since, at, strict=True))
            totals[key] = np.cumsum([_total(part, adjacency, orders) for part in parts], axis=0)
        return totals[key][knot]

    return [partial(rdp, knot) for knot in range(len(at))]


def _check_grid(phases: Sequence[Phase], bound: float) -> None:
    if not bound <= LARGEST_EPSILON:
        raise GridTooLarge(f"an epsilon above {LARGEST_EPSILON:g} is not worth a grid")
    if not all(phase.noise_multiplier <= LARGEST_SIGMA for phase in phases):
        raise GridTooLarge(f"a noise multiplier above {LARGEST_SIGMA:g} leaves losses too small for a grid")


_IMPROVED = Renyi(
    "rdp",
    "Renyi moments with the improved conversion (Balle et al. 2020): an upper bound.",
    title="RDP, improved",
    conversion="improved",
)
ACCOUNTANTS: Table[Accountant] = Table(
    "accountant",
    LossDistribution(
        "pld",
        "Privacy-loss distribution: a certified band around the true epsilon.",
        title="PLD (tight)",
        moments=_IMPROVED,
    ),
    _IMPROVED,
    Renyi(
        "rdp-classic",
        "Renyi moments with the classic conversion (Mironov 2017): a looser upper bound.",
        title="RDP, classic",
        conversion="classic",
    ),
)
