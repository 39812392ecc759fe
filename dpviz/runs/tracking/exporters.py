"""Runs for other programs, as files or in trackers: settings, numbers per epoch, and what the whole run spent.

Test metrics, noise and epsilon go out. What comes from the training data goes only when asked for, under names that
begin with `not_covered/`: epsilon says nothing about it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpviz.privacy import InputError
from dpviz.privacy.registry import Value
from dpviz.privacy.risk import FPRS, Risk
from dpviz.privacy.rounding import percent_number
from dpviz.runs.store.imported import guarantee_of
from dpviz.runs.store.records import Run
from dpviz.runs.store.run_files import reason
from dpviz.runs.tracking.trackers import TRACKERS, Destination, ExportedRun, Writer
from dpviz.training.spec import EpochRecord, RunSpec

NUMBERS = ("noise_multiplier", "epsilon_claimed", "epsilon_sound", "test_accuracy", "test_loss")
PRIVATE_NUMBERS = ("train_accuracy", "train_loss", "seconds")
PRIVATE_FIELDS = (*PRIVATE_NUMBERS, "diagnostics", "metrics")
NOT_COVERED = "not_covered/"
PRIVATE_WORDS = (
    "training loss, training accuracy, clipping rates and other diagnostics, seconds, and numbers that an imported run "
    "logged under names of its own. They may come from the training data, without noise: epsilon does not cover them, "
    "and whoever sees them may learn about single people"
)
FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would compute


# --- what goes out ----------------------------------------------------------------------------------------------------


def exported_run(run: Run) -> ExportedRun:
    """A run's name and settings as a tracker takes them, with what its epsilon rests on."""
    guarantee, spec = guarantee_of(run.spec), run.spec
    parameters = dict(_flat(spec.to_json()))
    if isinstance(spec, RunSpec):
        parameters["sample_rate"] = spec.sample_rate
    parameters |= {"run_id": run.id, "kind": run.kind, "title": run.title}
    parameters |= {"guarantee": _guarantee_words(run), "rests_on": "; ".join(guarantee.assumptions)}
    parameters["risk"] = _risk_words(run.risk)
    return ExportedRun(run.id, run.title or spec.recipe or run.id, parameters)


def _guarantee_words(run: Run) -> str:
    sound = guarantee_of(run.spec).sound
    if sound is None:
        return "no sound epsilon"
    steps = "all planned steps" if run.kind == "measured" else "the logged steps"
    return f"sound epsilon {_word(sound.upper)} at delta {run.spec.delta} for {steps}"


def _risk_words(risk: Risk | None) -> str:
    """The upper bounds, each rounded up; they rest on what epsilon rests on."""
    if risk is None:
        return "no risk is stated"
    shares = (f"{percent_number(risk.tpr(fpr).upper)} % at {percent_number(fpr)} % false alarms" for fpr in FPRS)
    advantage = percent_number(risk.advantage.upper)
    return f"of the members the best attack finds at most {', '.join(shares)}; advantage at most {advantage} %"


def _word(value: float | None) -> float | str | None:
    return "infinity" if value == math.inf else value


def _flat(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Value]]:
    """Nested settings by dotted names; knobs have theirs already."""
    for name, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, "" if name == "knobs" else f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            yield prefix + name, ", ".join(map(str, value))
        elif value is not None:
            yield prefix + name, value


def numbers_of(record: EpochRecord, private: bool) -> dict[str, float | None]:
    """An epoch's numbers by name; None where there is none, such as an epsilon without a guarantee."""
    numbers: dict[str, float | None] = {name: getattr(record, name) for name in NUMBERS}
    if private:
        more = {name: getattr(record, name) for name in PRIVATE_NUMBERS}
        more |= {name: value for name, value in record.diagnostics.items() if isinstance(value, int | float)}
        numbers |= {NOT_COVERED + name: value for name, value in (more | dict(record.metrics)).items()}
    return numbers


def spent_epsilons(run: Run) -> dict[str, float | None]:
    """The epsilons of all that a run did, also after its last whole epoch."""
    spent = run.spent
    return {
        "spent_claimed": spent.epsilon_claimed if spent else None,
        "spent_sound": spent.epsilon_sound if spent else None,
    }


def finite(numbers: Mapping[str, float | None]) -> dict[str, float]:
    """What a tracker can keep. MLflow would store infinity as 1.8e308; the parameter `guarantee` says it in words."""
    return {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}


# --- to trackers ------------------------------------------------------------------------------------------------------


def write_epochs(writer: Writer, records: Sequence[EpochRecord], private: bool) -> None:
    for record in records:
        writer.epoch(record.epoch, finite(numbers_of(record, private)))


def write_end(writer: Writer, run: Run) -> None:
    writer.epoch(len(run.epochs), finite(spent_epsilons(run)))
    writer.close(run.status)


def export_runs(runs: Sequence[Run], to: str, out: str = "", *, private_metrics: bool = False) -> str:
    """Write runs to a tracker or a file; without `out`, a file's text is returned. Each call makes new runs there.

    `to` is one of TRACKERS or FILES. `private_metrics` adds what epsilon does not cover; see PRIVATE_WORDS.
    """
    if to in FILES:
        text = FILES[to](runs, private_metrics)
        if out:
            try:
                Path(out).write_text(text)
            except OSError as error:
                raise InputError(f"cannot write {out!r}: {reason(error)}") from None
        return text
    destination = Destination.of(to, out)
    for run in runs:
        with destination.client_errors(run.id):
            writer = destination.open(exported_run(run))
            write_epochs(writer, run.epochs, private_metrics)
            write_end(writer, run)
    return ""


# --- to files ---------------------------------------------------------------------------------------------------------


def csv_text(runs: Sequence[Run], private: bool) -> str:
    """One row per epoch of every run; an empty cell is a number that there is not."""
    rows = [_row(run, record, private) for run in runs for record in run.epochs]
    text = io.StringIO()
    table = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    return text.getvalue()


def _row(run: Run, record: EpochRecord, private: bool) -> dict[str, Any]:
    numbers = numbers_of(record, private) | spent_epsilons(run)
    return {
        "run": run.id,
        "title": no_formula(run.title),
        "status": run.status,
        "delta": run.spec.delta,
        "epoch": record.epoch,
        "step": record.step,
        **{name: _word(value) for name, value in numbers.items()},
        "at_most": run.spent is not None and run.spent.at_most,
    }


def no_formula(value: Any) -> Any:
    """A text that begins like a formula gets an apostrophe, so that a spreadsheet shows it and does not compute it."""
    return f"'{value}" if isinstance(value, str) and value[:1] in FORMULA else value


def json_text(runs: Sequence[Run], private: bool) -> str:
    """The runs as `dpviz runs export` writes one, without what epsilon does not cover unless that is asked for."""
    objects = [run.to_json() for run in runs]
    for data in () if private else objects:
        del data["audit"]
        if data["provenance"]:
            data["provenance"].pop("minutes")
        data["epochs"] = [
            {name: value for name, value in epoch.items() if name not in PRIVATE_FIELDS} for epoch in data["epochs"]
        ]
    return json.dumps({"runs": objects}, indent=2, allow_nan=False) + "\n"


FILES: dict[str, Callable[[Sequence[Run], bool], str]] = {"csv": csv_text, "json": json_text}
EXPORT_NAMES = (*TRACKERS, *FILES)
