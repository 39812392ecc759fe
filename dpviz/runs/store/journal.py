"""Files to which lines are only ever added: what was once written is not lost, also where a crash cuts a line short."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from dpviz.privacy.registry import InputError
from dpviz.runs.store import run_files as files

Line = TypeVar("Line")


def append(path: Path, data: Any) -> None:
    """One more line, seen on the disk; what a crash left unfinished is cut off first."""
    try:
        with open(path, "ab") as file:
            file.truncate(files.read_bytes(path).rfind(b"\n") + 1)
            file.write(files.dump(data))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise InputError(f"{files.shown(path)} cannot be written: {files.reason(error)}") from None


def lines(path: Path, read: Callable[[Any], Line]) -> tuple[Line, ...] | None:
    """What the lines of a file say; None if there is no file."""
    try:
        file = path.stat()
    except FileNotFoundError:
        return None
    return _read_lines(path, read, file.st_mtime_ns, file.st_size)


@functools.lru_cache(maxsize=128)
def _read_lines(path: Path, read: Callable[[Any], Line], changed: int, size: int) -> tuple[Line, ...]:
    """The lines of a file, read again only when the file has changed: a page asks every second."""
    try:
        lines = files.read_bytes(path).split(b"\n")[:-1]
    except OSError as error:
        raise InputError(f"{files.shown(path)} cannot be read: {files.reason(error)}") from None
    content = []
    for number, line in enumerate(lines, start=1):
        try:
            content.append(read(files.DECODER.decode(line.decode())))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"{files.shown(path)}, line {number} is damaged: {error}") from None
    return tuple(content)
