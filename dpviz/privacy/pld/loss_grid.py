"""Steps' privacy losses on a grid: cells that never lie below, or never above, the true loss distribution.

The privacy loss L of a step's dominating pair (dominating_pairs.py), delta(eps) = E_first[(1 - e^(eps - L))+], is
discretised:

* upper: connect the dots (Doroshenko et al. 2022, arXiv:2207.04380): a cell's mass goes to both of its ends, so that
  the masses under first and second are kept. That only raises delta.
* lower: a cell's mass goes to one grid point that does not exceed log(first mass / second mass). Merging outcomes is
  post-processing, lowering losses lowers delta: both only lower it.

The steps' cells lie end to end in flat arrays (`Strip`): a hundred short rows cost little more than one long one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri_exp

from dpviz.privacy.pld.dominating_pairs import REMOVE, Direction, FloatArray, Masses, Steps

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MAX_ROW = 2**21  # grid points that one step's losses may span
LOW_REACH = 6.0  # standard deviations of the noise
AT_A_PIN = 0.02  # mass from which on it is worth to pin the grid to an interval of losses
MOST_LENT = 0.45  # share of a cell's outcomes that may be relabelled to a neighbour


class NoBand(Exception):
    """Why there is no certified band."""


class GridTooLarge(NoBand):
    """The loss distribution does not fit a grid of reasonable size."""


@dataclass(frozen=True)
class Grid:
    """Interval, window and tilts that all rows of a ledger share. Taken from ladders, so that rows are found again."""

    interval: float
    points: int
    tilt: float
    tilt_up: float  # tilts that bound, by Chernoff, what lies above and below the window
    tilt_down: float
    cut: float  # tail mass that a row may give up


@dataclass(frozen=True)
class Cells:
    """One step's discretised loss: masses on the grid points anchor + interval * (start, start + 1, ...)."""

    log_mass: FloatArray
    start: int
    anchor: float
    infinite: float

    @property
    def nbytes(self) -> int:
        return self.log_mass.nbytes


NOTHING = Cells(np.zeros(1), 0, 0.0, 0.0)  # a step that costs nothing: a lower bound of any


@dataclass(frozen=True)
class Strip:
    """Several steps' slots end to end in flat arrays: an edge each, and the cell from it to the next edge.

    A step has one slot more than cells, so that cells of different steps are never neighbours.
    """

    owner: IntArray  # which step a slot belongs to
    place: IntArray  # where it lies within its step
    begin: IntArray  # the first slot of each step
    size: IntArray  # slots of each step

    @classmethod
    def of(cls, size: IntArray) -> Strip:
        begin = np.cumsum(size) - size
        owner = np.repeat(np.arange(size.size), size)
        return cls(owner, np.arange(owner.size) - begin[owner], begin, size)

    @property
    def last(self) -> IntArray:
        return self.begin + self.size - 1

    def cut(self, values: FloatArray, first: int, stop: int) -> list[FloatArray]:
        """Each step's values, from its slot `first` to `stop` slots before its end."""
        ends = self.begin + self.size - stop
        return [values[a:b] for a, b in zip((self.begin + first).tolist(), ends.tolist(), strict=True)]


def reach(direction: Direction, steps: Steps, anchor: FloatArray, grid: Grid) -> tuple[IntArray, IntArray]:
    """First and last grid index between which each step's loss lies, up to the mass that may be cut.

    Low losses weigh little: what is below the first index may be rounded to it (upper) or merged into it (lower).
    """
    far = -float(ndtri_exp(math.log(grid.cut)))
    low = direction.loss_at(min(direction.first, 0) - LOW_REACH * steps.sigma, steps)
    high = direction.loss_at(max(direction.first, 0) + far * steps.sigma, steps)
    first, last = np.floor((low - anchor) / grid.interval) - 1, np.ceil((high - anchor) / grid.interval) + 1
    if not (last - first <= MAX_ROW).all():
        raise GridTooLarge("one step's losses span too many grid points")
    return first.astype(np.int64), last.astype(np.int64)


