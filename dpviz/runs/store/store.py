"""The store: one folder per run, JSON only. Any number of processes may share it.

Every process reads. A run is written only by the store that holds its lock, from `create` or `claim` until `release`;
the system frees the lock of a process that dies, and a live status without a lock reads as *interrupted*.

Where people sign in, a run carries its owner, and `Store(owner=...)` is that person's part of the store: the runs of
others are not there. Without an owner a Store is the whole, as for the command line and the runner.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpviz.paths import runs_folder
from dpviz.privacy.audit import Audit
from dpviz.privacy.records import steps_per_epoch
from dpviz.privacy.registry import InputError
from dpviz.runs.store import run_files as files
from dpviz.runs.store.course import Course
from dpviz.runs.store.imported import NO_RETRAINING, AnySpec, ImportedSpec
from dpviz.runs.store.lock import Lock, held
from dpviz.runs.store.records import (
    LIVE,
    RESUMABLE,
    Listing,
    Provenance,
    Run,
    Summary,
    check_next,
    check_status,
    labels,
)
from dpviz.runs.store.spending import Spending, at_most, of_epoch, spending
from dpviz.training.limits import check_spec, refuse_if_read_only
from dpviz.training.spec import EpochRecord, RunSpec

RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
MAX_TITLE = 120
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

_last_moment = 0
_moment_guard = threading.Lock()


def new_id() -> str:
    """Milliseconds since 1970 in base 36, which sorts by age, and four random digits against two in one instant."""
    global _last_moment
    with _moment_guard:  # also keeps the order when the clock goes backwards
        _last_moment = moment = max(time.time_ns() // 1_000_000, _last_moment + 1)
    text = ""
    while moment:
        moment, digit = divmod(moment, 36)
        text = DIGITS[digit] + text
    return f"{text}-{''.join(secrets.choice(DIGITS) for _ in range(4))}"


@dataclass
class Work:
    """A run that this store holds: its lock, and what need not be read again."""

    lock: Lock
    spec: AnySpec
    status: files.Status
    last: EpochRecord | None = None


class Store:
    """Runs in a folder. Making a Store touches nothing, so a missing or read-only folder can be listed."""

    def __init__(self, folder: Path | str | None = None, *, owner: str = "") -> None:
        self.folder = Path(folder) if folder is not None else runs_folder()
        self.owner = owner
        self._work: dict[str, Work] = {}

    def create(self, spec: AnySpec, *, title: str = "", owner: str = "", run_id: str = "") -> str:
        """A new queued run, locked by this store.

        `run_id` is one from `new_id`, for those who must know it before the run is there.
        """
        run_id, title = run_id or new_id(), check_title(title)
        nothing = Spending(0, None, 0.0) if isinstance(spec, ImportedSpec) else spending(check_spec(spec), 0)
        status = files.Status("queued", _now(), "", None, labels(spec, None), owner or self.owner, nothing)
        more = {files.TITLE: files.dump({"title": title})} if title else {}
        self._work[run_id] = Work(self._put(run_id, spec, status, more), spec, status)
        return run_id

    def adopt(self, run: Run, checkpoint: bytes) -> str:
        """A copy of a stopped run from elsewhere, to be resumed here."""
        run_id, spec = new_id(), check_spec(run.own_spec)
        numbers = labels(spec, run.epochs[-1] if run.epochs else None)
        status = files.Status("stopped", run.created, "", run.provenance, numbers, self.owner, run.written, run.audit)
        epochs = b"".join(files.dump(record.to_json()) for record in run.epochs)
        self._put(run_id, spec, status, {files.EPOCHS: epochs, files.CHECKPOINT: checkpoint}).release()
        return run_id

    def _put(self, run_id: str, spec: AnySpec, status: files.Status, more: Mapping[str, bytes]) -> Lock:
        """Write a new run's files and lock it. It appears whole: readers never see a half-made folder."""
        made = self.folder / f".new-{run_id}"
        with self._writing("the run cannot be saved"):
            self.folder.mkdir(parents=True, exist_ok=True)
            made.mkdir()
            lock = Lock(made / files.LOCK)
            try:
                lock.reserve()
                files.write_spec(made, spec)
                files.write_status(made, status)
                for name, data in more.items():
                    files.replace(made / name, data)
                os.rename(made, self.folder / run_id)
                files.sync_folder(self.folder)
            except OSError:
                lock.release()
                shutil.rmtree(made, ignore_errors=True)
                raise
        return lock

    def claim(self, run_id: str) -> Run:
        """Lock a stopped, interrupted or failed run in order to go on with it. A finished run never changes."""
        folder = self._folder(run_id)
        with self._writing(f"run {run_id} cannot be resumed"):
            lock = self._lock(run_id, "resumed")
            try:
                run = _abandoned(files.read_run(folder, run_id))
                if isinstance(run.spec, ImportedSpec):
                    raise InputError(f"run {run_id} is imported: {NO_RETRAINING}")
                if run.status not in RESUMABLE:
                    raise InputError(f"run {run_id} is {run.status}; a finished run never changes, start a new one")
                check_spec(run.spec)
                lock.reserve()
                files.drop_torn_line(folder)
                last = run.epochs[-1] if run.epochs else None
                self._work[run_id] = Work(lock, run.spec, files.read_status(folder), last)
                self._replace_status(run_id, "queued", "", spent=run.written)
            except (InputError, OSError):
                self._work.pop(run_id, None)
                lock.release()
                raise
        return dataclasses.replace(run, status="queued", error="")

    def release(self, run_id: str) -> None:
        """Let go of a run."""
        self._held(run_id)
        self._work.pop(run_id).lock.release()

    def append(self, run_id: str, record: EpochRecord) -> None:
        """Add an epoch to a running run. OSError, for example on a full disk, leaves the file as it was."""
        work = self._held(run_id)
        if work.status.status != "running":
            raise InputError(f"run {run_id} is {work.status.status}; epochs are added to running runs only")
        check_next(work.last, record)
        files.append_epoch(self._folder(run_id), record)
        work.last = record
        self._replace_status(run_id, work.status.status, work.status.error)

    def set_status(
        self,
        run_id: str,
        status: str,
        *,
        error: str = "",
        provenance: Provenance | None = None,
        spent: Spending | None = None,
        audit: Audit | None = None,
    ) -> None:
        """Change a locked run's status; what is not given of the rest stays as it is."""
        if self._held(run_id).status.status == "done":
            raise InputError(f"run {run_id} is done; a finished run never changes")
        self._replace_status(run_id, check_status(status), error, provenance, spent, audit)

    def write_checkpoint(self, run_id: str, data: bytes) -> None:
        """Replace the checkpoint of a running run."""
        if self._held(run_id).status.status != "running":
            raise InputError(f"run {run_id} is not running, so it takes no checkpoint")
        files.replace(self._folder(run_id) / files.CHECKPOINT, data)

    def read_checkpoint(self, run_id: str) -> bytes | None:
        """The last checkpoint's bytes; None if there is none yet."""
        try:
            return (self._folder(run_id) / files.CHECKPOINT).read_bytes()
        except FileNotFoundError:
            return None

    def begin_epoch(self, run_id: str, epoch: int) -> tuple[float, ...]:
        """Lock the noise of an epoch of a run under a filter, unless it has begun before; the noise of every epoch."""

        def begun(course: Course) -> dict[str, Any] | None:
            if epoch <= course.begun:
                return None
            return {"epoch": epoch, "noise_multiplier": course.sigmas[epoch - 1]}

        spec = self._held(run_id).spec
        assert isinstance(spec, RunSpec)  # an imported run is not trained
        return files.change_course(self._folder(run_id), spec, begun).sigmas

    def redraw(self, run_id: str, sigmas: Iterable[Any], *, skip_begun: bool = False) -> Course:
        """Change the noise of the last epochs of a run under a filter, whoever works on it, if anybody does.

        It is on the disk when this returns, and holds from the next epoch that begins. Epochs that have begun may be in
        the list as they were; with `skip_begun` also otherwise, and are left out.
        """
        folder, sigmas = self._folder(run_id), tuple(sigmas)
        spec = files.read_spec(folder)
        if isinstance(spec, ImportedSpec):
            raise InputError(f"run {run_id} is imported: {NO_RETRAINING}")
        with self._writing(f"run {run_id} cannot be changed"):
            allowed = Course.still_open if skip_begun else Course.changeable
            return files.change_course(folder, spec, lambda course: {"sigmas": allowed(course, sigmas), "at": _now()})

    def get(self, run_id: str) -> Run:
        """The whole run. Damage is an InputError that names the file and the line."""
        folder = self._folder(run_id)
        run = files.read_run(folder, run_id)
        # The status is read before the lock is tried: a run that ends in between would look dead, so look again.
        if run.status in LIVE and not held(folder / files.LOCK):
            run = files.read_run(folder, run_id)
        elif run.status in LIVE:
            return run
        return _abandoned(run)

    def list(self) -> Listing:
        """Every run's summary, oldest first; what cannot be read is skipped with a warning."""
        try:
            with os.scandir(self.folder) as entries:
                folders = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name)
        except FileNotFoundError:
            return Listing((), ())
        except OSError as error:
            return Listing((), (f"the runs folder cannot be read: {files.reason(error)}",))
        runs, warnings = [], []
        for entry in folders:
            try:
                if not entry.is_dir():
                    continue
                if entry.is_symlink() or not RUN_ID.fullmatch(entry.name):
                    raise InputError(f"{entry.name[:60]!r} is not a run's folder")
                runs.append(self._summary(entry.path))
            except InputError as error:
                warnings.append(f"skipped: {error}")
            except OSError as error:
                warnings.append(f"skipped: {entry.name[:60]!r} cannot be read: {files.reason(error)}")
        if self.owner:  # what cannot be read may be anybody's
            return Listing(tuple(run for run in runs if run.owner == self.owner), ())
        return Listing(tuple(runs), tuple(warnings))

    def rename(self, run_id: str, title: str) -> None:
        """Give a run a title; an empty one takes it away. A title is a label, so finished runs take one too."""
        folder, title = self._folder(run_id), check_title(title)
        with self._writing(f"run {run_id} cannot be renamed"):
            files.replace(folder / files.TITLE, files.dump({"title": title}))

    def delete(self, run_id: str) -> None:
        """Remove a run that nobody works on. A folder with files of other making is left alone."""
        folder = self._folder(run_id)
        foreign = [
            e.name for e in os.scandir(folder) if e.name not in files.FILES and not e.name.startswith(files.TEMPORARY)
        ]
        if foreign:
            raise InputError(f"{run_id} holds {foreign[0][:60]!r}, which is not a run's file; delete it by hand")
        with self._writing(f"run {run_id} cannot be deleted"):
            lock = self._lock(run_id, "deleted")
            try:
                gone = self.folder / f".deleted-{run_id}-{secrets.token_hex(2)}"
                os.rename(folder, gone)  # at once for everyone who lists
                shutil.rmtree(gone)
            finally:
                lock.release()

    def export(self, run_id: str) -> dict[str, Any]:
        """The run as one JSON object."""
        return self.get(run_id).to_json()

    def _folder(self, run_id: str) -> Path:
        """The run's folder; nothing that is not an id of this store gets past here."""
        if not isinstance(run_id, str) or not RUN_ID.fullmatch(run_id):
            raise InputError(f"{str(run_id)[:60]!r} is not a run id; ids are made of a-z, 0-9 and -")
        folder = self.folder / run_id
        if folder.is_symlink() or not folder.is_dir() or not self._owns(folder):
            raise InputError(f"there is no run {run_id!r}; dpviz runs list shows them")
        return folder

    def _owns(self, folder: Path) -> bool:
        if not self.owner:
            return True
        try:
            return files.read_status(folder).owner == self.owner
        except InputError:
            return False

    def _lock(self, run_id: str, action: str) -> Lock:
        try:
            return Lock(self._folder(run_id) / files.LOCK)
        except InputError as error:
            raise InputError(f"run {run_id} cannot be {action}: {error}") from None

    def _held(self, run_id: str) -> Work:
        if run_id not in self._work:
            raise InputError(f"run {run_id} is not at work here; a finished run never changes, others must be resumed")
        return self._work[run_id]

    def _replace_status(
        self,
        run_id: str,
        status: str,
        error: str,
        provenance: Provenance | None = None,
        spent: Spending | None = None,
        audit: Audit | None = None,
    ) -> None:
        work, folder = self._work[run_id], self._folder(run_id)
        new = dataclasses.replace(
            work.status,
            status=status,
            error=error,
            provenance=provenance or work.status.provenance,
            summary=labels(work.spec, work.last),
            spent=spent or work.status.spent,
            audit=audit or work.status.audit,
        )
        try:
            files.write_status(folder, new)
        except OSError:
            if status in LIVE:
                raise
            work.lock.free_reserve()  # a full disk: this is what some bytes were kept back for
            files.write_status(folder, new)
        work.status = new

    def _summary(self, folder: str) -> Summary:
        summary = files.read_summary(folder)
        if summary.status in LIVE and not held(Path(folder, files.LOCK)):
            summary = files.read_summary(folder)  # see `get`
        elif summary.status in LIVE:
            return summary
        if not _unrecorded(summary.status, summary.written):
            return dataclasses.replace(summary, status="interrupted") if summary.status in LIVE else summary
        return _abandoned_summary(folder, summary)

    @contextlib.contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        """Turn what the disk refuses into one sentence; where nothing may be changed, refuse first."""
        refuse_if_read_only()
        try:
            yield
        except OSError as error:
            hint = "free some space, or set DPVIZ_RUNS to another folder"
            raise InputError(f"{what}: {files.reason(error)} (the runs folder); {hint}") from None


