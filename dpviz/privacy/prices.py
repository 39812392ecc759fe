"""What a ledger costs: its epsilon, the path of it, its delta, and what each epoch adds to it.

Each takes its assumptions as a record, or by name: epsilon(ledger, 1e-5, accountant="rdp").
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np

from dpviz.privacy.accountants import ACCOUNTANTS, Bounds
from dpviz.privacy.assumptions import SAMPLINGS, Assumptions, Named, assumed
from dpviz.privacy.gaussian import composed_mu, visits
from dpviz.privacy.rdp import FloatArray, least_epsilon, phase_rdp
from dpviz.privacy.records import Delta, Epsilon, Ledger, Phase, Phases, as_phases, check_delta, check_epsilon

MOST_KNOTS = 150  # epochs of a path that are priced one by one


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
    """Epsilon after each phase (one per epoch); it never falls, and it ends at the epsilon of the whole ledger.

    With `last` only the end is computed.
    """
    check_delta(delta)
    assumptions = assumed(assumptions, named)
    accountant, adjacency = ACCOUNTANTS[assumptions.accountant], assumptions.priced_as
    phases = as_phases(phases)
    whole = Ledger(phases)
    if any(phase.noise_multiplier == 0 for phase in phases):
        return _with_infinity(phases, delta, assumptions, last)
    amplified = is_amplified(whole, assumptions)

    def unsampled(ledger: Ledger) -> Bounds:
        return accountant.unsampled(composed_mu(visits(ledger), adjacency), delta)

    def cost(bounds: Bounds) -> Epsilon:
        lower, upper, fallback = bounds
        return Epsilon(lower, upper, delta, accountant.name, fallback)

    end = cost(accountant.sampled(whole, delta, adjacency) if amplified else unsampled(whole))
    if last:
        return (end,)
    at = _knots(len(phases))
    if amplified:
        path = accountant.sampled_path(phases, at, delta, adjacency)
    else:
        path = [unsampled(Ledger(phases[: k + 1])) for k in at]
    return _filled(_rising([*map(cost, path[:-1]), end]), at)


def delta(ledger: Phases, epsilon: float, assumptions: Assumptions | None = None, **named: Unpack[Named]) -> Delta:
    """The delta at which a ledger has this epsilon: the same guarantee, asked for the other way round."""
    check_epsilon(epsilon)
    assumptions = assumed(assumptions, named)
    accountant, adjacency = ACCOUNTANTS[assumptions.accountant], assumptions.priced_as
    ledger = Ledger(ledger)
    exposed = exposure(ledger, assumptions)
    if exposed:
        return Delta(exposed if accountant.certified else 0.0, 1.0, epsilon, accountant.name)
    if is_amplified(ledger, assumptions):
        bounds = accountant.sampled_delta(ledger, epsilon, adjacency)
    else:
        bounds = accountant.unsampled_delta(composed_mu(visits(ledger), adjacency), epsilon)
    lower, upper, fallback = bounds
    return Delta(lower, upper, epsilon, accountant.name, fallback)


def exposure(ledger: Ledger, assumptions: Assumptions) -> float:
    """How likely an example is in a step without noise, where it is known for sure; 0 if every step has noise."""
    return usage([phase for phase in ledger.phases if phase.noise_multiplier == 0], assumptions)


def usage(phases: Sequence[Phase], assumptions: Assumptions) -> float:
    """How likely an example is in any of these steps. If it is not, nothing depends on it at any noise."""
    sampled = SAMPLINGS[assumptions.sampling].amplified
    rates = [phase.sample_rate if sampled else 1.0 for phase in phases]
    unused = sum(p.steps * math.log1p(-q) if q < 1 else -math.inf for p, q in zip(phases, rates, strict=True))
    return -math.expm1(unused)


def upper_deltas(ledger: Ledger, epsilons: FloatArray, assumptions: Assumptions) -> FloatArray:
    """A delta that holds at each epsilon, cheap for many of them; every step has noise."""
    accountant, adjacency = ACCOUNTANTS[assumptions.accountant], assumptions.priced_as
    if is_amplified(ledger, assumptions):
        return accountant.upper_deltas(ledger, epsilons, adjacency)
    mu = composed_mu(visits(ledger), adjacency)
    return np.array([accountant.unsampled_delta(mu, epsilon)[1] for epsilon in epsilons.tolist()])


def is_amplified(ledger: Ledger, assumptions: Assumptions) -> bool:
    return SAMPLINGS[assumptions.sampling].amplified and any(phase.sample_rate < 1 for phase in ledger.phases)


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
    adjacency, sampled = assumptions.priced_as, SAMPLINGS[assumptions.sampling].amplified
    phases = as_phases(phases)
    mus = np.array([composed_mu(visits(Ledger([phase])), adjacency) for phase in phases])

    def costs(orders: FloatArray) -> FloatArray:
        return phase_rdp(phases, orders, adjacency) if sampled else mus[:, None] ** 2 * orders / 2

    _, order = least_epsilon(lambda orders: costs(orders).sum(axis=0), delta)
    column = costs(np.array([order]))[:, 0]
    if not 0 < column.sum() < math.inf:  # the epochs that cost everything share it, or all do where none costs anything
        column = (column == column.max()).astype(float)
    return column / column.sum()
