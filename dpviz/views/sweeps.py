"""A sweep's result as a table: one row a candidate, folded over seeds, the best first."""

from __future__ import annotations

import math

import pandas as pd

from dpviz.runs.fold import Result, Row

NO_NUMBER = math.nan


def sweep_frame(found: Result) -> pd.DataFrame:
    """The varied settings, then accuracy (percent) with its spread, epsilon, runs done, and what there is to say."""
    varied = found.sweep.varied
    rows = sorted(found.rows, key=lambda row: -(row.mean if row.mean is not None else -1.0))
    columns = [*varied, "accuracy", "spread", "epsilon", "runs", "note"]
    return pd.DataFrame([_cells(found, row, varied) for row in rows], columns=columns)


def _cells(found: Result, row: Row, varied: tuple[str, ...]) -> tuple[object, ...]:
    settings = dict(row.candidate.settings)
    return (
        *(str(settings.get(key, "")) for key in varied),
        NO_NUMBER if row.mean is None else 100 * row.mean,
        NO_NUMBER if row.std is None else 100 * row.std,
        NO_NUMBER if row.epsilon is None else row.epsilon,
        f"{len(row.done)} of {len(found.sweep.seeds)}",
        _note(found, row),
    )


def _note(found: Result, row: Row) -> str:
    if row is found.winner:
        return "winner"
    if row.problem:
        return f"failed: {row.problem}"
    if found.sweep.search and row in found.front:
        return "no other is better in both"
    return "" if row.complete else "in progress"


def progress_text(found: Result) -> str:
    """How far the whole sweep is: "5 of 12 runs done, 1 failed"."""
    failed = f", {found.failed} failed" if found.failed else ""
    return f"{found.done} of {found.total} runs done{failed}"
