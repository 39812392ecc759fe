"""Own datasets on disk: a folder each, with four arrays and a `dataset.toml` that says what they are.

A dataset is written to a folder beside its place and appears under its name once it is whole, so a bad file leaves
nothing behind. Training reads the arrays through the memory map: they may be larger than the memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.lib.format

from dpviz.paths import own_data_folder
from dpviz.privacy.registry import Entry, InputError, Table
from dpviz.training.data.catalog import (
    DATASETS,
    DESCRIPTION,
    VERSION,
    Dataset,
    OwnData,
    check_name,
    own_data,
    own_names,
    read_description,
)
from dpviz.training.data.own.source import Array, Options, Source
from dpviz.training.limits import LIMITS, refuse_if_read_only

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
RESERVED = ("own", "all")  # what pages call data that were not added, and every dataset at once
Progress = Callable[[float], None]

# Suffix -> how such a file is looked through; a folder has none.
FORMATS = Table(
    "format",
    Entry(".npz", "NumPy arrays x_train, y_train, x_test, y_test", build="dpviz.training.data.own.npz:npz_source"),
    Entry("", "a folder of images per class", build="dpviz.training.data.own.folders:folder_source"),
    Entry(".csv", "a table with a label column", build="dpviz.training.data.own.columns:csv_source"),
    Entry(".parquet", "a table with a label column", build="dpviz.training.data.own.columns:parquet_source"),
)


def add(
    name: str, path: Path, options: Options, *, on_progress: Progress | None = None, most_mb: int | None = None
) -> Dataset:
    """Check a file or folder, convert it, and keep it under this name."""
    refuse_if_read_only()
    _check_free(name)
    suffix = "" if path.is_dir() else path.suffix.lower()
    if not path.exists() or suffix not in FORMATS:
        raise InputError(
            f"own data are a folder of images per class or a file that ends in .npz, .csv or .parquet, got "
            f"{path.name[:60]!r}{'' if path.exists() else ', which is not there'}"
        )
    source: Source = FORMATS[suffix].function(path, options)
    _check_size(source, most_mb)
    with _whole(name) as folder:
        _write_arrays(folder, source, on_progress or (lambda share: None))
        content_hash = _content_hash(folder)
        own = OwnData(name, content_hash, source.train, source.shape, source.class_names)
        _write_description(folder, own, source)
    return own.dataset


def remove(name: str) -> None:
    """Delete an own dataset; runs on it still open, and only resuming them needs it."""
    refuse_if_read_only()
    if name not in own_names():
        raise InputError(f"there are no own data named {str(name)[:40]!r}; dpviz data lists them")
    folder = own_data_folder() / name
    gone = Path(tempfile.mkdtemp(prefix=".removed-", dir=folder.parent)) / name
    with _writable():
        os.rename(folder, gone)  # at once, so that nobody finds half of it
        shutil.rmtree(gone.parent)


def read_arrays(dataset: Dataset, where: Path) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    """The arrays of own data as memory maps, once they are what the run's settings name."""
    folder = where / dataset.name
    if not folder.is_dir():
        raise InputError(
            f"the own data {dataset.name!r} are not on this machine; add them again under this name to train on them"
        )
    there = own_data(folder)
    if there != dataset.own:
        raise InputError(
            f"the own data {dataset.name!r} are others than the run was set up with (their content is "
            f"{there.content_hash[:12]}); add the old ones again under this name, or start a new run"
        )
    try:
        x_train, y_train, x_test, y_test = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ARRAYS)
    except (OSError, ValueError):
        raise InputError(f"the own data {dataset.name!r} are damaged; remove them and add them again") from None
    shapes = (x_train.shape, y_train.shape, x_test.shape[1:], y_test.shape)
    if shapes != ((there.size, *there.shape), (there.size,), there.shape, x_test.shape[:1]):
        raise InputError(f"the own data {dataset.name!r} are damaged; remove them and add them again")
    return (x_train, y_train), (x_test, y_test)


