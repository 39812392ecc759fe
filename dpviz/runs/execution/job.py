"""A run in a runner's hands: how it is worked on, what is reported of it, and how it ends.

Whoever trains a run reports what happens, in order, to a sink. Beside the store a report is applied at once; a worker
on another machine streams its reports to the process that has the store, which applies them there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dpviz.privacy.audit import Audit
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.provenance import commit
from dpviz.runs.store.records import Progress, Provenance, Run
from dpviz.runs.store.run_files import reason, without_paths
from dpviz.runs.store.spending import Spending, at_most, of_epoch
from dpviz.runs.store.store import Store
from dpviz.runs.tracking.mirror import Mirror
from dpviz.training.limits import refuse_own_model
from dpviz.training.spec import EpochRecord, RunSpec

log = logging.getLogger("dpviz.runs")
DEVICES = ("auto", "cpu", "cuda", "mps")
MOST_WORKERS = 256  # of one run
PULSE = 0.5  # seconds between two reports of a step from another process, and between two questions whether to stop
LIVES = 3  # times that a worker may die under a run before it counts as failed
OnProgress = Callable[[Progress], None]
OnEpoch = Callable[[str, EpochRecord], None]


class Failed(Exception):
    """The run cannot go on; the message is its error."""


@dataclass(frozen=True)
class RunOptions:
    """What a run's settings leave open: device, folder of datasets, and the epoch after which to stop, if any.

    `own_code` lets a model of a person's own run: set in Python and on the command line, never by a page. `workers`
    share the examples of one run.
    """

    device: str = "auto"
    data_dir: Path | None = None
    until: int | None = None
    own_code: bool = False
    workers: int = 1

    def __post_init__(self) -> None:
        if self.workers not in range(1, MOST_WORKERS + 1):
            raise InputError(f"workers must be a whole number from 1 to {MOST_WORKERS}, got {self.workers!r}")
        if self.device not in DEVICES:
            raise InputError(f"device must be one of {', '.join(DEVICES)}, got {self.device!r}")
        if self.until is not None and not self.until >= 1:
            raise InputError(f"until must be an epoch, 1 or later, got {self.until}")


def check_own_code(specs: Iterable[RunSpec], options: RunOptions) -> None:
    """Refuse a person's own model where the request does not say that it may run."""
    if not options.own_code:
        for spec in specs:
            refuse_own_model(spec)


def check_workers(specs: Iterable[RunSpec], options: RunOptions) -> None:
    """Refuse several workers where a run cannot be shared."""
    if options.workers > 1 and any(spec.filter for spec in specs):
        raise InputError(
            "a run that may be changed on the way (filter_epsilon) trains beside its files; start it with one worker"
        )


@dataclass
class Job:
    """A run that a runner holds. `ending` is what a stop is called in the store.

    `taken` says that a thread works on it, `reported` that a worker has said a word of it, so that it may have trained.
    """

    run_id: str
    options: RunOptions
    threads: int
    on_progress: OnProgress
    on_epoch: OnEpoch
    mirror: Mirror | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    ending: str = "stopped"
    taken: bool = False
    reported: bool = False
    progress: Progress | None = None


@dataclass(frozen=True)
class Assignment:
    """All that is needed to go on with a run, here or on another machine. `commit` is that of the code that runs."""

    run: Run
    checkpoint: bytes | None
    options: RunOptions
    threads: int
    commit: str


def assignment_of(store: Store, job: Job) -> Assignment:
    run = store.get(job.run_id)
    return Assignment(run, store.read_checkpoint(job.run_id), job.options, job.threads, commit())


# --- reports ----------------------------------------------------------------------------------------------------------


class Report(Protocol):
    """Something that happened to a run."""

    def apply(self, store: Store, job: Job) -> None:
        """Write it into the store that holds the run, and tell whoever watches."""
        ...


Sink = Callable[[Report], None]


@dataclass(frozen=True)
class Running:
    """Somebody works on the run. A provenance and a spending that are not given stay as they are."""

    provenance: Provenance | None = None
    spent: Spending | None = None

    def apply(self, store: Store, job: Job) -> None:
        with _saving():
            store.set_status(job.run_id, "running", provenance=self.provenance, spent=self.spent)


@dataclass(frozen=True)
class Stepped:
    """A step was taken."""

    progress: Progress

    def apply(self, store: Store, job: Job) -> None:
        job.progress = self.progress
        job.on_progress(self.progress)


