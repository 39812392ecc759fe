"""Which of two experiments does better, and how much of the difference may be chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from scipy.special import stdtr, stdtrit

from dpviz.papers.records import Curve, Curves
from dpviz.privacy.rdp import FloatArray

ONE_SEED = 0.3  # points: less than this between two single runs on MNIST may be chance
SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Gain:
    """Points by which one experiment leads another, and how many of them may be chance."""

    points: float
    chance: float
    seeds: int

    @property
    def won(self) -> bool:
        return self.points > self.chance

    @property
    def lost(self) -> bool:
        return self.points < -self.chance


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
        """Verdict on "the first wins". Within chance is no win; but one seed, or some of the pairs, deny nothing."""
        won = [gain.won for gain in self.each.values()]
        if any(won):
            return "holds" if all(won) and self.complete else "holds partly"
        if self.mean.seeds > 1 and self.mean.won:
            return "holds partly"
        lost = any(gain.lost for gain in self.each.values())
        return "does not hold" if lost or (self.complete and self.mean.seeds > 1) else "not checked"

    def never_wins(self) -> str:
        """Verdict on "the first does not win": a gain within chance is none."""
        return self._never([gain.won for gain in self.each.values()])

    def never_loses(self) -> str:
        """Verdict on "the first does at least as well": a loss within chance is none."""
        return self._never([gain.lost for gain in self.each.values()])

    def _never(self, seen: Sequence[bool]) -> str:
        if all(seen):
            return "does not hold"
        return "holds partly" if any(seen) or not self.complete else "holds"

    def chance(self, words: Callable[[str], str]) -> str:
        """A sentence or two: what is too close to call, and how much of the mean may be chance."""
        close = [words(name) for name, gain in self.each.items() if not gain.won and not gain.lost]
        every = len(close) == len(self.each)
        said = "No pair differs by more than chance. " if every else f"Too close to call: {', '.join(close)}. "
        if self.mean.seeds > 1:
            told = f"Runs of the same seed are compared; {self.mean.chance:.2f} points of the mean may be chance."
        else:
            told = f"With one seed, less than {self.mean.chance:.1f} points of a pair may be chance."
        return said * bool(close) + told


def by_seed(curves: Curves, one: str, other: str) -> list[tuple[Curve, Curve]]:
    """Runs of both experiments with the same seed: they share first weights and batches, so less of them is chance."""
    first, second = curves.get(one, {}), curves.get(other, {})
    return [(first[seed], second[seed]) for seed in sorted(first.keys() & second.keys())]


def gains(leads: Mapping[str, Sequence[float]], pairs: int, alone: float = ONE_SEED) -> Gains:
    """What the leads of each pair come to, one lead a seed; `pairs` is how many there would be with runs of all.

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


def seeds(counts: Iterable[int]) -> str:
    """How many seeds there are, in words."""
    ordered = sorted(counts)
    fewest, most = ordered[0], ordered[-1]
    if fewest < most:
        return f"{fewest} to {most} seeds each"
    return "one seed each" if most == 1 else f"{most} seeds each"
