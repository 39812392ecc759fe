"""The files of one run, read and written: the format that a person's own runs and the cached ones share.

spec.json       written once; of an imported run its facts, under "kind": "imported" and a version
epochs.jsonl    append only, one epoch per line; a torn last line is dropped, anything else that is broken is an error
status.json     replaced atomically; carries the labels and last numbers that a list shows, and what the run had spent
                when it last ended; one without "spent" was written before that was recorded; "audit" where a run has
                one
course.jsonl    append only, of a run under a filter: every epoch that has begun, with its noise, and every change
title.json      replaced atomically; a file of its own, so that renaming never races with a run that goes on
provenance.json cached runs only; a person's own runs keep it in status.json
checkpoint.pt   replaced atomically; opaque bytes here
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import math
import os
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dpviz.privacy.audit import Audit
from dpviz.privacy.registry import InputError
from dpviz.runs.store.course import Course
from dpviz.runs.store.imported import AnySpec, ImportedSpec, spec_from_json
from dpviz.runs.store.records import Provenance, Run, Summary, check_next, check_status
from dpviz.runs.store.spending import Spending
from dpviz.training.spec import EpochRecord, RunSpec

SPEC, EPOCHS, STATUS = "spec.json", "epochs.jsonl", "status.json"
TITLE, PROVENANCE, CHECKPOINT, LOCK, COURSE = "title.json", "provenance.json", "checkpoint.pt", "lock", "course.jsonl"
FILES = (SPEC, EPOCHS, STATUS, TITLE, PROVENANCE, CHECKPOINT, LOCK, COURSE)
TEMPORARY = ".tmp-"


@dataclass(frozen=True)
class Status:
    """What status.json holds."""

    status: str
    created: str
    error: str
    provenance: Provenance | None
    summary: Mapping[str, Any]
    owner: str = ""
    spent: Spending | None = None
    audit: Audit | None = None

    def to_json(self) -> dict[str, Any]:
        provenance = self.provenance.to_json() if self.provenance else None
        return {
            "status": self.status,
            "created": self.created,
            "error": self.error,
            "provenance": provenance,
            "summary": {key: "infinity" if value == math.inf else value for key, value in self.summary.items()},
            **({"owner": self.owner} if self.owner else {}),  # a store without sign-in knows of no owners
            **({"spent": self.spent.to_json()} if self.spent else {}),
            **({"audit": self.audit.to_json()} if self.audit else {}),
        }


def replace(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a reader sees the old one or the new one, also after a crash."""
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a new or renamed name in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def dump(data: Any) -> bytes:
    return (json.dumps(data, allow_nan=False) + "\n").encode()


def load(path: Path | str) -> Any:
    """The JSON in a file; what is wrong is said with the file's name and its folder's, never an absolute path."""
    try:
        return DECODER.decode(read_bytes(path).decode())
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read: {reason(error)}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{shown(path)} is not valid JSON") from None


def read_bytes(path: Path | str) -> bytes:
    """A file's content. Without Path and io.open, which take most of the time when 5,000 runs are listed."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        parts = []
        while part := os.read(descriptor, 65_536):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _refuse_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def shown(path: Path | str) -> str:
    return "/".join(Path(path).parts[-2:])


def without_paths(text: str) -> str:
    """A sentence with only the last part of each absolute path: errors are shown on pages and exported."""
    for folder in (os.getcwd(), os.path.expanduser("~")):  # first, since their names may hold spaces
        if len(folder) > 1:
            text = text.replace(f"{folder}/", "/.../")
    return ABSOLUTE.sub(".../", text)


# Not after a letter, a colon or a slash: an address on the net is no path.
ABSOLUTE = re.compile(r"(?<![\w:/.])/(?:[^\s/'\"]+/)+")


def reason(error: OSError) -> str:
    """What the system says, without the path that OSError would add."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    if error.errno == errno.EFBIG:
        return "the file is larger than the system allows"
    return (error.strerror or type(error).__name__).lower()


def write_spec(folder: Path, spec: AnySpec) -> None:
    replace(folder / SPEC, dump(spec.to_json()))


def write_status(folder: Path, status: Status) -> None:
    replace(folder / STATUS, dump(status.to_json()))


def read_status(folder: Path) -> Status:
    data = load(folder / STATUS)
    try:
        provenance = data["provenance"] and Provenance.from_json(data["provenance"])
        words = (check_status(data["status"]), str(data["created"]), str(data["error"]))
        audit = Audit.from_json(data["audit"]) if "audit" in data else None
        return Status(*words, provenance, dict(data["summary"]), str(data.get("owner", "")), _spent(data), audit)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{shown(folder / STATUS)} is not a run's status: {error}") from None


def _spent(data: Any) -> Spending | None:
    return Spending.from_json(data["spent"]) if "spent" in data else None


def read_summary(folder: str) -> Summary:
    """A run's line in a list, from status.json and title.json alone; read again only when one of them was replaced."""
    return _summary(folder, _stamp(f"{folder}/{STATUS}"), _stamp(f"{folder}/{TITLE}"))


def _stamp(path: str) -> tuple[int, ...]:
    try:
        file = os.stat(path)
    except OSError:
        return ()
    return file.st_ino, file.st_mtime_ns, file.st_size


