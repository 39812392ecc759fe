"""The views of Compare, as one table: adding a view is one entry here."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import pandas as pd

from dpviz.training.pricing import steps_risk
from dpviz.training.spec import RunSpec
from dpviz.views.comparison.differences import difference_frame
from dpviz.views.comparison.experiments import endpoints
from dpviz.views.comparison.figures import (
    curves_figure,
    difference_figure,
    fit_figure,
    frontier_figure,
    heat_figure,
    parallel_figure,
    ranking_figure,
)
from dpviz.views.comparison.fit import frontier, log_fit
from dpviz.views.comparison.scene import Scene
from dpviz.views.comparison.settings import cell_frame, varying
from dpviz.views.comparison.table import dataset_title

RISK_POINTS = 6  # per curve


def _no_note(frame: pd.DataFrame, scene: Scene) -> str:
    return ""


@dataclass(frozen=True)
class View:
    """One way to look: its data, its figure, the controls it understands, and a sentence beneath it.

    `cursor`: its x axis is epsilon, and a click there moves the cursor. `cells`: it lays out two settings.
    """

    name: str
    title: str
    frame: Callable[[Scene], pd.DataFrame]
    figure: Callable[[pd.DataFrame, Scene], Any]
    needs_epsilon: bool = False
    log_axis: bool = False
    cursor: bool = False
    facets: bool = False
    cells: bool = False
    note: Callable[[pd.DataFrame, Scene], str] = _no_note


def _folded(scene: Scene) -> pd.DataFrame:
    return scene.folded


def _ends(scene: Scene) -> pd.DataFrame:
    return endpoints(scene.folded)


def _ranked(scene: Scene) -> pd.DataFrame:
    return scene.table[scene.table["accuracy"].notna()]


def _against_epsilon(frame: pd.DataFrame, scene: Scene) -> Any:
    return curves_figure(frame, scene, scene.column, "test_accuracy")


def _risks(scene: Scene) -> pd.DataFrame:
    """The coloured experiments at a few of their epochs: each risk takes some fifty milliseconds, once."""
    lit = scene.folded[scene.folded["group"].isin(set(scene.marks) & set(scene.specs))]
    few = [
        rows.iloc[np.unique(np.linspace(0, len(rows) - 1, RISK_POINTS).round().astype(int))]
        for _, rows in lit.groupby(["group", "point"], sort=False)
    ]
    frame = pd.concat(few) if few else lit
    spots = zip(frame["group"], frame["epoch"], strict=True)
    return frame.assign(members_found=[_members_found(scene.specs[group], int(epoch)) for group, epoch in spots])


@lru_cache(maxsize=4096)
def _members_found(spec: RunSpec, epochs: int) -> float:
    found = None if spec.filter or spec.secure else steps_risk(spec.method, spec.curriculum, spec.phases[:epochs])
    return 100 * found.tpr(0.001).upper if found else math.nan


def _risk_note(frame: pd.DataFrame, scene: Scene) -> str:
    return (
        f"The share of the members that the best attack can find while it takes 1 non-member in 1,000 for a member; "
        f"without a model it would be 0.1 %. Of the coloured curves only, at up to {RISK_POINTS} epochs each, from the "
        "steps that the sound epsilon prices. Left out are imported runs, whose ledgers are not cut by epochs, "
        "runs under a filter, whose steps were not known ahead, and secure ones, which may have taken steps again."
    )


def _differences_by_epsilon(scene: Scene) -> pd.DataFrame:
    return difference_frame(scene.rows, scene.marks, scene.base, scene.column)


def _difference_by_epsilon(frame: pd.DataFrame, scene: Scene) -> Any:
    return difference_figure(frame, scene, scene.column)


def _differences_by_epoch(scene: Scene) -> pd.DataFrame:
    return difference_frame(scene.rows, scene.marks, scene.base, "epoch")


def cell_settings(scene: Scene) -> list[str]:
    """The settings that a heat map can lay out: those that vary among the rows at the cursor."""
    return [name for name in varying(scene.settings.reindex(_ranked(scene).index)) if name != "run"]


def _cells(scene: Scene) -> pd.DataFrame:
    return cell_frame(scene.table, scene.settings, *scene.cells) if len(scene.cells) == 2 else pd.DataFrame()


def _time_note(frame: pd.DataFrame, scene: Scene) -> str:
    return (
        "Time on the clock of the machine that trained. Full-length runs shared theirs with other work, and some "
        "were held up in the middle of an epoch; compare times only between runs that were made side by side."
    )


def _difference_note(frame: pd.DataFrame, scene: Scene) -> str:
    if frame.empty:
        return "Nothing to subtract: select a row beside the baseline, on its dataset, that has runs."
    names = scene.names()
    base = "; ".join(f"{names[group]} on {dataset_title(dataset)}" for dataset, group in scene.base.items())
    return (
        f"Baseline: {base}. Seeds that both have are compared one by one; the shade is a 95 % interval at each point."
    )


def _frontier_note(frame: pd.DataFrame, scene: Scene) -> str:
    names = scene.names()
    parts = []
    for dataset, part in frame.groupby("dataset", sort=False):
        best = frontier(part, scene.column)
        if dataset and len(best):
            parts.append(
                f"{dataset_title(str(dataset))}, from low to high epsilon: "
                + "; ".join(names.get(group, group) for group in best["group"].head(8))
            )
    return ". ".join(parts) + "." if parts else ""


def _fit_note(frame: pd.DataFrame, scene: Scene) -> str:
    sentences = []
    for dataset, part in frame.groupby("dataset", sort=False):
        fit, title = log_fit(part, scene.column), dataset_title(str(dataset))
        sentences.append(
            f"{title}: a line needs three points or more that differ in epsilon and in accuracy."
            if fit is None
            else f"{title}: accuracy = {fit.intercept:.2f} % + {fit.slope:.2f} points × ln ε over {fit.points} points; "
            f"Pearson r = {fit.r:.3f}, p = {fit.p:.2g}; doubling ε goes with {fit.doubling:+.2f} points."
        )
    return " ".join([*sentences, "A correlation over the curves that are shown, not a law."]) if sentences else ""


def _cells_note(frame: pd.DataFrame, scene: Scene) -> str:
    if frame.empty:
        return "A heat map needs two settings that vary among the rows that are shown."
    return "Each cell is the best of its runs at this epsilon; the more runs, the luckier the best."


VIEWS = {
    view.name: view
    for view in (
        View(
            "epsilon", "Epsilon", _folded, _against_epsilon, needs_epsilon=True, log_axis=True, cursor=True, facets=True
        ),
        View(
            "risk",
            "Risk",
            _risks,
            partial(curves_figure, x="members_found", y="test_accuracy"),
            needs_epsilon=True,
            facets=True,
            note=_risk_note,
        ),
        View("epoch", "Epochs", _folded, partial(curves_figure, x="epoch", y="test_accuracy"), facets=True),
        View(
            "time",
            "Time",
            _folded,
            partial(curves_figure, x="minutes", y="test_accuracy"),
            facets=True,
            note=_time_note,
        ),
        View("schedules", "Schedules", _folded, partial(curves_figure, x="epoch", y="noise_multiplier"), facets=True),
        View(
            "difference",
            "Difference by ε",
            _differences_by_epsilon,
            _difference_by_epsilon,
            needs_epsilon=True,
            log_axis=True,
            cursor=True,
            facets=True,
            note=_difference_note,
        ),
        View(
            "difference-epoch",
            "Difference by epoch",
            _differences_by_epoch,
            partial(difference_figure, x="epoch"),
            facets=True,
            note=_difference_note,
        ),
        View("equal", "Ranking", _ranked, ranking_figure, needs_epsilon=True),
        View(
            "frontier",
            "Frontier",
            _ends,
            frontier_figure,
            needs_epsilon=True,
            log_axis=True,
            cursor=True,
            note=_frontier_note,
        ),
        View("fit", "Log-ε fit", _ends, fit_figure, needs_epsilon=True, cursor=True, note=_fit_note),
        View("parallel", "Parallel", _ranked, parallel_figure, needs_epsilon=True),
        View("heat", "Heat map", _cells, heat_figure, needs_epsilon=True, cells=True, note=_cells_note),
    )
}
