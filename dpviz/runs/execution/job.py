"""One run at work: from its last checkpoint to its end, the same for the background, the command line and a cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.metadata
import json
import logging
import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpviz.paths import PACKAGE
from dpviz.privacy.records import steps_per_epoch
from dpviz.privacy.registry import InputError
from dpviz.runs.store.records import Progress, Provenance, Run
from dpviz.runs.store.run_files import reason, without_paths
from dpviz.runs.store.spending import Spending, Steps, of_epoch, spending
from dpviz.runs.store.store import Store
from dpviz.training.spec import EpochRecord, RunSpec

log = logging.getLogger("dpviz.runs")
PACKAGES = ("torch", "torchvision", "opacus", "numpy", "scipy")


class Failed(Exception):
    """The run cannot go on; the message is its error."""


@dataclass
class Job:
    """A claimed run and how it is to be worked on. `ending` is what a stop is called in the store."""

    run_id: str
    device: str = "auto"
    data_dir: Path | None = None
    threads: int = 1
    on_progress: Callable[[Progress], None] | None = None
    on_epoch: Callable[[str, EpochRecord], None] | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    ending: str = "stopped"
    begun: bool = False
    progress: Progress | None = None
    data: Any = None  # what to train on, where somebody has read it already; None: read it from data_dir
    spent: Spending | None = None  # by the whole run, as far as this job knows; None: what the store says


def work(store: Store, job: Job) -> str:
    """Train a claimed run, leave its status in the store, let go of it. Every way to end passes here."""
    error, provenance = "", None
    began = time.monotonic()
    try:
        run = store.get(job.run_id)
        provenance = measured(run, job)
        status = _train(store, job, run, provenance)
    except (Failed, InputError) as failure:
        status, error = "failed", str(failure)
    except OSError as failure:
        status, error = "failed", f"the system refused a file: {reason(failure)}"
    except Exception as failure:  # a thread's last line of defence: the run must not stay "running" for ever
        log.exception("run %s failed", job.run_id)
        status, error = "failed", f"{type(failure).__name__}: {failure}"
    if provenance is not None:
        minutes = provenance.minutes + (time.monotonic() - began) / 60
        provenance = dataclasses.replace(provenance, minutes=round(minutes, 4))
    finish(store, job, status, error, provenance)
    return status


def finish(store: Store, job: Job, status: str, error: str = "", provenance: Provenance | None = None) -> None:
    """Write how a run ended and let go of it; if even that cannot be written, it reads as interrupted."""
    try:
        store.set_status(job.run_id, status, error=without_paths(error), provenance=provenance, spent=job.spent)
    except (InputError, OSError) as failure:
        log.error("run %s ended as %s, which could not be saved: %s", job.run_id, status, failure)
    finally:
        store.release(job.run_id)
        job.ended.set()


def _train(store: Store, job: Job, run: Run, provenance: Provenance) -> str:
    from dpviz.training import checkpoint
    from dpviz.training.engine import Diverged, Trainer

    checkpoint.use_threads(provenance.threads)
    with _saving():
        store.set_status(run.id, "running", provenance=provenance)
    trainer = Trainer(run.spec, device=provenance.device, data_dir=job.data_dir, data=job.data)
    last = run.epochs[-1] if run.epochs else None
    saved = store.read_checkpoint(run.id)
    if saved is not None:
        last = _restore(store, run, trainer, checkpoint.from_bytes(saved), last)
    before = run.written or spending(run.spec, 0)
    redone = lost_steps(run.spec, before, steps_taken(trainer))
    if redone != before.redone:
        with _saving():  # now: a process that is killed later leaves no word of it
            spent = spending(run.spec, steps_taken(trainer), redone, at_most=before.at_most)
            store.set_status(run.id, "running", spent=spent)

    def save(record: EpochRecord | None) -> None:
        text = json.dumps(record.to_json(), allow_nan=False) if record else ""
        with _saving():
            data = checkpoint.to_bytes({"record": text, "trainer": trainer.state()})
            store.write_checkpoint(run.id, data)

    clock = _clock(job, run, provenance.device)
    try:
        for record in trainer.epochs(on_step=clock, should_stop=job.stop.is_set):
            # The checkpoint carries its epoch's record and is written first: a crash in between loses neither.
            save(record)
            if last is None or record.epoch > last.epoch:
                with _saving():
                    store.append(run.id, record)
                last = record
                if job.on_epoch:
                    job.on_epoch(run.id, record)
    except Diverged as failure:
        raise Failed(str(failure)) from None
    finally:
        job.spent = spent_by(trainer, before, redone, last)
    if last is not None and last.epoch >= run.spec.epochs:
        return "done"
    if not job.stop.is_set():
        raise Failed(f"training ended after epoch {last.epoch if last else 0} of {run.spec.epochs}")
    save(last)
    return job.ending


def steps_taken(trainer: Any) -> int:
    """Updates in the trainer's ledger, also those after its last whole epoch."""
    return sum(phase.steps for phase in trainer.spent)


