"""Every choice of a run: models, losses, optimizers, clipping rules, curricula, methods. No torch in here.

An entry holds all that is known of its choice. What needs torch is named by `build`, "module:function".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dpviz.privacy.records import MAX_EPOCHS
from dpviz.privacy.registry import Entry, Knob, Table
from dpviz.training.architectures import MODELS
from dpviz.training.data.catalog import DATASETS
from dpviz.training.rates import RATES

__all__ = ["CHOICES", "CLIPPINGS", "CURRICULA", "DATASETS", "LOSSES", "METHODS", "MODELS", "OPTIMIZERS", "RATES"]

# --- losses -------------------------------------------------------------------------------------------------------

GAMMA = Knob(5.0, 0.0, 20.0, "focusing: how strongly easy examples are played down")
THRESHOLD = Knob(0.0, 0.0, 100.0, "epoch at which the loss is half way from SSE to the second loss")

LOSSES = Table(
    "loss",
    Entry("cross-entropy", "The usual classification loss.", build="dpviz.training.losses:build_cross_entropy"),
    Entry(
        "sse",
        "Half the squared error between logits and one-hot labels (Eq. 5).",
        title="Squared error (SSE)",
        build="dpviz.training.losses:build_sse",
    ),
    Entry(
        "focal",
        "Cross-entropy that plays down easy examples (Eq. 6).",
        {"gamma": GAMMA},
        build="dpviz.training.losses:build_focal",
    ),
    Entry(
        "sse+ce",
        "From SSE to cross-entropy as training goes on.",
        {"threshold": THRESHOLD},
        title="SSE, then cross-entropy",
        build="dpviz.training.losses:build_sse_then_ce",
    ),
    Entry(
        "sse+focal",
        "From SSE to focal loss as training goes on.",
        {"threshold": THRESHOLD, "gamma": GAMMA},
        title="SSE, then focal",
        build="dpviz.training.losses:build_sse_then_focal",
    ),
    Entry(
        "tailored",
        "SSE, then focal, with a penalty on pre-activations: the loss of losing-less (Eq. 8).",
        {
            "threshold": THRESHOLD,
            "gamma": GAMMA,
            "beta": Knob(1.0, 0.01, 1000.0, "the pre-activation penalty is divided by this"),
        },
        title="Tailored (losing-less)",
        build="dpviz.training.losses:build_tailored",
    ),
    Entry(
        "sae",
        "Sum of absolute errors of the logits (Eq. 10).",
        title="Absolute error (SAE)",
        build="dpviz.training.losses:build_sae",
    ),
    Entry(
        "huber",
        "Squared near the label, absolute far from it (Eq. 11).",
        {"beta": Knob(1.0, 0.01, 100.0, "where it turns")},
        build="dpviz.training.losses:build_huber",
    ),
)

# --- optimizers and clipping --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class OptimizerEntry(Entry):
    """What is done with a noisy gradient. `build(parameters, **knobs)` makes the Optimizer."""

    needs_noise: bool = False


MOMENTUM = Knob(0.0, 0.0, 0.9999, "share of the last update that is kept")
BETA1 = Knob(0.9, 0.0, 0.99999, "decay of the mean gradient")
BETA2 = Knob(0.999, 0.0, 0.999999, "decay of the squared gradient")
STABILITY = Knob(1e-8, 0.0, 1.0, "added to the denominator")

OPTIMIZERS = Table(
    "optimizer",
    OptimizerEntry(
        "sgd",
        "Stochastic gradient descent.",
        {"momentum": MOMENTUM, "nesterov": Knob(False, help="look ahead")},
        title="SGD",
        build="dpviz.training.optimizers:sgd",
    ),
    OptimizerEntry(
        "rmsprop",
        "Step scaled by the running size of the gradient (optimizers, Alg. 2).",
        {"beta2": Knob(0.9, 0.0, 0.999999, BETA2.help), "stability": STABILITY},
        title="RMSProp",
        build="dpviz.training.optimizers:rmsprop",
    ),
    OptimizerEntry(
        "adam",
        "Running mean over running size (optimizers, Alg. 3).",
        {"beta1": BETA1, "beta2": BETA2, "stability": STABILITY},
        build="dpviz.training.optimizers:adam",
    ),
    OptimizerEntry(
        "adam-bc",
        "Adam with the DP noise's variance taken out (Tang et al. 2023).",
        {"beta1": BETA1, "beta2": BETA2, "floor": Knob(1e-8, 0.0, 1.0, "least squared size")},
        title="Adam-BC",
        build="dpviz.training.optimizers:adam_bc",
        needs_noise=True,
    ),
    OptimizerEntry(
        "lion",
        "Sign of a running mean (optimizers, Alg. 4).",
        {
            "beta1": BETA1,
            "beta2": Knob(0.99, 0.0, 0.999999, BETA2.help),
            "weight_decay": Knob(0.0, 0.0, 1.0, "pull towards zero"),
        },
        build="dpviz.training.optimizers:lion",
    ),
)

CLIPPINGS = Table(
    "clipping",
    Entry(
        "flat",
        "Scale an example's gradient down to the clipping norm if it is longer.",
        build="dpviz.training.gradients.clipping:build_flat",
    ),
    Entry(
        "auto-s",
        "Normalise every example's gradient: g C / (|g| + gamma) (Bu et al. 2022).",
        {"gamma": Knob(0.01, 1e-6, 1.0, "stability constant")},
        title="AUTO-S",
        build="dpviz.training.gradients.clipping:build_auto_s",
    ),
    Entry(
        "per-layer",
        "Clip each layer's gradient to its share C / sqrt(layers) of the norm.",
        build="dpviz.training.gradients.clipping:build_per_layer",
    ),
)

# --- curricula and methods: what each of their pairs claims and what holds is in privacy/guarantees.py ------------


@dataclass(frozen=True, kw_only=True)
class CurriculumEntry(Entry):
    """Which examples come when, and which count. `build(data, own losses, **knobs)` makes the Curriculum."""

    sorted: bool = False  # batches are cut from an order of the examples, instead of drawn at random


CURRICULA = Table(
    "curriculum",
    CurriculumEntry("none", "Examples come at random.", build="dpviz.training.curricula:build_none"),
    CurriculumEntry(
        "sample",
        "Easy to hard in a fixed order, by a logistic regression's loss (curricula, Alg. 2).",
        title="Sorted once, easy to hard",
        build="dpviz.training.curricula:build_sample",
        sorted=True,
    ),
    CurriculumEntry(
        "dynamic",
        "Easy to hard by the model's own loss, sorted anew each epoch (curricula, Sec. 6.3).",
        title="Sorted anew each epoch",
        build="dpviz.training.curricula:build_dynamic",
        sorted=True,
    ),
    CurriculumEntry(
        "masked",
        "An example's gradient counts only if its own loss is under the epoch's threshold: keeps DP-SGD's epsilon.",
        {
            "start": Knob(2.3, 0.0, 100.0, "loss threshold of the first epoch"),
            "end": Knob(10.0, 0.0, 100.0, "loss threshold from the last warm-up epoch on; no mask after it"),
            "warmup": Knob(5, 1, MAX_EPOCHS, "epochs with a mask"),
        },
        title="Masked (keeps epsilon)",
        build="dpviz.training.curricula:build_masked",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Method(Entry):
    """How an update is made of a batch."""

    private: bool = True  # clipped and noisy
    screened: bool = False  # each update is judged on public examples and may be taken back


METHODS = Table(
    "method",
    Method("dp-sgd", "Clip each example's gradient, add noise, step.", title="DP-SGD"),
    Method(
        "sgd",
        "No clipping and no noise: the ceiling that privacy is measured against. No guarantee.",
        title="SGD (not private)",
        private=False,
    ),
    Method(
        "screening",
        "Take a noisy step back if the loss got worse, with simulated annealing (screening, Alg. 2).",
        {
            "temperature": Knob(10.0, 0.0, 1e6, "Q0: how soon worse steps stop being accepted"),
            "rejections": Knob(10, 0, 1000, "mu0: accept anyway after so many rejections in a row"),
            "public_examples": Knob(1000, 10, 10_000, "test examples set aside as public, on which steps are judged"),
        },
        title="Noise screening",
        screened=True,
    ),
)

# RunSpec field -> the table it names an entry of. Knobs are written "field.knob", for example "optimizer.momentum".
CHOICES: dict[str, Mapping[str, Entry]] = {
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
