"""Reading the CSV and LIBSVM files that people bring: from memory, strictly, within limits.

The first thing that is wrong stops the file with one sentence that says where. Nothing is written anywhere.
"""

from __future__ import annotations

import csv
import io
import math
import re
from array import array
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dpviz.privacy.registry import InputError
from dpviz.training.limits import LIMITS

FloatArray = npt.NDArray[np.float64]

MAX_ROWS = 100_000
MAX_FEATURES = 5_000
MAX_CELLS = 10_000_000  # rows x columns, 80 MB: all that a CSV file of 20 MB can hold
LABEL_NAMES = ("label", "class", "target", "y")
PACKED = {
    b"PK": "a zip archive (or an Excel workbook)",
    b"\x1f\x8b": "gzip-compressed",
    b"BZh": "bzip2-compressed",
    b"\xfd7zXZ": "xz-compressed",
    b"7z\xbc\xaf": "a 7z archive",
    b"\x28\xb5\x2f\xfd": "zstd-compressed",
    b"Rar!": "a rar archive",
}
NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
INDEX = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


def check_size(size: int) -> None:
    most = LIMITS["upload"].most
    if not size <= most * 10**6:
        raise InputError(f"the file must be no larger than {most:,} MB, got {size / 1e6:,.1f} MB; bring fewer rows")


def check_content(content: bytes) -> None:
    """Refuse what is too large, or packed: an archive's true size is known only after unpacking it."""
    check_size(len(content))
    for magic, what in PACKED.items():
        if content.startswith(magic):
            raise InputError(f"the file must be plain text, and this one is {what}; export it as CSV first")


def csv_header(content: bytes) -> list[str]:
    """The column names of a CSV file, for choosing the label among them."""
    check_content(content)
    return next(_csv_lines(content))


def parse_csv(content: bytes, label: str | None = None) -> tuple[FloatArray, FloatArray]:
    """Numbers and a label column with two values; the column is `label`, or one named label, class, target or y."""
    lines = _csv_lines(content)
    header = next(lines)
    column = _label_column(header, label)
    columns = [repr(name[:40]) for position, name in enumerate(header) if position != column]
    if not 1 <= len(columns) <= MAX_FEATURES:
        raise InputError(f"there must be 1 to {MAX_FEATURES:,} feature columns besides the label, got {len(columns):,}")
    names: list[str] = []
    numbers = array("d")  # a list of floats would take four times the memory
    for number, cells in enumerate(lines, start=2):
        if len(cells) != len(header):
            raise InputError(f"row {number} must have {len(header)} cells as the first row has, got {len(cells)}")
        _check_count(len(names) + 1, len(columns))
        names.append(_label(cells.pop(column), number))
        numbers.extend(_numbers(cells, f"row {number}, column", columns))
    return np.frombuffer(numbers).reshape(-1, len(columns)), _two_classes(names)


def _csv_lines(content: bytes) -> Iterator[list[str]]:
    text = _text(content)
    first = text.partition("\n")[0]
    separator = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    empty = True
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            break
        except csv.Error as error:
            raise InputError(f"the file must be CSV, and line {reader.line_num} is not ({error})") from None
        if cells:
            empty = False
            yield [cell.strip() for cell in cells]
    if empty:
        raise InputError("the file is empty; the first row must name the columns")


def _label_column(header: list[str], label: str | None) -> int:
    names = [name.lower() for name in header]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"column names must differ, and {twice[:40]!r} comes twice")
    wanted = [label.lower()] if label is not None else list(LABEL_NAMES)
    found = [name for name in wanted if name in names]
    if not found:
        what = f"no column named {label!r}" if label is not None else "no label column"
        raise InputError(
            f"the file has {what}; name the column with the two classes {' or '.join(LABEL_NAMES)}, or choose it"
        )
    return names.index(found[0])


