"""Meet a budget in epsilon or in risk: scale a curve, find the matching constant, or the most epochs that fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, Unpack

from scipy.special import ndtri

from dpviz.privacy.assumptions import SAMPLINGS, Assumptions, Named, assumed
from dpviz.privacy.prices import epsilon
from dpviz.privacy.records import Epsilon, Phase, epoch_phases
from dpviz.privacy.registry import Entry, InputError, Table
from dpviz.privacy.risk import Bounds, Risk, risk
from dpviz.privacy.rounding import delta_number, epsilon_number
from dpviz.privacy.schedules import MAX_SIGMA, Schedule, check_sigmas

TOLERANCE = 0.001  # a calibrated epsilon is at most this share below its target, and never above it
LARGEST = 1e6  # factor between the curve that was given and the one that meets the budget
MOST_EPOCHS = 10_000
Cost = TypeVar("Cost", Epsilon, Bounds)


@dataclass(frozen=True, kw_only=True)
class Measure(Entry):
    """What a budget may be in: a number that falls as noise rises, below `most`. `of_risk` is None for epsilon.

    `mu(value, fpr)` is that of the Gaussian mechanism with this risk.
    """

    symbol: str
    usual: float  # a budget to begin with
    most: float = math.inf
    at_fpr: bool = False  # it depends on the false-positive rate
    of_risk: Callable[[Risk, float], Bounds] | None = None
    mu: Callable[[float, float], float] = lambda value, fpr: value

    def cost(self, phases: tuple[Phase, ...], delta: float, assumptions: Assumptions, fpr: float) -> Any:
        return self.of_risk(risk(phases, assumptions), fpr) if self.of_risk else epsilon(phases, delta, assumptions)


MEASURES = Table(
    "measure",
    Measure("epsilon", "epsilon at delta", title="ε", symbol="ε", usual=2.0),
    Measure(
        "advantage",
        "the attacker's advantage",
        symbol="advantage",
        usual=0.1,
        most=1.0,
        of_risk=lambda risk, fpr: risk.advantage,
        mu=lambda advantage, fpr: 2 * float(ndtri((1 + advantage) / 2)),
    ),
    Measure(
        "tpr",
        "the share of members found at a false-positive rate",
        title="Members found",
        symbol="members found",
        usual=0.01,
        most=1.0,
        at_fpr=True,
        of_risk=lambda risk, fpr: risk.tpr(fpr),
        mu=lambda tpr, fpr: float(ndtri(tpr) - ndtri(fpr)),
    ),
    Measure(
        "mu",
        "mu of Gaussian DP",
        title="μ",
        symbol="μ",
        usual=0.5,
        of_risk=lambda risk, fpr: Bounds(0.0, risk.gdp.mu),
    ),
)


@dataclass(frozen=True)
class Target:
    """A budget: never to exceed this value of a measure. `fpr` is the false-positive rate at which "tpr" is taken."""

    value: float
    measure: str = "epsilon"
    fpr: float = 0.001

    def __post_init__(self) -> None:
        if not 0 <= self.fpr < 1:
            raise InputError(f"fpr is a probability and must be at least 0 and below 1, got {self.fpr}")
        measure = MEASURES[self.measure]
        least, most = self.fpr if measure.at_fpr else 0.0, measure.most
        if not least < self.value < most:
            limits = f"a finite number > {least:g}" if most == math.inf else f"above {least:g} and below {most:g}"
            raise InputError(f"target {self.measure} must be {limits}, got {self.value}")


@dataclass(frozen=True)
class Calibration:
    """The curve that meets the budget, its epsilon, and what it achieves in the target's measure: never above it."""

    factor: float
    sigmas: tuple[float, ...]
    epsilon: Epsilon
    achieved: float


def calibrate(
    sigmas: Sequence[float],
    sample_rate: float,
    target: float | Target,
    delta: float,
    assumptions: Assumptions | None = None,
    *,
    steps: int | None = None,
    tolerance: float = TOLERANCE,
    **named: Unpack[Named],
) -> Calibration:
    """Multiply a curve by the one factor at which it costs the target, or at most `tolerance` of it less.

    A plain number is an epsilon; Target(0.05, "advantage") is a risk. `steps` are those of an epoch (None: as many as
    dpviz counts).
    """
    assumptions = assumed(assumptions, named)
    shape = check_sigmas(sigmas)
    check_steps(steps, assumptions.sampling)
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance (share below the target) must be above 0 and below 1, got {tolerance:g}")
    target = target if isinstance(target, Target) else Target(target)
    if not all(shape > 0):
        raise InputError("an epoch without noise costs infinity at any scale; raise its sigma above 0 first")

    def cost(factor: float, measure: str = target.measure) -> Any:
        phases = epoch_phases(factor * shape, sample_rate, steps)
        return MEASURES[measure].cost(phases, delta, assumptions, target.fpr)

    factor, achieved = _meet(cost, target.value, tolerance, largest=min(LARGEST, MAX_SIGMA / float(shape.max())))
    return Calibration(factor, tuple((factor * shape).tolist()), cost(factor, "epsilon"), achieved.upper)


