"""One step's privacy loss on a grid: rows that never lie below, or never above, the true loss distribution.

Each step is dominated by a pair of one-dimensional densities (first, second) whose privacy loss L = log(first/second)
rises with x. delta(eps) = E_first[(1 - e^(eps - L))+]. We discretise L:

* upper: connect the dots (Doroshenko et al. 2022, arXiv:2207.04380): a cell's mass goes to both of its ends, so that
  the masses under first and second are kept. That only raises delta.
* lower: a cell's mass goes to one grid point that does not exceed log(first mass / second mass). Merging outcomes is
  post-processing, lowering losses lowers delta: both only lower it.

Both are tilted by e^(tilt L) and kept as Fourier rows, in a cache: moving one epoch costs one row.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri_exp

FloatArray = NDArray[np.float64]

MAX_ROW = 2**21  # grid points that one step's losses may span
LOW_REACH = 6.0  # standard deviations of the noise
AT_A_PIN = 0.02  # mass from which on it is worth to pin the grid to an interval of losses
MOST_LENT = 0.45  # share of a cell's outcomes that may be relabelled to a neighbour
CACHE_BYTES = 256 * 2**20


class GridTooLarge(Exception):
    """The loss distribution does not fit a grid of reasonable size."""


@dataclass(frozen=True)
class Pin:
    """An interval of losses and its log ratio; a grid that runs through it need not round what lies there."""

    interval: tuple[float, float]
    log_ratio: float


@dataclass(frozen=True)
class Direction:
    """A dominating pair: mixtures (1-q) N(0) + q N(shift), or N(0) alone where the shift is 0."""

    name: str
    first: int
    second: int

    def place(self, losses: FloatArray, sigma: float, q: float) -> FloatArray:
        """x at which the loss is taken; +-infinity beyond the attainable losses."""
        with np.errstate(divide="ignore", over="ignore"):
            if self.second == 0:
                return 0.5 + sigma**2 * _log1p_ratio(losses, q)
            if self.first == 0:
                return -0.5 - sigma**2 * _log1p_ratio(-losses, q)
            # e^(x/sigma^2) solves a quadratic; its root in a form that keeps precision on both sides of 0.
            log_scale = math.log((1 - q) / q) + 0.5 / sigma**2 if q < 1 else -math.inf
            half = np.abs(losses) / 2
            log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
            big = log_scale + log_sinh
            root = np.where(big < 300, np.arcsinh(np.exp(np.minimum(big, 300.0))), big + math.log(2))
            return sigma**2 * np.sign(losses) * (half + root)

    def masses(self, losses: FloatArray, sigma: float, q: float) -> tuple[FloatArray, FloatArray]:
        """Mass under first and under second between neighbouring losses."""
        x = self.place(losses, sigma, q)
        centre = _between(x / sigma)
        first = centre if self.first == 0 else (1 - q) * centre + q * _between((x - self.first) / sigma)
        second = centre if self.second == 0 else (1 - q) * centre + q * _between((x - self.second) / sigma)
        return first, second

    def least(self, q: float) -> float:
        """The loss when the example was not drawn: the least one of `remove`. At low noise most mass is near it."""
        return (self.second + self.first) * math.log1p(-q) if q < 1 else 0.0

    def pin(self, sigma: float, q: float, h: float) -> Pin:
        """Where most mass may lie: next to the least loss, or around 0."""
        edge = self.pinned((-np.inf, self.least(q) + h), sigma, q) if self is REMOVE and q < 1 else None
        return edge or self.pinned((-h / 2, h / 2), sigma, q) or Pin((-h / 2, h / 2), 0.0)

    def pinned(self, interval: tuple[float, float], sigma: float, q: float) -> Pin | None:
        """A pin to an interval of losses, None if it holds next to nothing."""
        first, second = (float(mass[0]) for mass in self.masses(np.array(interval), sigma, q))
        return Pin(interval, math.log(first / second)) if min(first, second) > AT_A_PIN else None

    def losses_at(self, x: float, sigma: float, q: float) -> float:
        def log_mixture(shift: int) -> float:
            exponent = (2 * shift * x - 1) / (2 * sigma**2)
            return float(np.logaddexp(math.log1p(-q) if q < 1 else -np.inf, math.log(q) + exponent)) if shift else 0.0

        return log_mixture(self.first) - log_mixture(self.second)


REMOVE, ADD, REPLACE = Direction("remove", 1, 0), Direction("add", 0, -1), Direction("replace", 1, -1)
DIRECTIONS: dict[str, tuple[Direction, ...]] = {"add-remove": (REMOVE, ADD), "replace-one": (REPLACE,)}


def _log1p_ratio(losses: FloatArray, q: float) -> FloatArray:
    """log((e^loss - 1 + q) / q), without overflow and precise near 0."""
    small = np.log1p(np.maximum(np.expm1(np.minimum(losses, 30.0)) / q, -1.0))
    large = losses > 30.0
    if large.any():
        small[large] = losses[large] - math.log(q) + np.log1p((q - 1) * np.exp(-losses[large]))
    return small


def _between(z: FloatArray) -> FloatArray:
    """Normal mass between neighbours (in rising order), each tail from its own side so that it keeps precision."""
    middle = int(np.searchsorted(z, 0.0))
    below, above = ndtr(z[: middle + 1]), ndtr(-z[middle:])
    return np.concatenate([below[1:] - below[:-1], above[:-1] - above[1:]])


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
class Row:
    """One step's tilted loss distribution in Fourier space, and what is needed to undo the tilt and bound the rest."""

    spectrum: NDArray[np.complex128]
    anchor: float  # the loss at grid index 0
    log_mass: float  # log E[e^(tilt L)]
    log_mass_up: float  # the same at the upper tilt
    log_mass_down: float  # the same at the lower tilt
    infinite: float