def description(name: str) -> Mapping[str, Any]:
    """All that is known of own data, what counts as public included."""
    return read_description(own_data_folder() / name)


# --- writing ------------------------------------------------------------------------------------------------------


def _check_free(name: str) -> None:
    check_name(name)
    if name in RESERVED or name in DATASETS or name in own_names():
        raise InputError(f"the name {name!r} is taken; choose another, or remove the own data that have it")
    LIMITS["own_datasets"].check(len(own_names()) + 1)


def _check_size(source: Source, most_mb: int | None) -> None:
    item = np.dtype(source.dtype).itemsize
    megabytes = math.ceil((source.train + source.test) * (math.prod(source.shape) * item + 8) / 1e6)
    LIMITS["own_data"].check(megabytes)
    if most_mb is not None and not megabytes <= most_mb:
        raise InputError(
            f"an upload may take up to {most_mb:,} MB once it is unpacked, and this one takes {megabytes:,} MB; add it "
            "with dpviz data add"
        )


@contextlib.contextmanager
def _whole(name: str) -> Iterator[Path]:
    """A folder to write to, which becomes the dataset's own when nothing went wrong, else goes."""
    parent = own_data_folder()
    with _writable():
        parent.mkdir(parents=True, exist_ok=True)
        part = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=parent))
    try:
        with _writable():
            yield part
            try:
                os.rename(part, parent / name)
            except OSError:
                _check_free(name)  # somebody was faster
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


@contextlib.contextmanager
def _writable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"own data cannot be kept in the data folder ({error.strerror or error}); choose another with DPVIZ_DATA"
        ) from None


def _write_arrays(folder: Path, source: Source, on_progress: Progress) -> None:
    train, test = source.train, source.test
    arrays = [
        _new_array(folder / f"x_{part}.npy", source.dtype, (count, *source.shape))
        for part, count in (("train", train), ("test", test))
    ]
    arrays += [
        _new_array(folder / f"y_{part}.npy", "int64", (count,)) for part, count in (("train", train), ("test", test))
    ]
    x_train, x_test, y_train, y_test = arrays
    written = 0
    for places, inputs, labels in source.batches():
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = source.scaling(inputs).astype(source.dtype)
        if not (np.isfinite(inputs).all() and np.isfinite(scaled).all()):
            raise InputError("inputs must be finite numbers, also after scaling, and some are NaN or infinite")
        first = places < train
        x_train[places[first]], y_train[places[first]] = scaled[first], labels[first]
        x_test[places[~first] - train], y_test[places[~first] - train] = scaled[~first], labels[~first]
        written += len(places)
        on_progress(written / (train + test))
    if written != train + test:
        raise InputError(f"the file changed while it was read: {train + test:,} examples at first, then {written:,}")
    counts = np.bincount(y_train, minlength=len(source.class_names))
    if not counts.all():
        empty = source.class_names[int(np.argmin(counts))]
        raise InputError(f"every class must have training examples, and {empty[:40]!r} has none; leave it out")
    for array in arrays:
        array.flush()


def _new_array(path: Path, dtype: str, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[Any]]:
    """An array on disk that has its room: writing to a map of a file that outgrows the disk would end the process."""
    array = numpy.lib.format.open_memmap(path, "w+", dtype, shape)
    if hasattr(os, "posix_fallocate"):
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def _content_hash(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in ARRAYS:
        with (folder / f"{name}.npy").open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _write_description(folder: Path, own: OwnData, source: Source) -> None:
    fields = {
        "version": VERSION,
        **own.to_json(),
        "test_size": source.test,
        "dtype": source.dtype,
        "mean": source.scaling.mean,
        "std": source.scaling.std,
        "clipped": source.scaling.clipped,
        "features": source.features,
        "public": source.public,
    }
    # JSON's numbers, texts, booleans and lists are TOML's too; names are printable, so that no escape differs.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    (folder / DESCRIPTION).write_text("\n".join(lines) + "\n", encoding="utf-8")