def matching_constant(
    sigmas: Sequence[float],
    sample_rate: float,
    delta: float,
    assumptions: Assumptions | None = None,
    *,
    steps: int | None = None,
    tolerance: float = TOLERANCE,
    **named: Unpack[Named],
) -> Calibration:
    """The constant noise that costs the same epsilon as a curve, under the same accountant."""
    assumptions = assumed(assumptions, named)
    check_steps(steps, assumptions.sampling)
    target = epsilon(epoch_phases(sigmas, sample_rate, steps), delta, assumptions).upper
    if not 0 < target < math.inf:
        raise InputError(f"the schedule costs epsilon {target}, which no constant noise can match")
    # Start from the constant of the same mean precision, which is close.
    guess = math.sqrt(len(sigmas) / sum(1 / sigma**2 for sigma in sigmas))
    constant = [guess] * len(sigmas)
    return calibrate(constant, sample_rate, target, delta, assumptions, steps=steps, tolerance=tolerance)


def most_epochs(
    schedule: Schedule,
    sample_rate: float,
    target: float,
    delta: float,
    assumptions: Assumptions | None = None,
    *,
    steps: int | None = None,
    **named: Unpack[Named],
) -> tuple[int, Epsilon]:
    """The largest number of epochs over which the schedule, stretched to fit, stays within the target epsilon."""
    assumptions = assumed(assumptions, named)
    check_steps(steps, assumptions.sampling)
    if not 0 < target < math.inf:
        raise InputError(f"target epsilon must be a finite number > 0, got {target}")

    def cost(epochs: int) -> Epsilon:
        return epsilon(epoch_phases(schedule.sigmas(epochs), sample_rate, steps), delta, assumptions)

    if cost(1).upper > target:
        first = epsilon_number(cost(1).upper)
        raise InputError(f"one epoch of this schedule already costs {first}, above the target {target:g}")
    low, high = 1, 2
    while high <= MOST_EPOCHS and cost(high).upper <= target:
        low, high = high, 2 * high
    high = min(high, MOST_EPOCHS + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle).upper <= target else (low, middle)
    return low, cost(low)


def check_steps(steps: int | None, sampling: str) -> None:
    """Steps of an epoch can be chosen only where batches are sampled."""
    if steps is not None and not SAMPLINGS[sampling].amplified:
        raise InputError(
            f"with {sampling} batches each example is met once per epoch, however many steps that takes; give the "
            "epochs and leave the steps out"
        )


def _meet(cost: Callable[[float], Cost], target: float, tolerance: float, largest: float) -> tuple[float, Cost]:
    """The factor whose cost lies in [(1 - tolerance) target, target]; the cost falls as the factor rises.

    Where a band jumps over that interval, it is the smallest factor that was found to be cheap enough. Regula falsi on
    log cost over log factor, which is close to a straight line, kept honest by bisection.
    """
    aim = math.log(target * (1 - tolerance / 3))
    low, high = _bracket(cost, target, largest)
    for round_ in range(100):
        (x0, e0), (x1, e1) = low, high
        y0, y1 = _height(e0), _height(e1)
        x = x0 + (x1 - x0) * (y0 - aim) / (y0 - y1) if round_ % 4 != 3 and y0 > y1 and y0 < 700 else (x0 + x1) / 2
        x = min(max(x, x0 + 0.01 * (x1 - x0)), x1 - 0.01 * (x1 - x0))
        found = cost(math.exp(x))
        if (1 - tolerance) * target <= found.upper <= target:
            return math.exp(x), found
        if found.upper > target:
            low = (x, found)
        else:
            high = (x, found)
        if high[0] - low[0] < 1e-12:
            break
    return math.exp(high[0]), high[1]


def _height(found: Epsilon | Bounds) -> float:
    return math.log(max(min(found.upper, 1e308), 1e-12))


def _bracket(
    cost: Callable[[float], Cost], target: float, largest: float
) -> tuple[tuple[float, Cost], tuple[float, Cost]]:
    """(log factor, cost) just too expensive and cheap enough; factors from 1 / LARGEST to `largest`."""
    start = cost(1.0)
    step = math.log(2.0)
    x, found = 0.0, start
    expensive = found.upper > target
    while True:
        x_next = min(x + step, math.log(largest)) if expensive else max(x - step, -math.log(LARGEST))
        if x_next == x:
            limit, change = ("as much noise as is allowed", "larger") if expensive else ("hardly any noise", "smaller")
            raise InputError(
                f"no scale of this schedule meets the target {target:g}: with {limit} it comes to "
                f"{delta_number(found.upper, up=expensive)}; choose a {change} one"
            )
        found_next = cost(math.exp(x_next))
        if (found_next.upper > target) != expensive:
            here, there = (x, found), (x_next, found_next)
            return (here, there) if expensive else (there, here)
        x, found, step = x_next, found_next, step * 1.5
