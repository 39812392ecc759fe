r"""An oracle for epsilon that shares no code and no method with the accountant: contour integration of loss moments.

With L the privacy loss of all steps together and K(z) = log E[e^(z L)], for any t > 0

    delta(eps) = 1/(2 pi i) \int_(t - i inf)^(t + i inf) e^(K(z) - z eps) / (z (z + 1)) dz.

Each step's moments are a trapezoid sum over its outcome x, the integral is one along the line Re z = t. Both converge
exponentially in their spacing. The second one has an error that is known: spaced by 2 pi / D it adds delta(eps + m D)
e^(m t D) for all m != 0, which Chernoff bounds. Everything is done at two levels of fineness, and their difference is
the estimated error; where they differ too much, `NotConverged` is raised.

Steps that nearly always cost the same have moments that fade too slowly along the line. So the outcomes in which every
step stays below its share of epsilon are taken out: together they stay below epsilon and add nothing to delta. Those in
which every step is above its share are taken out as well: they add first - e^eps second, which are products.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import OptimizeResult, brentq, minimize_scalar
from scipy.special import erf, erfc, expit, log_ndtr, logsumexp

# Outcomes are mixtures (1-q) N(0) + q N(shift): shift of the first and of the second, 0 for N(0) alone.
DIRECTIONS = {"add-remove": {"remove": (1, 0), "add": (0, -1)}, "replace-one": {"replace": (1, -1)}}

REACH = 14.0  # standard deviations of the noise beyond the furthest peak
FAINT = 50.0  # outcomes whose weight is below e^-50 of the largest are left out
FADE, EDGE = 0.25, 6.5  # parts fade over FADE sigma, and are erfc(EDGE) / 2 = 2e-20 at their end
ALIAS = 23.0  # copies of delta that the spacing lets in are below e^-23 of it
TAIL = 1e-8  # share of delta that may be left beyond the end of the line
BLOCK = 64  # points along the line that share their exponentials
MOST_OUTCOMES = 2_000_000
MOST_WORK = 1e9  # outcomes times points of one line
LEVELS = (1.0, 1.4)  # fineness of the two levels


class NotConverged(Exception):
    """The two levels differ too much, or a line is too long."""


@dataclass(frozen=True)
class Answer:
    """What the oracle found, and by how much it may be off."""

    epsilon: float
    error: float


@dataclass(frozen=True)
class Step:
    """`count` equal steps, seen from one direction."""

    sigma: float
    q: float
    count: int
    first: int
    second: int

    def log_mixture(self, x: np.ndarray, shift: int) -> np.ndarray:
        """log of (1-q) + q N(shift) / N(0) at x."""
        if not shift:
            return np.zeros_like(x)
        exponent = (2 * shift * x - 1) / (2 * self.sigma**2)
        if self.q == 1:
            return exponent
        small = np.log1p(self.q * np.expm1(np.minimum(exponent, 1.0)))
        return np.where(exponent < 1.0, small, np.logaddexp(math.log1p(-self.q), math.log(self.q) + exponent))

    def distance(self) -> float:
        """delta(0) of one step: q times that of two Gaussians, as far apart as the shifts."""
        return self.q * float(erf((abs(self.first) + abs(self.second)) / (2 * math.sqrt(2) * self.sigma)))

    def furthest(self, tilt: float) -> float:
        """At or above the rightmost peak of first(x) e^(tilt L(x)), where x = (1 + tilt) w(x) + tilt v(x)."""
        square = self.sigma**2
        log_odds = math.inf if self.q == 1 else math.log(self.q) - math.log1p(-self.q)
        x = np.geomspace(2 * tilt + 2, 1e-3 * self.sigma, 3000)
        pull = abs(self.first) * (1 + tilt) * expit(log_odds + (x - 0.5) / square)
        pull = pull + abs(self.second) * tilt * expit(log_odds - (x + 0.5) / square)
        held = np.flatnonzero(x <= pull)
        return float(x[max(held[0] - 1, 0)]) if held.size else 0.0

    def outcomes(self, tilt: float, wave: float, fineness: float) -> Outcomes:
        """The outcomes that matter under this tilt, close enough for waves e^(i wave L)."""
        spacing = 1 / fineness / (8 / self.sigma + 2 / self.sigma**2)
        plain = self._between(
            self.second - REACH * self.sigma, self.furthest(max(tilt, 0.0)) + REACH * self.sigma, spacing, tilt
        )
        if not wave:
            return plain
        steepest = float(np.abs(np.diff(plain.loss) / np.diff(plain.x)).max())
        denser = 1 / (1 / spacing + fineness * 1.3 * wave * steepest / (2 * math.pi))
        return self._between(float(plain.x[0]) - spacing, float(plain.x[-1]) + spacing, denser, tilt)

    def log_right_of(self, end: float, shift: int) -> float:
        """log of the chance of an outcome (smoothly) right of a place, under the mixture with this shift."""
        if not math.isfinite(end):
            return -math.inf
        spacing = 1 / LEVELS[-1] / (8 / self.sigma + 2 / self.sigma**2)
        x = np.arange(end, max(end, 1.0) + 2 * REACH * self.sigma, spacing)
        x = np.append(np.arange(x[0] - spacing, end - REACH * self.sigma, -spacing)[::-1], x)
        fade = log_ndtr(math.sqrt(2) * ((x - end) / (FADE * self.sigma) - EDGE))
        logs = -0.5 * (x / self.sigma) ** 2 + self.log_mixture(x, shift) + fade
        return float(logsumexp(logs)) + math.log(spacing / (self.sigma * math.sqrt(2 * math.pi)))

    def _between(self, low: float, high: float, spacing: float, tilt: float) -> Outcomes:
        if not (high - low) / spacing < MOST_OUTCOMES:
            raise NotConverged("one step has too many outcomes")
        x = np.arange(low, high + spacing, spacing)
        log_first, log_second = self.log_mixture(x, self.first), self.log_mixture(x, self.second)
        loss = log_first - log_second
        log_weight = -0.5 * (x / self.sigma) ** 2 + log_first + tilt * loss
        top = float(log_weight.max())
        seen = log_weight > top - FAINT
        weight = np.exp(log_weight[seen] - top)
        total = float(weight.sum())
        log_moment = top + math.log(total * spacing / (self.sigma * math.sqrt(2 * math.pi)))
        return Outcomes(x[seen], loss[seen], weight / total, log_moment)


@dataclass(frozen=True)
class Outcomes:
    """Places x, their losses and tilted weights (which add up to 1), and the log-moment that the tilt divided by."""

    x: np.ndarray
    loss: np.ndarray
    weight: np.ndarray
    log_moment: float

    @property
    def mean(self) -> float:
        return float(self.weight @ self.loss)

    @property
    def variance(self) -> float:
        return float(self.weight @ (self.loss - self.mean) ** 2)

    def ends(self, low: float, high: float) -> tuple[float, float]:
        """Two places: left of the first no loss is above `low`, right of the second none is below `high`."""
        last = self.x.size - 1
        below, above = np.searchsorted(self.loss, low, "right") - 1, np.searchsorted(self.loss, high)
        return (
            float(self.x[below]) if below >= 0 else -math.inf,
            float(self.x[above]) if above <= last else math.inf,
        )

    def beyond(self, end: float, sigma: float, side: int) -> np.ndarray:
        """The part of each outcome that is surely left (side 1) or right (side -1) of a place: it fades smoothly."""
        if math.isinf(end):
            return np.zeros_like(self.x)
        return erfc(side * (self.x - end) / (FADE * sigma) + EDGE) / 2

    def waves(self, weights: np.ndarray, first: int, points: int, spacing: float) -> np.ndarray:
        """sum of weight e^(i y loss) at y = spacing (first, first + 1, ...): one row per row of weights.

        e^(i (y + k spacing) L) = e^(i y L) e^(i k spacing L) makes it a product of matrices.
        """
        starts = spacing * (first + BLOCK * np.arange(points // BLOCK))
        result = np.zeros((weights.shape[0], starts.size, BLOCK), complex)
        for at in range(0, self.loss.size, 4096):
            loss, part = self.loss[at : at + 4096], weights[:, at : at + 4096]
            within = np.exp(1j * spacing * np.outer(loss, np.arange(BLOCK)))
            result += (part[:, None, :] * np.exp(1j * np.outer(starts, loss))[None]) @ within
        return result.reshape(weights.shape[0], -1)


def _moments(steps: list[Step], tilt: float) -> tuple[float, float, float]:
    """K, K' and K'' of the whole ledger at a real tilt."""
    found = [step.outcomes(tilt, 0.0, 1.0) for step in steps]
    counts = [step.count for step in steps]
    return (
        math.fsum(n * each.log_moment for n, each in zip(counts, found, strict=True)),
        math.fsum(n * each.mean for n, each in zip(counts, found, strict=True)),
        math.fsum(n * each.variance for n, each in zip(counts, found, strict=True)),
    )


