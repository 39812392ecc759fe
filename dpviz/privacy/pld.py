"""Privacy-loss-distribution accountant: a band [lower, upper] that holds the true epsilon, at pointer speed.

The losses of independent steps add up, so their discretised rows (rows.py) multiply in Fourier space. The tilt
centres the composed loss near epsilon: the window is a few standard deviations wide and tiny deltas keep their relative
precision. What wraps around the window, and rounding, are bounded and added (upper) or taken off (lower).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpviz.privacy.losses import DIRECTIONS, Direction, FloatArray, Grid, GridTooLarge
from dpviz.privacy.rdp import ORDERS, ledger_rdp
from dpviz.privacy.records import Ledger, Phase
from dpviz.privacy.rows import Row, rows

# Relative error of the log-moment that the interval is chosen for, and the grid points (rows times window) up to which
# it is affordable; beyond the last one the RDP bound answers.
TOLERANCES = ((0.003, 2**19), (0.005, 2**24), (0.02, 2**24), (0.1, 2**25))
MAX_WINDOW = 2**20  # grid points
TILT_RUNG, INTERVAL_RUNG = 1.25, 1.5  # ratios of the ladders: wide, so that a stroke seldom leaves its grid
COARSER = 16  # times the tolerance, for the direction that is expected to cost less
WIDE = 0.03  # a band wider than this share of epsilon is tried again on a finer grid
# Times the tilt, times the fineness. Very rare, large losses (tiny sample rates) centre on a far steeper tilt than the
# moments of the whole ledger say.
STEEP = 16
RETRIES = ((1, 4), (STEEP, 512), (1, 16))
MOST_WRAPPED = 1e-3  # share of delta that may wrap around the window
LEAST_TILTED = 1e-12  # tilted mass at epsilon, per step, below which rounding would show
NEGLIGIBLE = 1e-7  # share of delta that truncation may cost


@dataclass(frozen=True)
class Composed:
    """The loss of a whole ledger on a window of the grid: delta(eps) in both of its parts."""

    losses: FloatArray
    above: FloatArray  # first-mass strictly above each loss
    discounted: FloatArray  # the same, each outcome discounted by e^(loss - its loss)
    outside: float  # bound on what the window misses, as a share of delta's scale at any epsilon
    rounding: float  # the same for rounding
    infinite: float
    log_scale: float
    tilt: float

    @cached_property
    def curve(self) -> FloatArray:
        """delta at each loss, but for what the window misses and rounding."""
        return self.above - self.discounted

    def scale(self, epsilon: Any) -> Any:
        """How much of delta an outcome just above epsilon is, for its tilted mass."""
        return np.exp(np.minimum(self.log_scale - self.tilt * epsilon, 700.0))

    def epsilon(self, delta: float) -> float:
        """The epsilon at which the windowed delta equals the given one; infinite if the mass at infinity is larger.

        Never below the window: of what lies there nothing is known.
        """
        curve = self.curve
        if not delta > 0:
            return math.inf
        k = int(np.searchsorted(-curve, -delta))
        if k == curve.size:
            return math.inf
        if k == 0:
            return float(self.losses[0])
        return float(self.losses[k - 1] + math.log((self.above[k - 1] - delta) / self.discounted[k - 1]))


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


def _compose(bound: str, tally: Tally) -> Composed:
    grid = tally.grid
    with np.errstate(divide="ignore", invalid="ignore", under="ignore"):
        spectrum = np.exp(sum(count * np.log(product) for count, product in tally.powers.items()))
    spectrum = np.where(np.isfinite(spectrum), spectrum, 0.0)
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
    return Composed(
        losses=losses,
        above=np.append(np.cumsum(mass[::-1])[::-1][1:], 0.0),
        discounted=_discounted(mass, grid.interval),
        outside=outside,
        rounding=_rounding(spectrum, tally),
        infinite=-math.expm1(tally.log_finite),
        log_scale=tally.log_mass,
        tilt=grid.tilt,
    )


def _rounding(spectrum: NDArray[np.complex128], tally: Tally) -> float:
    """What rounding can add to delta or take off, as a share of delta's scale e^(log_scale - tilt epsilon).

    A coefficient of a row (1 at most) is off by a few units of rounding for each level of its transform. That is at
    most twice as much of one that is 1/2 or more, and a product adds up the shares of its factors; smaller ones vanish
    with the number of steps, all but `faint` of them.

    An outcome x above epsilon weighs (1 - e^-x) e^(-tilt x). The smaller of two bounds: the largest error of a mass
    times the sum of the weights, or (Cauchy-Schwarz) the roots of both sums of squares.
    """
    grid, tilt = tally.grid, tally.grid.tilt
    depth = math.log2(grid.points)
    eps = float(np.finfo(float).eps)
    unit, faint = eps * (tally.steps * (4 + 6 * depth) + 20 * depth), eps * 3 * depth * tally.faint
    largest = 2 * float(np.abs(spectrum).sum()) / grid.points
    squares = 2 * float(np.vdot(spectrum, spectrum).real) / grid.points
    weights = 1 / (tilt * (tilt + 1)) / grid.interval + 1  # a sum is at most the integral and the largest term
    weight_squares = 2 / (2 * tilt * (2 * tilt + 1) * (2 * tilt + 2)) / grid.interval + 1
    return min((unit * largest + faint) * weights, (unit * math.sqrt(squares) + faint) * math.sqrt(weight_squares))


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


def _upper(composed: Composed, delta: float) -> float:
    """The least epsilon whose delta is small enough, rounding included."""
    rest = delta - composed.infinite - composed.outside
    enough = np.flatnonzero(composed.curve + composed.rounding * composed.scale(composed.losses) <= rest)
    if not (rest > 0 and enough.size):
        return math.inf
    k = int(enough[0])
    # Between grid points: rounding weighs less there than at the point before.
    before = composed.rounding * float(composed.scale(composed.losses[max(k - 1, 0)]))
    return min(float(composed.losses[k]), composed.epsilon(rest - before))


def _lower(composed: Composed, delta: float) -> float:
    """The largest epsilon whose delta is too large even without what rounded up or wrapped around.

    Mass that wrapped around is taken off where it could weigh most: (1 - e^-x) e^(-tilt x) at its largest. 0 if that is
    too much to tell, or if epsilon lies below the window: another window is needed.
    """
    tilt = composed.tilt
    wrapped = (tilt / (1 + tilt)) ** tilt / (1 + tilt) * composed.outside
    doubtful = (wrapped + composed.rounding) * composed.scale(composed.losses)
    above = np.flatnonzero(composed.curve - doubtful > delta)
    if not above.size or wrapped * composed.scale(composed.losses[above[-1]]) > MOST_WRAPPED * delta:
        return 0.0
    # Between grid points: what is doubtful weighs less there than at the point before.
    return max(float(composed.losses[above[-1]]), composed.epsilon(delta + float(doubtful[above[-1]])))


@lru_cache(maxsize=64)  # a page asks for the same ledger several times
def band(ledger: Ledger, delta: float, adjacency: str = "add-remove") -> tuple[float, float]:
    """(lower, upper) epsilon of a ledger under Poisson sampling. Raises GridTooLarge where no grid fits."""
    counts: dict[tuple[float, float], int] = {}
    for phase in ledger.phases:
        key = (phase.noise_multiplier, phase.sample_rate)
        counts[key] = counts.get(key, 0) + phase.steps
    merged = [Phase(sigma, q, steps) for (sigma, q), steps in counts.items()]
    return _on_good_grid(ledger, delta, adjacency, merged, [len(merged) - 1])[-1]


def band_path(
    phases: Sequence[Phase], at: Sequence[int], delta: float, adjacency: str = "add-remove"
) -> list[tuple[float, float]]:
    """The bands after some of the phases (rising indices that end with the last), all on the grid of the whole."""
    return _on_good_grid(Ledger(phases), delta, adjacency, phases, at)


def _on_good_grid(
    ledger: Ledger, delta: float, adjacency: str, phases: Sequence[Phase], at: Sequence[int]
) -> list[tuple[float, float]]:
    """The bands on the coarsest grid that is fine enough, or the finest that is affordable."""
    distinct = len({(phase.noise_multiplier, phase.sample_rate) for phase in phases})
    usual = Shape.of(ledger, delta, adjacency)

    def try_grid(shape: Shape, tolerance: float, limit: int) -> list[tuple[float, float]] | None:
        grid = shape.grid(tolerance)
        while grid.points <= MAX_WINDOW and grid.points * distinct <= limit:
            coarse = dataclasses.replace(shape.grid(COARSER * tolerance), cut=grid.cut)
            results = _bands_on(grid, coarse, phases, delta, adjacency, at)
            lower, upper = results[-1]
            if math.isfinite(upper) and (lower > 0 or upper == 0):
                return results
            grid = dataclasses.replace(grid, points=2 * grid.points)
        return None

    for times, (tolerance, limit) in product((1, STEEP), TOLERANCES):
        results = try_grid(usual.steeper(times), tolerance, limit)
        if results is None:
            continue
        for steeper, finer in RETRIES:
            lower, upper = results[-1]
            if upper - lower <= WIDE * upper:
                break
            others = try_grid(usual.steeper(steeper), tolerance / finer, 2**24) or results
            results = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(results, others, strict=True)]
        return results
    raise GridTooLarge(f"{distinct} phases would need more grid points than are affordable")


def _bands_on(
    grid: Grid, coarse: Grid, phases: Sequence[Phase], delta: float, adjacency: str, at: Sequence[int]
) -> list[tuple[float, float]]:
    """The first direction is nearly always the worst by far: a coarse upper bound tells for the other.

    Any direction's lower bound is one for the worst direction.
    """
    worst, *others = DIRECTIONS[adjacency]
    uppers = bound_curve("upper", worst, grid, phases, delta, at)
    for direction in others:
        bounds = bound_curve("upper", direction, coarse, phases, delta, at)
        if any(other > upper for other, upper in zip(bounds, uppers, strict=True)):
            bounds = bound_curve("upper", direction, grid, phases, delta, at)
        uppers = [max(pair) for pair in zip(uppers, bounds, strict=True)]
    lowers = bound_curve("lower", worst, grid, phases, delta, at)
    return [(max(0.0, min(lower, upper)), max(0.0, upper)) for lower, upper in zip(lowers, uppers, strict=True)]


def bound_curve(
    bound: str, direction: Direction, grid: Grid, phases: Sequence[Phase], delta: float, at: Sequence[int]
) -> list[float]:
    """One bound after each of the phases that are asked for."""
    tally, curve, wanted = Tally(grid), [], set(at)
    steps = [(phase.noise_multiplier, phase.sample_rate) for phase in phases]
    found = rows(bound, direction, steps, grid)
    for k, phase in enumerate(phases):
        tally.add(found[steps[k]], phase.steps)
        if k in wanted:
            curve.append(BOUNDS[bound](_compose(bound, tally), delta))
    return curve


BOUNDS = {"upper": _upper, "lower": _lower}


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
    def of(cls, ledger: Ledger, delta: float, adjacency: str = "add-remove") -> Shape:
        """From the log-moments; tilts are rounded to ladders."""
        tilts, moments, k = saddle_point(ledger, delta, adjacency)
        scatter = 2 * moments[k] / ledger.steps / (tilts[k] * (tilts[k] + 1))
        epsilon = (moments[k + 1] - moments[k - 1]) / (tilts[k + 1] - tilts[k - 1])
        tilt, tilt_up, tilt_down = narrowest_window(tilts, moments, epsilon, delta, ledger.steps)
        rung = _ladder(tilt, TILT_RUNG)
        below = _ladder(tilt_down / tilt, TILT_RUNG) if tilt_down else 0.0
        chosen = rung * np.array([below, 1.0, max(TILT_RUNG, _ladder(tilt_up / tilt, TILT_RUNG))])
        down, scale, up = (
            np.interp(chosen, np.append(0.0, tilts), np.append(0.0, moments))  # convex: never too small
            if chosen[2] <= tilts[-1]
            else np.where(chosen > 0, ledger_moments(ledger, np.maximum(chosen, 1e-9), adjacency), 0.0)
        )
        allowed = allowed_outside(rung, scale, epsilon, delta)
        width = (up - scale - allowed) / (chosen[2] - rung) - (scale - down + allowed) / (rung - chosen[0])
        if not (0 < width < math.inf and scatter > 0):
            raise GridTooLarge("the loss moments are too large")
        return cls(ledger.steps, delta, float(scatter), rung, float(chosen[2]), float(chosen[0]), float(width))

    def steeper(self, times: float) -> Shape:
        """The same window, tilted more."""
        if times == 1:
            return self
        tilt = times * self.tilt
        return dataclasses.replace(self, tilt=tilt, tilt_up=2 * tilt)

    def grid(self, tolerance: float) -> Grid:
        """Connecting the dots adds about interval^2 / 6 to the variance of a step's loss."""
        interval = _ladder(math.sqrt(6 * tolerance * self.scatter), INTERVAL_RUNG)
        points = _window(self.width / interval + 2)
        cut = 10.0 ** math.floor(math.log10(NEGLIGIBLE * self.delta / self.steps))
        return Grid(interval, points, self.tilt, self.tilt_up, self.tilt_down, cut)


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


