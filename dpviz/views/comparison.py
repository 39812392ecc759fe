"""Runs and reported results side by side, as frames: seeds folded, frontier, equal epsilon, fit on log epsilon.

One frame holds everything: a row an epoch of a run, or a row a reported number. A *group* is what is drawn as one
curve: the same settings with any seed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from dpviz.papers import RECIPES, TITLES, Reported, recipes_of
from dpviz.papers.gains import correlation
from dpviz.runs import CachedRun, Run
from dpviz.training.pricing import planned_guarantee
from dpviz.training.spec import STREAMS
from dpviz.views.axes import AXES
from dpviz.views.runs import curve, run_name

SOURCES = {"own": "my run", "cached": "full-length run", "reported": "reported"}
ABOUT = ("group", "name", "source", "paper", "place", "dataset", "model", "method", "run", "seed", "point")
SPENT = ("spent_sound", "spent_claimed", "at_most")  # by the whole run, also after its last whole epoch
COLUMNS = (*ABOUT, *AXES, "spread", *SPENT)
SPREAD_OF = {"test_accuracy": "accuracy_spread", "test_loss": "loss_spread"}
CONFIDENCE = 0.95


def comparison_frame(
    runs: Iterable[Run] = (), cached: Iterable[CachedRun] = (), reported: Iterable[Reported] = ()
) -> pd.DataFrame:
    """Everything that is to be compared, in one frame. Epsilon is NaN where there is no guarantee."""
    rows = [
        *(row for run in runs for row in _own_rows(run)),
        *(row for item in cached for row in _cached_rows(item)),
        *_reported_rows(reported),
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def group_of(run: Run) -> str:
    """Finished runs with the same settings but for the seed are one group; an unfinished run stands alone."""
    settings = dataclasses.replace(run.spec, seed=0, streams=STREAMS).key
    return f"own/{settings}" if run.status == "done" else f"own/{settings}/{run.id}"


def _own_rows(run: Run) -> Iterator[tuple[Any, ...]]:
    paper = run.spec.recipe.partition("/")[0] if run.spec.recipe in RECIPES else ""
    yield from _run_rows(run, (group_of(run), run_name(run) + _so_far(run), "own", paper))


def _cached_rows(item: CachedRun) -> Iterator[tuple[Any, ...]]:
    recipe = f"{item.paper}/{item.experiment}"
    name = (RECIPES[recipe].title if recipe in RECIPES else recipe) + _so_far(item.run)
    group = f"cached/{recipe}" if item.run.status == "done" else f"cached/{recipe}/{item.seed}"
    yield from _run_rows(item.run, (group, name, "cached", item.paper))


def _so_far(run: Run) -> str:
    """A run that is not whole says so in its name."""
    return "" if run.status == "done" else f" (epoch {len(run.epochs)} of {run.spec.epochs})"


def _run_rows(run: Run, who: tuple[str, str, str, str]) -> Iterator[tuple[Any, ...]]:
    spec = run.spec
    about = (*who, "", spec.dataset, spec.model, spec.method, run.id, spec.seed, 0)
    return ((*about, *numbers, math.nan, *_spent(run)) for numbers in curve(run))


def _spent(run: Run) -> tuple[float, float, bool]:
    spent = run.spent
    if spent is None:
        return math.nan, math.nan, False
    sound, claimed = (math.nan if value is None else value for value in (spent.epsilon_sound, spent.epsilon_claimed))
    return sound, claimed, spent.at_most


def _reported_rows(reported: Iterable[Reported]) -> Iterator[tuple[Any, ...]]:
    points: dict[str, int] = {}
    for number, places in _distinct(reported):
        place = re.sub(r"[^a-z0-9.]+", "-", number.place.lower()).strip("-")
        group = f"reported/{number.name}/{place}"
        points[group] = point = points.get(group, -1) + 1
        yield _reported_row(number, places, group, point)


def _distinct(reported: Iterable[Reported]) -> Iterator[tuple[Reported, str]]:
    """A result that a paper prints in several places is one result, not several points."""
    kept: dict[tuple[str, float, float | None], list[Reported]] = {}
    for number in sorted(reported, key=lambda number: number.epsilon is None):
        own = (number.name, number.value, number.epsilon)
        alike = (key for key in kept if key[:2] == own[:2] and number.epsilon in (None, key[2]))
        kept.setdefault(next(alike, own), []).append(number)
    for numbers in kept.values():
        yield numbers[0], ", ".join(dict.fromkeys(number.place for number in numbers))


def _reported_row(number: Reported, places: str, group: str, point: int) -> tuple[Any, ...]:
    recipe = RECIPES.get(number.name)
    spec = recipe.spec if recipe else None
    sound = planned_guarantee(spec).sound if spec else None
    values = dict.fromkeys(AXES, math.nan) | {
        "epoch": spec.epochs if spec else math.nan,
        "epsilon_claimed": math.nan if number.epsilon is None else number.epsilon,
        "epsilon_sound": sound.upper if sound else number.epsilon_sound or math.nan,
        "test_accuracy": 100 * number.value,
    }
    about = (group, TITLES[number.name], "reported", number.paper, places, dataset_of(number))
    settings = (spec.model, spec.method) if spec else ("", "")
    spread = math.nan if number.spread is None else 100 * number.spread
    spent = (values["epsilon_sound"], values["epsilon_claimed"], False)
    return (*about, *settings, "", -1, point, *values.values(), spread, *spent)


@functools.cache
def _datasets_of(paper: str, word: str) -> frozenset[str]:
    return frozenset(r.spec.dataset for r in recipes_of(paper) if r.name.startswith(f"{paper}/{word}"))


def dataset_of(number: Reported) -> str:
    """The number's own, or its recipe's; without a recipe that of its relatives, if they agree."""
    if number.dataset:
        return number.dataset
    if number.name in RECIPES:
        return RECIPES[number.name].spec.dataset
    for word in (number.experiment.partition("-")[0], ""):
        datasets = _datasets_of(number.paper, word)
        if len(datasets) == 1:
            return next(iter(datasets))
    return ""


def fold(frame: pd.DataFrame) -> pd.DataFrame:
    """Seeds folded: a row a group and epoch with means, standard deviations (of two seeds or more) and their number."""
    keys = ["group", "point", "epoch"]
    about = {name: (name, "first") for name in ABOUT if name not in ("group", "point", "run", "seed")}
    numbers = {name: (name, "mean") for name in AXES if name != "epoch"}
    spreads = {new: (old, "std") for old, new in SPREAD_OF.items()}
    told = {"seeds": ("run", "size"), "spread": ("spread", "first")} | {name: (name, "max") for name in SPENT}
    grouped = frame.groupby(keys, sort=False, dropna=False)
    folded = grouped.agg(**about, **numbers, **spreads, **told).reset_index()
    folded["accuracy_spread"] = folded["accuracy_spread"].fillna(folded.pop("spread"))
    folded["label"] = _labels(folded)
    return folded


def _labels(folded: pd.DataFrame) -> pd.Series:
    """A name that is unique among the groups, with where it is from."""
    origin = folded["source"].map(SOURCES) + folded["place"].map(lambda place: f", {place}" if place else "")
    labels = folded["name"] + " — " + folded["paper"].map(lambda paper: f"{paper}, " if paper else "") + origin
    labels = labels.map(lambda label: label.replace("<", "‹"))  # a figure would take it for a tag
    groups = pd.DataFrame({"group": folded["group"], "label": labels}).drop_duplicates("group")
    count = groups.groupby("label").cumcount() + 1
    unique = groups["label"].where(count == 1, groups["label"] + " (" + count.astype(str) + ")")
    return folded["group"].map(dict(zip(groups["group"], unique, strict=True))).astype(object)


def endpoints(folded: pd.DataFrame) -> pd.DataFrame:
    """Where each curve ends: a group's last epoch, and every reported point."""
    return folded.groupby(["group", "point"], sort=False).tail(1).reset_index(drop=True)


