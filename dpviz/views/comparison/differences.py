"""Curves minus a baseline, along epsilon or epochs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np
import pandas as pd

from dpviz.runs.differences import paired_difference
from dpviz.views.comparison.experiments import placed

DIFFERENCE_COLUMNS = ["group", "dataset", "x", "difference", "low", "high", "judged"]


def difference_frame(
    rows: pd.DataFrame, groups: Iterable[str], base: Mapping[str, str], x: str = "epsilon_sound"
) -> pd.DataFrame:
    """Each group minus the baseline of its dataset along x, paired by seed where seeds are shared.

    At equal epsilon both sides count as far as the budget lets them: the last epoch that costs no more.
    """
    shown = placed(rows, x).sort_values(x, kind="stable")
    wanted = set(groups) | set(base.values())
    curves: dict[str, list[tuple[int, np.ndarray, np.ndarray]]] = {}
    datasets: dict[str, str] = {}
    for _, run in shown[shown["group"].isin(wanted)].groupby(["group", "run"], sort=False):
        group, seed, datasets[group] = run["group"].iloc[0], run["seed"].iloc[0], run["dataset"].iloc[0]
        curves.setdefault(group, []).append((seed, run[x].to_numpy(float), run["test_accuracy"].to_numpy(float)))
    records = []
    for group in dict.fromkeys(groups):
        baseline = curves.get(base.get(datasets.get(group, ""), ""))
        if group not in curves or baseline is None or group in base.values():
            continue
        for place in np.unique(np.concatenate([xs for _, xs, _ in curves[group]])):
            ours, theirs = _reached(curves[group], place), _reached(baseline, place)
            if ours and theirs:
                one = paired_difference(ours, theirs)
                limits = (one.low, one.high) if one.judged else (np.nan, np.nan)
                records.append((group, datasets[group], place, one.mean, *limits, one.words))
    return pd.DataFrame(records, columns=DIFFERENCE_COLUMNS)


def _reached(curves: Sequence[tuple[int, np.ndarray, np.ndarray]], place: float) -> dict[int, float]:
    """The accuracy of each seed at its last point up to this place; a run that has none yet is left out."""
    reached: dict[int, list[float]] = {}
    for seed, xs, ys in curves:
        last = int(np.searchsorted(xs, place, side="right")) - 1
        if last >= 0:
            reached.setdefault(seed, []).append(float(ys[last]))
    return {seed: fmean(values) for seed, values in reached.items()}
