"""Dominating pairs: two one-dimensional densities (first, second) that are at least as far apart as a step's outputs.

Their privacy loss L = log(first / second) rises with x: an interval of losses is an interval of x, and its mass under
each of them is a difference of normal distribution functions.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

FloatArray = NDArray[np.float64]

ROUNDING = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Steps:
    """One step each with these noise multipliers and sample rates."""

    sigma: FloatArray
    q: FloatArray

    def __getitem__(self, index: Any) -> Steps:
        return Steps(self.sigma[index], self.q[index])


@dataclass(frozen=True)
class Direction:
    """A dominating pair: mixtures (1-q) N(0) + q N(shift), or N(0) alone where the shift is 0."""

    name: str
    first: int
    second: int

    def place(self, losses: FloatArray, steps: Steps) -> FloatArray:
        """x at which the loss is taken; +-infinity beyond the attainable losses."""
        square, q = steps.sigma**2, steps.q
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            if self.second == 0:
                return 0.5 + square * _log1p_ratio(losses, q)
            if self.first == 0:
                return -0.5 - square * _log1p_ratio(-losses, q)
            # e^(x/sigma^2) solves a quadratic; its root in a form that keeps precision on both sides of 0.
            half = np.abs(losses) / 2
            log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
            big = np.log((1 - q) / q) + 0.5 / square + log_sinh
            root = np.where(big < 300, np.arcsinh(np.exp(np.minimum(big, 300.0))), big + math.log(2))
            return square * np.sign(losses) * (half + np.where(q < 1, root, 0.0))

    def masses(self, edges: FloatArray, steps: Steps) -> Masses:
        """Masses from each edge to the next one; the last entry is 0."""
        x, q = self.place(edges, steps), steps.q
        centre, centre_doubt = _to_next(x / steps.sigma)

        def shifted(shift: int) -> tuple[FloatArray, FloatArray]:
            return _to_next((x - shift) / steps.sigma) if shift else (centre, centre_doubt)

        (first, first_doubt), (second, second_doubt) = shifted(self.first), shifted(self.second)
        return Masses(
            first=(1 - q) * centre + q * first,
            second=(1 - q) * centre + q * second,
            excess=q * (first - second),
            excess_doubt=q * (first_doubt + second_doubt),
            second_doubt=(1 - q) * centre_doubt + q * second_doubt,
        )

    def least(self, q: FloatArray) -> FloatArray:
        """The loss when the example was not drawn: the least one of `remove`. At low noise most mass is near it."""
        return (self.second + self.first) * np.log1p(-np.where(q < 1, q, 0.0))

    def log_mixture(self, shift: int, x: FloatArray, steps: Steps) -> FloatArray:
        """log of the mixture's density at x over that of N(0)."""
        if not shift:
            return np.zeros(x.size)
        exponent = (2 * shift * x - 1) / (2 * steps.sigma**2)
        with np.errstate(divide="ignore"):
            return np.logaddexp(np.log1p(-steps.q), np.log(steps.q) + exponent)

    def loss_at(self, x: FloatArray, steps: Steps) -> FloatArray:
        return self.log_mixture(self.first, x, steps) - self.log_mixture(self.second, x, steps)


REMOVE, ADD, REPLACE = Direction("remove", 1, 0), Direction("add", 0, -1), Direction("replace", 1, -1)
DIRECTIONS: dict[str, tuple[Direction, ...]] = {"add-remove": (REMOVE, ADD), "replace-one": (REPLACE,)}


@dataclass(frozen=True)
class Masses:
    """Cells' masses under first and second, and what they differ by.

    At tiny sample rates both are all but equal, so the excess is made apart; taking one from the other would leave
    rounding, which ten million steps add up to more than epsilon. The doubts bound the rounding that is left.
    """

    first: FloatArray
    second: FloatArray
    excess: FloatArray  # first - second
    excess_doubt: FloatArray
    second_doubt: FloatArray

    def gap(self, growth: FloatArray) -> FloatArray:
        """first - e^loss second, for growth = e^loss - 1."""
        return self.excess - growth * self.second

    def doubt(self, growth: FloatArray) -> FloatArray:
        """How much rounding may have moved the gap."""
        return self.excess_doubt + np.abs(growth) * self.second_doubt

    def map(self, change: Callable[[FloatArray], FloatArray]) -> Masses:
        return Masses(*(change(getattr(self, field.name)) for field in dataclasses.fields(self)))


def _log1p_ratio(losses: FloatArray, q: FloatArray) -> FloatArray:
    """log((e^loss - 1 + q) / q), without overflow and precise near 0."""
    ratio = np.log1p(np.maximum(np.expm1(np.minimum(losses, 30.0)) / q, -1.0))
    low = np.flatnonzero(losses < -1.0)
    if low.size:
        ratio[low] = np.where(
            q[low] < 1, np.log(np.maximum(np.exp(losses[low]) - (1 - q[low]), 0.0) / q[low]), losses[low]
        )
    large = np.flatnonzero(losses > 30.0)
    if large.size:
        loss, rate = losses[large], q[large]
        ratio[large] = loss - np.log(rate) + np.log1p((rate - 1) * np.exp(-loss))
    return ratio


def _to_next(z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Normal mass from each number to the next, each tail from its own side so that it keeps precision; its rounding.

    z is off by a unit of rounding, its tail by z^2 as much, and by a few units of its own.
    """
    tail, above = ndtr(-np.abs(z)), z >= 0
    apart = tail[:-1] - tail[1:]
    mass, doubt = np.zeros(z.size), np.zeros(z.size)
    mass[:-1] = np.where(above[:-1], apart, np.where(above[1:], 1 - tail[:-1] - tail[1:], -apart))
    off = (8 + 2 * np.minimum(z * z, 2000.0)) * tail
    doubt[:-1] = ROUNDING * (off[:-1] + off[1:] + mass[:-1])
    return mass, doubt
