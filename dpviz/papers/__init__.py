"""What each paper reports, as data with its place, and the recipe of each of its experiments.

Every paper has a folder here: `paper.toml` (its names, what it proposes, its picture, what it leaves open, its
recipes), one CSV file for each of its tables, and `text.csv` for the numbers that only its text gives. The folder
`state-of-the-art` has the same form; its `cited.csv` holds what other papers report.
"""

from dpviz.papers.library import (
    LOCAL_RECIPES,
    PAPERS,
    RECIPES,
    REPORTED,
    TITLES,
    local_recipes_of,
    recipe,
    recipes_of,
    reported_of,
)
from dpviz.papers.records import LocalRecipe, OpenValue, Paper, Recipe, Reported

__all__ = [
    "LOCAL_RECIPES",
    "PAPERS",
    "RECIPES",
    "REPORTED",
    "TITLES",
    "LocalRecipe",
    "OpenValue",
    "Paper",
    "Recipe",
    "Reported",
    "local_recipes_of",
    "recipe",
    "recipes_of",
    "reported_of",
]
