"""Checks of suggestions that come with dpviz: what was expected, and the runs that say what came out.

`cached_runs/forecasts/<settings>-<target epsilon>-suggested/` and `...-constant/` hold the runs, a folder per seed;
`expected.json` in the former says what the forecast expected when they were trained.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from dpviz.forecast.check import difference_of
from dpviz.forecast.designs import CHECK_SEEDS
from dpviz.forecast.suggest import Suggestion
from dpviz.paths import cached_runs_folder
from dpviz.privacy.registry import InputError
from dpviz.runs.differences import Difference, points
from dpviz.runs.store import run_files as files
from dpviz.runs.store.cached import FORECASTS, read_cached, write_cached
from dpviz.runs.store.records import Run

VERSION = 1
EXPECTED = "expected.json"
SIDES = ("suggested", "constant")


@dataclass(frozen=True)
class Expected:
    """What a forecast expected of its suggestion at a budget, in accuracy."""

    recipe: str
    settings: str
    target_epsilon: float
    gain: float
    uncertainty: float

    @property
    def folders(self) -> tuple[str, ...]:
        """Of the suggested schedule's runs, and of the constant's."""
        return tuple(f"{self.settings}-{self.target_epsilon:g}-{side}" for side in SIDES)


def publish_check(suggestion: Suggestion, settings: str, target: float, runs: Sequence[Run]) -> None:
    """Keep a check that has ended, in place of an older one at the same budget; `runs` are suggested, then constant."""
    difference_of(runs)  # refuses runs that did not end
    expected = Expected(suggestion.recipe, settings, target, suggestion.gain, suggestion.uncertainty)
    root, half = cached_runs_folder() / FORECASTS, len(CHECK_SEEDS)
    for folder, part in zip(expected.folders, (runs[:half], runs[half:]), strict=True):
        shutil.rmtree(root / folder, ignore_errors=True)
        for run in part:
            write_cached(run, FORECASTS, folder)
    files.replace(root / expected.folders[0] / EXPECTED, files.dump({"version": VERSION} | asdict(expected)))


def published_checks() -> list[tuple[Expected, list[Run]]]:
    """Every check that comes with dpviz and its runs, by recipe and budget."""
    root, checks = cached_runs_folder() / FORECASTS, []
    for path in root.glob(f"*/{EXPECTED}"):
        data = files.load(path)
        if not isinstance(data, dict) or data.pop("version", None) != VERSION:
            raise InputError(f"{path.parent.name}/{path.name} is no check of version {VERSION}; make it again")
        expected = Expected(**data)
        folders = (root / folder / str(seed) for folder in expected.folders for seed in CHECK_SEEDS)
        checks.append((expected, [read_cached(folder).run for folder in folders]))
    return sorted(checks, key=lambda check: (check[0].recipe, check[0].target_epsilon))


def check_row(expected: Expected, runs: Sequence[Run]) -> str:
    """A row of docs/forecasts.md."""
    half, difference = len(CHECK_SEEDS), difference_of(runs)
    means = (sum(run.epochs[-1].accuracy for run in part) / half for part in (runs[:half], runs[half:]))
    cells = (
        f"`{expected.recipe}`",
        f"{expected.target_epsilon:g}",
        f"{runs[0].own_spec.epochs}",
        *(f"{100 * mean:.2f}" for mean in means),
        f"{points(100 * expected.gain)} ± {points(100 * expected.uncertainty)}",
        f"{points(difference.mean)} ({points(difference.low)} to {points(difference.high)})",
        _inside(100 * expected.gain, difference),
    )
    return f"| {' | '.join(cells)} |"


def _inside(gain: float, difference: Difference) -> str:
    return "yes" if difference.low <= gain <= difference.high else "no"
