"""RunSpec and EpochRecord: what decides a run, and what an epoch of it gave. Imports no torch: pages build specs."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpviz.privacy.filters import RenyiFilter, best_filter
from dpviz.privacy.guarantees import rule_of
from dpviz.privacy.records import Phase, check_delta, epoch_phases
from dpviz.privacy.registry import InputError, Knob, Value
from dpviz.privacy.schedules import Schedule, check_epochs
from dpviz.training.data.catalog import Dataset, OwnData
from dpviz.training.tables import CHOICES, CURRICULA, DATASETS, METHODS, MODELS, OPTIMIZERS

# RunSpec field -> the range it may take.
NUMBERS: dict[str, Knob] = {
    "batch_size": Knob(512, 1, 65_536, "expected examples per step"),
    "learning_rate": Knob(0.5, 1e-8, 1000.0, "step size"),
    "clip_norm": Knob(0.1, 1e-6, 1e6, "C: longest gradient of one example"),
    "seed": Knob(0, 0, 2**31 - 1, "decides every random number of the run"),
    "subset": Knob(0, 0, 10_000_000, "train on the first so many examples; 0: all"),
    "canaries": Knob(0, 0, 100_000, "examples made up for a one-run audit, each in the data or not by a coin"),
}

# The same for what a run under a filter has; None where there is no filter.
FILTER: dict[str, Knob] = {
    "filter_epsilon": Knob(1.0, 0.0, 1e6, "epsilon declared ahead, so that the noise may be changed on the way"),
    "filter_order": Knob(8.0, 1.0, 1e6, "Renyi order of the filter, fixed ahead"),
}

# Version of the random streams (random_streams.py): 1, of which runs of one seed shared their noise, 2, or 3, in which
# batches are drawn by the examples' numbers.
STREAMS = 3


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides a run's result. No device in it: where it ran is provenance.

    `own` names a person's own data by their content too, and says enough to price and show the run without them; it is
    looked up where it is not given. With `filter_epsilon` the noise may be changed on the way, within that budget; the
    order of its Renyi filter is chosen for the planned schedule where it is not given.
    """

    schedule: Schedule
    epochs: int
    method: str = "dp-sgd"
    dataset: str = "mnist"
    model: str = "cnn-mnist"
    loss: str = "cross-entropy"
    optimizer: str = "sgd"
    clipping: str = "flat"
    curriculum: str = "none"
    learning_rate_schedule: str = "constant"
    clip_norm_schedule: str = "constant"
    batch_size: int = 512
    learning_rate: float = 0.5
    clip_norm: float = 0.1
    delta: float = 1e-5
    subset: int = 0
    seed: int = 0
    secure: bool = False
    diagnostics: bool = False
    recipe: str = ""
    knobs: tuple[tuple[str, Value], ...] = ()
    streams: int = STREAMS
    canaries: int = 0
    own: OwnData | None = None
    filter_epsilon: float | None = None
    filter_order: float | None = None

    def __post_init__(self) -> None:
        if self.streams not in range(1, STREAMS + 1):
            raise InputError(f"streams must be a version from 1 to {STREAMS}, got {self.streams!r}")
        check_epochs(self.epochs)
        check_delta(self.delta)
        self.schedule.sigmas(self.epochs)
        for name, knob in NUMBERS.items():
            object.__setattr__(self, name, knob.check(name, getattr(self, name)))
        if self.own is None or self.own.name != self.dataset:
            object.__setattr__(self, "own", DATASETS[self.dataset].own)
        given = dict(self.knobs)
        for key in given:
            if key.partition(".")[0] not in CHOICES:
                raise InputError(f"unknown knob {key!r}; write it as table.knob, for example optimizer.momentum")
        complete: dict[str, Value] = {}
        for choice, table in CHOICES.items():
            prefix = choice + "."
            own = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
            entry = self.data if choice == "dataset" else table[getattr(self, choice)]
            for knob_name, value in entry.complete(own).items():
                complete[prefix + knob_name] = value
        object.__setattr__(self, "knobs", tuple(sorted(complete.items())))
        if self.batch_size > self.size:
            raise InputError(f"batch_size must be at most the {self.size:,} training examples, got {self.batch_size:,}")
        _refuse_meaningless(self)
        _settle_filter(self)

    @property
    def data(self) -> Dataset:
        """What is known of the run's data, of own data also where they are not on this machine."""
        return self.own.dataset if self.own else DATASETS[self.dataset]

    @property
    def size(self) -> int:
        """Examples that the run draws from, canaries of an audit among them; the accountant counts these."""
        return self.examples + self.canaries

    @property
    def examples(self) -> int:
        """Training examples of the dataset that the run uses."""
        whole = self.data.size
        if self.subset > whole:
            raise InputError(f"subset must be at most the {whole:,} examples of {self.dataset}, got {self.subset:,}")
        return self.subset or whole

    @property
    def private(self) -> bool:
        """Whether gradients are clipped and noisy."""
        return METHODS[self.method].private

    @property
    def sample_rate(self) -> float:
        return self.batch_size / self.size

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The steps that the run plans, one phase per epoch."""
        return epoch_phases(self.schedule.sigmas(self.epochs), self.sample_rate)

    @property
    def filter(self) -> RenyiFilter | None:
        """The filter that the run is under; None: its schedule is fixed ahead."""
        if self.filter_epsilon is None or self.filter_order is None:
            return None
        return RenyiFilter(self.filter_epsilon, self.delta, self.filter_order)

    def knobs_of(self, choice: str) -> dict[str, Value]:
        """The knobs of one choice, for example knobs_of("optimizer") -> {"momentum": 0.9, ...}."""
        return {key.removeprefix(choice + "."): value for key, value in self.knobs if key.startswith(choice + ".")}

    def to_json(self) -> dict[str, Any]:
        """The settings by name. Canaries, own data and a filter are named where there are any: older keys stay."""
        optional = {"canaries": self.canaries, "filter_epsilon": self.filter, "filter_order": self.filter}
        left_out = {"own", *(name for name, given in optional.items() if not given)}
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in left_out}
        data |= {"schedule": self.schedule.to_json(), "knobs": dict(self.knobs)}
        return data | ({"own": self.own.to_json()} if self.own else {})

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RunSpec:
        """The spec in a JSON object; unknown and missing keys are errors, since a spec decides its run fully.

        Without a version of the streams it is the first: the spec was written before there was a second.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        if not isinstance(data, Mapping) or not set(data) <= names or not {"schedule", "epochs"} <= set(data):
            odd = sorted(set(data) - names) if isinstance(data, Mapping) else []
            raise InputError(
                f"not a run's settings: {'unknown ' + ', '.join(odd) if odd else 'schedule or epochs missing'}"
            )
        if not isinstance(data.get("knobs", {}), Mapping):
            raise InputError("knobs must be an object of names and values")
        rest = (
            {"streams": 1}
            | dict(data)
            | {
                "schedule": Schedule.from_json(data["schedule"]),
                "knobs": tuple(sorted(data.get("knobs", {}).items())),
                "own": OwnData.from_json(data.get("dataset"), data["own"]) if "own" in data else None,
            }
        )
        return cls(**rest)

    @property
    def key(self) -> str:
        """Hash of the canonical JSON: equal settings, equal key. The recipe's name is a label and does not count.

        The first version of the streams had no name yet, so it is left out: runs of that time keep their keys.
        """
        return self._hash("recipe", *(("streams",) if self.streams == 1 else ()))

    @property
    def noise_key(self) -> str:
        """What the noise is drawn for: the key, but for diagnostics, which look at a run without changing it."""
        return self._hash("recipe", "diagnostics")

    def _hash(self, *left_out: str) -> str:
        data = {name: value for name, value in self.to_json().items() if name not in left_out}
        text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _refuse_meaningless(spec: RunSpec) -> None:
    MODELS[spec.model].check(spec.data, spec.knobs_of("model"))
    method = METHODS[spec.method]
    refusals = {
        f"{method.name} has no noise and no clipping, so a noise schedule other than constant 0 has no meaning; set it "
        "to 0": not method.private and any(spec.schedule.sigmas(spec.epochs)),
        f"{method.name} judges random batches; a sorted curriculum has none, so choose curriculum none or masked": (
            method.screened and CURRICULA[spec.curriculum].sorted
        ),
        f"canaries test an epsilon, but {method.name} with curriculum {spec.curriculum} has none; set them to 0": (
            spec.canaries > 0 and rule_of(spec.method, spec.curriculum).sound is None
        ),
        f"{spec.optimizer} takes the noise's variance out of the step, so it needs noise; choose another optimizer": (
            OPTIMIZERS[spec.optimizer].needs_noise and not method.private
        ),
    }
    for reason, refused in refusals.items():
        if refused:
            raise InputError(reason)


