"""Everything that can be compared, as frames: own runs, full-length runs and reported numbers.

`rows` has a row per epoch of a run, or per reported number. A *group* is one experiment, drawn as one curve: the same
settings with any seed. `fold` averages its seeds. `settings` has a row per group.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from dpviz.papers import RECIPES, TITLES, Reported, recipes_of
from dpviz.runs import CachedRun, Run
from dpviz.runs.store.imported import AnySpec, ImportedSpec
from dpviz.runs.store.records import epochs_text
from dpviz.training.pricing import planned_guarantee
from dpviz.training.spec import STREAMS, RunSpec
from dpviz.training.tables import DATASETS
from dpviz.views.axes import EPOCH_COLUMNS
from dpviz.views.comparison.settings import paper_title, settings_of, value_words, varying
from dpviz.views.runs import curve, run_name


@dataclass(frozen=True)
class Source:
    """Where curves are from: in a label, as a choice, and whether seeds were run."""

    title: str
    many: str
    measured: bool = True


SOURCES = {
    "own": Source("my run", "My runs"),
    "imported": Source("imported run", "Imported runs"),
    "cached": Source("full-length run", "Full-length runs"),
    "reported": Source("reported", "Reported by papers", measured=False),
}
STORED = ("own", "imported")  # a person's, in the store
ABOUT = ("group", "name", "source", "paper", "place", "dataset", "run", "created", "seed", "point")
EPSILON_COLUMNS = ("epsilon_sound", "epsilon_claimed")
SPENT = ("spent_sound", "spent_claimed", "at_most", "audited", "refuted")  # of the whole run, not only whole epochs
COLUMNS = (*ABOUT, *EPOCH_COLUMNS, "spread", *SPENT)
NAMED = ("run", "noise", "source", "paper")  # said by a curve's name already, or of no help beside it
MOST_REMEMBERED = 16_384  # settings of runs
SPREAD_OF = {"test_accuracy": "accuracy_spread", "test_loss": "loss_spread"}


@dataclass(frozen=True)
class ComparisonData:
    """All rows, the settings of each group (one row per group), and of each group that has them its spec and origin."""

    rows: pd.DataFrame
    settings: pd.DataFrame
    specs: Mapping[str, AnySpec]
    origins: Mapping[str, str]


def comparison_data(
    runs: Iterable[Run] = (),
    cached: Iterable[CachedRun] = (),
    reported: Iterable[Reported] = (),
    sweeps: Mapping[str, str] | None = None,
) -> ComparisonData:
    """Everything that is to be compared. `sweeps` names the sweep of a run, by the run's id."""
    runs, cached, reported = tuple(runs), tuple(cached), tuple(reported)
    rows = comparison_frame(runs, cached, reported)
    specs: dict[str, AnySpec] = {group_of(run): run.spec for run in runs}
    sweep_of = {group_of(run): sweeps[run.id] for run in runs if run.id in sweeps} if sweeps else {}
    specs |= {cached_group(item): item.run.spec for item in cached}
    recipes = rows.loc[rows["source"] == "reported", ["group", "recipe"]].drop_duplicates("group")
    specs |= {group: RECIPES[name].spec for group, name in recipes.itertuples(index=False) if name in RECIPES}
    about = rows.drop_duplicates("group").set_index("group")
    settings = pd.DataFrame.from_dict(
        {
            group: {"source": SOURCES[source].many, "paper": paper_title(paper) or "None", "run": name}
            | ({"sweep": sweep_of[group]} if group in sweep_of else {})
            | (settings_of(specs[group]) if group in specs else {})
            for group, source, paper, name in about[["source", "paper", "name"]].itertuples()
        },
        orient="index",
    )
    names = _told_apart(about, settings)
    for frame, column, groups in ((rows, "name", rows["group"]), (settings, "run", settings.index)):
        if names:
            frame[column] = [names.get(group, name) for group, name in zip(groups, frame[column], strict=True)]
    origins = {group_of(run): _origin(run) for run in runs} | {cached_group(item): _origin(item.run) for item in cached}
    return ComparisonData(rows.drop(columns="recipe"), settings, specs, origins)


