"""ImportedSpec: what is known of a run that another program trained. It stands where a run of this code has its spec.

Such a run has a ledger, which its epochs carry piece by piece, and facts that its owner wrote down. It cannot be
resumed or trained again here: nothing says what its data, its model and its loop were.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dpviz.privacy import Epsilon, Guarantee, InputError, Phase
from dpviz.privacy.records import MAX_EPOCHS, check_delta
from dpviz.privacy.registry import Value
from dpviz.training.pricing import planned_guarantee, steps_guarantee
from dpviz.training.spec import EpochRecord, RunSpec

VERSION = 1  # of the format of spec.json
MOST_FACTS, MOST_LETTERS = 50, 120
DATASET = re.compile(r"(\w[\w .+-]{0,59})?")  # nothing that a figure or a page would take for markup
NO_RETRAINING = "it was trained by another program, so it can be neither resumed nor trained again here"


@dataclass(frozen=True)
class ImportedSpec:
    """Delta, dataset, epochs (0: not known ahead) and free facts; `phases` and `claimed` are as its epochs say."""

    delta: float
    dataset: str = ""
    epochs: int = 0
    facts: tuple[tuple[str, Value], ...] = ()
    phases: tuple[Phase, ...] = ()
    claimed: float | None = None

    method: ClassVar[str] = "imported"  # its rule in dpviz/privacy/guarantees.py
    curriculum: ClassVar[str] = "none"
    recipe: ClassVar[str] = ""

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not (isinstance(self.epochs, int) and 0 <= self.epochs <= MAX_EPOCHS):
            raise InputError(f"epochs must be a whole number from 0 to {MAX_EPOCHS:,}, got {self.epochs!r}")
        if not (isinstance(self.dataset, str) and DATASET.fullmatch(self.dataset)):
            raise InputError(
                "dataset must be a name of at most 60 letters, digits, spaces, '.', '_', '+' or '-', got "
                f"{str(self.dataset)[:40]!r}"
            )
        facts = dict(self.facts)
        if len(facts) > MOST_FACTS:
            raise InputError(f"at most {MOST_FACTS} facts of a run are kept, got {len(facts)}; leave some out")
        for name, value in facts.items():
            check_word("a fact's name", name)
            if isinstance(value, str):
                check_word(name, value)
            elif not (isinstance(value, bool | int | float) and math.isfinite(value)):
                raise InputError(f"{name} must be a text or a finite number, got {str(value)[:40]!r}")
        object.__setattr__(self, "facts", tuple(sorted(facts.items())))

    @property
    def model(self) -> str:
        return str(self.fact("model", ""))

    @property
    def seed(self) -> int:
        seed = self.fact("seed", 0)
        return seed if isinstance(seed, int) else 0

    def fact(self, name: str, default: Value | None = None) -> Value | None:
        return dict(self.facts).get(name, default)

    def with_epochs(self, epochs: Sequence[EpochRecord]) -> ImportedSpec:
        """The same with the ledger and the claim that these epochs carry."""
        phases = tuple(phase for record in epochs for phase in record.phases)
        return dataclasses.replace(self, phases=phases, claimed=epochs[-1].epsilon_claimed if epochs else None)

    @property
    def key(self) -> str:
        text = json.dumps(self.to_json(), sort_keys=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        named = {"delta": self.delta, "dataset": self.dataset, "epochs": self.epochs}
        return {"kind": "imported", "version": VERSION, **named, "facts": dict(self.facts)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ImportedSpec:
        if data.get("version") != VERSION:
            raise InputError(f"an imported run of version {VERSION} is known here, got {str(data.get('version'))[:20]}")
        names = {"kind", "version", "delta", "dataset", "epochs", "facts"}
        if set(data) != names or not isinstance(data["facts"], Mapping):
            raise InputError(f"an imported run has {', '.join(sorted(names))}, got {', '.join(sorted(data))[:80]}")
        return cls(data["delta"], data["dataset"], data["epochs"], tuple(data["facts"].items()))


AnySpec = RunSpec | ImportedSpec  # of a run of this code, or of an imported one


def check_word(name: str, text: Any) -> str:
    if not (isinstance(text, str) and len(text) <= MOST_LETTERS and text.isprintable()):
        raise InputError(f"{name} must be one line of at most {MOST_LETTERS} letters, got {str(text)[:40]!r}")
    return text


def spec_from_json(data: Any) -> AnySpec:
    """The spec in a run's spec.json, of either kind."""
    imported = isinstance(data, Mapping) and data.get("kind") == "imported"
    return ImportedSpec.from_json(data) if imported else RunSpec.from_json(data)


def guarantee_of(spec: AnySpec) -> Guarantee:
    """What a run's steps cost: those it plans or, imported, those that were logged, beside what their owner says."""
    if isinstance(spec, RunSpec):
        return planned_guarantee(spec)
    priced = steps_guarantee(spec.method, spec.curriculum, spec.phases, spec.delta)
    said = None if spec.claimed is None else Epsilon(0.0, spec.claimed, spec.delta, "the run's own accountant")
    return dataclasses.replace(priced, claimed=said)