def _reach(direction: Direction, sigma: float, q: float, anchor: float, grid: Grid) -> tuple[int, int]:
    """First and last grid index between which a step's loss lies, up to the mass that may be cut.

    Low losses weigh little: what is below the first index may be rounded to it (upper) or merged into it (lower).
    """
    reach = -float(ndtri_exp(math.log(grid.cut)))
    low = direction.losses_at(min(direction.first, 0) - LOW_REACH * sigma, sigma, q)
    high = direction.losses_at(max(direction.first, 0) + reach * sigma, sigma, q)
    first, last = math.floor((low - anchor) / grid.interval) - 1, math.ceil((high - anchor) / grid.interval) + 1
    if last - first > MAX_ROW:
        raise GridTooLarge("one step's losses span too many grid points")
    return first, last


def upper_row(direction: Direction, sigma: float, q: float, grid: Grid) -> Row:
    """Connect the dots: never below the true loss distribution."""
    anchor = direction.least(q) if sigma < 1 else 0.0  # where most mass is, so that it need not be split
    start, stop = _reach(direction, sigma, q, anchor, grid)
    losses = anchor + grid.interval * np.arange(start, stop + 1)
    edges = np.concatenate([[-np.inf], losses, [np.inf]])
    first, second = direction.masses(edges, sigma, q)
    cells, others = first[1:-1], second[1:-1]
    right = (cells - others * np.exp(np.minimum(losses[:-1], 700.0))) / -math.expm1(-grid.interval)
    right = np.clip(right, 0.0, cells)
    mass = np.zeros(losses.size)
    mass[0] = first[0]
    mass[:-1] += cells - right
    mass[1:] += right
    return _row(mass, start, anchor, grid, infinite=float(first[-1]))


def lower_row(direction: Direction, sigma: float, q: float, grid: Grid) -> Row:
    """Each cell on one grid point not above its log ratio: never above the true loss distribution."""
    row = _pinned_row(direction, sigma, q, direction.pin(sigma, q, grid.interval), grid)
    if row.log_mass <= 0:
        # A loss narrower than the grid: all of it in one outcome, or all but its upper tail.
        tail = direction.pinned((-np.inf, grid.interval), sigma, q)
        candidates = [_pinned_row(direction, sigma, q, tail, grid)] if tail else []
        row = max([_row(np.ones(1), 0, 0.0, grid, infinite=0.0), *candidates], key=lambda made: made.log_mass)
    return row


def _pinned_row(direction: Direction, sigma: float, q: float, pin: Pin, grid: Grid) -> Row:
    h, anchor = grid.interval, pin.log_ratio
    start, stop = _reach(direction, sigma, q, anchor, grid)
    losses = anchor + h * np.arange(start, stop + 1, dtype=float)
    borders = losses[:-1] + h / 2
    fixed = slice(0, 0)
    if pin.interval[0] == -np.inf and start < 0:  # the pinned cell is the first one, and keeps its right border
        borders[:-start], borders[-start] = -np.inf, pin.interval[1]
        borders = np.maximum.accumulate(borders)
        fixed = slice(0, 1 - start)
    # A cell's log ratio moves with its two borders: one correction brings most of them close to the grid.
    first, second = direction.masses(np.concatenate([[-np.inf], borders, [np.inf]]), sigma, q)
    known = (first > 1e-290) & (second > 1e-290)
    ratio = np.log(np.where(known, first, 1.0)) - np.log(np.where(known, second, 1.0))
    offset = np.where(known, np.clip(ratio - losses, -h / 4, h / 4), 0.0)
    correction = (offset[1:] + offset[:-1]) / 2
    correction[fixed] = 0.0
    borders = np.maximum.accumulate(borders - correction)
    first, second = direction.masses(np.concatenate([[-np.inf], borders, [np.inf]]), sigma, q)
    return _row(_lend(first, second, losses), start, anchor, grid, infinite=0.0)