def _told_apart(about: pd.DataFrame, settings: pd.DataFrame) -> dict[str, str]:
    """Groups in the store that share a name, each with what sets it apart: settings, else its seed or when it began."""
    own = about[about["source"].isin(STORED)]
    own = own[own.duplicated(["dataset", "name"], keep=False)]
    names: dict[str, str] = {}
    for (_, name), alike in own.groupby(["dataset", "name"], sort=False):
        more = alike.assign(created=alike["created"].str[:16].str.replace("T", " "))[["seed", "created"]]
        columns = settings.reindex(alike.index).join(more)
        parts = pd.Series("", alike.index)
        for key in varying(columns):
            longer = parts + ", " + columns[key].map(lambda value, key=key: value_words(key, value))
            if key not in NAMED and longer.nunique() > parts.nunique():
                parts = longer
        names |= {str(group): f"{name}{part}" for group, part in parts.items()}
    return names


def _origin(run: Run) -> str:
    """Where a run's numbers are from, in words."""
    made = run.provenance
    if made is None:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in made.versions.items())
    parts = (made.kind, made.source, f"commit {made.commit[:10]}" if made.commit else "", versions, made.device)
    return ", ".join(part for part in parts if part)


def comparison_frame(
    runs: Iterable[Run] = (), cached: Iterable[CachedRun] = (), reported: Iterable[Reported] = ()
) -> pd.DataFrame:
    """Everything that is to be compared, in one frame. Epsilon is NaN where there is no guarantee."""
    rows = [
        *(row for run in runs for row in _own_rows(run)),
        *(row for item in cached for row in _cached_rows(item)),
        *_reported_rows(reported),
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, "recipe"])


def group_of(run: Run) -> str:
    """Finished runs with the same settings but for the seed are one group.

    Unfinished, imported and redrawn runs stand alone.
    """
    if isinstance(run.spec, ImportedSpec):
        return f"imported/{run.id}"
    settings = _seedless_key(run.spec)
    return f"own/{settings}" if run.status == "done" and not run.redrawn else f"own/{settings}/{run.id}"


@functools.lru_cache(maxsize=MOST_REMEMBERED)
def _seedless_key(spec: RunSpec) -> str:
    return dataclasses.replace(spec, seed=0, streams=STREAMS).key


def cached_group(item: CachedRun) -> str:
    recipe = f"cached/{item.paper}/{item.experiment}"
    return recipe if item.run.status == "done" else f"{recipe}/{item.seed}"


def _own_rows(run: Run) -> Iterator[tuple[Any, ...]]:
    paper = run.spec.recipe.partition("/")[0] if run.spec.recipe in RECIPES else ""
    group = group_of(run)
    return _run_rows(run, (group, run_name(run) + _so_far(run), group.partition("/")[0], paper))


def _cached_rows(item: CachedRun) -> Iterator[tuple[Any, ...]]:
    recipe = f"{item.paper}/{item.experiment}"
    name = (RECIPES[recipe].title if recipe in RECIPES else recipe) + _so_far(item.run)
    return _run_rows(item.run, (cached_group(item), name, "cached", item.paper))


def _so_far(run: Run) -> str:
    """A run that is not whole, or not as its settings say, says so in its name."""
    redrawn = ", changed on the way" if run.redrawn else ""
    return redrawn + ("" if run.status == "done" else f" (epoch {epochs_text(len(run.epochs), run.spec.epochs)})")


def _run_rows(run: Run, who: tuple[str, str, str, str]) -> Iterator[tuple[Any, ...]]:
    spec = run.spec
    about = (*who, "", spec.dataset, run.id, run.created, spec.seed, 0)
    spent = _spent(run)
    return ((*about, *numbers, math.nan, *spent, spec.recipe) for numbers in curve(run))


