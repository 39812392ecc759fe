"""The questions that accountants answer: epsilon, its path, delta, and what each epoch costs.

Each takes its assumptions as a record, or by name: epsilon(ledger, 1e-5, accountant="rdp").
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Unpack

import numpy as np

from dpviz.privacy.assumptions import Assumptions, Named, assumed
from dpviz.privacy.gaussian import composed_mu, gaussian_epsilon, log_delta, visits
from dpviz.privacy.pld.composition import Band, band, band_path, delta_band
from dpviz.privacy.pld.loss_grid import GridTooLarge, NoBand
from dpviz.privacy.rdp import (
    CONVERSIONS,
    LARGEST_ORDER,
    LARGEST_SIGMA,
    ORDERS,
    FloatArray,
    least_epsilon,
    ledger_rdp,
    phase_rdp,
)
from dpviz.privacy.records import Delta, Epsilon, Ledger, Phase, Phases, as_phases, check_delta, check_epsilon

MOST_KNOTS = 150  # epochs of a path that are priced one by one
LARGEST_EPSILON = 1e10  # an upper bound above which no band is computed
LAST_ORDER = f"bound at the largest Renyi order, {LARGEST_ORDER:,.0f}: a still larger one may give less"
EVERY_ORDER = np.concatenate([ORDERS, np.geomspace(64, LARGEST_ORDER, 60)])
CONVERSION = {"rdp": "improved", "rdp-classic": "classic"}
LEAST_LOG_DELTA = -600.0  # a smaller delta is rounded up to this one


def epsilon(ledger: Phases, delta: float, assumptions: Assumptions | None = None, **named: Unpack[Named]) -> Epsilon:
    """What a ledger costs. For shuffled batches this is the guarantee without amplification.

    A plain list will do: epsilon([(1.1, 0.01, 2000)], 1e-5) is 2,000 steps of noise 1.1 at sample rate 0.01.
    """
    return epsilon_path(ledger, delta, assumed(assumptions, named), last=True)[-1]


def epsilon_path(
    phases: Phases,
    delta: float,
    assumptions: Assumptions | None = None,
    *,
    last: bool = False,
    **named: Unpack[Named],
) -> tuple[Epsilon, ...]:
    """Epsilon after each phase (one an epoch); it never falls, and it ends at the epsilon of the whole ledger.

    With `last` only the end is computed.
    """
    check_delta(delta)
    assumptions = assumed(assumptions, named)
    accountant, adjacency = assumptions.accountant, assumptions.priced_as
    phases = as_phases(phases)
    whole = Ledger(phases)
    if any(phase.noise_multiplier == 0 for phase in phases):
        return _with_infinity(phases, delta, assumptions, last)
    amplified = is_amplified(whole, assumptions)
    end = (_sampled if amplified else _unsampled)(whole, delta, accountant, adjacency)
    if last:
        return (end,)
    at = _knots(len(phases))
    if amplified:
        path = _sampled_path(phases, at, delta, accountant, adjacency)
    else:
        path = [_unsampled(Ledger(phases[: k + 1]), delta, accountant, adjacency) for k in at]
    return _filled(_rising([*path[:-1], end]), at)


def delta(ledger: Phases, epsilon: float, assumptions: Assumptions | None = None, **named: Unpack[Named]) -> Delta:
    """The delta at which a ledger has this epsilon: the same guarantee, asked for the other way round."""
    check_epsilon(epsilon)
    assumptions = assumed(assumptions, named)
    accountant, adjacency = assumptions.accountant, assumptions.priced_as
    ledger = Ledger(ledger)
    exposed = exposure(ledger, assumptions)
    if exposed:
        return Delta(exposed if accountant == "pld" else 0.0, 1.0, epsilon, accountant)
    if not is_amplified(ledger, assumptions) and accountant == "pld":
        exact = math.exp(log_delta(epsilon, composed_mu(visits(ledger), adjacency)))
        return Delta(exact, exact, epsilon, accountant)
    bound = renyi_delta(ledger, assumptions)(epsilon)
    if accountant != "pld":
        return Delta(0.0, bound, epsilon, accountant)
    try:
        found: Band | NoBand = delta_band(ledger, epsilon, bound, adjacency)
    except NoBand as reason:
        found = reason
    lower, upper, fallback = _settled(found, bound)
    return Delta(lower, upper, epsilon, accountant, fallback)


def exposure(ledger: Ledger, assumptions: Assumptions) -> float:
    """How likely an example is in a step without noise, where it is known for sure; 0 if every step has noise."""
    spoilt = [phase for phase in ledger.phases if phase.noise_multiplier == 0]
    sampled = is_amplified(ledger, assumptions)
    rates = [phase.sample_rate if sampled else 1.0 for phase in spoilt]
    unmet = sum(p.steps * math.log1p(-q) if q < 1 else -math.inf for p, q in zip(spoilt, rates, strict=True))
    return -math.expm1(unmet)


def renyi_delta(ledger: Ledger, assumptions: Assumptions) -> Callable[[float], float]:
    """The smallest delta over the Renyi orders at each epsilon.

    Both conversions are epsilon(delta) = epsilon(1) - log(delta) / (a - 1).
    """
    adjacency, orders = assumptions.priced_as, EVERY_ORDER
    if is_amplified(ledger, assumptions):
        rdp = ledger_rdp(ledger, orders, adjacency).sum(axis=0)
    else:
        rdp = orders * (composed_mu(visits(ledger), adjacency) ** 2 / 2)
    at_one = CONVERSIONS[CONVERSION.get(assumptions.accountant, "improved")](rdp, orders, 1.0)

    def bound(epsilon: float) -> float:
        log_delta = float(((orders - 1) * (at_one - epsilon)).min())
        return math.exp(min(max(log_delta, LEAST_LOG_DELTA), 0.0))

    return bound


def is_amplified(ledger: Ledger, assumptions: Assumptions) -> bool:
    return assumptions.sampling == "poisson" and any(phase.sample_rate < 1 for phase in ledger.phases)


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
    phases: tuple[Phase, ...], delta: float, assumptions: Assumptions, last: bool
) -> tuple[Epsilon, ...]:
    """An epoch without noise costs everything, from then on."""
    spent = Epsilon(math.inf, math.inf, delta, assumptions.accountant)
    if last:
        return (spent,)
    first = next(k for k, phase in enumerate(phases) if phase.noise_multiplier == 0)
    before = epsilon_path(phases[:first], delta, assumptions) if first else ()
    return before + (spent,) * (len(phases) - first)


def _sampled(ledger: Ledger, delta: float, accountant: str, adjacency: str) -> Epsilon:
    def rdp(orders: FloatArray) -> FloatArray:
        return ledger_rdp(ledger, orders, adjacency).sum(axis=0)

    bound, order = least_epsilon(rdp, delta, CONVERSION.get(accountant, "improved"))
    if accountant != "pld":
        return _renyi(bound, order, delta, accountant)
    try:
        _check_grid(ledger, bound)
        found: Band | NoBand = band(ledger, delta, adjacency)
    except NoBand as reason:
        found = reason
    return _epsilon(found, bound, delta)


def _sampled_path(
    phases: tuple[Phase, ...], at: list[int], delta: float, accountant: str, adjacency: str
) -> list[Epsilon]:
    """Where the whole has no certified band, its prefixes are not tried one by one."""
    since, totals = [0, *(k + 1 for k in at[:-1])], dict[bytes, FloatArray]()

    def rdp(orders: FloatArray, knot: int) -> FloatArray:
        """Of the phases up to this knot. All knots try the same orders, so that each is added up once."""
        key = orders.tobytes()
        if key not in totals:
            parts = (Ledger(phases[a : k + 1]) for a, k in zip(since, at, strict=True))
            totals[key] = np.cumsum([ledger_rdp(part, orders, adjacency).sum(axis=0) for part in parts], axis=0)
        return totals[key][knot]

    conversion = CONVERSION.get(accountant, "improved")
    bounds = [least_epsilon(partial(rdp, knot=k), delta, conversion, finer=False) for k in range(len(at))]
    if accountant != "pld":
        return [_renyi(bound, order, delta, accountant) for bound, order in bounds]
    try:
        _check_grid(Ledger(phases), bounds[-1][0])
        band(Ledger(phases), delta, adjacency)
        found: Sequence[Band | NoBand] = band_path(phases, at, delta, adjacency)
    except NoBand as reason:
        found = [reason] * len(at)
    return [_epsilon(one, bound, delta) for one, (bound, _) in zip(found, bounds, strict=True)]


def _epsilon(found: Band | NoBand, bound: float, delta: float) -> Epsilon:
    lower, upper, fallback = _settled(found, bound)
    return Epsilon(lower, upper, delta, "pld", fallback)


def _settled(found: Band | NoBand, bound: float) -> tuple[float, float, str | None]:
    """(lower, upper, fallback) from the certified band, or why there is none, and the RDP bound."""
    if isinstance(found, NoBand):
        return 0.0, bound, f"RDP upper bound, because {found}"
    lower, upper = found
    if bound < lower:
        return 0.0, upper, "PLD upper bound alone, because the RDP bound lies below its lower end"
    if bound < upper:
        return lower, bound, "RDP upper bound, because it is smaller than the PLD's"
    return lower, upper, None


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
    for point in path[:-1]:
        upper, lower = min(max(upper, point.upper), top), max(lower, point.lower)
        if lower > upper:
            lower = 0.0
            point = dataclasses.replace(point, fallback="upper bound alone, because its path's bounds contradict it")
        rising.append(dataclasses.replace(point, lower=lower, upper=upper))
    return (*rising, path[-1])


def price_tags(
    phases: Phases, delta: float, assumptions: Assumptions | None = None, **named: Unpack[Named]
) -> FloatArray:
    """Each epoch's share of the total cost, adding up to 1: its part of the Renyi divergence at the best order.

    The shares are the same for every accountant.
    """
    check_delta(delta)
    assumptions = assumed(assumptions, named)
    adjacency, sampled = assumptions.priced_as, assumptions.sampling == "poisson"
    phases = as_phases(phases)
    mus = np.array([composed_mu(visits(Ledger([phase])), adjacency) for phase in phases])

    def costs(orders: FloatArray) -> FloatArray:
        return phase_rdp(phases, orders, adjacency) if sampled else mus[:, None] ** 2 * orders / 2

    _, order = least_epsilon(lambda orders: costs(orders).sum(axis=0), delta)
    column = costs(np.array([order]))[:, 0]
    if not 0 < column.sum() < math.inf:  # the epochs that cost everything share it, or all do where none costs anything
        column = (column == column.max()).astype(float)
    return column / column.sum()
