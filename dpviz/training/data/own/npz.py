"""NumPy archives: x_train, y_train, x_test, y_test, read member by member and never unpickled.

The archive is not unpacked: its four members are opened by name, so names in it lead nowhere. An array's header says
how large it is, and no more than that is read.
"""

from __future__ import annotations

import contextlib
import lzma
import math
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from dpviz.privacy.registry import InputError
from dpviz.training.data.catalog import MAX_CLASSES, MAX_EXAMPLES, MAX_NUMBERS
from dpviz.training.data.own.source import (
    CHUNK,
    Array,
    Batch,
    Options,
    Scaling,
    Source,
    public_words,
    readable,
)

NAMES = ("x_train", "y_train", "x_test", "y_test")
HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
BYTES = Scaling.of_ranges([(0, 255)])
COLOURS = (1, 3)
ERRORS = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError, OSError, ValueError, MemoryError)


@dataclass(frozen=True)
class Member:
    """An array of the archive, known by its header."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize


def npz_source(path: Path, options: Options) -> Source:
    with readable(path.name, "an .npz archive", *ERRORS), zipfile.ZipFile(path) as archive:
        _check_names(archive)
        images, labels, test_images, test_labels = (_member(archive, name) for name in NAMES)
        if images.shape[1:] != test_images.shape[1:] or images.dtype != test_images.dtype:
            raise InputError("x_train and x_test must hold examples of one shape and one type")
        classes = [_labels(archive, member, each) for member, each in ((labels, images), (test_labels, test_images))]
    class_names = tuple(map(str, range(1 + max(int(part.max()) for part in classes))))
    layout = _layout(images.shape)
    shape = tuple(images.shape[axis] for axis in layout)
    shape = (1, *shape) if len(shape) == 2 else shape  # grey images
    scaling = Scaling.asked(options, shape[0]) or (BYTES if images.dtype == np.uint8 else None)
    if scaling is None:
        raise InputError(
            f"x_train holds {images.dtype} and not bytes from 0 to 255, so say its public range (for example 0,1), or "
            "its mean and std as public constants; they are never taken from the data"
        )
    starts = (0, len(classes[0]))

    def batches() -> Iterator[Batch]:
        with readable(path.name, "an .npz archive", *ERRORS), zipfile.ZipFile(path) as archive:
            for member, own, start in zip((images, test_images), classes, starts, strict=True):
                for first, inputs in _rows(archive, member):
                    places = np.arange(first, first + len(inputs))
                    laid_out = inputs.reshape(-1, *member.shape[1:]).transpose(0, *layout)
                    yield places + start, laid_out.reshape(-1, *shape), own[places]

    return Source(
        train=len(classes[0]),
        test=len(classes[1]),
        shape=shape,
        class_names=class_names,
        dtype="float16" if images.dtype == np.uint8 and scaling is BYTES else "float32",
        scaling=scaling,
        public=public_words(len(classes[0]), len(classes[1]), class_names),
        batches=batches,
    )


def _check_names(archive: zipfile.ZipFile) -> None:
    names = sorted(archive.namelist())
    if names != sorted(f"{name}.npy" for name in NAMES):
        shown = ", ".join(repr(name[:30]) for name in names[:5]) or "nothing"
        raise InputError(f"the archive must hold x_train, y_train, x_test and y_test and nothing else, got {shown}")


@contextlib.contextmanager
def _opened(archive: zipfile.ZipFile, name: str) -> Iterator[tuple[IO[bytes], Member]]:
    """A member, read up to its first value."""
    with archive.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        if version not in HEADERS:
            raise InputError(f"{name} has an array format that is not known ({version}); save it again with np.savez")
        shape, by_columns, dtype = HEADERS[version](file, max_header_size=10_000)
        if dtype.hasobject or dtype.kind not in "uif":
            raise InputError(
                f"{name} must hold plain numbers, and its type is {str(dtype)[:30]}; pickled objects are never opened"
            )
        if by_columns and len(shape) > 1:
            raise InputError(f"{name} is stored by columns; save np.ascontiguousarray({name}) instead")
        yield file, Member(name, shape, dtype)


def _member(archive: zipfile.ZipFile, name: str) -> Member:
    with _opened(archive, name) as (_, member):
        pass
    if not (member.shape and 1 <= member.shape[0] <= MAX_EXAMPLES and 1 <= math.prod(member.shape[1:]) <= MAX_NUMBERS):
        raise InputError(
            f"{name} must hold 1 to {MAX_EXAMPLES:,} examples of up to {MAX_NUMBERS:,} numbers, got shape "
            f"{str(member.shape)[:60]}"
        )
    if archive.getinfo(f"{name}.npy").file_size < member.row_bytes * member.shape[0]:
        raise InputError(f"{name} is cut short: its header promises more values than the archive holds")
    return member


def _rows(archive: zipfile.ZipFile, member: Member) -> Iterator[tuple[int, Array]]:
    """The number of the first row and some rows, flat."""
    step = max(1, CHUNK // member.row_bytes)
    with _opened(archive, member.name) as (file, _):
        for first in range(0, member.shape[0], step):
            rows = min(step, member.shape[0] - first)
            content = file.read(rows * member.row_bytes)
            if len(content) != rows * member.row_bytes:
                raise InputError(f"{member.name} is cut short")
            yield first, np.frombuffer(content, member.dtype).reshape(rows, -1)


def _labels(archive: zipfile.ZipFile, member: Member, images: Member) -> Array:
    if member.shape != images.shape[:1] or member.dtype.kind not in "ui":
        raise InputError(
            f"{member.name} must hold one whole number per example of {images.name} ({images.shape[0]:,}), got "
            f"{member.dtype} of shape {str(member.shape)[:40]}"
        )
    parts = [rows[:, 0] for _, rows in _rows(archive, member)]
    low, high = min(int(part.min()) for part in parts), max(int(part.max()) for part in parts)
    if not (low >= 0 and high < MAX_CLASSES):
        raise InputError(f"{member.name} must count classes from 0 to at most {MAX_CLASSES - 1}, got {low} to {high}")
    return np.concatenate(parts).astype(np.int64)


def _layout(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of an example as colours, height, width; those of features and of grey images stay."""
    if len(shape) in (2, 3):
        return tuple(range(1, len(shape)))
    first, last = (len(shape) == 4 and shape[axis] in COLOURS for axis in (1, 3))
    if first == last:
        raise InputError(
            "x_train must be (examples, features), (examples, height, width) or images with 1 or 3 colours either "
            f"before or after height and width, got {str(shape)[:60]}"
        )
    return (1, 2, 3) if first else (3, 1, 2)
