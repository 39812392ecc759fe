"""Meet a budget: scale a curve and keep its shape, find the matching constant, or the most epochs that fit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Unpack

from dpviz.privacy.assumptions import SAMPLINGS, Assumptions, Named, assumed
from dpviz.privacy.prices import epsilon
from dpviz.privacy.records import Epsilon, epoch_phases
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import epsilon_number
from dpviz.privacy.schedules import MAX_SIGMA, Schedule, check_sigmas

TOLERANCE = 0.001  # a calibrated epsilon is at most this share below its target, and never above it
LARGEST = 1e6  # factor between the curve that was given and the one that meets the budget
MOST_EPOCHS = 10_000


@dataclass(frozen=True)
class Calibration:
    """The curve that meets the budget, and the epsilon that it achieves: never above the target."""

    factor: float
    sigmas: tuple[float, ...]
    epsilon: Epsilon


def calibrate(
    sigmas: Sequence[float],
    sample_rate: float,
    target: float,
    delta: float,
    assumptions: Assumptions | None = None,
    *,
    steps: int | None = None,
    tolerance: float = TOLERANCE,
    **named: Unpack[Named],
) -> Calibration:
    """Multiply a curve by the one factor at which it costs the target epsilon, or at most `tolerance` of it less.

    `steps` are those of an epoch (None: as many as dpviz counts).
    """
    assumptions = assumed(assumptions, named)
    shape = check_sigmas(sigmas)
    check_steps(steps, assumptions.sampling)
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance (share below the target) must be above 0 and below 1, got {tolerance:g}")
    if not 0 < target < math.inf:
        raise InputError(f"target epsilon must be a finite number > 0, got {target}")
    if not all(shape > 0):
        raise InputError("an epoch without noise costs infinity at any scale; raise its sigma above 0 first")

    def cost(factor: float) -> Epsilon:
        return epsilon(epoch_phases(factor * shape, sample_rate, steps), delta, assumptions)

    factor, achieved = _meet(cost, target, tolerance, largest=min(LARGEST, MAX_SIGMA / float(shape.max())))
    return Calibration(factor, tuple((factor * shape).tolist()), achieved)


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


def _meet(cost: Callable[[float], Epsilon], target: float, tolerance: float, largest: float) -> tuple[float, Epsilon]:
    """The factor whose epsilon lies in [(1 - tolerance) target, target]; epsilon falls as the factor rises.

    Where a band jumps over that interval, it is the smallest factor that was found to be cheap enough. Regula falsi on
    log epsilon over log factor, which is close to a straight line, kept honest by bisection.
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


def _height(found: Epsilon) -> float:
    return math.log(max(min(found.upper, 1e308), 1e-12))


def _bracket(
    cost: Callable[[float], Epsilon], target: float, largest: float
) -> tuple[tuple[float, Epsilon], tuple[float, Epsilon]]:
    """(log factor, epsilon) just too expensive and cheap enough; factors from 1 / LARGEST to `largest`."""
    start = cost(1.0)
    step = math.log(2.0)
    x, found = 0.0, start
    expensive = found.upper > target
    while True:
        x_next = min(x + step, math.log(largest)) if expensive else max(x - step, -math.log(LARGEST))
        if x_next == x:
            raise InputError(f"no scale of this schedule costs epsilon {target:g}; choose another target")
        found_next = cost(math.exp(x_next))
        if (found_next.upper > target) != expensive:
            here, there = (x, found), (x_next, found_next)
            return (here, there) if expensive else (there, here)
        x, found, step = x_next, found_next, step * 1.5