def placed(folded: pd.DataFrame, x: str, y: str = "test_accuracy") -> pd.DataFrame:
    """The rows that have a place in a plot; no guarantee and infinite epsilon have none."""
    return folded[np.isfinite(folded[x].astype(float)) & np.isfinite(folded[y].astype(float))]


def unplaced(folded: pd.DataFrame, x: str, y: str = "test_accuracy") -> list[str]:
    """Labels of the groups of which nothing has a place."""
    shown = set(placed(folded, x, y)["group"])
    return list(folded.loc[~folded["group"].isin(shown), "label"].unique())


def frontier(ends: pd.DataFrame, x: str = "epsilon_sound") -> pd.DataFrame:
    """The ends that no other beats: each more accurate than every one that costs as much or less."""
    ordered = placed(ends, x).sort_values([x, "test_accuracy"], ascending=[True, False])
    best = ordered["test_accuracy"].astype(float).cummax().shift(fill_value=-math.inf)
    return ordered[ordered["test_accuracy"] > best].reset_index(drop=True)


def equal_epsilon_frame(folded: pd.DataFrame, budget: float, x: str = "epsilon_sound") -> pd.DataFrame:
    """Each group at its last epoch within the budget, best first: what it would have reached had it stopped there."""
    within = placed(folded, x)
    within = within[within[x] <= budget].sort_values(x, kind="stable")
    last = within.groupby("group", sort=False).tail(1)
    columns = ["label", "test_accuracy", "accuracy_spread", "seeds", x, "epoch", "noise_multiplier", "group"]
    table = last.sort_values("test_accuracy", ascending=False, kind="stable")[columns].reset_index(drop=True)
    table["seeds"] = table["seeds"].where(table["group"].str.startswith(("own/", "cached/")))  # papers rarely say
    return table


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