def _settle_filter(spec: RunSpec) -> None:
    """Choose the order of a filter that has none; refuse what it does not hold for, and a plan beyond its budget."""
    if spec.filter_epsilon is None:
        if spec.filter_order is not None:
            raise InputError("filter_order goes with filter_epsilon; give the budget too")
        return
    rule = rule_of(spec.method, spec.curriculum)
    refusals = {
        f"{spec.method} with curriculum {spec.curriculum} has no guarantee": rule.sound is None,
        "secure takes steps that were lost once more, with fresh noise": spec.secure,
        f"streams {spec.streams} share noise among runs": spec.streams == 1,
        "an epoch without noise has no finite price": not all(spec.schedule.sigmas(spec.epochs)),
    }
    for reason, refused in refusals.items():
        if refused:
            raise InputError(f"a budget for changes on the way (filter_epsilon) is not possible here: {reason}")
    epsilon = float(FILTER["filter_epsilon"].check("filter_epsilon", spec.filter_epsilon))
    order = spec.filter_order
    if order is None:
        order = best_filter(epsilon, spec.delta, spec.phases).order
    order = float(FILTER["filter_order"].check("filter_order", order))
    RenyiFilter(epsilon, spec.delta, order).check((), spec.phases)
    object.__setattr__(spec, "filter_epsilon", epsilon)
    object.__setattr__(spec, "filter_order", order)