def _text(content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("the file must be plain UTF-8 text, and this one is not; export it as CSV (UTF-8)") from None
    if "\x00" in text:
        raise InputError("the file must be plain text, and this one holds binary data")
    return text


def _numbers(cells: Sequence[str], line: str, columns: Sequence[str]) -> list[float]:
    """Every cell as a number; the first that is none stops the file, named by its line and column."""
    numbers = [float(cell) if NUMBER.fullmatch(cell) else math.nan for cell in cells]
    if all(map(math.isfinite, numbers)):
        return numbers
    wrong = next(position for position, number in enumerate(numbers) if not math.isfinite(number))
    raise _no_number(cells[wrong], f"{line} {columns[wrong]}")


def _no_number(cell: str, place: str) -> InputError:
    shown = cell[:30]
    if not cell:
        return InputError(f"every cell must hold a number, and {place} is empty; fill it or leave the row out")
    if cell[0] in "=@" or (cell[0] in "+-" and cell[1:2] not in "0123456789."):
        return InputError(
            f"cells must hold values, and {place} holds the formula {shown!r}; export values, not formulas"
        )
    return InputError(f"features must be numbers, and {place} holds {shown!r}; turn words into numbers first")


def _label(cell: str, number: int) -> str:
    if not cell:
        raise InputError(f"every row must have a label, and row {number} has none")
    if cell[0] in "=@":
        raise InputError(f"labels must be values, and row {number} holds the formula {cell[:30]!r}; export values")
    return cell


def _two_classes(names: list[str]) -> FloatArray:
    """The label that sorts first (as a number if both are) becomes -1, the other +1."""
    seen = list(dict.fromkeys(names))
    if len(seen) != 2:
        shown = ", ".join(repr(name[:20]) for name in seen[:4]) + (" ..." if len(seen) > 4 else "")
        raise InputError(f"the label must have exactly two classes, got {len(seen)}{': ' if seen else ''}{shown}")
    numeric = all(NUMBER.fullmatch(name) for name in seen)
    first = min(seen, key=float) if numeric else min(seen)
    return np.array([-1.0 if name == first else 1.0 for name in names])


def _check_count(rows: int, features: int) -> None:
    if not (rows <= MAX_ROWS and rows * features <= MAX_CELLS):
        raise InputError(
            f"there may be at most {MAX_ROWS:,} rows and {MAX_CELLS:,} numbers, zeros that are left out included, got "
            f"{rows:,} rows of {features:,} so far; bring fewer rows or columns"
        )


def parse_libsvm(content: bytes, features: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Lines `label index:value ...` with rising indices from 1; what is not named is 0."""
    names: list[str] = []
    where, which, values = array("i"), array("i"), array("d")  # row, column and number of each pair
    widest = features or 0
    for number, line in enumerate(_text(content).splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if ":" in words[0] or not NUMBER.fullmatch(words[0]):
            raise InputError(
                f"each line must begin with its label, a number; line {number} begins with {words[0][:30]!r}"
            )
        names.append(str(float(words[0])))
        pairs = [word.partition(":") for word in words[1:]]
        before = 0
        for index, colon, value in pairs:
            if not (colon and INDEX.fullmatch(index) and before < int(index) <= (features or MAX_FEATURES)):
                raise InputError(
                    f"after the label come index:value pairs with rising indices from 1 to "
                    f"{features or MAX_FEATURES:,}; line {number} has {(index + colon + value)[:30]!r}"
                )
            before = int(index)
            which.append(before - 1)
        where.extend([len(names) - 1] * len(pairs))
        indices = [index for index, *_ in pairs]
        values.extend(_numbers([value for *_, value in pairs], f"line {number}, feature", indices))
        widest = max(widest, before)
        _check_count(len(names), widest)
    if not values:
        raise InputError("the file holds no features; each line must be a label and then index:value pairs")
    rows = np.zeros((len(names), widest))
    rows[np.frombuffer(where, np.intc), np.frombuffer(which, np.intc)] = np.frombuffer(values)
    return rows, _two_classes(names)