@dataclass(frozen=True)
class Saved:
    """A checkpoint, and the epoch that it is the first to carry, if it is at the end of one.

    The checkpoint is written first and holds the epoch's record too: a crash in between loses neither.
    """

    checkpoint: bytes | None
    record: EpochRecord | None

    def apply(self, store: Store, job: Job) -> None:
        with _saving():
            if self.checkpoint is not None:
                store.write_checkpoint(job.run_id, self.checkpoint)
            if self.record is not None:
                store.append(job.run_id, self.record)
        if self.record is not None:
            job.on_epoch(job.run_id, self.record)
            if job.mirror is not None:
                job.mirror.epoch(job.run_id, self.record)


@dataclass(frozen=True)
class Ended:
    """How work on a run ended: done, stopped or failed. Nothing follows; whoever holds the run writes it down."""

    status: str
    error: str = ""
    provenance: Provenance | None = None
    spent: Spending | None = None
    audit: Audit | None = None


Word = Report | Ended  # what a worker on another machine or in another process says


def applied(store: Store, job: Job, report: Report) -> None:
    """Write down what a worker reports."""
    job.reported = True
    report.apply(store, job)


class Paced:
    """A sink that passes reports on, but of steps only one per pulse: a step may take a millisecond."""

    def __init__(self, sink: Sink) -> None:
        self._sink, self._last = sink, 0.0

    def __call__(self, report: Report) -> None:
        if isinstance(report, Stepped):
            if time.monotonic() - self._last < PULSE:
                return
            self._last = time.monotonic()
        self._sink(report)


@contextlib.contextmanager
def _saving() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failed(f"the run could not be saved: {reason(error)}; free some space and resume it") from None


# --- lives ------------------------------------------------------------------------------------------------------------


def see_through(store: Store, job: Job, attend: Callable[[], Ended | None]) -> Ended:
    """How a run ended that is trained again and again where a worker died (None), from its last checkpoint each time.

    Every way to end passes here. Where no worker told the end, what the run may have spent until then counts.
    """
    unknown = True

    def live() -> Ended:
        nonlocal unknown
        for life in range(1, LIVES + 1):
            ended = attend()
            if ended is not None:
                unknown = False
                return ended
            log.warning("a worker of run %s died (%s of %s)", job.run_id, life, LIVES)
            if job.reported:
                Running(spent=lost_spending(store, job.run_id)).apply(store, job)
                job.reported = False
        raise Failed(f"{LIVES} times a worker died under this run")

    ended = ended_by(job.run_id, live)
    if unknown and job.reported:
        ended = ended_by(job.run_id, lambda: dataclasses.replace(ended, spent=lost_spending(store, job.run_id)))
    return ended


def lost_spending(store: Store, run_id: str) -> Spending:
    """What a run has spent whose worker is gone: nobody saw what it did after the epochs that arrived."""
    run = store.get(run_id)
    floor = of_epoch(run.epochs[-1]) if run.epochs else None
    return at_most(run.own_spec, len(run.epochs), run.written, floor)


# --- the end ----------------------------------------------------------------------------------------------------------


def ended_by(run_id: str, act: Callable[[], Ended]) -> Ended:
    """How an act on a run ended, whatever it raised: no run may stay "running" for ever."""
    try:
        return act()
    except (Failed, InputError) as failure:
        return Ended("failed", str(failure))
    except OSError as failure:
        return Ended("failed", f"the system refused a file: {reason(failure)}")
    except Exception as failure:  # a thread's last line of defence
        log.exception("run %s failed", run_id)
        return Ended("failed", f"{type(failure).__name__}: {failure}")


def finish(store: Store, job: Job, ended: Ended) -> None:
    """Write how a run ended and let go of it; if even that cannot be written, it reads as interrupted."""
    status = job.ending if ended.status == "stopped" else ended.status
    error, provenance = without_paths(ended.error), ended.provenance
    try:
        store.set_status(job.run_id, status, error=error, provenance=provenance, spent=ended.spent, audit=ended.audit)
    except (InputError, OSError) as failure:
        log.error("run %s ended as %s, which could not be saved: %s", job.run_id, status, failure)
    finally:
        store.release(job.run_id)
        if job.mirror is not None:
            job.mirror.end(job.run_id)
        job.ended.set()
