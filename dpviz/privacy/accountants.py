"""ACCOUNTANTS, and the three questions they answer: epsilon, the path of epsilon, and what each epoch costs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from dpviz.privacy.gaussian import composed_mu, gaussian_epsilon, visits
from dpviz.privacy.losses import GridTooLarge
from dpviz.privacy.pld import band, band_path
from dpviz.privacy.rdp import ORDERS, FloatArray, ledger_rdp, smallest_epsilon
from dpviz.privacy.records import Epsilon, Ledger, Phase, Phases, as_phases, check_delta
from dpviz.privacy.tables import InputError, Table

ACCOUNTANTS = Table("accountant")
ACCOUNTANTS.add("pld", "Privacy-loss distribution: a certified band around the true epsilon.")
ACCOUNTANTS.add("rdp", "Renyi moments with the improved conversion (Balle et al. 2020): an upper bound.")
ACCOUNTANTS.add("rdp-classic", "Renyi moments with the classic conversion (Mironov 2017): a looser upper bound.")

# Every adjacency names the one whose price it takes: under Poisson sampling an example that counts nothing and one that
# is absent change a batch alike.
ADJACENCIES = Table("adjacency")
ADJACENCIES.add("add-remove", "neighbours differ by adding or removing one example", {"priced_as": "add-remove"})
ADJACENCIES.add(
    "zero-out",
    "neighbours differ by one example that counts nothing in one of them; every batch keeps its other examples",
    {"priced_as": "add-remove"},
)
ADJACENCIES.add("replace-one", "neighbours differ by replacing one example with another", {"priced_as": "replace-one"})

# Every sampling names the adjacencies for which its price holds; the first one is its default.
SAMPLINGS = Table("sampling")
SAMPLINGS.add(
    "poisson",
    "each example enters each batch independently with probability q",
    {"adjacencies": ("add-remove", "zero-out", "replace-one")},
)
SAMPLINGS.add(
    "fixed-order",
    "each example is in one batch per epoch, always in the same order: no amplification",
    {"adjacencies": ("zero-out", "replace-one")},
)
SAMPLINGS.add(
    "shuffled",
    "each example is in one batch per epoch, in random order: no tight accountant exists, so as if fixed",
    {"adjacencies": ("zero-out", "replace-one")},
)
MOST_KNOTS = 150  # epochs of a path that are priced one by one
CONVERSION = {"rdp": "improved", "rdp-classic": "classic"}


def adjacency_of(sampling: str, adjacency: str | None = None) -> str:
    """The neighbours that a price under this sampling is about: as asked, or the sampling's default.

    In batches of a fixed or shuffled order one example less moves all later examples to other places, which changes
    every later batch. No price here covers that, so add-remove is refused there.
    """
    allowed: tuple[str, ...] = SAMPLINGS[sampling].facts["adjacencies"]
    if adjacency is None:
        return allowed[0]
    if ADJACENCIES[adjacency].name not in allowed:
        raise InputError(
            f"{adjacency} has no price with {sampling} batches: one example less would shift all later batches; choose "
            + " or ".join(allowed)
        )
    return adjacency


def nearest_adjacency(sampling: str, adjacency: str | None) -> str:
    """The adjacency where the sampling allows it, else the sampling's default."""
    return adjacency_of(sampling, adjacency if adjacency in SAMPLINGS[sampling].facts["adjacencies"] else None)


def epsilon(
    ledger: Phases,
    delta: float,
    *,
    accountant: str = "pld",
    adjacency: str | None = None,
    sampling: str = "poisson",
) -> Epsilon:
    """What a ledger costs. For shuffled batches this is the guarantee without amplification.

    A plain list will do: epsilon([(1.1, 0.01, 2000)], 1e-5) is 2,000 steps of noise 1.1 at sample rate 0.01.
    """
    return epsilon_path(ledger, delta, accountant=accountant, adjacency=adjacency, sampling=sampling, last=True)[-1]


def epsilon_path(
    phases: Phases,
    delta: float,
    *,
    accountant: str = "pld",
    adjacency: str | None = None,
    sampling: str = "poisson",
    last: bool = False,
) -> tuple[Epsilon, ...]:
    """Epsilon after each phase (one an epoch); it never falls, and it ends at the epsilon of the whole ledger.

    With `last` only the end is computed.
    """
    adjacency = _check(delta, accountant, adjacency, sampling)
    phases = as_phases(phases)
    whole = Ledger(phases)
    if any(phase.noise_multiplier == 0 for phase in phases):
        return _with_infinity(phases, delta, accountant, adjacency, sampling, last)
    adjacency = ADJACENCIES[adjacency].facts["priced_as"]
    amplified = sampling == "poisson" and any(phase.sample_rate < 1 for phase in phases)
    price = _sampled if amplified else _unsampled
    end = price(whole, delta, accountant, adjacency)
    if last:
        return (end,)
    at = _knots(len(phases))
    if amplified and accountant == "pld" and end.fallback is None:
        path = [Epsilon(lower, upper, delta, accountant) for lower, upper in band_path(phases, at, delta, adjacency)]
    else:
        path = [price(Ledger(phases[: k + 1]), delta, accountant, adjacency) for k in at]
    return _filled(_rising([*path[:-1], end]), at)