def upper_cells(direction: Direction, steps: Steps, grid: Grid) -> list[Cells]:
    """Connect the dots: never below the true loss distribution."""
    h = grid.interval
    anchor = np.where(steps.sigma < 1, direction.least(steps.q), 0.0)  # where most mass is: it need not be split
    start, stop = reach(direction, steps, anchor, grid)
    strip = Strip.of(stop - start + 3)  # below the grid, its points, beyond them
    losses = anchor[strip.owner] + h * (start[strip.owner] + strip.place - 1)
    inner = np.ones(losses.size, dtype=bool)  # cells between two grid points
    edges = losses.copy()
    edges[strip.begin], edges[strip.last] = -np.inf, np.inf
    inner[strip.begin] = inner[strip.last] = inner[strip.last - 1] = False
    masses, growth = direction.masses(edges, steps[strip.owner]), np.expm1(np.minimum(losses, 700.0))
    first = masses.first
    # Rounding may leave more than fits below the right end. That much goes one point further.
    right = (np.maximum(masses.gap(growth), 0.0) + masses.doubt(growth)) / -math.expm1(-h)
    right = np.where(inner & (first > 0), right, 0.0)
    further = np.minimum(np.maximum(right - first, 0.0) * math.exp(h), first)
    right = np.minimum(right, first)
    mass = np.where(inner, first - right, 0.0)
    mass[1:] += (right - further)[:-1]
    mass[2:] += further[:-2]
    mass[strip.begin + 1] += first[strip.begin]
    infinite = (first[strip.last - 1] + mass[strip.last]).tolist()
    return _cells(strip.cut(_log(mass), 1, 1), start, anchor, infinite)


def lower_cells(direction: Direction, steps: Steps, grid: Grid) -> list[Cells]:
    """Each cell on one grid point not above its log ratio: never above the true loss distribution."""
    return _pinned_cells(direction, steps, grid, *_pin(direction, steps, grid.interval))


def tail_cells(direction: Direction, steps: Steps, grid: Grid) -> list[Cells]:
    """A lower bound for a loss narrower than the grid: all of it in one outcome, or all but its upper tail."""
    edge = np.full(steps.q.size, grid.interval)
    log_ratio, good = _log_ratio(direction, steps, np.full(steps.q.size, -np.inf), edge)
    tails = _pinned_cells(direction, steps, grid, edge, np.where(good, log_ratio, 0.0))
    return [cells if fits else NOTHING for cells, fits in zip(tails, good.tolist(), strict=True)]


def _pin(direction: Direction, steps: Steps, h: float) -> tuple[FloatArray, FloatArray]:
    """Where most mass may lie, below an edge next to the least loss or (edge: infinite) around 0, and its log ratio.

    A grid that runs through that log ratio need not round what lies there.
    """
    around = np.full(steps.q.size, h / 2)
    log_ratio, good = _log_ratio(direction, steps, -around, around)
    edge, anchor = np.full(steps.q.size, np.inf), np.where(good, log_ratio, 0.0)
    if direction is REMOVE:
        beside = direction.least(steps.q) + h
        log_ratio, good = _log_ratio(direction, steps, np.full(steps.q.size, -np.inf), beside)
        good &= steps.q < 1
        edge, anchor = np.where(good, beside, edge), np.where(good, log_ratio, anchor)
    return edge, anchor


def _log_ratio(direction: Direction, steps: Steps, low: FloatArray, high: FloatArray) -> tuple[FloatArray, BoolArray]:
    """log(first / second) of the losses between low and high, never above the truth, and where it matters by mass."""
    edges = np.stack([low, high], axis=1).ravel()
    masses = direction.masses(edges, steps[np.repeat(np.arange(low.size), 2)]).map(lambda values: values[::2])
    good = np.minimum(masses.first, masses.second) > AT_A_PIN
    second = np.where(good, masses.second, 1.0)
    growth = masses.excess / second
    return np.log1p(np.where(good, growth - 2 * masses.doubt(growth) / second, 0.0)), good


def _pinned_cells(direction: Direction, steps: Steps, grid: Grid, edge: FloatArray, anchor: FloatArray) -> list[Cells]:
    """Cells around grid points that run through the anchor; all below the edge is one cell, whose log ratio it is."""
    h = grid.interval
    start, stop = reach(direction, steps, anchor, grid)
    strip = Strip.of(stop - start + 2)  # an edge below each grid point, and one above all
    losses = anchor[strip.owner] + h * (start[strip.owner] + strip.place)
    edges = losses - h / 2
    # The pinned cell lies at the anchor, so its right edge comes just after; those to the left of it are empty.
    pinned = (np.isfinite(edge) & (start < 0))[strip.owner]
    after = strip.place + start[strip.owner] - 1
    floor = np.where(pinned, edge[strip.owner], -np.inf)
    fixed = pinned & (after <= 0)

    def settled(edges: FloatArray) -> FloatArray:
        edges = np.maximum(edges, floor)
        edges[fixed & (after < 0)] = -np.inf
        edges[fixed & (after == 0)] = floor[fixed & (after == 0)]
        edges[strip.begin], edges[strip.last] = -np.inf, np.inf
        return edges

    # A cell's log ratio moves with its two edges: one correction brings most of them close to the grid.
    spread = steps[strip.owner]
    edges = settled(edges)
    masses = _apart(direction.masses(edges, spread), strip)
    known = (masses.first > 1e-290) & (masses.second > 1e-290)
    ratio = np.log(np.where(known, masses.first, 1.0)) - np.log(np.where(known, masses.second, 1.0))
    offset = np.where(known, np.clip(ratio - losses, -h / 4, h / 4), 0.0)
    offset[1:] = (offset[1:] + offset[:-1]) / 2
    edges = settled(np.where(fixed, edges, edges - offset))
    mass = _lend(_apart(direction.masses(edges, spread), strip), losses, strip, h)
    return _cells(strip.cut(_log(mass), 0, 1), start, anchor, [0.0] * start.size)