@dataclass(frozen=True)
class EpochRecord:
    """One line of a run's curve. Epsilons are upper bounds; None means that there is no guarantee.

    An imported run may lack a loss or an accuracy (None); its epochs carry the phases that they added to the ledger,
    and whatever else was logged. A run of this code has every number, and its phases are those of its spec.
    """

    epoch: int
    step: int
    noise_multiplier: float
    epsilon_claimed: float | None
    epsilon_sound: float | None
    train_loss: float | None
    train_accuracy: float | None
    test_loss: float | None
    test_accuracy: float | None
    seconds: float
    diagnostics: Mapping[str, Any] = field(default_factory=dict)
    phases: tuple[Phase, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.epoch >= 1 and self.step >= 0 and self.seconds >= 0):
            raise InputError(f"an epoch record needs epoch >= 1, step >= 0 and seconds >= 0, got epoch {self.epoch}")
        for value in (self.train_accuracy, self.test_accuracy):
            if not (value is None or 0 <= value <= 1):
                raise InputError(f"accuracies are fractions from 0 to 1, got {value} (epoch {self.epoch})")
        if not isinstance(self.metrics, Mapping):
            raise InputError(f"metrics must be an object of names and numbers, got {str(self.metrics)[:40]!r}")
        for bound in (self.epsilon_claimed, self.epsilon_sound):
            if not (bound is None or bound >= 0):
                raise InputError(f"epsilon must be >= 0, got {bound} (epoch {self.epoch})")

    @property
    def accuracy(self) -> float:
        """The test accuracy of a run that must have one; every run of this code has."""
        if self.test_accuracy is None:
            raise InputError(f"epoch {self.epoch} of this imported run has no test accuracy; log one to compare it")
        return self.test_accuracy

    def to_json(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        claimed, sound = data.pop("epsilon_claimed"), data.pop("epsilon_sound")
        data["phases"] = [list(dataclasses.astuple(phase)) for phase in self.phases]
        for name in ("phases", "metrics"):  # of imported runs only
            if not data[name]:
                del data[name]
        return data | {"epsilon": {"claimed": _word(claimed), "sound": _word(sound)}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EpochRecord:
        try:
            rest = dict(data)
            epsilon = rest.pop("epsilon")
            rest["phases"] = tuple(Phase(*phase) for phase in rest.get("phases", ()))
            return cls(epsilon_claimed=_number(epsilon["claimed"]), epsilon_sound=_number(epsilon["sound"]), **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not an epoch of a run: {error}") from None


def _word(value: float | None) -> float | str | None:
    """JSON has no infinity: it is stored as a word."""
    return "infinity" if value == math.inf else value


def _number(value: float | str | None) -> float | None:
    return math.inf if value == "infinity" else (None if value is None else float(value))