def _knots(epochs: int) -> list[int]:
    """The epochs that are priced: all of them, or, of a very long run, some that grow apart."""
    if epochs <= MOST_KNOTS:
        return list(range(epochs))
    return sorted({round(k) - 1 for k in np.geomspace(1, epochs, MOST_KNOTS)})


def _filled(priced: tuple[Epsilon, ...], at: list[int]) -> tuple[Epsilon, ...]:
    """An epoch between two priced ones costs at most the later one and at least the earlier one."""
    path: list[Epsilon] = []
    for k, point in zip(at, priced, strict=True):
        between = dataclasses.replace(point, lower=path[-1].lower if path else 0.0)
        path += [between] * (k - len(path)) + [point]
    return tuple(path)


def _with_infinity(
    phases: tuple[Phase, ...], delta: float, accountant: str, adjacency: str, sampling: str, last: bool
) -> tuple[Epsilon, ...]:
    """An epoch without noise costs everything, from then on."""
    spent = Epsilon(math.inf, math.inf, delta, accountant)
    if last:
        return (spent,)
    first = next(k for k, phase in enumerate(phases) if phase.noise_multiplier == 0)
    before: tuple[Epsilon, ...] = ()
    if first:
        before = epsilon_path(phases[:first], delta, accountant=accountant, adjacency=adjacency, sampling=sampling)
    return before + (spent,) * (len(phases) - first)


def _sampled(ledger: Ledger, delta: float, accountant: str, adjacency: str) -> Epsilon:
    bound = smallest_epsilon(
        ledger_rdp(ledger, ORDERS, adjacency).sum(axis=0), delta, CONVERSION.get(accountant, "improved")
    )
    if accountant != "pld":
        return Epsilon(0.0, bound[0], delta, accountant)
    try:
        lower, upper = band(ledger, delta, adjacency)
    except GridTooLarge as reason:
        return Epsilon(0.0, bound[0], delta, accountant, fallback=f"RDP upper bound, because {reason}")
    upper = min(upper, bound[0])
    return Epsilon(min(lower, upper), upper, delta, accountant)


def _unsampled(ledger: Ledger, delta: float, accountant: str, adjacency: str) -> Epsilon:
    """Gaussian composition: exact for the tight accountant, and RDP(a) = a mu^2 / 2 for the others."""
    mu = composed_mu(visits(ledger), adjacency)
    if accountant != "pld":
        bound, _ = smallest_epsilon(ORDERS * mu * mu / 2, delta, CONVERSION[accountant])
        return Epsilon(0.0, bound, delta, accountant)
    exact = gaussian_epsilon(mu, delta)
    return Epsilon(exact, exact, delta, accountant)


def _rising(path: list[Epsilon]) -> tuple[Epsilon, ...]:
    """Each prefix costs at most what the whole does: both bounds may use that."""
    top, rising, lower = path[-1].upper, [], 0.0
    upper = 0.0
    for point in path:
        upper = min(max(upper, point.upper), top)
        lower = min(max(lower, point.lower), upper)
        rising.append(Epsilon(lower, upper, point.delta, point.accountant, point.fallback))
    rising[-1] = path[-1]
    return tuple(rising)


def price_tags(phases: Phases, delta: float, *, adjacency: str | None = None, sampling: str = "poisson") -> FloatArray:
    """Each epoch's share of the total cost, adding up to 1: its part of the Renyi divergence at the best order."""
    adjacency = ADJACENCIES[_check(delta, "rdp", adjacency, sampling)].facts["priced_as"]
    phases = as_phases(phases)
    free = np.array([phase.noise_multiplier == 0 for phase in phases])
    if free.any():
        return free / free.sum()
    if sampling == "poisson":
        costs = np.stack([ledger_rdp(Ledger([phase]), ORDERS, adjacency)[0] for phase in phases])
    else:
        mus = np.array([composed_mu(visits(Ledger([phase])), adjacency) for phase in phases])
        costs = mus[:, None] ** 2 * ORDERS / 2
    _, order = smallest_epsilon(costs.sum(axis=0), delta)
    column = costs[:, int(np.argmin(np.abs(ORDERS - order)))]
    return column / column.sum()


def _check(delta: float, accountant: str, adjacency: str | None, sampling: str) -> str:
    """Refuse what cannot be priced; the adjacency that the price is about."""
    check_delta(delta)
    ACCOUNTANTS[accountant]
    return adjacency_of(sampling, adjacency)
