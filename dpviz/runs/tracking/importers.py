"""import_run: a finished run of another program, from a file that it left. Nothing in the file is run.

| file | what is read |
| --- | --- |
| Opacus checkpoint, or an accountant's state_dict (torch.save or JSON) | its history, as one epoch |
| dp_accounting event, json.dumps(event.to_named_tuple()) | its ledger, as one epoch |
| CSV, JSON; an export of wandb or TensorBoard; an event file | a row per epoch |
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dpviz.privacy import InputError, Phase
from dpviz.privacy.registry import Value
from dpviz.runs.store import run_files as files
from dpviz.runs.store.imported import ImportedSpec
from dpviz.runs.store.records import Provenance, Run
from dpviz.runs.store.store import Store, check_title
from dpviz.runs.tracking.epochs import LoggedEpoch, as_numbers, next_record
from dpviz.runs.tracking.ledger_files import event_ledger, history_in, is_event
from dpviz.runs.tracking.metric_tables import event_file_rows, json_rows, logged_epochs, parse_table
from dpviz.training.limits import LIMITS
from dpviz.training.pricing import planned_path
from dpviz.training.spec import EpochRecord

ZIP = b"PK\x03\x04"  # how a file of torch.save begins


def import_run(
    path: Path | str,
    *,
    delta: float,
    name: str = "",
    dataset: str = "",
    noise_multiplier: float | None = None,
    sample_rate: float | None = None,
    steps: int | None = None,
    test_accuracy: float | None = None,
    epsilon: float | None = None,
    metric: str = "test_accuracy",
    store: Store | Path | str | None = None,
    **facts: Value,
) -> Run:
    """Keep another program's run in the store, as kind "imported", with its epsilon computed from its ledger.

    `noise_multiplier`, `sample_rate` and `steps` (per epoch) stand in for columns that a curve lacks. `test_accuracy`
    and `epsilon` (what the run's own accountant said) go with a file that holds a ledger only. `metric` names the one
    column of a TensorBoard CSV. The whole file is checked before anything is written.
    """
    path = Path(path)
    constant = {"noise_multiplier": noise_multiplier, "sample_rate": sample_rate, "steps": steps}
    content = read_file(path, metric)
    if isinstance(content, tuple):
        if not content:
            raise InputError(f"{path.name} holds a ledger without steps; save it after training")
        epochs = [LoggedEpoch(content, as_numbers({"test_accuracy": test_accuracy, "epsilon": epsilon}))]
    elif test_accuracy is not None or epsilon is not None:
        raise InputError("a test accuracy or an epsilon is given with files that hold a ledger only; this one has rows")
    else:
        epochs = logged_epochs(content, constant)
    LIMITS["epochs"].check(len(epochs))
    title = check_title(name or path.stem)
    spec = ImportedSpec(delta, dataset, 0 if isinstance(content, tuple) else len(epochs), tuple(facts.items()))
    records = priced_records(spec, epochs)
    return _save(store if isinstance(store, Store) else Store(store), spec, title, records, path.suffix or "file")


def priced_records(spec: ImportedSpec, epochs: Sequence[LoggedEpoch]) -> list[EpochRecord]:
    """Every epoch with its sound epsilon; one path prices them all."""
    phases = tuple(phase for epoch in epochs for phase in epoch.phases)
    whole = ImportedSpec(spec.delta, spec.dataset, spec.epochs, spec.facts, phases)
    path = [sound for _, sound in planned_path(whole)] if phases else []
    records: list[EpochRecord] = []
    at = 0
    for epoch in epochs:
        at += len(epoch.phases)
        sound = path[at - 1] if at else None
        records.append(next_record(records[-1] if records else None, epoch, math.inf if sound is None else sound))
    return records


def read_file(path: Path, metric: str) -> tuple[Phase, ...] | Sequence[Mapping[str, Any]]:
    """The ledger in a file, or the rows of its curve."""
    try:
        with path.open("rb") as file:
            start = file.read(len(ZIP))
    except OSError as error:
        raise InputError(f"cannot read {path.name!r}: {files.reason(error)}") from None
    if start == ZIP:
        from dpviz.training.checkpoint import read_foreign

        return _found(history_in(read_foreign(path)), path)
    LIMITS["upload"].check(math.ceil(path.stat().st_size / 1e6))
    if "tfevents" in path.name:
        return event_file_rows(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path.name} is neither text nor a file of torch.save") from None
    if text.lstrip()[:1] not in ("[", "{"):
        return parse_table(text, metric)
    data = _json(text, path)
    if is_event(data):
        return event_ledger(data)
    phases = history_in(data)
    return json_rows(data, metric) if phases is None else phases


def _found(phases: tuple[Phase, ...] | None, path: Path) -> tuple[Phase, ...]:
    if phases is None:
        raise InputError(
            f"{path.name} holds no accountant; save it with privacy_engine.save_checkpoint, or save "
            "privacy_engine.accountant.state_dict()"
        )
    return phases


def _json(text: str, path: Path) -> Any:
    """JSON, or a JSON object per line."""
    try:
        try:
            return files.DECODER.decode(text)
        except json.JSONDecodeError:
            return [files.DECODER.decode(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError):
        raise InputError(f"{path.name} is not valid JSON") from None


def _save(store: Store, spec: ImportedSpec, title: str, records: Sequence[EpochRecord], source: str) -> Run:
    run_id = store.create(spec, title=title)
    try:
        store.set_status(run_id, "running", provenance=Provenance("imported", f"{source.lstrip('.')} file"))
        for record in records:
            store.append(run_id, record)
        store.set_status(run_id, "done")
    except OSError as error:
        store.release(run_id)
        store.delete(run_id)
        raise InputError(f"the run cannot be saved: {files.reason(error)} (the runs folder)") from None
    store.release(run_id)
    return store.get(run_id)
