"""What a set of curves says together: the frontier of accuracy over epsilon, and the fit on log epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from dpviz.papers.gains import correlation
from dpviz.runs.differences import CONFIDENCE
from dpviz.views.comparison.experiments import placed

BAND = 1e-3  # two prices of the same steps differ by less than this, relatively: the certified band's width


def frontier(ends: pd.DataFrame, x: str = "epsilon_sound") -> pd.DataFrame:
    """The ends that no other beats: each more accurate than every one that costs as much or less.

    Epsilons within the certified band of each other are equal: which of them is smaller is rounding.
    """
    points = placed(ends, x).sort_values([x, "test_accuracy"], ascending=[True, False])
    costs, accuracies = points[x].to_numpy(float), points["test_accuracy"].to_numpy(float)
    best = np.maximum.accumulate(accuracies) if len(accuracies) else accuracies
    rivals = np.searchsorted(costs, costs * (1 + BAND), side="right") - 1  # the last that costs as much
    earlier = np.concatenate([[-math.inf], best[:-1]])
    return points[(accuracies >= best[rivals]) & (accuracies > earlier)].reset_index(drop=True)


@dataclass(frozen=True)
class LogFit:
    r"""Least squares of accuracy on log epsilon: a(eps) = intercept + slope ln(eps).

    `r` and `p` are Pearson's correlation of accuracy with log epsilon and its two-sided p-value, as in `curricula`,
    Fig. 4.
    """

    slope: float
    intercept: float
    r: float
    p: float
    points: int
    mean_log: float
    squares: float
    residual: float

    @property
    def doubling(self) -> float:
        """Points of accuracy that go with twice the epsilon."""
        return self.slope * math.log(2)

    def line(self, epsilons: np.ndarray) -> np.ndarray:
        return self.intercept + self.slope * np.log(epsilons)

    def band(self, epsilons: np.ndarray) -> np.ndarray:
        """Half width of the confidence band of the line: t s sqrt(1/n + (ln eps - mean)^2 / S)."""
        quantile = stdtrit(self.points - 2, (1 + CONFIDENCE) / 2)
        away = (np.log(epsilons) - self.mean_log) ** 2
        return quantile * self.residual * np.sqrt(1 / self.points + away / self.squares)


def log_fit(ends: pd.DataFrame, x: str = "epsilon_sound") -> LogFit | None:
    """The fit over the ends with an epsilon above 0; None if they are fewer than three or all alike in either."""
    points = placed(ends, x)
    points = points[points[x] > 0]
    logs, accuracies = np.log(points[x].to_numpy(float)), points["test_accuracy"].to_numpy(float)
    if len(logs) < 3 or np.ptp(logs) < 1e-9 or np.ptp(accuracies) < 1e-9:
        return None
    away, squares = logs - logs.mean(), float(((logs - logs.mean()) ** 2).sum())
    slope = float(away @ accuracies / squares)
    intercept = float(accuracies.mean() - slope * logs.mean())
    rest = float(((accuracies - intercept - slope * logs) ** 2).sum())
    r, p = correlation(logs, accuracies)
    return LogFit(
        slope=slope,
        intercept=intercept,
        r=r,
        p=p,
        points=len(logs),
        mean_log=float(logs.mean()),
        squares=squares,
        residual=math.sqrt(rest / (len(logs) - 2)),
    )
