"""What a command is, and the few ways in which all of them read numbers and print tables."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from dpviz.privacy.rounding import epsilon_number

Result = tuple[dict[str, Any], str]


@dataclass(frozen=True)
class Command:
    """A name, its flags, and a function from the parsed flags to (what --json prints, what a person reads)."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Result]


def number(text: str) -> float:
    """A flag's number; ranges are checked by the records that take it."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}") from None


def whole(text: str) -> int:
    """A flag's whole number; 1e6 is fine."""
    value = number(text)
    if not (math.isfinite(value) and value == int(value)):
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(value)


def plain(value: Any) -> Any:
    """The value as JSON has it: infinity becomes the word "infinity", tuples and arrays become lists."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return "infinity" if isinstance(value, float) and value == math.inf else value


def epsilon_text(epsilon: float) -> str:
    """An epsilon as the tables print it: an upper bound, rounded up to four digits after the point."""
    return "infinity" if epsilon == math.inf else epsilon_number(epsilon, digits=4)


def spent_text(epsilon: float | None, at_most: bool = False) -> str:
    """What a run has spent: never a number where there is no guarantee."""
    if epsilon is None:
        return "none"
    return ("at most " if at_most and epsilon < math.inf else "") + epsilon_text(epsilon)


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns padded to line up; numbers to four digits."""
    cells = [[str(head) for head in heads], *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4f}".rstrip("0").rstrip(".") if isinstance(value, float) and math.isfinite(value) else str(value)
