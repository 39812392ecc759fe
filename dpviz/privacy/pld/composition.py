"""Losses of whole ledgers, composed on a grid, and the epsilon or delta that can be read off them as bounds.

The losses of independent steps add up, so their discretised rows (spectra.py) multiply in Fourier space. The tilt
centres the composed loss near epsilon: the window is a few standard deviations wide and tiny deltas keep their relative
precision. What wraps around the window, and rounding, are bounded and added (upper) or taken off (lower).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpviz.privacy.pld.dominating_pairs import Direction, FloatArray
from dpviz.privacy.pld.loss_grid import Grid, NoBand
from dpviz.privacy.pld.spectra import Row, rows
from dpviz.privacy.records import Phase

MOST_WRAPPED = 1e-3  # share of delta that may wrap around the window
FAINTEST = -700.0  # log of a coefficient below which it is no number of full precision, and nothing beside rounding

Band = tuple[float, float]


class Contradiction(NoBand):
    """A lower bound lies above an upper one: one of them is wrong, and neither may be shown."""


@dataclass(frozen=True)
class Composed:
    """The loss of a whole ledger on a window of the grid."""

    losses: FloatArray
    curve: FloatArray  # delta at each loss, but for what the window misses and rounding
    discounted: FloatArray  # first-mass above each loss, each outcome discounted by e^(loss - its loss)
    outside: float  # bound on what the window misses, as a share of delta's scale at any epsilon
    rounding: float  # the same for rounding
    infinite: float
    log_scale: float
    tilt: float

    def scale(self, epsilon: Any) -> Any:
        """How much of delta an outcome just above epsilon is, for its tilted mass."""
        return np.exp(np.minimum(self.log_scale - self.tilt * epsilon, 700.0))

    @property
    def wrapped(self) -> float:
        """What mass that wrapped around may weigh at most, as a share of delta's scale."""
        return _peak(self.tilt) * self.outside

    @property
    def doubt_above(self) -> float:
        """For a lower bound: how far off the mass above a loss may be, as a share of the scale there.

        An outcome x above weighs e^(-tilt x) in it, not (1 - e^-x) e^(-tilt x) as in delta: in both of the sums that
        bound rounding that is at most e (1 + tilt) as much. What wrapped around weighs at most what it is.
        """
        return self.outside + math.e * (1 + self.tilt) * self.rounding

    def epsilon(self, delta: float) -> float:
        """The epsilon at which the windowed delta equals the given one; infinite if the mass at infinity is larger.

        Never below the window: of what lies there nothing is known.
        """
        if not delta > 0:
            return math.inf
        k = int(np.searchsorted(-self.curve, -delta))
        if k == self.curve.size:
            return math.inf
        if k == 0:
            return float(self.losses[0])
        return float(self.losses[k - 1] + math.log1p((self.curve[k - 1] - delta) / self.discounted[k - 1]))