@lru_cache(maxsize=10_000)
def _summary(folder: str, status_stamp: tuple[int, ...], title_stamp: tuple[int, ...]) -> Summary:
    path = f"{folder}/{STATUS}"
    data = load(path)
    try:
        words: dict[str, Any] = data["summary"]
        labels: dict[str, Any] = {key: math.inf if value == "infinity" else value for key, value in words.items()}
        title = read_title(folder)
        name, owner, spent = os.path.basename(folder), data.get("owner", ""), _spent(data)
        about = (name, check_status(data["status"]), data["created"], title, data["error"])
        return Summary(*about, owner=owner, written=spent, **labels)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{shown(path)} is not a run's status: {error}") from None


def read_title(folder: Path | str) -> str:
    path = f"{folder}/{TITLE}"
    if not os.path.exists(path):
        return ""
    data = load(path)
    return str(data["title"]) if isinstance(data, dict) and "title" in data else ""


def read_spec(folder: Path) -> AnySpec:
    try:
        return spec_from_json(load(folder / SPEC))
    except TypeError as error:
        raise InputError(f"{shown(folder / SPEC)} is not a run's settings: {error}") from None


def read_run(folder: Path, run_id: str) -> Run:
    """The whole run in a folder."""
    status, provenance = read_status(folder), folder / PROVENANCE
    spec, epochs = read_spec(folder), read_epochs(folder)[0]
    return Run(
        run_id,
        spec.with_epochs(epochs) if isinstance(spec, ImportedSpec) else spec,
        status.status,
        epochs,
        status.created,
        Provenance.from_json(load(provenance)) if provenance.exists() else status.provenance,
        status.error,
        read_title(folder),
        status.owner,
        status.spent,
        status.audit,
        read_course(folder, spec) if isinstance(spec, RunSpec) and spec.filter else None,
    )


def read_epochs(folder: Path) -> tuple[tuple[EpochRecord, ...], int]:
    """The epochs, and the length in bytes of the good part of the file: what follows it was torn by a crash."""
    path = folder / EPOCHS
    try:
        data = read_bytes(path)
    except FileNotFoundError:
        return (), 0
    except OSError as error:
        raise InputError(f"{shown(path)} cannot be read: {reason(error)}") from None
    records: list[EpochRecord] = []

    def add(content: Any) -> None:
        record = EpochRecord.from_json(content)
        check_next(records[-1] if records else None, record)
        records.append(record)

    good = _take_lines(data, shown(path), add)
    return tuple(records), good


def _take_lines(data: bytes, name: str, take: Callable[[Any], None]) -> int:
    """Hand over a journal's lines one by one; the length in bytes of its good part, without a torn last line."""
    lines = data.split(b"\n")[:-1]  # what follows the last newline was never finished
    good = 0
    for number, line in enumerate(lines, start=1):
        try:
            content = DECODER.decode(line.decode())
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            raise InputError(f"{name}, line {number} is damaged: not valid JSON") from None
        try:
            take(content)
        except InputError as error:
            raise InputError(f"{name}, line {number} is damaged: {error}") from None
        good += len(line) + 1
    return good


def append_epoch(folder: Path, record: EpochRecord) -> None:
    """Add one line and see it on the disk; a line that does not fit is taken back."""
    try:
        line = dump(record.to_json())
    except ValueError:
        raise InputError(f"epoch {record.epoch} has a number that is not finite; the run has diverged") from None
    descriptor = os.open(folder / EPOCHS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        append_line(descriptor, line)
    finally:
        os.close(descriptor)


def append_line(descriptor: int, line: bytes) -> None:
    """Add a line to an open file and see it on the disk, or leave the file as it was."""
    size = os.fstat(descriptor).st_size
    try:
        while line:  # a full disk takes a part first and refuses the rest
            line = line[os.write(descriptor, line) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def read_course(folder: Path, spec: RunSpec) -> Course:
    """The course of a run under a filter; its plan where nothing has happened yet."""
    try:
        data = read_bytes(folder / COURSE)
    except FileNotFoundError:
        data = b""
    except OSError as error:
        raise InputError(f"{shown(folder / COURSE)} cannot be read: {reason(error)}") from None
    return _course(data, spec, shown(folder / COURSE))[0]


def change_course(folder: Path, spec: RunSpec, line_of: Callable[[Course], Mapping[str, Any] | None]) -> Course:
    """Add the line that `line_of` makes of a course, if any, and see it on the disk; one process at a time."""
    Course.planned(spec)  # refuses a run without a filter before there is a file
    path = folder / COURSE
    new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        course, good = _course(os.pread(descriptor, os.fstat(descriptor).st_size, 0), spec, shown(path))
        line = line_of(course)
        if line is None:
            return course
        changed = course.after(line)
        os.ftruncate(descriptor, good)  # a line that a crash left unfinished
        append_line(descriptor, dump(line))
        if new:
            sync_folder(folder)
        return changed
    finally:
        os.close(descriptor)


def _course(data: bytes, spec: RunSpec, name: str) -> tuple[Course, int]:
    """The course in a file's content, and the length in bytes of the good part: what follows was torn by a crash."""
    course = Course.planned(spec)

    def follow(content: Any) -> None:
        nonlocal course
        course = course.after(content)

    good = _take_lines(data, name, follow)
    return course, good


def drop_torn_line(folder: Path) -> tuple[EpochRecord, ...]:
    """Cut off a line that a crash left unfinished, so that the next one starts clean."""
    records, good = read_epochs(folder)
    path = folder / EPOCHS
    if path.exists() and path.stat().st_size > good:
        os.truncate(path, good)
    return records
