"""ACCOUNTANTS, and the three questions they answer: epsilon, the path of epsilon, and what each epoch costs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from dpviz.privacy.gaussian import composed_mu, gaussian_epsilon, visits
from dpviz.privacy.losses import GridTooLarge
from dpviz.privacy.pld import band, band_path
from dpviz.privacy.rdp import LARGEST_ORDER, LARGEST_SIGMA, FloatArray, least_epsilon, ledger_rdp, phase_rdp
from dpviz.privacy.records import Epsilon, Ledger, Phase, check_delta
from dpviz.privacy.tables import InputError, Table

ACCOUNTANTS = Table("accountant")
ACCOUNTANTS.add("pld", "Privacy-loss distribution: a certified band around the true epsilon.")
ACCOUNTANTS.add("rdp", "Renyi moments with the improved conversion (Balle et al. 2020): an upper bound.")
ACCOUNTANTS.add("rdp-classic", "Renyi moments with the classic conversion (Mironov 2017): a looser upper bound.")

ADJACENCIES = {
    "add-remove": "neighbours differ by adding or removing one example",
    "replace-one": "neighbours differ by replacing one example with another",
}
SAMPLINGS = {
    "poisson": "each example enters each batch independently with probability q",
    "fixed-order": "each example is in one batch an epoch, always in the same order: no amplification",
    "shuffled": "each example is in one batch an epoch, in random order: no tight accountant exists, so as if fixed",
}
MOST_KNOTS = 150  # epochs of a path that are priced one by one
LARGEST_EPSILON = 1e6  # an upper bound above which no band is computed
LAST_ORDER = f"bound at the largest Renyi order, {LARGEST_ORDER:,.0f}: a still larger one may give less"
CONVERSION = {"rdp": "improved", "rdp-classic": "classic"}


def epsilon(
    ledger: Ledger,
    delta: float,
    *,
    accountant: str = "pld",
    adjacency: str = "add-remove",
    sampling: str = "poisson",
) -> Epsilon:
    """What a ledger costs. For shuffled batches this is the guarantee without amplification."""
    return epsilon_path(ledger.phases, delta, accountant=accountant, adjacency=adjacency, sampling=sampling, last=True)[
        -1
    ]


def epsilon_path(
    phases: Sequence[Phase],
    delta: float,
    *,
    accountant: str = "pld",
    adjacency: str = "add-remove",
    sampling: str = "poisson",
    last: bool = False,
) -> tuple[Epsilon, ...]:
    """Epsilon after each phase (one an epoch); it never falls, and it ends at the epsilon of the whole ledger.

    With `last` only the end is computed.
    """
    _check(delta, accountant, adjacency, sampling)
    phases = tuple(phases)
    whole = Ledger(phases)
    if any(phase.noise_multiplier == 0 for phase in phases):
        return _with_infinity(phases, delta, accountant, adjacency, sampling, last)
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
    def rdp(orders: FloatArray) -> FloatArray:
        return ledger_rdp(ledger, orders, adjacency).sum(axis=0)

    bound = least_epsilon(rdp, delta, CONVERSION.get(accountant, "improved"))
    if accountant != "pld":
        return _renyi(*bound, delta, accountant)
    try:
        _check_grid(ledger, bound[0])
        lower, upper = band(ledger, delta, adjacency)
    except GridTooLarge as reason:
        return Epsilon(0.0, bound[0], delta, accountant, fallback=f"RDP upper bound, because {reason}")
    upper = min(upper, bound[0])
    return Epsilon(min(lower, upper), upper, delta, accountant)


def _check_grid(ledger: Ledger, bound: float) -> None:
    if not bound <= LARGEST_EPSILON:
        raise GridTooLarge(f"an epsilon above {LARGEST_EPSILON:g} is not worth a grid")
    if not all(phase.noise_multiplier <= LARGEST_SIGMA for phase in ledger.phases):
        raise GridTooLarge(f"a noise multiplier above {LARGEST_SIGMA:g} leaves losses too small for a grid")


def _unsampled(ledger: Ledger, delta: float, accountant: str, adjacency: str) -> Epsilon:
    """Gaussian composition: exact for the tight accountant, and RDP(a) = a mu^2 / 2 for the others."""
    mu = composed_mu(visits(ledger), adjacency)
    if accountant != "pld":
        bound = least_epsilon(lambda orders: orders * (mu * mu / 2), delta, CONVERSION[accountant])
        return _renyi(*bound, delta, accountant)
    exact = gaussian_epsilon(mu, delta)
    return Epsilon(exact, exact, delta, accountant)


def _renyi(bound: float, order: float, delta: float, accountant: str) -> Epsilon:
    """An upper bound, which says so if it could be smaller still."""
    last = bound > 0 and order == LARGEST_ORDER
    return Epsilon(0.0, bound, delta, accountant, fallback=LAST_ORDER if last else None)


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


def price_tags(
    phases: Sequence[Phase], delta: float, *, adjacency: str = "add-remove", sampling: str = "poisson"
) -> FloatArray:
    """Each epoch's share of the total cost, adding up to 1: its part of the Renyi divergence at the best order."""
    _check(delta, "rdp", adjacency, sampling)
    mus = np.array([composed_mu(visits(Ledger([phase])), adjacency) for phase in phases])

    def costs(orders: FloatArray) -> FloatArray:
        if sampling == "poisson":
            return phase_rdp(phases, orders, adjacency)
        return mus[:, None] ** 2 * orders / 2

    _, order = least_epsilon(lambda orders: costs(orders).sum(axis=0), delta)
    column = costs(np.array([order]))[:, 0]
    if not 0 < column.sum() < math.inf:  # the epochs that cost everything share it, or all do where none costs anything
        column = (column == column.max()).astype(float)
    return column / column.sum()


def _check(delta: float, accountant: str, adjacency: str, sampling: str) -> None:
    check_delta(delta)
    ACCOUNTANTS[accountant]
    for noun, name, known in (("adjacency", adjacency, ADJACENCIES), ("sampling", sampling, SAMPLINGS)):
        if name not in known:
            raise InputError(f"unknown {noun} {name!r}; choose one of {', '.join(known)}")