def _apart(masses: Masses, strip: Strip) -> Masses:
    """Nothing in the last slot of a step, which is no cell."""
    within = np.ones(masses.first.size)
    within[strip.last] = 0.0
    return masses.map(lambda values: values * within)


def _lend(masses: Masses, losses: FloatArray, strip: Strip, h: float) -> FloatArray:
    """Masses on the grid. Neighbouring cells lend each other outcomes until their log ratios sit on their grid points.

    A cell that falls short takes a share of its right neighbour's outcomes, one that has a surplus lifts a share of
    its left neighbour's; one that would need too much is merged into its left neighbour. Merging outcomes, and
    relabelling some at random, is post-processing. What still falls short is moved one point down, or given up.
    """
    growth = np.expm1(np.minimum(losses, 700.0))
    for _ in range(4):
        most_need, most_offer, bad = _gaps(masses, growth)
        merged = bad.copy()
        merged[strip.begin] = False
        if not merged.any():
            break
        masses = masses.map(partial(_merge_left, merged))
    else:
        most_need, most_offer, bad = _gaps(masses, growth)
    first = masses.first

    def kept(need: FloatArray, offer: FloatArray) -> FloatArray:
        """Share of its outcomes that a cell keeps when its neighbours take theirs."""
        share = np.ones(first.size)
        share[1:] -= need[:-1]
        share[:-1] -= offer[1:]
        return share

    # What a cell lends takes some of its own gap along, so it needs or offers that share less. Rounds lie above and
    # below the solution in turn: needs from above and offers from below are safe together.
    need, offer = most_need, most_offer
    for _ in range(2):
        share = kept(need, offer)
        share = kept(most_need * share, most_offer * share)
        need, offer = most_need * share, most_offer * share
    offer = most_offer * kept(need, offer)
    own = first * kept(need, offer)
    mass = own.copy()
    mass[:-1] += need[:-1] * first[1:]
    mass[1:] += offer[1:] * first[:-1]
    lower = np.expm1(np.minimum(losses, 700.0) - h)
    down = bad & (masses.gap(lower) >= masses.doubt(lower))
    return np.where(bad, 0.0, mass) + _from_right(np.where(down, own, 0.0))


def _merge_left(merged: BoolArray, values: FloatArray) -> FloatArray:
    return np.where(merged, 0.0, values) + _from_right(np.where(merged, values, 0.0))


def _from_right(values: FloatArray) -> FloatArray:
    """Each slot's right neighbour."""
    return np.append(values[1:], 0.0)


def _from_left(values: FloatArray) -> FloatArray:
    return np.append(0.0, values[:-1])


def _gaps(masses: Masses, growth: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Share of the right neighbour that each cell needs, share of the left one that it can lift, and hopeless cells.

    Each gap is taken to be as small as rounding may have left it, so that no cell ends up above its log ratio.
    """
    gap = masses.gap(growth) - masses.doubt(growth)
    from_right, from_left = masses.map(_from_right), masses.map(_from_left)
    right = from_right.gap(growth) - from_right.doubt(growth)
    left = from_left.doubt(growth) - from_left.gap(growth)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        need = np.where(gap < 0, -gap / right, 0.0)
        offer = np.where(gap > 0, gap / left, 0.0)
    bad = ~((need >= 0) & (need <= MOST_LENT))
    return np.where(bad, 0.0, need), np.where(offer >= 0, np.minimum(offer, MOST_LENT), 0.0), bad


def _log(mass: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        return np.log(mass)


def _cells(log_masses: list[FloatArray], start: IntArray, anchor: FloatArray, infinite: Sequence[float]) -> list[Cells]:
    return [
        Cells(log_mass.copy(), *rest)
        for log_mass, *rest in zip(log_masses, start.tolist(), anchor.tolist(), infinite, strict=True)
    ]
