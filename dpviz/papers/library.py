"""PAPERS, REPORTED, RECIPES and LOCAL_RECIPES, read once from the papers' folders: every folder with a `paper.toml`.

A table file is as wide as the paper's table: a row is an experiment, the columns in DESCRIBING describe it, and every
other column is a quantity. `text.csv` and `cited.csv` (results of other papers) name the place of each row. A recipe
starts from its paper's [base], or from the recipe it is `like`. Experiments without a recipe have their names in
[titles].
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from dpviz.papers.records import LocalRecipe, Named, OpenValue, Paper, Recipe, Reported
from dpviz.privacy.schedules import Schedule
from dpviz.training.local.spec import LocalSpec
from dpviz.training.spec import RunSpec

NUMBERS, WORDS = ("epsilon", "epsilon_sound", "delta", "spread"), ("note", "dataset")
DESCRIBING = ("place", "experiment", *NUMBERS, *WORDS)
KINDS = {"table": "Table", "figure": "Fig."}


def _folders() -> dict[str, Traversable]:
    """The folder of each paper, by its name."""
    folders = {folder.name: folder for folder in resources.files(__package__).iterdir() if folder.is_dir()}
    return {name: folder for name, folder in sorted(folders.items()) if (folder / "paper.toml").is_file()}


def _reported(paper: str, folder: Traversable) -> Iterator[Reported]:
    """Every number of every CSV file of a paper, tables before text."""
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        stem, _, ending = file.name.rpartition(".")
        if ending != "csv":
            continue
        kind, _, number = stem.partition("-")
        source = "table" if kind in KINDS else kind
        of_file = f"{KINDS[kind]} {number}" if kind in KINDS else ""
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines()):
            place = ", ".join(filter(None, (of_file, row.get("place"))))
            yield from _numbers(paper, place, source, row)


def _numbers(paper: str, place: str, source: str, row: Mapping[str, str]) -> Iterator[Reported]:
    described: dict[str, Any] = {name: float(row[name]) for name in NUMBERS if row.get(name)}
    described |= {name: row[name] for name in WORDS if row.get(name)}
    for quantity, cell in row.items():
        if quantity not in DESCRIBING and cell:
            yield Reported(paper, row["experiment"], quantity, float(cell), place, source, **described)


def _settings(name: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe's own settings over those it starts from."""
    own: dict[str, Any] = data["recipes"][name]
    start = _settings(own["like"], data) if "like" in own else data["base"]
    return start | own


def _spec(recipe: str, settings: Mapping[str, Any]) -> RunSpec:
    """The settings as a RunSpec: names with a dot are knobs, a schedule that is a number is constant noise."""
    fields = {key: value for key, value in settings.items() if "." not in key and key not in ("like", "title")}
    knobs = tuple((key, value) for key, value in settings.items() if "." in key)
    noise = fields.pop("schedule")
    schedule = Schedule.from_json(noise) if isinstance(noise, dict) else Schedule.of("constant", sigma=noise)
    return RunSpec(schedule=schedule, recipe=recipe, knobs=knobs, **fields)


def _recipes(paper: str) -> Iterator[Recipe | LocalRecipe]:
    """The experiments of a paper; those that name their `data` are local ones."""
    data = _TOML[paper]
    for short, own in data.get("recipes", {}).items():
        name, settings = f"{paper}/{short}", _settings(short, data)
        open_values = tuple(
            OpenValue(row["what"], row["chosen"], row["why"])
            for row in data.get("open", ())
            if any(fnmatch(short, pattern) for pattern in row.get("recipes", ["*"]))
        )
        beside = (open_values, tuple(number for number in REPORTED if number.name == name))
        if "data" in settings:
            spec = LocalSpec(**{key: value for key, value in settings.items() if key not in ("title", "data", "like")})
            yield LocalRecipe(name, paper, own["title"], settings["data"], spec, *beside)
        else:
            yield Recipe(name, paper, own["title"], _spec(name, settings), *beside)


def _paper(name: str, data: Mapping[str, Any]) -> Paper:
    """The paper's own keys, lists as tuples; its recipes and titles are read apart."""
    fields = Paper.__dataclass_fields__
    own: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in data.items() if key in fields
    }
    return Paper(name, **own)


_FOLDERS = _folders()
_TOML = {name: tomllib.loads((folder / "paper.toml").read_text(encoding="utf-8")) for name, folder in _FOLDERS.items()}
_PAPERS = sorted((_paper(name, data) for name, data in _TOML.items()), key=lambda paper: paper.order)
PAPERS: Named[Paper] = Named("paper", {paper.name: paper for paper in _PAPERS})
REPORTED: tuple[Reported, ...] = tuple(number for name in PAPERS for number in _reported(name, _FOLDERS[name]))
_EVERY = tuple(recipe for name in PAPERS for recipe in _recipes(name))
RECIPES: Named[Recipe] = Named("recipe", {recipe.name: recipe for recipe in _EVERY if isinstance(recipe, Recipe)})
LOCAL_RECIPES: Named[LocalRecipe] = Named(
    "recipe", {recipe.name: recipe for recipe in _EVERY if isinstance(recipe, LocalRecipe)}
)
TITLES: dict[str, str] = {recipe.name: recipe.title for recipe in _EVERY} | {
    f"{name}/{short}": title for name in PAPERS for short, title in _TOML[name].get("titles", {}).items()
}
"""What people call an experiment, also one that is reported without a recipe."""


def recipe(name: str) -> Recipe:
    """The recipe of that name, for example "curricula/linear-decreasing"."""
    return RECIPES[name]


def recipes_of(paper: str) -> tuple[Recipe, ...]:
    """Every recipe of a paper that the training loop runs, in the paper's order."""
    return tuple(recipe for recipe in RECIPES.values() if recipe.paper == PAPERS[paper].name)


def local_recipes_of(paper: str) -> tuple[LocalRecipe, ...]:
    """Every recipe of a paper under local privacy, in the paper's order."""
    return tuple(recipe for recipe in LOCAL_RECIPES.values() if recipe.paper == PAPERS[paper].name)


def reported_of(paper: str) -> tuple[Reported, ...]:
    """Every number that a paper reports, tables before text."""
    return tuple(number for number in REPORTED if number.paper == PAPERS[paper].name)
