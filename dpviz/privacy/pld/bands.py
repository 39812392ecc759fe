"""The certified band: [lower, upper] holds the true epsilon or delta, on a grid that is fine enough."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import product

from dpviz.privacy.pld.composition import Band, Contradiction, Question, Tally, compose, delta_at, epsilon_at
from dpviz.privacy.pld.dominating_pairs import DIRECTIONS, Direction
from dpviz.privacy.pld.grids import Shape, cut_mass, likely_delta, truncated_moments, usual_moments
from dpviz.privacy.pld.loss_grid import Grid, GridTooLarge, NoBand
from dpviz.privacy.pld.spectra import rows
from dpviz.privacy.records import Ledger, Phase

# Relative error of the log-moment that the interval is chosen for, and the grid points (rows times window) up to which
# it is affordable; beyond the last one the RDP bound answers.
TOLERANCES = ((0.003, 2**19), (0.005, 2**24), (0.02, 2**24), (0.1, 2**25))
MAX_WINDOW = 2**20  # grid points
COARSER = 16  # times the tolerance, for the direction that is expected to cost less
RETRIES = ((True, 1), (False, 4), (True, 16), (False, 16))  # for a wide band: truncated moments or not, times finer


def merged(ledger: Ledger) -> Ledger:
    """Equal phases made one, wherever they stand: their order does not matter."""
    counts: dict[tuple[float, float], int] = {}
    for phase in ledger.phases:
        key = (phase.noise_multiplier, phase.sample_rate)
        counts[key] = counts.get(key, 0) + phase.steps
    return Ledger(Phase(sigma, q, steps) for (sigma, q), steps in counts.items())


@lru_cache(maxsize=64)  # a page asks for the same ledger several times, also where the answer is that there is none
def _band(ledger: Ledger, delta: float, adjacency: str) -> Band | NoBand:
    try:
        return _on_good_grid(delta, epsilon_at(delta), adjacency, ledger.phases, [len(ledger.phases) - 1])[-1]
    except NoBand as reason:
        return reason


def band(ledger: Ledger, delta: float, adjacency: str = "add-remove") -> Band:
    """(lower, upper) epsilon of a ledger under Poisson sampling. Raises NoBand where no grid fits."""
    found = _band(merged(ledger), delta, adjacency)
    if isinstance(found, NoBand):
        raise type(found)(*found.args)
    return found


def band_path(phases: Sequence[Phase], at: Sequence[int], delta: float, adjacency: str = "add-remove") -> list[Band]:
    """The bands after some of the phases (rising indices that end with the last).

    The grid of the whole is too coarse for the lower ends of early epochs: the longest of those gives them its own.
    """
    bands = _on_good_grid(delta, epsilon_at(delta), adjacency, phases, at)
    coarse = sum(lower == 0 < upper for lower, upper in bands)  # the first ones: epsilon rises
    if not 0 < coarse < len(at):
        return bands
    try:
        finer = band_path(phases[: at[coarse - 1] + 1], at[:coarse], delta, adjacency)
    except NoBand:
        return bands
    return [(lower, upper) for (lower, _), (_, upper) in zip(finer, bands[:coarse], strict=True)] + bands[coarse:]


def delta_band(ledger: Ledger, epsilon: float, bound: float, adjacency: str = "add-remove") -> Band:
    """(lower, upper) delta of a ledger under Poisson sampling, given any bound. Raises NoBand where no grid fits.

    The grid for a delta is precise around its epsilon only, so a far guess is followed by what it led to.
    """
    ledger, question = merged(ledger), delta_at(epsilon)
    near, found = likely_delta(ledger, epsilon, adjacency, bound), (0.0, 1.0)
    for _ in range(3):
        (another,) = _on_good_grid(near, question, adjacency, ledger.phases, [len(ledger.phases) - 1])
        found = _agreed(found, another)
        if not question.is_wide(found):
            break
        near = min(found[1], near)
    return found


def _agreed(one: Band, other: Band) -> Band:
    """The part that both bands hold."""
    lower, upper = max(one[0], other[0]), min(one[1], other[1])
    if not lower <= upper:
        raise Contradiction("its lower and upper bounds contradict each other")
    return lower, upper


def _on_good_grid(
    delta: float, question: Question, adjacency: str, phases: Sequence[Phase], at: Sequence[int]
) -> list[Band]:
    """The bands on the coarsest grid that is fine enough, or the finest that is affordable."""
    whole = merged(Ledger(phases))
    distinct = len(whole.phases)

    @cache
    def shape(truncated: bool) -> Shape | None:
        cut = cut_mass(delta, whole.steps)
        moments = truncated_moments(whole, adjacency, cut) if truncated else usual_moments(whole, adjacency)
        try:
            return Shape.of(whole, delta, moments)
        except GridTooLarge:
            return None

    @cache  # other moments may lead to the same grid
    def bands_on(grid: Grid, coarse: Grid) -> list[Band]:
        return _bands_on(grid, coarse, phases, question, adjacency, at)

    def try_grid(truncated: bool, tolerance: float, limit: int) -> list[Band] | None:
        form = shape(truncated)
        if form is None:
            return None
        grid = form.grid(tolerance)
        coarse = form.grid(COARSER * tolerance)
        while grid.points <= MAX_WINDOW and grid.points * distinct <= limit:
            results = bands_on(grid, coarse)
            lower, upper = results[-1]
            if math.isfinite(upper) and (lower > 0 or upper == 0):
                return results
            grid = dataclasses.replace(grid, points=2 * grid.points)
        return None

    for truncated, (tolerance, limit) in product((False, True), TOLERANCES):
        results = try_grid(truncated, tolerance, limit)
        if results is None:
            continue
        for other, finer in RETRIES:
            if not question.is_wide(results[-1]):
                break
            others = try_grid(other, tolerance / finer, 2**24) or results
            results = [_agreed(*pair) for pair in zip(results, others, strict=True)]
        return results
    raise GridTooLarge("a grid that tells its bounds apart would need more points than are affordable")


def _bands_on(
    grid: Grid, coarse: Grid, phases: Sequence[Phase], question: Question, adjacency: str, at: Sequence[int]
) -> list[Band]:
    """The first direction is nearly always the worst by far: a coarse upper bound tells for the other."""
    worst, *others = DIRECTIONS[adjacency]
    uppers = bound_curve("upper", worst, grid, phases, question, at)
    lowers = bound_curve("lower", worst, grid, phases, question, at)
    for direction in others:
        bounds = bound_curve("upper", direction, coarse, phases, question, at)
        if any(other > upper for other, upper in zip(bounds, uppers, strict=True)):
            bounds = bound_curve("upper", direction, grid, phases, question, at)
        if any(other > upper for other, upper in zip(bounds, uppers, strict=True)):
            other_lowers = bound_curve("lower", direction, grid, phases, question, at)
            lowers = [max(pair) for pair in zip(lowers, other_lowers, strict=True)]
        uppers = [max(pair) for pair in zip(uppers, bounds, strict=True)]
    return [_agreed((0.0, math.inf), pair) for pair in zip(lowers, uppers, strict=True)]


def bound_curve(
    bound: str, direction: Direction, grid: Grid, phases: Sequence[Phase], question: Question, at: Sequence[int]
) -> list[float]:
    """One bound after each of the phases that are asked for."""
    tally, curve, wanted = Tally(grid), [], set(at)
    steps = [(phase.noise_multiplier, phase.sample_rate) for phase in phases]
    found, read = rows(bound, direction, steps, grid), getattr(question, bound)
    for k, phase in enumerate(phases):
        tally.add(found[steps[k]], phase.steps)
        if k in wanted:
            curve.append(read(compose(bound, tally)))
    return curve
