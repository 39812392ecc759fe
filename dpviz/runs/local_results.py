"""Results of `python -m dpviz local` as files: rows, paired differences, settings and provenance. JSON only.

`cached_runs/prestige/<name>.json` are the ones that come with dpviz.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpviz.privacy.tables import InputError
from dpviz.runs.store import PROJECT

PAPER = "prestige"
ROW = {"method": str, "budget": float, "mean_error": float, "std_error": float, "loss": str, "batch_size": int}
MAX_FILE = 5_000_000


@dataclass(frozen=True)
class LocalResult:
    """One file: each row is a method at a budget (epsilon of a visit) over repeats."""

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
    numbers = [row[key] for key, kind in ROW.items() if kind is float]
    kinds = all(isinstance(row[key], kind) for key, kind in ROW.items() if kind is not float)
    return kinds and all(isinstance(value, float | int) and math.isfinite(value) for value in numbers)


def local_results(folder: Path | None = None) -> tuple[tuple[LocalResult, ...], tuple[str, ...]]:
    """Every result in the folder by name, and one sentence for each file that cannot be read."""
    results, warnings = [], []
    for path in sorted((folder or PROJECT / "cached_runs" / PAPER).glob("*.json")):
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
