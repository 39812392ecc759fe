"""Run, Provenance, and the small records around them: what a run is, where it is from, how far it has come."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpviz.privacy.audit import Audit
from dpviz.privacy.registry import InputError
from dpviz.privacy.risk import Risk
from dpviz.runs.store.course import Course
from dpviz.runs.store.imported import NO_RETRAINING, AnySpec, ImportedSpec
from dpviz.runs.store.spending import Spending, dearer, of_epoch
from dpviz.training.pricing import planned_risk
from dpviz.training.spec import EpochRecord, RunSpec

STATUSES = ("queued", "running", "done", "stopped", "failed", "interrupted")
LIVE = ("queued", "running")  # somebody's process holds the run
RESUMABLE = ("stopped", "failed", "interrupted")
KINDS = ("measured", "reported", "imported")


@dataclass(frozen=True)
class Provenance:
    """Where numbers are from: measured by this code (commit, versions, device), reported ("Table 2" of a paper), or
    imported: logged by another program, or read from a file of it.

    `versions` has also the hash of the file that a model of a person's own is from; `gradients` says why Opacus
    computed the per-example gradients, empty where dpviz did. `physical_batch` is how many examples were worked on at
    once after memory ran out; 0: it never did. `generators` names the kind of device that drew the random numbers,
    empty for the CPU. `workers` shared the run.
    """

    kind: str
    source: str
    place: str = ""
    commit: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    threads: int = 0
    minutes: float = 0.0
    gradients: str = ""
    physical_batch: int = 0
    generators: str = ""
    workers: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"provenance must be one of {', '.join(KINDS)}, got {str(self.kind)[:40]!r}")
        if not self.source:
            raise InputError("provenance needs a source: dpviz for a measured run, a paper's short name or a program's")
        if self.kind == "reported" and not self.place:
            raise InputError("a reported number needs its place, for example 'Table 2', never just the paper")
        if not 0 <= self.minutes < math.inf:
            raise InputError(f"minutes must be a finite number >= 0, got {self.minutes}")
        if not self.workers >= 1:
            raise InputError(f"workers must be a whole number >= 1, got {self.workers}")

    def to_json(self) -> dict[str, Any]:
        usual = {"gradients": "", "physical_batch": 0, "generators": "", "workers": 1}
        return {key: value for key, value in dataclasses.asdict(self).items() if value != usual.get(key)}

    @classmethod
    def from_json(cls, data: Any) -> Provenance:
        try:
            return cls(**data)
        except TypeError:
            raise InputError(f"not a provenance: {str(data)[:60]!r}") from None


@dataclass(frozen=True)
class Run:
    """One training run, whole. `created` is UTC; `error` says why a failed run failed.

    `owner` is who launched it where people sign in, empty elsewhere; it is not exported. `written` is what the run had
    spent when it last ended, as its status says; None: the run was made before that was recorded. `audit` is what its
    audits showed when it last ended; None: there was none. `course` is that of a run under a filter.
    """

    id: str
    spec: AnySpec
    status: str
    epochs: tuple[EpochRecord, ...]
    created: str
    provenance: Provenance | None = None
    error: str = ""
    title: str = ""
    owner: str = ""
    written: Spending | None = None
    audit: Audit | None = None
    course: Course | None = None

    def __post_init__(self) -> None:
        check_status(self.status)
        for before, after in zip((None, *self.epochs), self.epochs, strict=False):
            check_next(before, after)

    @property
    def own_spec(self) -> RunSpec:
        """The settings of a run of this code; an imported run has none."""
        if isinstance(self.spec, ImportedSpec):
            raise InputError(f"run {self.id} has no settings: {NO_RETRAINING}")
        return self.spec

    @property
    def kind(self) -> str:
        """Who trained it: this code (measured) or another program (imported)."""
        return "imported" if isinstance(self.spec, ImportedSpec) else "measured"

    @property
    def redrawn(self) -> bool:
        """Whether its noise was changed on the way, so that its settings alone do not decide it."""
        return self.course is not None and bool(self.course.redraws)

    @property
    def spent(self) -> Spending | None:
        """What the run has spent so far, also after its last whole epoch; None before its first step."""
        return dearer(of_epoch(self.epochs[-1]) if self.epochs else None, self.written)

    @property
    def risk(self) -> Risk | None:
        """What all its steps reveal, planned or logged; None where some were taken again, which it would not count."""
        again = self.written is not None and bool(self.written.redone)
        return planned_risk(self.spec) if self.spec.phases and not again else None

    @property
    def summary(self) -> Summary:
        """The run's line in a list."""
        numbers = labels(self.spec, self.epochs[-1] if self.epochs else None)
        words = (self.id, self.status, self.created, self.title, self.error)
        return Summary(*words, owner=self.owner, written=self.written, **numbers)

    def to_json(self) -> dict[str, Any]:
        """The run as one JSON object, for export."""
        risk = self.risk
        return {
            "run_id": self.id,
            "kind": self.kind,
            "title": self.title,
            "status": self.status,
            "error": self.error,
            "created": self.created,
            "spec": self.spec.to_json(),
            "epochs": [record.to_json() for record in self.epochs],
            "spent": self.spent.to_json() if self.spent else None,
            "risk": risk.to_json() if risk else None,
            "audit": self.audit.to_json() if self.audit else None,
            "provenance": self.provenance.to_json() if self.provenance else None,
            "not_covered": NOT_COVERED,
            **({"course": self.course.to_json()} if self.course else {}),
        }

    def _repr_html_(self) -> str:
        from dpviz.runs.notebook import run_html

        return run_html(self)