def _unrecorded(status: str, written: Spending | None) -> bool:
    """Whether nobody wrote down what a run spent that nobody works on: its process died, or the record was not yet."""
    return status == "running" or (written is None and status != "done")


def _abandoned(run: Run) -> Run:
    """A run that nobody works on, as it stands: interrupted if its process died, and the most it can have spent.

    What an imported run did after its last epoch nobody knows, so its spending is what was logged.
    """
    if _unrecorded(run.status, run.written) and not isinstance(run.spec, ImportedSpec):
        floor = of_epoch(run.epochs[-1]) if run.epochs else None
        run = dataclasses.replace(run, written=at_most(run.spec, len(run.epochs), run.written, floor))
    return dataclasses.replace(run, status="interrupted") if run.status in LIVE else run


@functools.lru_cache(maxsize=10_000)
def _abandoned_summary(folder: str, summary: Summary) -> Summary:
    """The same for a line in a list, whose price needs the run's settings; kept, since a page asks every second."""
    spec, numbers = files.read_spec(Path(folder)), (summary.epsilon_claimed, summary.epsilon_sound)
    status = "interrupted" if summary.status in LIVE else summary.status
    if isinstance(spec, ImportedSpec):
        return dataclasses.replace(summary, status=status)
    done = summary.epochs_done * steps_per_epoch(spec.sample_rate)
    floor = Spending(done, *numbers) if done else None
    written = at_most(spec, summary.epochs_done, summary.written, floor)
    return dataclasses.replace(summary, status=status, written=written)


def check_title(title: str) -> str:
    title = " ".join(str(title).split())
    if len(title) > MAX_TITLE or not title.isprintable():
        raise InputError(f"a title is one line of at most {MAX_TITLE} printable characters, got {len(title)}")
    return title


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
