"""Curves in tables: a CSV or JSON of one row per epoch, an export of wandb or TensorBoard, a TensorBoard event file."""

from __future__ import annotations

import csv
import io
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dpviz.privacy import InputError
from dpviz.runs.tracking.epochs import MEASURES, LoggedEpoch, as_ledger, as_numbers

Row = Mapping[str, Any]

# What a column may be called, apart from its own name; case and / . - do not matter.
ALIASES = {
    "noise_multiplier": ("sigma",),
    "sample_rate": ("q",),
    "test_accuracy": ("accuracy", "acc", "test_acc", "val_accuracy", "val_acc", "eval_accuracy", "eval_acc"),
    "test_loss": ("val_loss", "eval_loss"),
    "train_accuracy": ("train_acc",),
    "train_loss": ("loss",),
    "epsilon": ("eps",),
}
NAMES = {alias: name for name, aliases in ALIASES.items() for alias in aliases}
STEP = ("noise_multiplier", "sample_rate", "steps")
FLAGS = {"noise_multiplier": "--sigma", "sample_rate": "--sample-rate", "steps": "--steps"}
MEANT = ("epoch", *STEP, *MEASURES, "epsilon")
MOST_ROWS = 100_000
LEFT_OUT = re.compile(r"_.*|step|global_step|wall_time|.*__(min|max)")  # a tracker's own columns


def column_name(text: str) -> str:
    """A column by the name that it has here; wandb writes the run's name and " - " before it."""
    plain = re.sub(r"[/. -]+", "_", text.rpartition(" - ")[2].strip().lower())
    return NAMES.get(plain, plain)


def parse_table(text: str, metric: str) -> list[Row]:
    """The rows of a CSV with a heading. TensorBoard's own (Wall time, Step, Value) has one metric, which is named."""
    full = (row for row in csv.reader(io.StringIO(text), strict=True) if any(cell.strip() for cell in row))
    try:
        lines = list(itertools.islice(full, MOST_ROWS + 2))
    except csv.Error as error:
        raise InputError(f"the CSV cannot be read: {error}") from None
    if not 2 <= len(lines) <= MOST_ROWS + 1:
        raise InputError(f"the CSV needs a heading and one line per epoch, at most {MOST_ROWS:,}")
    columns, *rows = lines
    columns = [metric if cell.strip() == "Value" else cell for cell in columns]
    name, count = Counter(columns).most_common(1)[0]
    if count > 1:
        raise InputError(f"two columns have one name: {name[:40]!r}")
    for number, row in enumerate(rows, start=2):
        if len(row) != len(columns):
            raise InputError(f"line {number} of the CSV has {len(row)} cells, its heading {len(columns)}")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def json_rows(data: Any, metric: str) -> list[Row]:
    """Rows in JSON: objects in a list, columns as pandas writes them, or TensorBoard's [wall time, step, value]."""
    if isinstance(data, list) and data and all(isinstance(row, dict) for row in data):
        return data
    if isinstance(data, list) and data and all(isinstance(row, list) and len(row) == 3 for row in data):
        return [{"step": step, metric: value} for _, step, value in data]
    if isinstance(data, dict) and data and all(isinstance(column, dict) for column in data.values()):
        places = dict.fromkeys(place for column in data.values() for place in column)
        return [{name: column.get(place) for name, column in data.items()} for place in places]
    raise InputError("the JSON holds no accountant's history, no dp_accounting event and no rows of an exported curve")


def event_file_rows(path: Path) -> list[Row]:
    """The scalars in a TensorBoard event file, one row per step; by TensorBoard's own reader."""
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        raise InputError(
            "event files are read with tensorboard: pip install it, or export a CSV from its page"
        ) from None
    events = EventAccumulator(str(path), size_guidance={"scalars": 0})
    events.Reload()
    rows: dict[int, dict[str, Any]] = {}
    for tag in events.Tags()["scalars"]:
        for event in events.Scalars(tag):
            rows.setdefault(event.step, {})[tag] = event.value
    if not rows:
        raise InputError(f"{path.name} holds no scalars of a TensorBoard run")
    return [rows[step] for step in sorted(rows)]


def logged_epochs(rows: Iterable[Row], constant: Mapping[str, float | None]) -> list[LoggedEpoch]:
    """The epochs in rows: those of one epoch number are merged; without such a column each row is an epoch.

    Noise, sample rate and steps of an epoch come from their columns, else from `constant`.
    """
    merged: dict[int, dict[str, float]] = {}
    for place, row in enumerate(rows, start=1):
        numbers = row_numbers(row)
        epoch = numbers.pop("epoch", math.nan) if any(column_name(name) == "epoch" for name in row) else float(place)
        if not (epoch >= 0 and epoch == int(epoch)):
            raise InputError(f"row {place} needs its epoch, a whole number >= 0, got {epoch}")
        known = merged.setdefault(int(epoch), {})
        for name in STEP:  # one of two would be dropped, and with it what it costs
            if name in numbers and name in known and (name == "steps" or numbers[name] != known[name]):
                raise InputError(f"epoch {int(epoch)} has {name} in two rows; give one row per epoch, or {FLAGS[name]}")
        known.update(numbers)
    order = sorted(merged)
    for due, epoch in enumerate(order, start=0 if 0 in merged else 1):
        if epoch != due:
            raise InputError(f"epochs must follow one another from 0 or 1, got epoch {epoch} where {due} was due")
    return [_epoch(epoch, merged[epoch], constant) for epoch in order]


def row_numbers(row: Row) -> dict[str, float]:
    """The numbers in a row by their names here; empty cells and NaN are gaps; other columns may hold text."""
    numbers: dict[str, float] = {}
    for text, value in row.items():
        name = column_name(str(text))
        if LEFT_OUT.fullmatch(name):
            continue
        try:
            empty = value is None or (isinstance(value, str) and not value.strip())
            number = math.nan if empty else float(value)
        except (TypeError, ValueError, OverflowError):
            if name in MEANT:
                raise InputError(f"{name} must be a number, got {str(value)[:40]!r}") from None
            continue
        if math.isnan(number):
            continue
        if name in numbers:
            raise InputError(f"two columns are {name[:40]}; export one run, and each measure once")
        numbers[name] = number
    return numbers


def _epoch(epoch: int, numbers: dict[str, float], constant: Mapping[str, float | None]) -> LoggedEpoch:
    step = []
    for name in STEP:
        value = numbers.pop(name, constant[name])
        if value is None:
            raise InputError(f"epoch {epoch} has no {name}; give it as a column, or for every epoch by {FLAGS[name]}")
        step.append(value)
    if step[2] != int(step[2]):
        raise InputError(f"steps must be a whole number, got {step[2]} (epoch {epoch})")
    return LoggedEpoch(as_ledger([step]), as_numbers(numbers))
