"""What is trained under local privacy: methods, losses and the inputs of Algorithm 1 in one record. No torch, no data.

Han, Tsang, Xiao, Chen, Fung & Yu (2018), "Privacy-preserving Stochastic Gradual Learning".
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dpviz.privacy.local import METHODS, LocalBudget, check_epsilon, flip_probability
from dpviz.privacy.registry import Entry, InputError, Knob, Table

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LocalLoss(Entry):
    """A loss of z = y (<w, x> + b). `build(z, **knobs)` is its slope, `steepest(**knobs)` the largest slope."""

    steepest: Callable[..., float] = lambda: 1.0


def hinge(z: FloatArray) -> FloatArray:
    return np.where(z < 1, -1.0, 0.0)


def logistic(z: FloatArray) -> FloatArray:
    return -expit(-z)


def gompertz(z: FloatArray, c: float) -> FloatArray:
    power = np.minimum(c * z, 50.0)
    return -c * np.exp(power - np.exp(power))


def ramp(z: FloatArray, s: float) -> FloatArray:
    return np.where((z < 1) & (z > s), -1.0, 0.0)


LOSSES = Table(
    "loss",
    LocalLoss("hinge", "max(0, 1 - z): convex, not smooth. Slope -1 below 1, else 0.", build=hinge),
    LocalLoss("logistic", "log(1 + e^-z): convex and smooth. Slope -1 / (1 + e^z).", build=logistic),
    LocalLoss(
        "gompertz",
        "exp(-e^(c z)): smooth, not convex, at most 1. Slope -c e^(c z - e^(c z)), steepest at 0 (Han et al. 2016).",
        {"c": Knob(2.0, 0.1, 10.0, "steepness")},
        build=gompertz,
        steepest=lambda c: c / math.e,
    ),
    LocalLoss(
        "ramp",
        "min(1 - s, max(0, 1 - z)): neither smooth nor convex. Slope -1 between s and 1, else 0.",
        {"s": Knob(-1.0, -2.0, 0.0, "where the loss stops growing")},
        build=ramp,
        steepest=lambda s: 1.0,
    ),
)

RANGES: dict[str, Knob] = {
    "batch_size": Knob(1, 1, 1000, "people an update; their private gradients are averaged"),
    "epochs": Knob(10, 1, 1000, "T_max: how often each person is visited"),
    "share": Knob(0.2, 0.01, 0.99, "part of epsilon for the curriculum's answer; 0.2 is the paper's r : s = 1 : 4"),
    "threshold": Knob(1.5, -100.0, 100.0, "D_th of the first epoch; people with z >= D_th are used"),
    "mu": Knob(1.0, 0.0, 100.0, "D_th falls by mu sqrt(T) after epoch T"),
    "regularization": Knob(1.0, 1e-6, 1e6, "lambda; steps are R / (lambda sqrt(t)) long"),
    "radius": Knob(1.0, 1e-6, 1e6, "R; weights are kept within this length"),
    "length": Knob(20.0, 1e-6, 1e6, "rows are scaled to this length, which with the loss gives the bound L"),
    "intercept": Knob(0.0, -1e6, 1e6, "b of <w, x> + b; fixed"),
}
ANSWERED, TRUE = "answered", "true"


@dataclass(frozen=True)
class LocalSpec:
    """One way to train: method, epsilon of a visit, and the inputs of Algorithm 1. SGD ignores epsilon."""

    method: str = "prestige"
    epsilon: float = 1.0
    loss: str = "hinge"
    loss_knob: float | None = None
    batch_size: int = 1
    epochs: int = 10
    share: float = 0.2
    threshold: float = 1.5
    mu: float = 1.0
    regularization: float = 1.0
    radius: float = 1.0
    length: float = 20.0
    intercept: float = 0.0
    gradient_label: str = ANSWERED
    """Algorithm 1 computes the gradient with the answered label; "true" takes the person's own (private sampling
    protects it all the same)."""

    def __post_init__(self) -> None:
        METHODS[self.method]
        check_epsilon(self.epsilon)
        for name, knob in RANGES.items():
            knob.check(name, getattr(self, name))
        if self.gradient_label not in (ANSWERED, TRUE):
            raise InputError(f"gradient_label must be {ANSWERED} or {TRUE}, got {self.gradient_label!r}")
        if self.loss_knob is not None and not LOSSES[self.loss].knobs:
            raise InputError(f"the {self.loss} loss has no knob, got {self.loss_knob}")
        self.knobs  # noqa: B018  a wrong knob stops here

    @property
    def knobs(self) -> dict[str, float]:
        """The loss's own parameter by its name: c of Gompertz, s of ramp."""
        given = {} if self.loss_knob is None else {next(iter(LOSSES[self.loss].knobs)): self.loss_knob}
        return {name: float(value) for name, value in LOSSES[self.loss].complete(given).items()}

    @property
    def bound(self) -> float:
        """L: gradients of the loss are within it; with the regulariser's pull they are clipped to it."""
        return self.length * LOSSES[self.loss].steepest(**self.knobs)

    @property
    def slope(self) -> Callable[[FloatArray], FloatArray]:
        """Derivative of the loss by z = y (<w, x> + b), as a function of z."""
        return functools.partial(LOSSES[self.loss].function, **self.knobs)

    def budget(self, people: int) -> LocalBudget:
        return LocalBudget(self.epsilon, self.share, self.epochs, people)

    @property
    def private(self) -> bool:
        return METHODS[self.method].private

    @property
    def gradient_epsilon(self) -> float:
        """epsilon_s of a visit; only PRESTIGE has to share its epsilon with the curriculum."""
        return self.epsilon * (1 - self.share) if METHODS[self.method].flips_labels else self.epsilon

    @property
    def flip(self) -> float:
        """How often the answered label is wrong; only PRESTIGE asks for one."""
        return flip_probability(self.epsilon * self.share) if METHODS[self.method].flips_labels else 0.0

    def threshold_at(self, epoch: int) -> float:
        """D_th in an epoch counted from 1: D - mu (sqrt(1) + ... + sqrt(epoch - 1)); none without a curriculum."""
        if not METHODS[self.method].curriculum:
            return -math.inf
        return self.threshold - self.mu * sum(math.sqrt(step) for step in range(1, epoch))