def _lend(first: FloatArray, second: FloatArray, losses: FloatArray) -> FloatArray:
    """Masses on the grid. Neighbouring cells lend each other outcomes until their log ratios sit on their grid points.

    A cell that falls short takes a share of its right neighbour's outcomes, one that has a surplus lifts a share of
    its left neighbour's; one that would need too much is merged into its left neighbour. Merging outcomes, and
    relabelling some at random, is post-processing. What still falls short is moved one point down, or given up.
    """
    level = np.exp(np.minimum(losses, 700.0))
    for _ in range(4):
        need, offer, bad = _gaps(first, second, level)
        if not bad[1:].any():
            break
        bad[0] = False
        first = np.where(bad, 0.0, first) + np.append(np.where(bad, first, 0.0)[1:], 0.0)
        second = np.where(bad, 0.0, second) + np.append(np.where(bad, second, 0.0)[1:], 0.0)
    most_need, most_offer, bad = _gaps(first, second, level)

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
    down = bad & (first * math.exp(losses[1] - losses[0]) >= level * second)
    return np.where(bad, 0.0, mass) + np.append(np.where(down, own, 0.0)[1:], 0.0)


def _gaps(first: FloatArray, second: FloatArray, level: FloatArray) -> tuple[FloatArray, FloatArray, NDArray[np.bool_]]:
    """Share of the right neighbour that each cell needs, share of the left one that it can lift, and hopeless cells."""
    gap = first - level * second
    right = np.append(first[1:] - level[:-1] * second[1:], 0.0)
    left = np.append(0.0, level[1:] * second[:-1] - first[:-1])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        need = np.where(gap < 0, -gap / right, 0.0)
        offer = np.where(gap > 0, gap / left, 0.0)
    exact = gap > -1e-13 * first
    bad = ~(exact | ((need >= 0) & (need <= MOST_LENT)))
    need = np.where(bad | exact, 0.0, need)
    return need, np.where(offer >= 0, np.minimum(offer, MOST_LENT), 0.0), bad


def _row(mass: FloatArray, start: int, anchor: float, grid: Grid, infinite: float) -> Row:
    losses = anchor + grid.interval * np.arange(start, start + mass.size)
    with np.errstate(divide="ignore"):
        log_mass = np.log(mass)

    def log_sum(tilt: float) -> tuple[float, FloatArray]:
        if tilt == 0:
            return math.log(float(mass.sum())), mass
        exponents = log_mass + tilt * losses
        top = float(exponents.max())
        weights = np.exp(exponents - top)
        total = float(weights.sum())
        return top + math.log(total), weights / total

    total, tilted = log_sum(grid.tilt)
    index = np.arange(start, start + mass.size) % grid.points
    folded = np.bincount(index, weights=tilted, minlength=grid.points)
    return Row(
        spectrum=np.fft.rfft(folded),
        anchor=anchor,
        log_mass=total,
        log_mass_up=log_sum(grid.tilt_up)[0],
        log_mass_down=log_sum(grid.tilt_down)[0],
        infinite=infinite,
    )


class RowCache:
    """Rows by what made them, oldest out first once they take too much memory."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self._rows: OrderedDict[tuple[object, ...], Row] = OrderedDict()
        self._bytes, self._limit, self._lock = 0, limit, Lock()

    def row(self, bound: str, direction: Direction, sigma: float, q: float, grid: Grid) -> Row:
        key = (bound, direction.name, sigma, q, grid)
        with self._lock:
            if key in self._rows:
                self._rows.move_to_end(key)
                return self._rows[key]
        made = ROWS[bound](direction, sigma, q, grid)
        with self._lock:
            if key not in self._rows:
                self._rows[key] = made
                self._bytes += made.spectrum.nbytes
            while self._bytes > self._limit:
                self._bytes -= self._rows.popitem(last=False)[1].spectrum.nbytes
        return made

    def clear(self) -> None:
        with self._lock:
            self._rows.clear()
            self._bytes = 0


ROWS = {"upper": upper_row, "lower": lower_row}
CACHE = RowCache()
