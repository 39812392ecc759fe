"""A comparison at one epsilon: a row per experiment, its difference to a baseline, and what is seen first."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pandas as pd

from dpviz.privacy.registry import title_of
from dpviz.runs.differences import Difference, paired_difference
from dpviz.training.tables import DATASETS
from dpviz.views.comparison.experiments import SOURCES, STORED, endpoints, placed
from dpviz.views.comparison.settings import PLAIN
from dpviz.views.runs import spent_words

MOST_COLOURED = 8
OWN_LATEST = 4  # of the person's own runs at first sight
FEW = 5  # curves at first sight where nobody has runs of their own
SPARKLINE = 24  # points of a curve in the table
MEASURED = tuple(name for name, source in SOURCES.items() if source.measured)


def within_budget(rows: pd.DataFrame, budget: float, column: str) -> pd.DataFrame:
    """Each run at its last epoch within the budget: what it would have reached had it stopped there.

    A reported result counts where its whole run fits; of several the dearest one that fits.
    """
    inside = placed(rows, column)
    inside = inside[inside[column] <= budget].sort_values([column, "epoch"], kind="stable")
    return inside.groupby(["group", "run"], sort=False).tail(1)


def experiments(folded: pd.DataFrame) -> pd.DataFrame:
    """A row per group: names, where it is from, its curve in miniature, and what the whole run spent."""
    ends = endpoints(folded).drop_duplicates("group", keep="last").set_index("group")
    about = ["label", "short", "source", "paper", "place", "dataset", "created", "spent_sound", "spent_claimed"]
    about += ["audited", "refuted"]
    spent = ends[["spent_sound", "at_most"]].itertuples(index=False, name=None)
    return ends[about].assign(whole_run=[spent_words(*one) for one in spent]).join(_sparklines(folded))


def experiment_table(
    experiments: pd.DataFrame, rows: pd.DataFrame, budget: float, column: str = "epsilon_sound"
) -> pd.DataFrame:
    """The experiments at this epsilon, the best first; without a place within the budget there is no accuracy.

    `values` are the accuracies by seed. Epsilons are those spent where the accuracy was taken, else the whole run's.
    """
    inside = within_budget(rows, budget, column)
    grouped = inside.groupby("group")
    at = grouped.agg(
        accuracy=("test_accuracy", "mean"),
        deviation=("test_accuracy", "std"),
        reported_deviation=("spread", "first"),
        seeds=("run", "nunique"),
        epoch=("epoch", "max"),
        sound=("epsilon_sound", "max"),
        claimed=("epsilon_claimed", "max"),
    )
    at["deviation"] = at["deviation"].fillna(at.pop("reported_deviation"))
    table = experiments.join(at).join(_values(inside))
    for name in ("sound", "claimed"):
        table[name] = table[name].where(table["accuracy"].notna(), table.pop(f"spent_{name}"))
    table["seeds"] = table["seeds"].where(table["source"].isin(MEASURED))  # papers rarely say
    return table.sort_values("accuracy", ascending=False, kind="stable", na_position="last")


def _values(inside: pd.DataFrame) -> pd.Series:
    """Accuracy by seed, as a dict per group."""
    means = inside.groupby(["group", "seed"])["test_accuracy"].mean()
    values: dict[str, dict[int, float]] = {}
    for (group, seed), accuracy in zip(means.index, means.to_numpy(), strict=True):
        values.setdefault(group, {})[int(seed)] = float(accuracy)
    return pd.Series(values, name="values", dtype=object)


def _sparklines(folded: pd.DataFrame) -> pd.Series:
    """The curve over its epochs, thinned out; a reported number has none."""
    measured = folded[folded["source"].isin(MEASURED)]
    place = measured.groupby("group").cumcount()
    last = measured.groupby("group")["epoch"].transform("size") - 1
    step = np.maximum(1, np.ceil((last + 1) / SPARKLINE))
    kept = measured[((last - place) % step == 0)]
    curves: pd.Series = kept["test_accuracy"].round(2).groupby(kept["group"]).agg(list).rename("curve")
    return curves


# --- the baseline


def baselines(table: pd.DataFrame, settings: pd.DataFrame, pinned: str = "") -> dict[str, str]:
    """Dataset -> the group that others are compared with: the pinned one, else plain DP-SGD with constant noise.

    Of several the one with more than one seed, then the most accurate at this epsilon.
    """
    ready = table[table["accuracy"].notna() & table["source"].isin(MEASURED)]
    own = settings.reindex(index=ready.index, columns=list(PLAIN))
    order = pd.DataFrame(
        {
            "constant": own["schedule"] == PLAIN["schedule"],
            "plain": (own == pd.Series(PLAIN)).sum(axis=1),
            "several": ready["seeds"] > 1,
        }
    ).sort_values(["constant", "plain", "several"], ascending=False, kind="stable")
    datasets = ready["dataset"].reindex(order.index)
    first = datasets[~datasets.duplicated()]
    chosen = {dataset: str(group) for group, dataset in first.items()}
    return chosen | ({table["dataset"][pinned]: pinned} if pinned in table.index else {})


def with_differences(table: pd.DataFrame, base: Mapping[str, str]) -> pd.DataFrame:
    """The table with each row's difference to the baseline of its dataset, as a `Difference`, and its parts."""
    values = seed_values(table)
    records = [difference(values, str(group), base.get(dataset, "")) for group, dataset in table["dataset"].items()]
    number = math.nan
    return table.assign(
        difference=[round(record.mean, 2) + 0.0 if record else number for record in records],  # no "-0.00"
        low=[record.low if record and record.judged else number for record in records],
        high=[record.high if record and record.judged else number for record in records],
        judged=[record.words if record else "" for record in records],
    )


SeedValues = Mapping[str, Mapping[int, float]]


def seed_values(table: pd.DataFrame) -> SeedValues:
    """Group -> seed -> accuracy at this epsilon, of the rows that have one."""
    return {str(group): values for group, values in table["values"].items() if isinstance(values, dict)}


def difference(values: SeedValues, group: str, baseline: str, comparisons: int = 1) -> Difference | None:
    """One row against another; None where one of them has no accuracy, or against itself."""
    if group == baseline or group not in values or baseline not in values:
        return None
    return paired_difference(values[group], values[baseline], comparisons=comparisons)


# --- first sight


def first_sight(table: pd.DataFrame, base: Mapping[str, str]) -> list[str]:
    """What is coloured before a person chooses: baselines, the best of each paper, the person's own latest; eight."""
    ready = table[table["accuracy"].notna()]
    cached = ready[ready["source"] == "cached"]
    papers = cached[~cached.duplicated(["dataset", "paper"])].index
    own = table[table["source"].isin(STORED)].sort_values("created", ascending=False, kind="stable").index
    best = ready[ready["source"].isin(MEASURED)].drop_duplicates("dataset").index
    always = [*best, *base.values(), *papers][: MOST_COLOURED - min(len(own), OWN_LATEST)]
    few = ready.index[: 0 if len(own) else FEW]
    chosen = [*always, *own[:OWN_LATEST], *few]
    return list(dict.fromkeys(chosen))[:MOST_COLOURED]


def dataset_title(name: str) -> str:
    return title_of(DATASETS, name) if name else "an unnamed dataset"
