"""Which of two experiments does better, and how much of the difference may be chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np
from scipy.special import stdtr, stdtrit

from dpviz.papers.records import Curve, Curves, Gain
from dpviz.privacy.rdp import FloatArray

ONE_SEED = 0.3  # points: less than this between two single runs on MNIST may be chance
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Gains:
    """The gain of each pair of experiments that has runs, their mean, and whether every pair has."""

    each: Mapping[str, Gain]
    mean: Gain
    complete: bool

    @property
    def points(self) -> dict[str, float]:
        return {name: gain.points for name, gain in self.each.items()}

    @property
    def seeds(self) -> str:
        return seeds(gain.seeds for gain in self.each.values())

    def wins(self) -> str:
        """Verdict on "the first wins": within chance is no win, and no loss either."""
        won = [gain.won for gain in self.each.values()]
        if all(won) and self.complete:
            return "holds"
        if any(won) or self.mean.won:
            return "holds partly"
        return "does not hold" if self.mean.lost else "undecided"

    def never_wins(self) -> str:
        """Verdict on "the first does not win"."""
        return self._never([gain.won for gain in self.each.values()], self.mean.lost)

    def never_loses(self) -> str:
        """Verdict on "the first does at least as well"."""
        return self._never([gain.lost for gain in self.each.values()], self.mean.won)

    def _never(self, against: Sequence[bool], supported: bool) -> str:
        if any(against):
            return "does not hold" if all(against) else "holds partly"
        if not supported:
            return "undecided"
        return "holds" if self.complete else "holds partly"

    def pairs(
        self, title: Callable[[str], str], reported: Callable[[str], float | None] = lambda name: None
    ) -> tuple[Gain, ...]:
        """Each gain under its title, beside the paper's."""
        return tuple(replace(gain, title=title(name), reported=reported(name)) for name, gain in self.each.items())

    def chance(self, words: Callable[[str], str]) -> str:
        """A sentence or two: what is too close to call, and how much of the mean may be chance."""
        close = [words(name) for name, gain in self.each.items() if not gain.won and not gain.lost]
        every = len(close) == len(self.each)
        pairs = "No pair differs by more than chance. " if every else f"Too close to call: {', '.join(close)}. "
        if self.mean.seeds > 1:
            mean = f"Runs of the same seed are compared; {self.mean.chance:.2f} points of the mean may be chance."
        else:
            mean = f"With one seed, less than {self.mean.chance:.1f} points of a pair may be chance."
        return pairs * bool(close) + mean


def by_seed(curves: Curves, one: str, other: str) -> list[tuple[Curve, Curve]]:
    """Runs of both experiments with the same seed: they share first weights and batches, so less of them is chance."""
    first, second = curves.get(one, {}), curves.get(other, {})
    return [(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())]


def gains(leads: Mapping[str, Sequence[float]], pairs: int, alone: float = ONE_SEED) -> Gains:
    """What the leads of each pair come to, one lead per seed; `pairs` is how many there would be with runs of all.

    Chance is the half width of a 95 % interval by Student's t. A pair has few seeds, so what seeds change in a lead is
    estimated from all pairs together. Where a seed stands alone, `alone` points may be chance.
    """
    means = {name: fmean(lead) for name, lead in leads.items()}
    squares = sum((points - means[name]) ** 2 for name, lead in leads.items() for points in lead)
    runs = [len(lead) for lead in leads.values()]
    freedom = sum(runs) - len(runs)
    if min(runs) > 1:
        apart = float(stdtrit(freedom, 1 - SIGNIFICANT / 2)) * math.sqrt(squares / freedom)
        chances = {name: apart / math.sqrt(len(lead)) for name, lead in leads.items()}
        chance = apart * math.sqrt(sum(1 / count for count in runs)) / len(runs)
    else:
        chances, chance = dict.fromkeys(leads, alone), alone
    each = {name: Gain(means[name], chances[name], len(lead)) for name, lead in leads.items()}
    return Gains(each, Gain(fmean(means.values()), chance, min(runs)), len(leads) == pairs)


def correlation(xs: Sequence[float] | FloatArray, ys: Sequence[float] | FloatArray) -> tuple[float, float]:
    """Pearson's r and its two-sided p-value: Student's t = r sqrt(f / (1 - r^2)) with f = n - 2 degrees of freedom."""
    r = float(np.corrcoef(xs, ys)[0, 1])
    freedom = len(xs) - 2
    t = abs(r) * math.sqrt(freedom / max(1e-15, 1 - r * r))
    return r, float(2 * stdtr(freedom, -t))


def signed(points: float, digits: int = 2) -> str:
    """Points with their sign; what rounds to nothing has none."""
    rounded = round(points, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def seeds(counts: Iterable[int]) -> str:
    """How many seeds there are, in words."""
    ordered = sorted(counts)
    fewest, most = ordered[0], ordered[-1]
    if fewest < most:
        return f"{fewest} to {most} seeds each"
    return "one seed each" if most == 1 else f"{most} seeds each"
