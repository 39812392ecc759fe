"""Audits of runs on disk: read one, or repeat a full-length run that was made without and keep its audit beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

from dpviz.paths import cached_runs_folder
from dpviz.privacy.audit import Audit
from dpviz.privacy.registry import InputError
from dpviz.runs.store import run_files as files
from dpviz.runs.store.cached import NAME, SEED, read_cached
from dpviz.runs.store.records import Run
from dpviz.runs.store.store import Store
from dpviz.training.pricing import audit_refusal
from dpviz.training.spec import EpochRecord

SAME_CURVE = 0.005  # test accuracy by which a repeat may differ: rounding, not chance


def find_run(store: Store, name: str) -> Run:
    """A person's own run by its id, or a full-length run as PAPER/EXPERIMENT/SEED."""
    return read_cached(_folder(name)).run if "/" in name else store.get(name)


def audit_of(run: Run) -> Audit:
    """The audit in a run's record; where there is none, an InputError says why."""
    if run.audit is not None:
        return run.audit
    refusal = audit_refusal(run.spec)
    if refusal:
        raise InputError(f"run {run.id} cannot be audited: {refusal}")
    raise InputError(
        f"run {run.id} has no audit: it has not ended yet, or was made before there were audits; train it again"
    )


def repeat_audit(
    name: str, data_dir: Path | None = None, on_epoch: Callable[[EpochRecord], None] = lambda record: None
) -> Audit:
    """Train a full-length run again, audited, and keep the audit beside it if the curve is the same."""
    from dpviz.training.checkpoint import use_threads
    from dpviz.training.engine import Trainer

    folder = _folder(name)
    run = read_cached(folder).run
    if refusal := audit_refusal(run.spec):
        raise InputError(f"run {name} cannot be audited: {refusal}")
    use_threads(run.provenance.threads if run.provenance else 1)
    trainer = Trainer(run.own_spec, data_dir=data_dir)
    for record, before in zip(trainer.epochs(), run.epochs, strict=False):
        ours, theirs = record.test_accuracy or math.nan, before.test_accuracy or math.nan
        if not abs(ours - theirs) <= SAME_CURVE:
            raise InputError(
                f"a repeat of {name} has test accuracy {ours:.2%} after epoch {record.epoch}, the run "
                f"itself {theirs:.2%}: it is another run; make a new one with dpviz train"
            )
        on_epoch(record)
    audit = trainer.audit
    assert audit is not None  # audit_refusal
    files.write_status(folder, dataclasses.replace(files.read_status(folder), audit=audit))
    return audit


def _folder(name: str) -> Path:
    parts, patterns = name.split("/"), (NAME, NAME, SEED)
    named = len(parts) == 3 and all(kind.fullmatch(part) for kind, part in zip(patterns, parts, strict=True))
    folder = cached_runs_folder().joinpath(*parts) if named else None
    if folder is None or not folder.is_dir():
        raise InputError(f"there is no full-length run {name[:80]!r}; write it as losing-less/mnist-ce-t-cnn/0")
    return folder
