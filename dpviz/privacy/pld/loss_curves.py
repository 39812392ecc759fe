"""The whole loss distribution of a ledger, not only its end at one delta: guarantees that hold, attacks that exist.

One more pass over the rows, on a window that reaches from losses below 0 to those of probability 1e-14. Its tilt is a
small one, so that advantage and tail are both precise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dpviz.privacy.pld.bands import merged
from dpviz.privacy.pld.composition import Composed, composed, delta_at
from dpviz.privacy.pld.dominating_pairs import DIRECTIONS, FloatArray
from dpviz.privacy.pld.grids import (
    TILT_RUNG,
    Moments,
    cut_mass,
    ladder,
    saddle_point,
    truncated_moments,
    usual_moments,
    window_points,
)
from dpviz.privacy.pld.loss_grid import Grid, GridTooLarge, IntArray, NoBand
from dpviz.privacy.records import Ledger
from dpviz.privacy.trade_off import LARGEST_EPSILON

CENTRE = 1e-3  # the delta around whose tilts one is chosen
LEAST_DELTA = 1e-14  # what lies above the window weighs less: nothing beside the least rate that mu is about
CUT_FOR = 1e-8  # the steps' tails may be cut off as for this delta: 1e-15 of mass in all
LEAST_WRAPPED = 1e-7  # what lies below it weighs less, in an advantage
MOST_BLOWN_UP = 9.0  # log of the factor by which the tilt may blow up rounding at epsilon 0
# Relative errors of a step's log-moment, the first one for few distinct steps only: they are cheap, and mu then has
# four digits. The next one is tried where a window or all of a ledger's rows would take more grid points than this.
TOLERANCES, FEW = (3e-4, 0.003, 0.01, 0.1), 4
MOST_WINDOW, MOST_POINTS = 2**18, 2**22
MOST_INTERVAL = 1.0  # sums over coarser grids take long, and there is nothing left to tell apart
INTERVAL_RUNG = 1.1  # from one to the next risk jumps by less than calibration's tolerance
MOST_KNOTS = 2048


@dataclass(frozen=True, eq=False)
class LossCurves:
    """(epsilon, delta) that hold for both directions, and (false-positive, true-positive) rates of attacks that exist.

    Both are about all neighbours: an attack that tells them apart the other way round is there with its rates swapped.
    """

    epsilons: FloatArray
    deltas: FloatArray
    fprs: FloatArray
    tprs: FloatArray


@lru_cache(maxsize=16)  # a page asks for the same ledger several times
def _loss_curves(ledger: Ledger, adjacency: str) -> LossCurves | NoBand:
    try:
        grid = good_grid(ledger, adjacency)
        first, *others = DIRECTIONS[adjacency]
        guarantees = [_guarantees(composed("upper", direction, grid, ledger.phases)) for direction in (first, *others)]
        epsilons = np.unique(np.concatenate([epsilons for epsilons, _ in guarantees]))
        excess = np.expm1(epsilons)
        # delta is convex in e^epsilon, so the chord between two that hold holds; after the last one delta only falls.
        deltas = np.max([np.interp(excess, np.expm1(knots), values) for knots, values in guarantees], axis=0)
        # The first direction is the worst one: the attacks of the others are not needed.
        return LossCurves(epsilons, deltas, *_attacks(composed("lower", first, grid, ledger.phases)))
    except NoBand as reason:
        return reason


def loss_curves(ledger: Ledger, adjacency: str = "add-remove") -> LossCurves:
    """The curves of a ledger under Poisson sampling. Raises NoBand where no grid fits."""
    found = _loss_curves(merged(ledger), adjacency)
    if isinstance(found, NoBand):
        raise type(found)(*found.args)
    return found


def clear() -> None:
    """Forget every curve, as in a fresh process."""
    _loss_curves.cache_clear()


def _guarantees(upper: Composed) -> tuple[FloatArray, FloatArray]:
    """(epsilon, delta) at 0 and at losses above it."""
    k = _knots(upper.losses)
    epsilons = upper.losses[k]
    deltas = upper.curve[k] + upper.rounding * upper.scale(epsilons) + upper.outside + upper.infinite
    return np.append(0.0, epsilons), np.minimum(np.append(delta_at(0.0).upper(upper), deltas), 1.0)


def _attacks(lower: Composed) -> tuple[FloatArray, FloatArray]:
    """Rates of the attacks that say "member" where the loss is above a threshold of at least 0.

    The true-positive rate is the first-mass above it, the false-positive rate the second-mass, which is at most each
    outcome's first-mass times e^-loss.
    """
    k = _knots(lower.losses)
    losses = lower.losses[k]
    doubt = lower.doubt_above * lower.scale(losses)
    return np.exp(-losses) * (lower.discounted[k] + doubt), lower.curve[k] + lower.discounted[k] - doubt


def _knots(losses: FloatArray) -> IntArray:
    """Indices of the losses above 0, thinned out: of guarantees and of attacks any selection holds."""
    above, end = np.searchsorted(losses, [0.0, LARGEST_EPSILON], side="right")
    if above == end:
        raise GridTooLarge(f"all losses lie above {LARGEST_EPSILON:g}")
    return np.unique(np.linspace(above, end - 1, min(MOST_KNOTS, int(end - above))).round().astype(int))


def good_grid(ledger: Ledger, adjacency: str) -> Grid:
    """The finest grid that is affordable."""
    cut = cut_mass(CUT_FOR, ledger.steps)
    for moments in (usual_moments(ledger, adjacency), truncated_moments(ledger, adjacency, cut)):
        for tolerance in TOLERANCES[len(ledger.phases) > FEW :]:
            try:
                grid = _grid(ledger.steps, moments, tolerance, cut)
            except GridTooLarge:
                break
            if grid.points <= MOST_WINDOW and grid.points * len(ledger.phases) <= MOST_POINTS:
                return grid
    raise GridTooLarge("a grid for the whole loss distribution would need more points than are affordable")


def _grid(steps: int, moments: Moments, tolerance: float, cut: float) -> Grid:
    """The tilts whose window is the narrowest that leaves too little outside to matter.

    Tilted by t, with u > t: above the top lies at most e^(K(u) - u top) of delta, below the bottom at most
    e^(t bottom) of the advantage. The window is placed so that both shares of the tilted mass are equal.
    """
    tilts, log_moments, _ = saddle_point(moments, CENTRE)
    t, u, k = tilts[:, None], tilts[None, :], log_moments[None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        for_bottom = (k - math.log(LEAST_WRAPPED) * u / t) / (u - t)
    widths = np.where(u >= TILT_RUNG * t, np.maximum(for_bottom, -math.log(LEAST_DELTA) / t), np.inf)
    widths[log_moments > max(MOST_BLOWN_UP, float(log_moments[0]))] = np.inf
    at, up = np.unravel_index(int(np.argmin(widths)), widths.shape)
    tilt = ladder(float(tilts[at]), TILT_RUNG)
    tilt_up = tilt * max(TILT_RUNG, ladder(float(tilts[up]) / tilt, TILT_RUNG))
    above = float(np.interp(tilt_up, np.append(0.0, tilts), np.append(0.0, log_moments)))  # convex: never too small
    width = max((above - math.log(LEAST_WRAPPED) * tilt_up / tilt) / (tilt_up - tilt), -math.log(LEAST_DELTA) / tilt)
    scatter = 2 * float(log_moments[at]) / steps / (float(tilts[at]) * (float(tilts[at]) + 1))
    if not (0 < width < math.inf and scatter > 0):
        raise GridTooLarge("the loss moments are too large")
    interval = ladder(math.sqrt(6 * tolerance * scatter), INTERVAL_RUNG)
    if interval > MOST_INTERVAL:
        raise GridTooLarge("at so little noise nearly every loss tells members from others")
    return Grid(interval, window_points(min(width / interval, 2.0**40) + 2), tilt, tilt_up, 0.0, cut)
