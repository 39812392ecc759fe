"""CSV and Parquet files with a label column: read twice in pieces, so that memory does not grow with the file.

The first time finds out what each column holds: numbers, or words, which become a yes-or-no feature each. The second
time makes the rows. Both formats are read by pyarrow.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from dpviz.privacy.registry import InputError
from dpviz.training.data.catalog import MAX_CLASSES, MAX_EXAMPLES, MAX_LETTERS
from dpviz.training.data.own.source import (
    Array,
    Batch,
    Options,
    Scaling,
    Source,
    public_words,
    readable,
    split_places,
)

if TYPE_CHECKING:
    import pyarrow as pa

MAX_WORDS = 100  # different ones in a column
MAX_COLUMNS = 5000
BLOCK = 1 << 20  # bytes of a CSV file that are parsed at a time
ROWS = 20_000  # of a Parquet file
Pieces = Callable[[], Iterator["pa.RecordBatch"]]


def csv_source(path: Path, options: Options) -> Source:
    pyarrow = _arrow()
    with readable(path.name, "CSV", OSError), path.open("rb") as file:
        first = file.readline(BLOCK)
    separator = _separator(first)

    def pieces() -> Iterator[pa.RecordBatch]:
        import pyarrow.csv as arrow_csv

        read = arrow_csv.ReadOptions(block_size=BLOCK)
        parse = arrow_csv.ParseOptions(delimiter=separator)
        with arrow_csv.open_csv(path, read, parse) as reader:
            names = reader.schema.names
        # As texts: what a column holds is known only after its last row.
        convert = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pyarrow.string()))
        with arrow_csv.open_csv(path, read, parse, convert) as reader:
            yield from reader

    return _source(path, "CSV", pieces, options)


def _separator(first: bytes) -> str:
    return max(",;\t", key=lambda letter: first.count(letter.encode()))


def parquet_source(path: Path, options: Options) -> Source:
    _arrow()

    def pieces() -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet

        with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
            if not file.metadata.num_rows <= MAX_EXAMPLES:
                raise InputError(f"a table may have at most {MAX_EXAMPLES:,} rows, got {file.metadata.num_rows:,}")
            yield from file.iter_batches(batch_size=ROWS)

    return _source(path, "Parquet", pieces, options)


def _arrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise InputError(
            "tables are read by pyarrow, which is not installed; add it with the extra data: pip install 'dpviz[data]'"
        ) from None
    return pyarrow


def column_names(file: BinaryIO, suffix: str) -> list[str]:
    """The columns of a table that is at hand, for choosing the label among them."""
    pyarrow = _arrow()
    import pyarrow.csv as arrow_csv
    import pyarrow.parquet as arrow_parquet

    file.seek(0)
    with readable("the file", suffix.removeprefix("."), pyarrow.ArrowException, OSError, ValueError):
        if suffix == ".parquet":
            return list(arrow_parquet.read_schema(file).names)
        first = file.readline(BLOCK)
        parse = arrow_csv.ParseOptions(delimiter=_separator(first))
        return list(arrow_csv.read_csv(io.BytesIO(first), parse_options=parse).column_names)


# --- what the columns hold ----------------------------------------------------------------------------------------


@dataclass
class Column:
    """What was seen of a column so far; `words` are complete until there are more than `most`."""

    name: str
    is_label: bool = False
    numeric: bool = True
    words: set[str] = field(default_factory=set)

    def see(self, values: pa.Array) -> None:
        import pyarrow.compute as compute

        self.numeric = self.numeric and _numbers(values) is not None
        if not self.numeric or len(self.words) <= self.most:
            self.words |= set(compute.unique(_texts(values, self.name)).to_pylist())
        if len(self.words) > self.most and (self.is_label or not self.numeric):
            what = "the label" if self.is_label else "a column of words"
            raise InputError(
                f"{what} may have at most {self.most:,} different values, and {self.name!r} has more; group them or "
                "choose other columns"
            )

    @property
    def most(self) -> int:
        return MAX_CLASSES if self.is_label else MAX_WORDS

    @property
    def sorted_words(self) -> list[str]:
        return sorted(self.words, key=float) if self.numeric else sorted(self.words)


def _texts(values: pa.Array, name: str) -> pa.Array:
    """The cells as trimmed texts; none may be empty."""
    import pyarrow as pa
    import pyarrow.compute as compute

    if pa.types.is_nested(values.type) or pa.types.is_binary(values.type):
        raise InputError(f"cells must be numbers or words, and those of column {name!r} are {str(values.type)[:30]}")
    texts = compute.utf8_trim_whitespace(values.cast(pa.string()))
    if texts.null_count or compute.any(compute.equal(texts, "")).as_py():
        raise InputError(f"every cell must be filled, and column {name!r} has empty ones; fill them or drop these rows")
    return texts


def _numbers(values: pa.Array) -> Array | None:
    """The cells as numbers, NaN where one is missing; None if a cell is a word."""
    import pyarrow as pa
    import pyarrow.compute as compute

    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        values = compute.utf8_trim_whitespace(values)
    elif not (
        pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)
    ):
        return None
    try:
        numbers: Array = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return numbers


def _look(pieces: Pieces, options: Options) -> tuple[list[Column], Column, int]:
    """Feature columns, the label column and the number of rows."""
    columns: list[Column] = []
    rows = 0
    for piece in pieces():
        if not columns:
            columns = _checked_columns(piece.schema.names, options)
        rows += len(piece)
        if not rows <= MAX_EXAMPLES:
            raise InputError(f"a table may have at most {MAX_EXAMPLES:,} rows; bring fewer")
        for column in columns:
            column.see(piece[column.name])
    if not rows:
        raise InputError("the table has no rows; the first line names the columns, the others are examples")
    (label,) = (column for column in columns if column.is_label)
    return [column for column in columns if not column.is_label], label, rows


def _checked_columns(names: list[str], options: Options) -> list[Column]:
    twice = [name for name in names if names.count(name) > 1] if len(names) <= MAX_COLUMNS else []
    if twice or not 2 <= len(names) <= MAX_COLUMNS:
        what = f"{twice[0][:40]!r} comes twice" if twice else f"there are {len(names):,}"
        raise InputError(f"a table needs 2 to {MAX_COLUMNS:,} columns with different names, and {what}")
    for name in (options.label, *options.bounds, *options.leave_out):
        if name not in names:
            shown = ", ".join(known[:30] for known in names[:8]) + (" ..." if len(names) > 8 else "")
            raise InputError(
                f"the table has no column {name[:40]!r}; it has {shown}" if name else f"name the label column: {shown}"
            )
    if options.label in options.leave_out:
        raise InputError("the label column cannot be left out")
    kept = [name for name in names if name not in options.leave_out]
    for name in kept:
        if not (name.isprintable() and len(name) <= MAX_LETTERS):
            raise InputError(f"column names must be printable and of up to {MAX_LETTERS} letters, got {name[:40]!r}")
    return [Column(name, is_label=name == options.label) for name in kept]


# --- the rows -----------------------------------------------------------------------------------------------------


def _source(path: Path, kind: str, pieces: Pieces, options: Options) -> Source:
    import pyarrow as pa
    import pyarrow.compute as compute

    errors = (pa.ArrowException, OSError, ValueError, MemoryError)
    if options.mean:
        raise InputError("the numbers of a table are scaled by ranges, not by mean and std; give bounds or one range")
    with readable(path.name, kind, *errors):
        columns, label, rows = _look(pieces, options)
    class_names = tuple(label.sorted_words)
    features, ranges = _features(columns, options)
    train, places = split_places(rows, options.test_share)

    def batches() -> Iterator[Batch]:
        first = 0
        with readable(path.name, kind, *errors):
            for piece in pieces():
                codes = compute.index_in(_texts(piece[label.name], label.name), pa.array(class_names, pa.string()))
                some = places[first : first + len(piece)]
                if len(some) != len(piece) or codes.null_count:
                    raise InputError("the file changed while it was read; add it again")
                yield some, _inputs(piece, columns, len(features)), codes.to_numpy().astype(np.int64)
                first += len(piece)

    words = sum(not column.numeric for column in columns)
    more = ["the names of the columns and their ranges"] + ["the words that occur in columns of words"] * (words > 0)
    return Source(
        train=train,
        test=rows - train,
        shape=(len(features),),
        class_names=class_names,
        dtype="float32",
        scaling=Scaling.of_ranges(ranges),
        public=public_words(train, rows - train, class_names, *more),
        batches=batches,
        features=features,
    )


def _features(columns: list[Column], options: Options) -> tuple[tuple[str, ...], list[tuple[float, float]]]:
    """The name and the range of every feature; a column of numbers needs one that was given."""
    names: list[str] = []
    ranges: list[tuple[float, float]] = []
    for column in columns:
        if not column.numeric:
            if not all(word.isprintable() and len(word) <= MAX_LETTERS for word in column.words):
                raise InputError(f"the words of column {column.name!r} must be printable, up to {MAX_LETTERS} letters")
            names += [f"{column.name}={word}" for word in column.sorted_words]
            ranges += [(-1.0, 1.0)] * len(column.words)  # 0 and 1 stay
            continue
        limits = options.bounds.get(column.name, options.value_range)
        if limits is None:
            raise InputError(
                f"column {column.name!r} holds numbers, so say their public range, for example "
                f"{column.name}=0,100, or one range for all columns; it is never taken from the data"
            )
        names.append(column.name)
        ranges.append(limits)
    if not 1 <= len(names) <= MAX_COLUMNS:
        raise InputError(f"there must be 1 to {MAX_COLUMNS:,} features, got {len(names):,}; leave columns out")
    return tuple(names), ranges


def _inputs(piece: pa.RecordBatch, columns: list[Column], features: int) -> Array:
    import pyarrow as pa
    import pyarrow.compute as compute

    rows = np.zeros((len(piece), features), np.float32)
    at = 0
    for column in columns:
        values = piece[column.name]
        if column.numeric:
            numbers = _numbers(values)
            if numbers is None or not np.isfinite(numbers).all():
                raise InputError(
                    f"column {column.name!r} must hold finite numbers; fill or drop the rows that have none"
                )
            rows[:, at] = numbers
            at += 1
        else:
            words = pa.array(column.sorted_words, pa.string())
            codes = compute.index_in(_texts(values, column.name), words).to_numpy()
            rows[np.arange(len(piece)), at + codes] = 1
            at += len(words)
    return rows