class Tally:
    """Rows gathered so far: their product in Fourier space and the sums that undo the tilt."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.powers: dict[int, NDArray[np.complex128]] = {}  # product of the rows that are taken to the same power
        self.steps = 0
        self.faint = 0.0  # weight of the rows' absolute errors where their coefficients are below 1/2
        self.anchor = self.log_mass = self.log_mass_up = self.log_mass_down = self.log_finite = 0.0

    def add(self, row: Row, count: int) -> None:
        self.powers[count] = self.powers[count] * row.spectrum if count in self.powers else row.spectrum
        self.steps += count
        self.faint += count * 2.0 ** (1 - min(count, 1000))
        self.anchor += count * row.anchor
        self.log_mass += count * row.log_mass
        self.log_mass_up += count * row.log_mass_up
        self.log_mass_down += count * row.log_mass_down
        self.log_finite += count * math.log1p(-row.infinite)


def compose(bound: str, tally: Tally) -> Composed:
    grid = tally.grid
    spectrum = _spectrum(tally)
    tilted = np.fft.irfft(spectrum, grid.points)
    # Chernoff bounds what lies below and above the window; it is placed so that both bounds are equal.
    below, beyond, width = grid.tilt - grid.tilt_down, grid.tilt_up - grid.tilt, grid.interval * grid.points
    bottom = (tally.log_mass_up - tally.log_mass_down - beyond * width) / (below + beyond)
    start = round((bottom - tally.anchor) / grid.interval)
    losses = tally.anchor + grid.interval * np.arange(start, start + grid.points, dtype=float)
    bottom, top = float(losses[0]), float(losses[-1]) + grid.interval
    tilted = np.maximum(np.roll(tilted, -(start % grid.points)), 0.0)

    # No outcome is likelier than 1; far below epsilon a steep tilt leaves nothing but rounding, blown up.
    mass = np.minimum(tilted * np.exp(np.minimum(tally.log_mass - grid.tilt * losses, 700.0)), 1.0)
    if bound == "upper":
        outside = math.exp(min(tally.log_mass_up - grid.tilt_up * top, 0.0))
    else:
        outside = math.exp(min(tally.log_mass_down - tally.log_mass + below * bottom, 0.0)) + math.exp(
            min(tally.log_mass_up - tally.log_mass - beyond * top, 0.0)
        )
    discounted = _discounted(mass, grid.interval)
    # From each point to the next delta falls by (e^interval - 1) times what is discounted: nothing cancels.
    return Composed(
        losses=losses,
        curve=np.cumsum(math.expm1(grid.interval) * discounted[::-1])[::-1],
        discounted=discounted,
        outside=outside,
        rounding=_rounding(spectrum, tally),
        infinite=-math.expm1(tally.log_finite),
        log_scale=tally.log_mass,
        tilt=grid.tilt,
    )


def _spectrum(tally: Tally) -> NDArray[np.complex128]:
    """The product of all rows. Most coefficients vanish in it: only the others are worth a complex logarithm."""
    with np.errstate(divide="ignore"):
        sizes = sum(count * np.log(np.abs(product)) for count, product in tally.powers.items())
    loud = np.flatnonzero(sizes > FAINTEST)
    spectrum = np.zeros(np.size(sizes), dtype=complex)
    spectrum[loud] = np.exp(sum(count * np.log(product[loud]) for count, product in tally.powers.items()))
    return spectrum


def _rounding(spectrum: NDArray[np.complex128], tally: Tally) -> float:
    """What rounding can add to delta or take off, as a share of delta's scale e^(log_scale - tilt epsilon).

    A coefficient of a row (1 at most) is off by a few units of rounding for each level of its transform. That is at
    most twice as much of one that is 1/2 or more, and a product adds up the shares of its factors; smaller ones vanish
    with the number of steps, all but `faint` of them. Adding up the window costs a unit per point and sum.

    An outcome x above epsilon weighs (1 - e^-x) e^(-tilt x). The smaller of two bounds: the largest error of a mass
    times the sum of the weights, or (Cauchy-Schwarz) the roots of both sums of squares.
    """
    grid, tilt = tally.grid, tally.grid.tilt
    depth = math.log2(grid.points)
    eps = float(np.finfo(float).eps)
    unit = eps * (tally.steps * (4 + 6 * depth) + 20 * depth + 2 * grid.points)
    faint = eps * 3 * depth * tally.faint
    largest = 2 * float(np.abs(spectrum).sum()) / grid.points
    squares = 2 * float(np.vdot(spectrum, spectrum).real) / grid.points
    # A sum is at most the integral and the largest term.
    weights = 1 / (tilt * (tilt + 1)) / grid.interval + _peak(tilt)
    weight_squares = 2 / (2 * tilt * (2 * tilt + 1) * (2 * tilt + 2)) / grid.interval + _peak(tilt) ** 2
    return min((unit * largest + faint) * weights, (unit * math.sqrt(squares) + faint) * math.sqrt(weight_squares))


def _peak(tilt: float) -> float:
    """The most that tilted mass can weigh: the maximum of (1 - e^-x) e^(-tilt x)."""
    return math.exp(-tilt * math.log1p(1 / tilt)) / (1 + tilt)


def _discounted(mass: FloatArray, interval: float) -> FloatArray:
    """For each grid point the mass above it, each outcome discounted by e^(point - outcome).

    Running sums of positive numbers, in blocks short enough for their weights to stay in range. A linear filter would
    do the same, but importing scipy.signal takes longer than pricing a schedule.
    """
    block = min(mass.size, max(1, int(20 / interval)))
    weights = np.exp(-interval * np.arange(block + 1))
    discounted = np.empty_like(mass)
    carried = 0.0  # all the mass from the end of a block on, discounted to that end
    for end in range(mass.size, 0, -block):
        start = max(0, end - block)
        size = end - start
        seen = np.append(mass[start + 1 : end] * weights[1:size], carried * weights[size])
        discounted[start:end] = np.cumsum(seen[::-1])[::-1] / weights[:size]
        carried = float(mass[start] + discounted[start])
    return discounted


@dataclass(frozen=True)
class Question:
    """What is read off a composed loss: a number that is larger where privacy is worse, from above and from below."""

    upper: Callable[[Composed], float]
    lower: Callable[[Composed], float]
    wide: float  # a band wider than this share of its upper end is tried again on other grids

    def is_wide(self, band: Band) -> bool:
        return band[1] - band[0] > self.wide * band[1]


def epsilon_at(delta: float) -> Question:
    def upper(composed: Composed) -> float:
        """The least epsilon whose delta is small enough, rounding included."""
        rest = delta - composed.infinite - composed.outside
        enough = np.flatnonzero(composed.curve + composed.rounding * composed.scale(composed.losses) <= rest)
        if not (rest > 0 and enough.size):
            return math.inf
        k = int(enough[0])
        # Between grid points: rounding weighs less there than at the point before.
        before = composed.rounding * float(composed.scale(composed.losses[max(k - 1, 0)]))
        return max(0.0, min(float(composed.losses[k]), composed.epsilon(rest - before)))

    def lower(composed: Composed) -> float:
        """The largest epsilon whose delta is too large even without what rounded up or wrapped around.

        0 if that is too much to tell, or if epsilon lies below the window: another window is needed.
        """
        doubtful = (composed.wrapped + composed.rounding) * composed.scale(composed.losses)
        above = np.flatnonzero(composed.curve - doubtful > delta)
        if not above.size or composed.wrapped * composed.scale(composed.losses[above[-1]]) > MOST_WRAPPED * delta:
            return 0.0
        # Between grid points: what is doubtful weighs less there than at the point before.
        return max(0.0, float(composed.losses[above[-1]]), composed.epsilon(delta + float(doubtful[above[-1]])))

    return Question(upper, lower, wide=0.03)


def delta_at(epsilon: float) -> Question:
    def around(composed: Composed) -> tuple[float, float, float]:
        """The windowed delta at epsilon, and how much rounding and wrapped mass may weigh there."""
        k = int(np.searchsorted(composed.losses, epsilon, side="right")) - 1
        if k < 0:  # below the window nothing is known
            return 0.0, math.inf, math.inf
        fallen = math.expm1(min(epsilon - float(composed.losses[k]), 700.0)) * float(composed.discounted[k])
        scale = float(composed.scale(composed.losses[k]))
        return max(float(composed.curve[k]) - fallen, 0.0), composed.rounding * scale, composed.wrapped * scale

    def upper(composed: Composed) -> float:
        value, rounding, _ = around(composed)
        return min(1.0, value + rounding + composed.outside + composed.infinite)

    def lower(composed: Composed) -> float:
        value, rounding, wrapped = around(composed)
        return max(0.0, value - rounding - wrapped)

    return Question(upper, lower, wide=0.1)


def composed(bound: str, direction: Direction, grid: Grid, phases: Sequence[Phase]) -> Composed:
    """The whole ledger's loss, as a bound from above or from below."""
    tally, steps = Tally(grid), [(phase.noise_multiplier, phase.sample_rate) for phase in phases]
    found = rows(bound, direction, steps, grid)
    for step, phase in zip(steps, phases, strict=True):
        tally.add(found[step], phase.steps)
    return compose(bound, tally)
