"""CURRICULA: in which order examples come, and which of a batch count.

`none` and `masked` leave the batches to Poisson sampling. `sample` and `dynamic` sort the examples, easy first, and
cut the order into consecutive batches, so that each example is in exactly one batch an epoch: there is no
amplification by sampling, and the order itself is an unaccounted use of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dpviz.privacy.registry import Value
from dpviz.training.data.readers import Data
from dpviz.training.gradients.per_example import Keep
from dpviz.training.tables import CURRICULA

# The model's own loss on every training example, in an epoch counted from 0.
OwnLosses = Callable[[int], Tensor]


@dataclass(frozen=True)
class Curriculum:
    """`order(epoch, last)`: the examples' order in an epoch, given the last one's; None: Poisson sampling.

    `keep(epoch)`: from a batch's losses to the examples that count; None: all of them.
    """

    order: Callable[[int, Tensor | None], Tensor | None] = lambda epoch, last: None
    keep: Callable[[int], Keep | None] = lambda epoch: None


def build_curriculum(name: str, knobs: Mapping[str, Value], data: Data, own_losses: OwnLosses) -> Curriculum:
    """The curriculum with its knobs set; knobs that are not given take their defaults."""
    curriculum: Curriculum = CURRICULA[name].make(knobs, data, own_losses)
    return curriculum


def batches(order: Tensor, steps: int) -> tuple[Tensor, ...]:
    """Consecutive batches, alike in size to within one example; every example is in exactly one."""
    return order.tensor_split(steps)


def build_none(_data: Data, _own_losses: OwnLosses) -> Curriculum:
    return Curriculum()


def build_sample(data: Data, _own_losses: OwnLosses) -> Curriculum:
    """Ascending log loss of a logistic regression fitted on the same data: `curricula`, Alg. 2."""

    def order(_epoch: int, last: Tensor | None) -> Tensor:
        return last if last is not None else regression_losses(data).argsort(stable=True)

    return Curriculum(order=order)


def build_dynamic(_data: Data, own_losses: OwnLosses) -> Curriculum:
    """Ascending loss of the model itself at the start of the epoch: proposed in `curricula`, Sec. 6.3."""
    return Curriculum(order=lambda epoch, last: own_losses(epoch).argsort(stable=True))


def build_masked(_data: Data, _own_losses: OwnLosses, start: float, end: float, warmup: int) -> Curriculum:
    """Loss < start + (end - start) t / (warmup - 1) while t < warmup, then all examples."""

    def keep(epoch: int) -> Keep | None:
        if epoch >= warmup:
            return None
        threshold = start + (end - start) * epoch / max(warmup - 1, 1)
        return lambda losses: losses < threshold

    return Curriculum(keep=keep)


def regression_losses(data: Data, iterations: int = 50) -> Tensor:
    """Log loss of each training example under a multinomial logistic regression, fitted by L-BFGS from zero.

    The weights' penalty |W|^2 / (2 n) is scikit-learn's default. Nothing here is random.
    """
    inputs, labels = data.inputs(data.train_images).flatten(1), data.train_labels
    weights = torch.zeros(data.classes, inputs.shape[1], requires_grad=True)
    bias = torch.zeros(data.classes, requires_grad=True)
    solver = torch.optim.LBFGS([weights, bias], max_iter=iterations, line_search_fn="strong_wolfe")

    def objective() -> Tensor:
        solver.zero_grad()
        loss = F.cross_entropy(F.linear(inputs, weights, bias), labels) + weights.square().sum() / (2 * len(labels))
        loss.backward()
        return loss

    solver.step(objective)
    with torch.no_grad():
        return F.cross_entropy(F.linear(inputs, weights, bias), labels, reduction="none")
