r"""OPTIMIZERS: what is done with a noisy gradient g_t. All of it is post-processing and costs no privacy.

Conventions are PyTorch's, so each optimizer equals torch.optim's of the same name: momentum sums gradients without
damping (v = momentum v + g; Keras folds the learning rate into v, which differs once the rate changes), the stability
constant is added outside the square root (Keras: also outside, default 1e-7), and Adam corrects the bias of its running
means. Rangavajhula et al., "DP-SGD, DP-Adam, DP-RMSProp" (`optimizers`), print Alg. 2 and 3 with the constant inside
the running mean and without bias correction; their experiments ran PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpviz.privacy.registry import Value
from dpviz.training.tables import OPTIMIZERS

# (weights, noisy gradient, this step, the weights' slots): changes weights and slots in place.
Update = Callable[..., None]


@dataclass(frozen=True)
class Step:
    """What an update may depend on besides the gradient: t = 1, 2, ..., and the noise's std in it, sigma C / B."""

    number: int
    learning_rate: float
    noise_std: float


class Optimizer:
    """An update rule and its whole memory: tensors by name (`slots`, alike in shape to the weights) and the steps."""

    def __init__(self, parameters: Sequence[Tensor], update: Update, *slots: str) -> None:
        self.parameters, self.update, self.steps = list(parameters), update, 0
        self.slots = {name: [torch.zeros_like(weights) for weights in self.parameters] for name in slots}

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor], learning_rate: float, noise_std: float = 0.0) -> None:
        """One update from the noisy mean gradient."""
        self.steps += 1
        step = Step(self.steps, learning_rate, noise_std)
        for weights, gradient, *slots in zip(self.parameters, gradients, *self.slots.values(), strict=True):
            self.update(weights, gradient, step, *slots)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "slots": {name: [s.clone() for s in slots] for name, slots in self.slots.items()}}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        for name, slots in self.slots.items():
            for slot, saved in zip(slots, state["slots"][name], strict=True):
                slot.copy_(saved)


def build_optimizer(name: str, knobs: Mapping[str, Value], parameters: Iterable[Tensor]) -> Optimizer:
    """The optimizer with its knobs set; knobs that are not given take their defaults."""
    optimizer: Optimizer = OPTIMIZERS[name].make(knobs, list(parameters))
    return optimizer


def sgd(parameters: Sequence[Tensor], momentum: float, nesterov: bool) -> Optimizer:
    """v = momentum v + g; w -= eta v, or with Nesterov's look-ahead w -= eta (g + momentum v). Alg. 1: momentum 0."""

    def update(weights: Tensor, gradient: Tensor, step: Step, velocity: Tensor) -> None:
        velocity.mul_(momentum).add_(gradient)
        weights.sub_(gradient + momentum * velocity if nesterov else velocity, alpha=step.learning_rate)

    return Optimizer(parameters, update, "velocity")


def rmsprop(parameters: Sequence[Tensor], beta2: float, stability: float) -> Optimizer:
    """v = beta2 v + (1 - beta2) g^2; w -= eta g / (sqrt(v) + stability). Alg. 2."""

    def update(weights: Tensor, gradient: Tensor, step: Step, square: Tensor) -> None:
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        weights.addcdiv_(gradient, square.sqrt().add_(stability), value=-step.learning_rate)

    return Optimizer(parameters, update, "square")


def adam(parameters: Sequence[Tensor], beta1: float, beta2: float, stability: float) -> Optimizer:
    """m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g^2; w -= eta m^ / (sqrt(v^) + stability). Alg. 3.

    m^ = m / (1 - beta1^t) and v^ = v / (1 - beta2^t) correct for the start at zero: Kingma & Ba (2015), Alg. 1.
    """

    def update(weights: Tensor, gradient: Tensor, step: Step, mean: Tensor, square: Tensor) -> None:
        mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
        square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        size = (square / (1 - beta2**step.number)).sqrt_().add_(stability)
        weights.addcdiv_(mean, size, value=-step.learning_rate / (1 - beta1**step.number))

    return Optimizer(parameters, update, "mean", "square")


def adam_bc(parameters: Sequence[Tensor], beta1: float, beta2: float, floor: float) -> Optimizer:
    """Adam with the noise's share taken out of v^: w -= eta m^ / sqrt(max(v^ - (sigma C / B)^2, floor)).

    Tang, Shpilevskiy & Lecuyer (2023), arXiv:2312.14334, Alg. 1. The share is taken out as it comes in,
    v = beta2 v + (1 - beta2) (g^2 - (sigma C / B)^2): the same for constant noise, and still right under a schedule.
    """

    def update(weights: Tensor, gradient: Tensor, step: Step, mean: Tensor, square: Tensor) -> None:
        mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
        square.mul_(beta2).add_(gradient.square().sub_(step.noise_std**2), alpha=1 - beta2)
        size = (square / (1 - beta2**step.number)).clamp_(min=floor).sqrt_()
        weights.addcdiv_(mean, size, value=-step.learning_rate / (1 - beta1**step.number))

    return Optimizer(parameters, update, "mean", "square")


def lion(parameters: Sequence[Tensor], beta1: float, beta2: float, weight_decay: float) -> Optimizer:
    """w -= eta (sign(beta1 m + (1 - beta1) g) + weight_decay w); then m = beta2 m + (1 - beta2) g. Alg. 4.

    Chen et al. (2023), arXiv:2302.06675.
    """

    def update(weights: Tensor, gradient: Tensor, step: Step, mean: Tensor) -> None:
        direction = (beta1 * mean).add_(gradient, alpha=1 - beta1).sign_()
        weights.sub_(direction.add_(weights, alpha=weight_decay), alpha=step.learning_rate)
        mean.mul_(beta2).add_(gradient, alpha=1 - beta2)

    return Optimizer(parameters, update, "mean")
