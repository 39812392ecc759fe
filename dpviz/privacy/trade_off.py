r"""Trade-off curves as polygons: what an attacker finds (true-positive rate) for what it accepts (false-positive rate).

An (epsilon, delta) guarantee is a line that no attack is above, and an attack is a point that the curve is not below:

    TPR(FPR) = min over epsilon of delta(epsilon) + e^epsilon FPR
    delta(epsilon) = max over FPR of TPR(FPR) - e^epsilon FPR

So guarantees make a curve from above, attacks one from below, and both are about every question here. Neighbours have
no order: with an attack (FPR, TPR) comes (1 - TPR, 1 - FPR), and mixtures of attacks fill the polygon.

Dong, Roth & Su (2019), arXiv:1905.02383, Prop. 2.12; Kaissis et al. (2024), arXiv:2406.08918, for the profile.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

FloatArray = NDArray[np.float64]

# Gaussian DP is about error rates from here on: below, a sampled Gaussian is that of its steps without sampling, and no
# smaller mu than theirs would do. The authors of the measure leave the same rates out.
LEAST_RATE = 1e-10
LARGEST_EPSILON = 700.0  # e^epsilon must be a number; a larger one matters at no rate that is one


class Gdp(NamedTuple):
    """The smallest mu whose Gaussian curve is nowhere below this one, and by how much it may lie above it."""

    mu: float
    regret: float


@dataclass(frozen=True, eq=False)
class TradeOff:
    """Vertices of a concave curve from FPR 0 to 1, never below the diagonal."""

    fprs: FloatArray
    tprs: FloatArray

    def tpr(self, fpr: Any) -> Any:
        return np.maximum(np.interp(fpr, self.fprs, self.tprs), fpr)

    def delta(self, epsilon: float) -> float:
        """delta at an epsilon >= 0: the most that TPR - e^epsilon FPR comes to."""
        if epsilon > LARGEST_EPSILON:  # no false positive is worth a true one
            return float(self.tprs[0])
        return min(max(float((self.tprs - math.exp(epsilon) * self.fprs).max()), 0.0), 1.0)

    def gdp(self) -> Gdp:
        """mu = max of Phi^-1(TPR) - Phi^-1(FPR), the regret the least D with f(x + D) - D <= f_mu(x), f = 1 - TPR.

        f_mu is convex, so it lies below every edge between two vertices that it lies below. Gomez, Kulynych et al.
        (2025), arXiv:2503.10945, Sec. 4.
        """
        fprs = np.append(LEAST_RATE, self.fprs)
        tprs = self.tpr(fprs)
        inner = (fprs >= LEAST_RATE) & (tprs <= 1 - LEAST_RATE) & (fprs + tprs <= 1)
        if not inner.any():
            return Gdp(math.inf, 0.0)
        mu = max(float((ndtri(tprs[inner]) - ndtri(fprs[inner])).max()), 0.0)
        fprs = np.concatenate([fprs[inner], np.linspace(0.0, 0.5, 500)])
        misses = 1 - self.tpr(fprs)
        low, high = np.zeros(fprs.size), np.ones(fprs.size)
        for _ in range(40):
            middle = (low + high) / 2
            enough = misses - middle <= _gaussian_misses(fprs - middle, mu)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return Gdp(mu, float(high.max()) if high.max() > 1e-9 else 0.0)


def _gaussian_misses(fprs: FloatArray, mu: float) -> FloatArray:
    """f_mu, and 1 left of 0: there is nothing that it could be below."""
    return np.where(fprs > 0, ndtr(-ndtri(np.maximum(fprs, 1e-300)) - mu), 1.0)


NOTHING = TradeOff(np.array([0.0, 1.0]), np.array([0.0, 1.0]))  # a coin: the curve of no information
EVERYTHING = TradeOff(np.array([0.0, 1.0]), np.array([1.0, 1.0]))


def from_guarantees(epsilons: FloatArray, deltas: FloatArray) -> TradeOff:
    """The curve below all lines of (epsilon, delta), epsilon rising from 0, and below their mirror images."""
    excess, deltas = _convex(np.expm1(epsilons), np.minimum.accumulate(deltas))
    excess, deltas = excess[::-1], deltas[::-1]  # the steepest line counts first
    fprs = np.append(0.0, -np.diff(deltas) / np.diff(excess))
    tprs = deltas + fprs + excess * fprs
    # Up to the other diagonal; from there on the mirror image counts.
    own = max(int(np.count_nonzero(fprs + tprs <= 1)), 1)
    middle = (1 - deltas[own - 1]) / (2 + excess[own - 1])
    return _mirrored(np.append(fprs[:own], middle), np.append(np.minimum(tprs[:own], 1.0), 1 - middle))


def from_attacks(fprs: FloatArray, tprs: FloatArray) -> TradeOff:
    """The curve through attacks and their mirror images; attacks that others surpass are left out."""
    order = np.argsort(fprs)
    fprs, tprs = np.append(0.0, fprs[order]), np.append(0.0, tprs[order])
    useful = (tprs > np.maximum.accumulate(np.append(-1.0, tprs[:-1]))) & (tprs > fprs) & (fprs + tprs <= 1)
    useful[0] = True
    return _mirrored(fprs[useful], tprs[useful])


def _mirrored(fprs: FloatArray, tprs: FloatArray) -> TradeOff:
    """A half and its mirror image; of vertices above each other the last one counts."""
    fprs, tprs = np.concatenate([fprs, 1 - tprs[::-1], [1.0]]), np.concatenate([tprs, 1 - fprs[::-1], [1.0]])
    last = np.append(np.diff(fprs) > 0, True)
    return TradeOff(fprs[last], tprs[last])


def _convex(x: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The corners of the convex hull from below. Only convex profiles are true, so that what lies above is loose."""
    while True:
        corner = np.ones(x.size, dtype=bool)
        with np.errstate(over="ignore", invalid="ignore"):
            corner[1:-1] = np.diff(y)[:-1] * ((x[2:] - x[:-2]) / np.diff(x)[:-1]) < y[2:] - y[:-2]
        if corner.all():
            return x, y
        x, y = x[corner], y[corner]  # none of the others is a corner, whatever else is left out