NOT_COVERED = (
    "Train loss, train accuracy and diagnostics are computed from the training data and are not covered by epsilon; "
    "nor is choosing this run among others."
)


@dataclass(frozen=True)
class Summary:
    """A run's line in a list: read without its spec and its epochs. Its epsilons are those of its last epoch."""

    id: str
    status: str
    created: str
    title: str = ""
    error: str = ""
    key: str = ""
    recipe: str = ""
    method: str = ""
    dataset: str = ""
    model: str = ""
    schedule: str = ""
    seed: int = 0
    epochs: int = 0
    epochs_done: int = 0
    test_accuracy: float | None = None
    epsilon_claimed: float | None = None
    epsilon_sound: float | None = None
    owner: str = ""
    written: Spending | None = None
    kind: str = "measured"

    def __post_init__(self) -> None:
        numbers = (self.test_accuracy, self.epsilon_claimed, self.epsilon_sound)
        if not (
            {type(word) for word in (self.created, self.title, self.error, self.key, self.recipe)} == {str}
            and {type(word) for word in (self.method, self.dataset, self.model, self.schedule, self.owner)} == {str}
            and self.kind in KINDS
            and {type(count) for count in (self.seed, self.epochs, self.epochs_done)} == {int}
            and {type(number) for number in numbers} <= {float, int, type(None)}
        ):
            raise InputError("a run's summary needs words as text and numbers as numbers")

    @property
    def spent(self) -> tuple[float | None, float | None]:
        """(claimed, sound) epsilon of all that the run has spent, also after its last whole epoch."""
        last = Spending(0, self.epsilon_claimed, self.epsilon_sound) if self.epochs_done else None
        most = dearer(last, self.written)
        return (most.epsilon_claimed, most.epsilon_sound) if most else (None, None)

    @property
    def resumable(self) -> bool:
        return self.status in RESUMABLE and self.kind == "measured"

    @property
    def begun(self) -> bool:
        """Whether a step was taken."""
        return self.epochs_done > 0 or bool(self.written and (self.written.steps or self.written.redone))

    @property
    def at_most(self) -> bool:
        """Whether the run may have spent less than is said of it."""
        return self.written is not None and self.written.at_most


def labels(spec: AnySpec, last: EpochRecord | None) -> dict[str, Any]:
    """What a list shows of a run besides its status: names of its spec and the numbers of its last epoch."""
    names = ("recipe", "method", "dataset", "model", "seed", "epochs", "key")
    data = {name: getattr(spec, name) for name in names}
    data |= {"schedule": spec.schedule.name} if isinstance(spec, RunSpec) else {"kind": "imported"}
    if last is None:
        return data
    numbers = ("test_accuracy", "epsilon_claimed", "epsilon_sound")
    return data | {"epochs_done": last.epoch} | {name: getattr(last, name) for name in numbers}


def epochs_text(done: int, planned: int, of: str = " of ") -> str:
    """ "3 of 20"; an imported run may not say how many there will be."""
    return f"{done}{of}{planned}" if planned else str(done)


@dataclass(frozen=True)
class Listing:
    """The runs that can be read, oldest first, and one sentence for each folder that cannot."""

    runs: tuple[Summary, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Progress:
    """How far a live run is, kept in memory only. `seconds_left` is None until a step was timed."""

    run_id: str
    step: int
    steps: int
    seconds: float
    seconds_left: float | None
    device: str = ""


def check_status(status: Any) -> str:
    if status not in STATUSES:
        raise InputError(f"status must be one of {', '.join(STATUSES)}, got {str(status)[:40]!r}")
    return str(status)


def check_next(before: EpochRecord | None, after: EpochRecord) -> None:
    """Epochs count 1, 2, 3 ... and spent privacy never comes back."""
    expected = before.epoch + 1 if before else 1
    if after.epoch != expected:
        raise InputError(f"epochs must follow one another, got epoch {after.epoch} where {expected} was due")
    if before is None:
        return
    for name in ("epsilon_claimed", "epsilon_sound"):
        old, new = getattr(before, name), getattr(after, name)
        if (old is None) != (new is None) or (old is not None and not new >= old):
            raise InputError(f"{name} must never fall, got {old} and then {new} (epoch {after.epoch})")