def _window(needed: float) -> int:
    """The next of 4, 5, 6 times a power of 2: quick to transform, and few enough that rows are found again."""
    power = 2 ** max(6, math.floor(math.log2(needed)) - 2)
    return next(power * k for k in (4, 5, 6, 8) if power * k >= needed or k == 8)


def _ladder(value: float, ratio: float) -> float:
    """The nearest rung below: neighbouring schedules then share their grid, and so their cached rows."""
    return ratio ** math.floor(math.log(value) / math.log(ratio))


def ledger_moments(ledger: Ledger, tilts: FloatArray, adjacency: str) -> FloatArray:
    """K(t) = log E[e^(t L)] of the whole ledger."""
    return (ledger_rdp(ledger, 1 + tilts, adjacency) * tilts).sum(axis=0)


def saddle_point(ledger: Ledger, delta: float, adjacency: str) -> tuple[FloatArray, FloatArray, int]:
    """Tilts t, their log-moments K(t), and the index at which the tilted loss centres on epsilon.

    There log delta is about K(t) - t K'(t) - log(t (t + 1) sqrt(2 pi K''(t))).
    Alghamdi et al. (2022), arXiv:2208.09595, Sec. 4.
    """
    tilts, scale, may_rise = ORDERS - 1, 1.0, True
    for _ in range(20):
        t = scale * tilts
        # At scale 1 these are the usual orders, whose moments are there already.
        k = (
            ledger_moments(ledger, t, adjacency)
            if scale != 1
            else ledger_rdp(ledger, ORDERS, adjacency).sum(axis=0) * t
        )
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