def _saddle(steps: list[Step], tilt: float) -> tuple[float, float]:
    """(epsilon, log delta) for which this tilt is the saddle point of the integrand, delta to leading order."""
    k, slope, variance = _moments(steps, tilt)
    epsilon = slope - 1 / tilt - 1 / (1 + tilt)
    curvature = variance + 1 / tilt**2 + 1 / (1 + tilt) ** 2
    return epsilon, k - tilt * epsilon - math.log(tilt * (tilt + 1)) - 0.5 * math.log(2 * math.pi * curvature)


def _tilt_where(falls: Callable[[float], float]) -> float:
    """The tilt at which a falling function of log tilt is 0."""
    low = high = 0.0
    while falls(low) < 0:
        low -= 2.0
        if low < -40:
            raise NotConverged("no tilt is small enough")
    while falls(high) > 0:
        high += 1.0
    return math.exp(brentq(falls, low, high, xtol=1e-3)) if low < high else 1.0


@dataclass(frozen=True)
class Line:
    """The integrand along Re z = tilt, without its factor e^(-i y eps): delta(eps) for any eps within the margin."""

    tilt: float
    epsilon: float
    margin: float
    spacing: float
    values: np.ndarray
    k: float
    log_first: float  # of the chance that every step is above its share of epsilon
    log_second: float

    def delta(self, epsilon: float) -> float:
        turns = np.exp(-1j * epsilon * self.spacing * np.arange(self.values.size))
        area = float((self.values * turns).real.sum() - self.values[0].real / 2) * self.spacing / math.pi
        return area * math.exp(self.k - self.tilt * epsilon) + self._above(epsilon)

    def _above(self, epsilon: float) -> float:
        return math.exp(self.log_first) - math.exp(epsilon + self.log_second)

    def solve(self, delta: float) -> float:
        """Where delta is this, by Newton's method on log delta; beyond the margin no more than a direction."""
        epsilon, small = self.epsilon, 1e-4 * self.margin
        for _ in range(50):
            here, ahead = self.delta(epsilon), self.delta(epsilon + small)
            if here < 1e-4 * delta:  # far too small to be precise: a smaller epsilon is wanted
                return self.epsilon / 1.5
            if not 0 < ahead < here:
                raise NotConverged(f"delta({epsilon}) came out as {here}")
            move = math.log(delta / here) * small / math.log(ahead / here)
            epsilon += move
            if abs(epsilon - self.epsilon) > self.margin or abs(move) < 1e-13 * abs(epsilon) + 1e-9 * small:
                break
        return epsilon


