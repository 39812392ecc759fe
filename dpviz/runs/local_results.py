"""Results of `dpviz local` as files: rows, paired differences, settings and provenance. JSON only.

`cached_runs/prestige/<name>.json` are the ones that come with dpviz.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpviz.papers.records import LocalRecipe
from dpviz.paths import cached_runs_folder
from dpviz.privacy.registry import InputError

PAPER = "prestige"
SETTINGS = ("batch_size", "epochs", "share", "threshold", "mu", "radius", "length", "intercept")
ROW = {"method": str, "budget": float, "mean_error": float, "std_error": float, "loss": str, "batch_size": int}
MAX_FILE = 5_000_000


@dataclass(frozen=True)
class LocalResult:
    """One file: each row is a method at a budget (epsilon of a visit) with its test errors, one per repeat."""

    name: str
    data: str
    rows: tuple[Mapping[str, Any], ...]
    differences: tuple[Mapping[str, Any], ...]
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @classmethod
    def from_json(cls, name: str, content: Any) -> LocalResult:
        try:
            data, rows = str(content["data"]), tuple(content["rows"])
            differences, settings = tuple(content["differences"]), dict(content["settings"])
            provenance = dict(content["provenance"])
            whole = all(_fits(row) for row in rows)
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{name} is not a result of the local command") from None
        if not (rows and whole and provenance.get("kind") == "measured"):
            raise InputError(f"{name} is not a result of the local command: a row or its provenance is wrong")
        return cls(name, data, rows, differences, settings, provenance)


def _fits(row: Mapping[str, Any]) -> bool:
    numbers, errors = [row[key] for key, kind in ROW.items() if kind is float], row["errors"]
    kinds = all(isinstance(row[key], kind) for key, kind in ROW.items() if kind is not float)
    finite = all(isinstance(value, float | int) and math.isfinite(value) for value in numbers)
    fractions = isinstance(errors, list) and len(errors) > 0 and all(0 <= error <= 1 for error in errors)
    return kinds and finite and fractions


def rows_of(recipe: LocalRecipe, results: Iterable[LocalResult]) -> Iterator[Mapping[str, Any]]:
    """The rows that are this experiment: same data, same settings, lambda chosen by cross-validation."""
    wanted = {name: getattr(recipe.spec, name) for name in SETTINGS}
    asked = {name: getattr(recipe.spec, name) for name in ("method", "loss", "gradient_label")}
    for result in results:
        alike = {name: result.settings.get(name) for name in wanted} == wanted
        if result.data == recipe.data and alike and result.settings.get("cross_validated"):
            for row in result.rows:
                if row["budget"] == recipe.spec.epsilon and {name: row.get(name) for name in asked} == asked:
                    yield row


def local_results(folder: Path | None = None) -> tuple[tuple[LocalResult, ...], tuple[str, ...]]:
    """Every result in the folder by name, and one sentence for each file that cannot be read."""
    results, warnings = [], []
    for path in sorted((folder or cached_runs_folder() / PAPER).glob("*.json")):
        try:
            results.append(read_result(path))
        except InputError as error:
            warnings.append(f"skipped: {error}")
    return tuple(results), tuple(warnings)


def read_result(path: Path) -> LocalResult:
    try:
        if path.stat().st_size > MAX_FILE:
            raise InputError(f"{path.name} is too large for a result")
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path.name} is not JSON") from None
    return LocalResult.from_json(path.stem, content)