def _spent(run: Run) -> tuple[float, float, bool, float, bool]:
    spent, audit = run.spent, run.audit
    audited = (audit.lower, bool(audit.failures)) if audit else (math.nan, False)
    if spent is None:
        return math.nan, math.nan, False, *audited
    sound, claimed = (math.nan if value is None else value for value in (spent.epsilon_sound, spent.epsilon_claimed))
    return sound, claimed, spent.at_most, *audited


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
    values = dict.fromkeys(EPOCH_COLUMNS, math.nan) | {
        "epoch": spec.epochs if spec else math.nan,
        "epsilon_claimed": math.nan if number.epsilon is None else number.epsilon,
        "epsilon_sound": sound.upper if sound else number.epsilon_sound or math.nan,
        "test_accuracy": 100 * number.value,
    }
    about = (group, TITLES[number.name], "reported", number.paper, places, dataset_of(number), "", "", -1, point)
    spread = math.nan if number.spread is None else 100 * number.spread
    spent = (values["epsilon_sound"], values["epsilon_claimed"], False, math.nan, False)
    return (*about, *values.values(), spread, *spent, number.name)


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


def regrouped(rows: pd.DataFrame, values: pd.Series) -> pd.DataFrame:
    """Measured rows as one group per dataset, source and value of a setting; what papers report stays as it is.

    A group's curve ends where its shortest run ends: beyond, the mean would be over other runs.
    """
    value = rows["group"].map(values)
    chosen = value.notna() & (rows["source"] != "reported")
    slug = value.astype(str).str.lower().str.replace(r"[^a-z0-9.]+", "-", regex=True)
    group = rows["source"] + "/by/" + rows["dataset"] + "/" + slug
    merged = rows.assign(
        group=rows["group"].where(~chosen, group),
        name=rows["name"].where(~chosen, value),
        paper=rows["paper"].where(~chosen, ""),
    )
    lengths = merged.groupby(["group", "run"])["epoch"].max().groupby("group").min()
    return merged[~chosen | (merged["epoch"] <= merged["group"].map(lengths))]


def fold(rows: pd.DataFrame) -> pd.DataFrame:
    """Seeds folded: a row per group and epoch with means, standard deviations (two seeds or more) and their number.

    Epsilon is the dearest seed's: a mean would be no guarantee for the others.
    """
    keys = ["group", "point", "epoch"]
    about = {name: (name, "first") for name in ("name", "source", "paper", "place", "dataset")}
    numbers = {name: (name, "max" if name in EPSILON_COLUMNS else "mean") for name in EPOCH_COLUMNS if name != "epoch"}
    spreads = {new: (old, "std") for old, new in SPREAD_OF.items()}
    whole = {"seeds": ("run", "size"), "spread": ("spread", "first"), "created": ("created", "max")}
    whole |= {name: (name, "max") for name in SPENT}
    grouped = rows.groupby(keys, sort=False, dropna=False)
    folded = grouped.agg(**about, **numbers, **spreads, **whole).reset_index()
    folded["accuracy_spread"] = folded["accuracy_spread"].fillna(folded.pop("spread"))
    return folded.merge(_names(folded), on="group", how="left")


def _names(folded: pd.DataFrame) -> pd.DataFrame:
    """A label per group, with where it is from, and a short name without its dataset; both are unique."""
    groups = folded.drop_duplicates("group")[["group", "name", "source", "paper", "place", "dataset"]]
    names = groups["name"].str.replace("<", "‹")  # a figure would take it for a tag
    title = groups["source"].map({name: source.title for name, source in SOURCES.items()})
    origin = title + groups["place"].map(lambda place: f", {place}" if place else "")
    labels = names + " — " + groups["paper"].map(lambda paper: f"{paper_title(paper)}, " if paper else "") + origin
    prefix = groups["dataset"].map({name: f"{entry.title}, " for name, entry in DATASETS.items()}).fillna("")
    short = pd.Series([n.removeprefix(p) for n, p in zip(names, prefix, strict=True)], groups.index, dtype=object)
    short = short.str[:1].str.upper() + short.str[1:]
    sources = groups["source"].groupby(groups["dataset"] + "/" + short).transform("nunique")
    twice = (sources > 1) & (groups["source"] != "cached")
    short = short.where(~twice, short + " (" + title + ")")
    return pd.DataFrame(
        {"group": groups["group"], "label": _unique(labels), "short": _unique(short, groups["dataset"])}
    )


def _unique(names: pd.Series, within: pd.Series | str = "") -> pd.Series:
    """Names that occur before, among those of the same kind, get a number."""
    count = names.groupby(names + "/" + within).cumcount() + 1
    return names.where(count == 1, names + " (" + count.astype(str) + ")").astype(object)


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