def _line(steps: list[Step], tilt: float, epsilon: float, log_delta: float, fineness: float) -> Line:
    plain = [step.outcomes(tilt, 0.0, fineness) for step in steps]
    counts = np.array([step.count for step in steps])
    k = math.fsum(counts * [each.log_moment for each in plain])
    spread = np.sqrt([each.variance for each in plain]) + 1e-300
    margin = 0.02 * max(epsilon, 1 / tilt)
    parts = (spread / (counts @ spread) + 1 / counts.sum()) / 2  # of epsilon; losses of any scale get room
    ends = np.array(
        [
            each.ends(part * (epsilon - margin), part * (epsilon + margin))
            for each, part in zip(plain, parts, strict=True)
        ]
    )
    ends[:, _too_rare(steps, plain, ends)] = math.nan
    spacing = 2 * math.pi / (fineness * _period(steps, tilt, epsilon, log_delta))
    values, start, points, work = np.zeros(0, complex), 0, 2 * BLOCK, 0.0
    while True:
        logs = np.zeros((1 + np.isfinite(ends[0]).sum(), points), complex)
        for step, (left, right) in zip(steps, ends, strict=True):
            outcomes = step.outcomes(tilt, spacing * (start + points), fineness)
            work += outcomes.x.size * points
            if work > MOST_WORK:
                raise NotConverged(f"{values.size} points along the line were not enough")
            taken = [
                outcomes.beyond(end, step.sigma, side) for end, side in ((left, 1), (right, -1)) if math.isfinite(end)
            ]
            waves = outcomes.waves(
                outcomes.weight * np.stack([np.ones_like(outcomes.x), *taken]), start, points, spacing
            )
            logs += step.count * np.log(np.where(np.abs(waves) > 1e-290, waves, 1e-290))
        z = tilt + 1j * spacing * np.arange(start, start + points)
        whole, *others = np.exp(logs)
        new = (whole - sum(others)) / (z * (z + 1))
        values, start = np.append(values, new), start + points
        tail = float(np.abs(new[-points // 4 :]).max()) * spacing * start
        if tail < math.pi * TAIL * math.exp(min(log_delta + tilt * epsilon - k, 700.0)):
            return Line(tilt, epsilon, margin, spacing, values, k, *_chances(steps, ends[:, 1]))
        points = start


def _too_rare(steps: list[Step], plain: list[Outcomes], ends: np.ndarray) -> np.ndarray:
    """Which of the two parts, every step below its share and every step above it, have next to no weight."""
    logs = np.zeros(2)
    for step, outcomes, places in zip(steps, plain, ends, strict=True):
        for k, side in enumerate((1, -1)):
            weight = float(outcomes.weight @ outcomes.beyond(float(places[k]), step.sigma, side))
            logs[k] += step.count * math.log(weight) if weight > 0 else -math.inf
    return logs < -60


def _chances(steps: list[Step], ends: np.ndarray) -> tuple[float, float]:
    """log of the chance that every step is (smoothly) right of its end, if the example is there and if it is not."""
    return (
        math.fsum(step.count * step.log_right_of(end, step.first) for step, end in zip(steps, ends, strict=True)),
        math.fsum(step.count * step.log_right_of(end, step.second) for step, end in zip(steps, ends, strict=True)),
    )


def _period(steps: list[Step], tilt: float, epsilon: float, log_delta: float) -> float:
    """D so large that delta(eps - D) e^(-t D) and delta(eps + D) e^(t D) are e^-ALIAS of delta: by Chernoff."""
    target = log_delta - ALIAS

    def needed(other: float) -> float:
        k = _moments(steps, other)[0] if other else 0.0
        return (k - other * epsilon - target) / abs(tilt - other)

    below = min(needed(tilt * times) for times in (0.0, 0.25, 0.5))
    above = min(needed(tilt * times) for times in (1.25, 1.5, 2.0, 3.0))
    return max(below, above)


def _direction_epsilon(steps: list[Step], delta: float) -> Answer:
    """From the saddle point; where that lies beyond a jump of the moments, from the tilt of the best Chernoff bound."""
    log_delta = math.log(delta)
    tilt = _tilt_where(lambda log_tilt: _saddle(steps, math.exp(log_tilt))[1] - log_delta)
    start = _saddle(steps, tilt)[0]
    if start <= 0:  # perhaps delta(0) is small enough
        tilt = _tilt_where(lambda log_tilt: -_saddle(steps, math.exp(log_tilt))[0])
        at_zero = [_line(steps, tilt, 0.0, log_delta, level).delta(0.0) for level in LEVELS]
        if max(at_zero) < delta:
            return Answer(0.0, 0.0)
        start = 1e-3 / tilt
    try:
        return _near(steps, delta, tilt, start)
    except NotConverged:
        best = _least(lambda log_tilt: (_log_bound(steps, log_tilt) - log_delta) / math.exp(log_tilt))
        return _near(steps, delta, math.exp(float(best.x)), float(best.fun))


def _near(steps: list[Step], delta: float, tilt: float, epsilon: float) -> Answer:
    """At two levels of fineness, along lines that move until one is around its epsilon."""
    found: list[float] = []
    for level in LEVELS:
        for _ in range(30):
            line = _line(steps, tilt, epsilon, math.log(delta), level)
            epsilon = max(line.solve(delta), line.epsilon / 2)
            if abs(epsilon - line.epsilon) <= line.margin:
                break
        else:
            raise NotConverged("the line never was around its epsilon")
        found.append(epsilon)
    error = abs(found[1] - found[0]) + (10 * TAIL + 1e-15 * sum(step.count for step in steps)) / tilt
    if not error <= 1e-4 * max(found[1], 1e-3 / tilt) + 1e-6 / tilt:
        raise NotConverged(f"two levels give epsilon {found[0]} and {found[1]}")
    return Answer(max(found[1], 0.0), error)


def oracle_delta(phases: Iterable[tuple[float, float, int]], epsilon: float, adjacency: str = "add-remove") -> float:
    """delta of (sigma, q, steps) phases at an epsilon >= 0: the worst direction's."""
    worst = 0.0
    for first, second in DIRECTIONS[adjacency].values():
        steps = [Step(sigma, q, count, first, second) for sigma, q, count in _merged(phases)]
        tilt = _tilt_where(lambda log_tilt, steps=steps: epsilon - _saddle(steps, math.exp(log_tilt))[0])
        log_delta = _saddle(steps, tilt)[1]
        found = [_line(steps, tilt, epsilon, log_delta, level).delta(epsilon) for level in LEVELS]
        if not abs(found[1] - found[0]) <= 1e-6 * abs(found[1]):
            raise NotConverged(f"two levels give delta {found[0]} and {found[1]}")
        worst = max(worst, found[1])
    return worst


def oracle_epsilon(phases: Iterable[tuple[float, float, int]], delta: float, adjacency: str = "add-remove") -> Answer:
    """epsilon of (sigma, q, steps) phases at this delta: the worst direction's."""
    worst = Answer(0.0, 0.0)
    for first, second in DIRECTIONS[adjacency].values():
        steps = [Step(sigma, q, count, first, second) for sigma, q, count in _merged(phases)]
        if not _surely_below(steps, worst.epsilon, delta):
            worst = max(worst, _direction_epsilon(steps, delta), key=lambda answer: answer.epsilon)
    return worst


def _surely_below(steps: list[Step], epsilon: float, delta: float) -> bool:
    """Whether delta(eps) is less than this: at eps = 0 by the sum of all steps, above it by Chernoff."""
    if epsilon == 0:
        return sum(step.count * step.distance() for step in steps) < delta
    best = _least(lambda log_tilt: _log_bound(steps, log_tilt) - math.exp(log_tilt) * epsilon)
    return bool(best.fun < math.log(delta))


def _log_bound(steps: list[Step], log_tilt: float) -> float:
    """log of a bound on delta(eps) e^(t eps): (1 - e^-x) e^(-t x) is t^t / (1+t)^(1+t) at most."""
    tilt = math.exp(log_tilt)
    try:
        return _moments(steps, tilt)[0] + tilt * log_tilt - (1 + tilt) * math.log1p(tilt)
    except NotConverged:
        return math.inf


def _least(function: Callable[[float], float]) -> OptimizeResult:
    return minimize_scalar(function, bounds=(-7.0, 14.0), method="bounded", options={"xatol": 0.02})


def _merged(phases: Iterable[tuple[float, float, int]]) -> list[tuple[float, float, int]]:
    counts: dict[tuple[float, float], int] = {}
    for sigma, q, count in phases:
        counts[sigma, q] = counts.get((sigma, q), 0) + count
    return [(sigma, q, count) for (sigma, q), count in counts.items()]