def lost_steps(spec: RunSpec, before: Spending, restored: int) -> tuple[Steps, ...]:
    """What a run has taken beyond its plan once it goes on from `restored` steps: see Spending.redone."""
    lost = spec.secure and before.steps > restored
    return (*before.redone, (restored, before.steps)) if lost else before.redone


def spent_by(trainer: Any, before: Spending, redone: tuple[Steps, ...], last: EpochRecord | None) -> Spending:
    """What the run has spent in all, wherever it ended. A seeded run that was further before has spent that too."""
    steps = steps_taken(trainer)
    if before.steps > steps and not trainer.spec.secure:
        return before
    return spending(
        trainer.spec,
        steps,
        redone,
        accepted=trainer.screening.accepted if trainer.screening else None,
        floor=of_epoch(last) if last else None,
        at_most=bool(redone) and before.at_most,
    )


def _restore(
    store: Store, run: Run, trainer: Any, saved: dict[str, Any], last: EpochRecord | None
) -> EpochRecord | None:
    """Put the trainer where the checkpoint left it; add the epoch that the checkpoint has and the file may lack."""
    if "trainer" not in saved:
        raise Failed("the checkpoint is not a run's; delete it to start the run over")
    trainer.load(saved["trainer"])
    record = EpochRecord.from_json(json.loads(saved["record"])) if saved.get("record") else None
    if record is not None and (last is None or record.epoch > last.epoch):
        with _saving():
            store.append(run.id, record)
        return record
    return last


def _clock(job: Job, run: Run, device: str) -> Callable[[int, int], None]:
    """What a trainer calls after each step: keeps the job's progress, with the time left at the pace so far."""
    began = time.monotonic()
    first: list[float] = []

    def on_step(step: int, steps: int) -> None:
        now = time.monotonic()
        if not first:
            first.extend((step, now))
        taken, seconds = step - first[0], now - first[1]
        left = (steps - step) * seconds / taken if taken else None
        job.progress = Progress(run.id, step, steps, now - began, left, device)
        if job.on_progress:
            job.on_progress(job.progress)

    total = run.spec.epochs * steps_per_epoch(run.spec.sample_rate)
    job.progress = Progress(run.id, 0, total, 0.0, None, device)
    return on_step


@contextlib.contextmanager
def _saving() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failed(f"the run could not be saved: {reason(error)}; free some space and resume it") from None


def measured(run: Run, job: Job) -> Provenance:
    """Provenance of a run of this code. A resumed run keeps its thread count: sums round differently with another."""
    from dpviz.training.engine import pick_device

    before = run.provenance
    return Provenance(
        kind="measured",
        source="dpviz",
        commit=commit(),
        versions=versions(),
        device=pick_device(job.device),
        threads=before.threads if before and before.threads else job.threads,
        minutes=before.minutes if before else 0.0,
    )


@functools.cache
def commit() -> str:
    """The project's commit, with a + if files were changed since; empty outside a git checkout."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD").strip()
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no").strip() else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PACKAGE), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout


@functools.cache
def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def cores() -> int:
    """Cores that this process may use; OMP_NUM_THREADS lowers it."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(allowed, int(wanted)) if wanted.isdigit() and int(wanted) else allowed
