"""Which grid suits a ledger: interval, window and tilts, from the log-moments of its loss.

Nothing here decides whether a bound holds, only how narrow the band is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri_exp

from dpviz.privacy.pld.dominating_pairs import DIRECTIONS, FloatArray, Steps
from dpviz.privacy.pld.loss_grid import Grid, GridTooLarge
from dpviz.privacy.rdp import ORDERS, ledger_rdp
from dpviz.privacy.records import Ledger

Moments = Callable[[FloatArray], FloatArray]  # K(t) = log E[e^(t L)] of the whole ledger, for each tilt t

TILT_RUNG, INTERVAL_RUNG = 1.25, 1.5  # ratios of the ladders: wide, so that a stroke seldom leaves its grid
LEAST_TILTED = 1e-12  # tilted mass at epsilon, per step, below which rounding would show
NEGLIGIBLE = 1e-7  # share of delta that truncation may cost
LEAST_CUT = 1e-290
NODES = 512  # of the quadrature for truncated moments


@dataclass(frozen=True)
class Shape:
    """How a ledger's loss is spread: enough to choose a grid of any fineness."""

    steps: int
    delta: float
    scatter: float  # log-moment per step over tilt (tilt + 1) / 2: about the variance of a step's loss
    tilt: float
    tilt_up: float
    tilt_down: float
    width: float

    @classmethod
    def of(cls, ledger: Ledger, delta: float, moments_of: Moments) -> Shape:
        """From the log-moments; tilts are rounded to ladders."""
        tilts, moments, k = saddle_point(moments_of, delta)
        scatter = 2 * moments[k] / ledger.steps / (tilts[k] * (tilts[k] + 1))
        epsilon = (moments[k + 1] - moments[k - 1]) / (tilts[k + 1] - tilts[k - 1])
        tilt, tilt_up, tilt_down = narrowest_window(tilts, moments, epsilon, delta, ledger.steps)
        rung = ladder(tilt, TILT_RUNG)
        below = ladder(tilt_down / tilt, TILT_RUNG) if tilt_down else 0.0
        chosen = rung * np.array([below, 1.0, max(TILT_RUNG, ladder(tilt_up / tilt, TILT_RUNG))])
        down, scale, up = (
            np.interp(chosen, np.append(0.0, tilts), np.append(0.0, moments))  # convex: never too small
            if chosen[2] <= tilts[-1]
            else np.where(chosen > 0, moments_of(np.maximum(chosen, 1e-9)), 0.0)
        )
        allowed = allowed_outside(rung, scale, epsilon, delta)
        width = (up - scale - allowed) / (chosen[2] - rung) - (scale - down + allowed) / (rung - chosen[0])
        if not (0 < width < math.inf and scatter > 0):
            raise GridTooLarge("the loss moments are too large")
        return cls(ledger.steps, delta, float(scatter), rung, float(chosen[2]), float(chosen[0]), float(width))

    def grid(self, tolerance: float) -> Grid:
        """Connecting the dots adds about interval^2 / 6 to the variance of a step's loss."""
        interval = ladder(math.sqrt(6 * tolerance * self.scatter), INTERVAL_RUNG)
        points = window_points(self.width / interval + 2)
        return Grid(interval, points, self.tilt, self.tilt_up, self.tilt_down, cut_mass(self.delta, self.steps))


def cut_mass(delta: float, steps: int) -> float:
    """Tail mass that a step may give up, on a ladder."""
    share = NEGLIGIBLE * delta / steps
    if not share > LEAST_CUT:
        raise GridTooLarge(f"delta {delta:g} is too small for the precision of a computer's numbers")
    return 10.0 ** math.floor(math.log10(share))


def likely_delta(ledger: Ledger, epsilon: float, adjacency: str, bound: float) -> float:
    """A guess at delta, a few times too large: Chernoff's bound on the truncated loss, given any bound on it."""
    tilts = np.geomspace(1e-3, 1e12, 300)
    for _ in range(10):
        moments = truncated_moments(ledger, adjacency, cut_mass(bound, ledger.steps))(tilts)
        log_delta = float((moments - tilts * epsilon - tilts * np.log1p(1 / tilts) - np.log1p(tilts)).min())
        if log_delta > math.log(bound / 2):
            break
        bound = math.exp(max(log_delta, -700.0))
    return bound


def usual_moments(ledger: Ledger, adjacency: str) -> Moments:
    """Those of the Renyi accountant: at the usual orders they are there already."""
    return lambda tilts: (
        ledger_rdp(ledger, ORDERS if np.array_equal(tilts, ORDERS - 1) else 1 + tilts, adjacency) * tilts
    ).sum(axis=0)


