"""RunSpec and EpochRecord, and the names and knobs of every training table. Imports no torch: pages build specs here.

The builders that need torch live beside it, one module a table: data, models, losses, optimizers, clipping, curricula.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dpviz.privacy.records import MAX_EPOCHS, Phase, check_delta, epoch_phases
from dpviz.privacy.registry import InputError, Knob, Table, Value
from dpviz.privacy.schedules import Schedule, check_epochs

DATASETS, MODELS, LOSSES = Table("dataset"), Table("model"), Table("loss")
OPTIMIZERS, CLIPPINGS, CURRICULA = Table("optimizer"), Table("clipping"), Table("curriculum")
METHODS, RATES = Table("method"), Table("rate schedule")

DATASETS.add(
    "mnist",
    "Handwritten digits, 28 x 28 grey.",
    facts={"size": 60_000, "test_size": 10_000, "shape": (1, 28, 28), "classes": 10, "title": "MNIST"},
)
DATASETS.add(
    "fashion-mnist",
    "Pictures of clothing, 28 x 28 grey.",
    facts={"size": 60_000, "test_size": 10_000, "shape": (1, 28, 28), "classes": 10, "title": "Fashion-MNIST"},
)
DATASETS.add(
    "cifar10",
    "Ten kinds of objects, 32 x 32 in colour.",
    facts={"size": 50_000, "test_size": 10_000, "shape": (3, 32, 32), "classes": 10, "title": "CIFAR-10"},
    augment=Knob(False, help="random flips and crops of each batch"),
)

ACTIVATION = Knob("tanh", help="non-linearity after each layer", choices=("tanh", "relu"))
GREY = {"shape": (1, 28, 28)}
COLOUR = {"shape": (3, 32, 32)}
MODELS.add(
    "cnn-mnist",
    "Two convolutions, 26,010 weights (losing-less, Table 1).",
    {**GREY, "title": "CNN, 28 x 28"},
    activation=ACTIVATION,
)
MODELS.add(
    "cnn-cifar10",
    "Six convolutions, 550,570 weights (losing-less, Table 2).",
    {**COLOUR, "title": "CNN, 32 x 32"},
    activation=ACTIVATION,
)
MODELS.add(
    "scatter-mnist",
    "Two convolutions on fixed ScatterNet features (losing-less, Table 3).",
    {**GREY, "title": "ScatterNet and CNN, 28 x 28"},
    activation=ACTIVATION,
)
MODELS.add(
    "scatter-cifar10",
    "Four convolutions on fixed ScatterNet features (losing-less, Table 4).",
    {**COLOUR, "title": "ScatterNet and CNN, 32 x 32"},
    activation=ACTIVATION,
)
MODELS.add(
    "cnn-curricula",
    "Two convolutions of 16 and 32 filters with max pooling (curricula, Sec. 3.3).",
    {**GREY, "title": "CNN of curricula"},
    activation=Knob("relu", help=ACTIVATION.help, choices=("tanh", "relu")),
    hidden=Knob(0, 0, 1024, "units of a second fully connected layer; 0: none"),
)
MODELS.add("resnet20", "ResNet-20 with group normalisation (optimizers).", {**COLOUR, "title": "ResNet-20"})
MODELS.add("logistic", "Multinomial logistic regression on the pixels.", {"title": "Logistic regression"})

GAMMA = Knob(5.0, 0.0, 20.0, "focusing: how strongly easy examples are played down")
THRESHOLD = Knob(0.0, 0.0, 100.0, "epoch at which the loss is half way from SSE to the second loss")
LOSSES.add("cross-entropy", "The usual classification loss.", {"title": "Cross-entropy"})
LOSSES.add("sse", "Half the squared error between logits and one-hot labels (Eq. 5).", {"title": "Squared error (SSE)"})
LOSSES.add("focal", "Cross-entropy that plays down easy examples (Eq. 6).", {"title": "Focal"}, gamma=GAMMA)
LOSSES.add(
    "sse+ce",
    "From SSE to cross-entropy as training goes on.",
    {"title": "SSE, then cross-entropy"},
    threshold=THRESHOLD,
)
LOSSES.add(
    "sse+focal",
    "From SSE to focal loss as training goes on.",
    {"title": "SSE, then focal"},
    threshold=THRESHOLD,
    gamma=GAMMA,
)
LOSSES.add(
    "tailored",
    "SSE, then focal, with a penalty on pre-activations: the loss of losing-less (Eq. 8).",
    {"title": "Tailored (losing-less)"},
    threshold=THRESHOLD,
    gamma=GAMMA,
    beta=Knob(1.0, 0.01, 1000.0, "the pre-activation penalty is divided by this"),
)
LOSSES.add("sae", "Sum of absolute errors of the logits (Eq. 10).", {"title": "Absolute error (SAE)"})
LOSSES.add(
    "huber",
    "Squared near the label, absolute far from it (Eq. 11).",
    {"title": "Huber"},
    beta=Knob(1.0, 0.01, 100.0, "where it turns"),
)

MOMENTUM = Knob(0.0, 0.0, 0.9999, "share of the last update that is kept")
BETA1 = Knob(0.9, 0.0, 0.99999, "decay of the mean gradient")
BETA2 = Knob(0.999, 0.0, 0.999999, "decay of the squared gradient")
STABILITY = Knob(1e-8, 0.0, 1.0, "added to the denominator")
OPTIMIZERS.add(
    "sgd", "Stochastic gradient descent.", {"title": "SGD"}, momentum=MOMENTUM, nesterov=Knob(False, help="look ahead")
)
OPTIMIZERS.add(
    "rmsprop",
    "Step scaled by the running size of the gradient (optimizers, Alg. 2).",
    {"title": "RMSProp"},
    beta2=Knob(0.9, 0.0, 0.999999, BETA2.help),
    stability=STABILITY,
)
OPTIMIZERS.add(
    "adam",
    "Running mean over running size (optimizers, Alg. 3).",
    {"title": "Adam"},
    beta1=BETA1,
    beta2=BETA2,
    stability=STABILITY,
)
OPTIMIZERS.add(
    "adam-bc",
    "Adam with the DP noise's variance taken out (Tang et al. 2023).",
    {"title": "Adam-BC"},
    beta1=BETA1,
    beta2=BETA2,
    floor=Knob(1e-8, 0.0, 1.0, "least squared size"),
)
OPTIMIZERS.add(
    "lion",
    "Sign of a running mean (optimizers, Alg. 4).",
    {"title": "Lion"},
    beta1=BETA1,
    beta2=Knob(0.99, 0.0, 0.999999, BETA2.help),
    weight_decay=Knob(0.0, 0.0, 1.0, "pull towards zero"),
)

CLIPPINGS.add("flat", "Scale an example's gradient down to the clipping norm if it is longer.", {"title": "Flat"})
CLIPPINGS.add(
    "auto-s",
    "Normalise every example's gradient: g C / (|g| + gamma) (Bu et al. 2022).",
    {"title": "AUTO-S"},
    gamma=Knob(0.01, 1e-6, 1.0, "stability constant"),
)
CLIPPINGS.add(
    "per-layer", "Clip each layer's gradient to its share C / sqrt(layers) of the norm.", {"title": "Per layer"}
)

CURRICULA.add("none", "Examples come at random.", {"title": "None"})
CURRICULA.add(
    "sample",
    "Easy to hard in a fixed order, by a logistic regression's loss (curricula, Alg. 2).",
    {"title": "Sorted once, easy to hard"},
)
CURRICULA.add(
    "dynamic",
    "Easy to hard by the model's own loss, sorted anew each epoch (curricula, Sec. 6.3).",
    {"title": "Sorted anew each epoch"},
)
CURRICULA.add(
    "masked",
    "An example's gradient counts only if its own loss is under the epoch's threshold: keeps DP-SGD's epsilon.",
    {"title": "Masked (keeps epsilon)"},
    start=Knob(2.3, 0.0, 100.0, "loss threshold of the first epoch"),
    end=Knob(10.0, 0.0, 100.0, "loss threshold from the last warm-up epoch on; no mask after it"),
    warmup=Knob(5, 1, MAX_EPOCHS, "epochs with a mask"),
)

METHODS.add("dp-sgd", "Clip each example's gradient, add noise, step.", {"title": "DP-SGD"})
METHODS.add(
    "sgd",
    "No clipping and no noise: the ceiling that privacy is measured against. No guarantee.",
    {"title": "SGD (not private)"},
)
METHODS.add(
    "screening",
    "Take a noisy step back if the loss got worse, with simulated annealing (screening, Alg. 2).",
    {"title": "Noise screening"},
    temperature=Knob(10.0, 0.0, 1e6, "Q0: how soon worse steps stop being accepted"),
    rejections=Knob(10, 0, 1000, "mu0: accept anyway after so many rejections in a row"),
    public_examples=Knob(1000, 10, 10_000, "test examples set aside as public, on which steps are judged"),
)

RATES.add("constant", "The same in every epoch.")
RATES.add(
    "linear",
    "Straight down to a share of the start.",
    final=Knob(0.1, 0.0, 10.0, "share of the start that is left in the last epoch"),
)
RATES.add(
    "cosine",
    "Half a cosine wave down to a share of the start.",
    final=Knob(0.1, 0.0, 10.0, "share left in the last epoch"),
)
RATES.add(
    "step",
    "Multiplied by a factor every few epochs.",
    factor=Knob(0.5, 0.01, 10.0, "factor"),
    every=Knob(10, 1, MAX_EPOCHS, "epochs between steps"),
)

# RunSpec field -> the table it names an entry of. Knobs are written "field.knob", for example "optimizer.momentum".
CHOICES: dict[str, Table] = {
    "method": METHODS,
    "dataset": DATASETS,
    "model": MODELS,
    "loss": LOSSES,
    "optimizer": OPTIMIZERS,
    "clipping": CLIPPINGS,
    "curriculum": CURRICULA,
    "learning_rate_schedule": RATES,
    "clip_norm_schedule": RATES,
}

# RunSpec field -> the range it may take.
NUMBERS: dict[str, Knob] = {
    "batch_size": Knob(512, 1, 65_536, "expected examples a step"),
    "learning_rate": Knob(0.5, 1e-8, 1000.0, "step size"),
    "clip_norm": Knob(0.1, 1e-6, 1e6, "C: longest gradient of one example"),
    "seed": Knob(0, 0, 2**31 - 1, "decides every random number of the run"),
    "subset": Knob(0, 0, 10_000_000, "train on the first so many examples; 0: all"),
}


# Version of the random streams (random_streams.py): 1, of which runs of one seed shared their noise, or 2.
STREAMS = 2


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides a run's result. No device in it: where it ran is provenance."""

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

    def __post_init__(self) -> None:
        if self.streams not in range(1, STREAMS + 1):
            raise InputError(f"streams must be a version from 1 to {STREAMS}, got {self.streams!r}")
        check_epochs(self.epochs)
        check_delta(self.delta)
        self.schedule.sigmas(self.epochs)
        for name, knob in NUMBERS.items():
            object.__setattr__(self, name, knob.check(name, getattr(self, name)))
        given = dict(self.knobs)
        for key in given:
            if key.partition(".")[0] not in CHOICES:
                raise InputError(f"unknown knob {key!r}; write it as table.knob, for example optimizer.momentum")
        complete: dict[str, Value] = {}
        for choice, table in CHOICES.items():
            prefix = choice + "."
            own = {key.removeprefix(prefix): value for key, value in given.items() if key.startswith(prefix)}
            for knob_name, value in table[getattr(self, choice)].complete(own).items():
                complete[prefix + knob_name] = value
        object.__setattr__(self, "knobs", tuple(sorted(complete.items())))
        if self.batch_size > self.size:
            raise InputError(f"batch_size must be at most the {self.size:,} training examples, got {self.batch_size:,}")
        _refuse_meaningless(self)

    @property
    def size(self) -> int:
        """Training examples that the run uses; the accountant counts these."""
        whole = int(DATASETS[self.dataset].facts["size"])
        if self.subset > whole:
            raise InputError(f"subset must be at most the {whole:,} examples of {self.dataset}, got {self.subset:,}")
        return self.subset or whole

    @property
    def sample_rate(self) -> float:
        return self.batch_size / self.size

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The steps that the run plans, one phase per epoch."""
        return epoch_phases(self.schedule.sigmas(self.epochs), self.sample_rate)

    def knobs_of(self, choice: str) -> dict[str, Value]:
        """The knobs of one choice, for example knobs_of("optimizer") -> {"momentum": 0.9, ...}."""
        return {key.removeprefix(choice + "."): value for key, value in self.knobs if key.startswith(choice + ".")}

    def to_json(self) -> dict[str, Any]:
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return data | {"schedule": self.schedule.to_json(), "knobs": dict(self.knobs)}

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
    shape = MODELS[spec.model].facts.get("shape")
    data_shape = DATASETS[spec.dataset].facts["shape"]
    ordered = spec.curriculum in ("sample", "dynamic")
    refusals = {
        f"{spec.model} takes images of shape {shape}, but {spec.dataset} has {data_shape}; choose another model": (
            shape is not None and shape != data_shape
        ),
        "sgd has no noise and no clipping, so a noise schedule other than constant 0 has no meaning; set it to 0": (
            spec.method == "sgd" and any(spec.schedule.sigmas(spec.epochs))
        ),
        "screening judges random batches; a sorted curriculum has none, so choose curriculum none or masked": (
            spec.method == "screening" and ordered
        ),
        "adam-bc takes the noise's variance out of Adam, so it needs noise; choose adam": (
            spec.optimizer == "adam-bc" and spec.method == "sgd"
        ),
    }
    for reason, refused in refusals.items():
        if refused:
            raise InputError(reason)


@dataclass(frozen=True)
class EpochRecord:
    """One line of a run's curve. Epsilons are upper bounds; None means that there is no guarantee."""

    epoch: int
    step: int
    noise_multiplier: float
    epsilon_claimed: float | None
    epsilon_sound: float | None
    train_loss: float
    train_accuracy: float
    test_loss: float
    test_accuracy: float
    seconds: float
    diagnostics: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.epoch >= 1 and self.step >= 0 and self.seconds >= 0):
            raise InputError(f"an epoch record needs epoch >= 1, step >= 0 and seconds >= 0, got epoch {self.epoch}")
        for value in (self.train_accuracy, self.test_accuracy):
            if not 0 <= value <= 1:
                raise InputError(f"accuracies are fractions from 0 to 1, got {value} (epoch {self.epoch})")
        for bound in (self.epsilon_claimed, self.epsilon_sound):
            if not (bound is None or bound >= 0):
                raise InputError(f"epsilon must be >= 0, got {bound} (epoch {self.epoch})")

    def to_json(self) -> dict[str, Any]:
        data = dataclasses.asdict(self)
        claimed, sound = data.pop("epsilon_claimed"), data.pop("epsilon_sound")
        return data | {"epsilon": {"claimed": _word(claimed), "sound": _word(sound)}}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EpochRecord:
        try:
            rest = dict(data)
            epsilon = rest.pop("epsilon")
            return cls(epsilon_claimed=_number(epsilon["claimed"]), epsilon_sound=_number(epsilon["sound"]), **rest)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not an epoch of a run: {error}") from None


def _word(value: float | None) -> float | str | None:
    """JSON has no infinity: it is stored as a word."""
    return "infinity" if value == math.inf else value


def _number(value: float | str | None) -> float | None:
    return math.inf if value == "infinity" else (None if value is None else float(value))