def truncated_moments(ledger: Ledger, adjacency: str, cut: float) -> Moments:
    """Those of the loss without the tail that the grid cuts off.

    At small sample rates and deltas high moments are all about outcomes that never happen (a loss of 50 with
    probability e^-1000). They hide the tilt that centres the loss on epsilon; without them it is found.
    """
    direction, far = DIRECTIONS[adjacency][0], -float(ndtri_exp(math.log(cut)))
    losses, log_masses = [], []
    for phase in ledger.phases:
        sigma = phase.noise_multiplier
        x = np.linspace(-9 * sigma - 1, far * sigma + 1, NODES)
        steps = Steps(np.full(NODES, sigma), np.full(NODES, phase.sample_rate))
        losses.append(direction.loss_at(x, steps))
        log_masses.append(direction.log_mixture(direction.first, x, steps) - 0.5 * (x / sigma) ** 2)

    def log_sums(tilt: float) -> FloatArray:
        exponents = tilt * np.array(losses) + np.array(log_masses)
        top = exponents.max(axis=1)
        return top + np.log(np.exp(exponents - top[:, None]).sum(axis=1))

    counts, total = np.array([phase.steps for phase in ledger.phases]), log_sums(0.0)
    return lambda tilts: np.array([counts @ (log_sums(float(tilt)) - total) for tilt in tilts])


def allowed_outside(tilt: Any, moment: Any, epsilon: float, delta: float) -> Any:
    """log of the tilted mass that may wrap around: its weight at epsilon turns it into 1e-4 of delta at most."""
    weight = moment - tilt * epsilon + tilt * np.log(tilt / (1 + tilt)) - np.log1p(tilt)
    return np.minimum(math.log(1e-4 * delta) - weight, math.log(1e-4))


def narrowest_window(
    tilts: FloatArray, moments: FloatArray, epsilon: float, delta: float, steps: int
) -> tuple[float, float, float]:
    """(tilt, upper tilt, lower tilt): the tilt whose window is the narrowest that wraps too little to matter.

    Tilted by t, the mass beyond s is at most e^(K(u) - K(t) - (u - t) s) for any other tilt u. A tilt far below the
    saddle point would drown in rounding.
    """
    others, other_moments = np.append(0.0, tilts), np.append(0.0, moments)
    apart = others[None, :] - tilts[:, None]
    allowed = allowed_outside(tilts, moments, epsilon, delta)
    with np.errstate(divide="ignore", invalid="ignore"):
        reach = (other_moments[None, :] - moments[:, None] - allowed[:, None]) / apart
    tops, bottoms = np.where(apart > 0, reach, np.inf), np.where(apart < 0, reach, -np.inf)
    visible = allowed > min(math.log(LEAST_TILTED * (steps + 1000)), float(allowed.max()) - 1)
    best = int(np.argmin(np.where(visible, tops.min(axis=1) - bottoms.max(axis=1), np.inf)))
    return float(tilts[best]), float(others[int(np.argmin(tops[best]))]), float(others[int(np.argmax(bottoms[best]))])


def window_points(needed: float) -> int:
    """The next of 4, 5, 6 times a power of 2: quick to transform, and few enough that rows are found again."""
    power = 2 ** max(6, math.floor(math.log2(needed)) - 2)
    return next(power * k for k in (4, 5, 6, 8) if power * k >= needed or k == 8)


def ladder(value: float, ratio: float) -> float:
    """The nearest rung below: neighbouring schedules then share their grid, and so their cached rows."""
    return ratio ** math.floor(math.log(value) / math.log(ratio))


def saddle_point(moments_of: Moments, delta: float) -> tuple[FloatArray, FloatArray, int]:
    """Tilts t, their log-moments K(t), and the index at which the tilted loss centres on epsilon.

    There log delta is about K(t) - t K'(t) - log(t (t + 1) sqrt(2 pi K''(t))).
    Alghamdi et al. (2022), arXiv:2208.09595, Sec. 4.
    """
    tilts, scale, may_rise = ORDERS - 1, 1.0, True
    for _ in range(20):
        t = scale * tilts
        k = moments_of(t)
        finite = k.size if np.isfinite(k).all() else int(np.argmin(np.isfinite(k)))
        if finite < 20:  # the moments explode: only smaller tilts can help
            scale, may_rise = scale / 4, False
            continue
        t, k = t[:finite], k[:finite]
        slope = np.gradient(k, t)
        variance = np.maximum(np.gradient(slope, t), 1e-300)
        excess = k - t * slope - np.log(t * (t + 1) * np.sqrt(2 * np.pi * variance)) - math.log(delta)
        if excess[2] < 0 and scale <= 1:  # differences are poor at the ends, so two tilts stay on each side
            scale *= tilts[10] / tilts[-4]
        elif excess[-3] > 0 and finite == tilts.size and scale >= 1 and may_rise:
            scale *= tilts[-4] / tilts[10]
        else:
            crossed = np.flatnonzero(excess[2:-2] <= 0)
            return t, k, 2 + int(crossed[0]) if crossed.size else t.size - 3
    raise GridTooLarge("no tilt centres the loss on epsilon")
