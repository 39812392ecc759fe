"""Losses by name: one number per example, from logits, labels, the epoch and the pre-activations of the hidden layers.

Equations are those of Shamsabadi & Papernot, "Losing Less: A Loss for Differentially Private Deep Learning". h are the
logits, y the one-hot label, p = softmax(h), t the true class. The first epoch is epoch 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dpviz.privacy.registry import Value
from dpviz.training.tables import LOSSES

# logits [batch, classes], labels [batch], epoch, pre-activations of each hidden layer -> losses [batch]
PerExampleLoss = Callable[[Tensor, Tensor, int, Sequence[Tensor]], Tensor]


def build_loss(name: str, knobs: Mapping[str, Value]) -> PerExampleLoss:
    """The loss with its knobs set; knobs that are not given take their defaults."""
    loss: PerExampleLoss = LOSSES[name].make(knobs)
    return loss


def second_share(epoch: int, threshold: float) -> float:
    """alpha = sigmoid(e_c - e_t): the share of the second loss, a half at the threshold epoch (text below Eq. 8)."""
    return 1 / (1 + math.exp(min(threshold - epoch, 700.0)))


def _errors(logits: Tensor, targets: Tensor) -> Tensor:
    return logits - _one_hot(logits, targets)


def _one_hot(logits: Tensor, targets: Tensor) -> Tensor:
    """1 at the true class; torch's own asks for the largest label first, which is to wait for a device."""
    return (targets[:, None] == torch.arange(logits.shape[1], device=targets.device)).to(logits.dtype)


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets, reduction="none")


def _sse(logits: Tensor, targets: Tensor) -> Tensor:
    """|h - y|^2 / 2 (Eq. 5)."""
    return _errors(logits, targets).square().sum(1) / 2


def _focal(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """-(1 - p_t)^gamma log p_t (Eq. 6)."""
    if gamma == 0:
        return _cross_entropy(logits, targets)
    surprise = _cross_entropy(logits, targets)
    # -expm1(-s) is 1 - p_t without cancellation; the floor keeps the slope of x^gamma finite for gamma < 1.
    return (-(-surprise).expm1()).clamp_min(1e-12) ** gamma * surprise


class MeanSquare(torch.autograd.Function):
    """|h|^2 / d per example, read once and written once: autograd's own way passes over the activations eight times."""

    @staticmethod
    def forward(ctx: Any, h: Tensor) -> Tensor:
        ctx.save_for_backward(h)
        flat = h.movedim(1, -1).flatten(1)  # no copy where the channels lie side by side
        squared: Tensor = torch.linalg.vecdot(flat, flat)
        return squared / flat.shape[1]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        h: Tensor
        (h,), (grad,) = ctx.saved_tensors, grads
        return h * (2 / h[0].numel() * grad).view(-1, *(1,) * (h.dim() - 1))


def _penalty(hidden: Sequence[Tensor]) -> Tensor | float:
    """sum over hidden layers of |h^m|^2 / d_m, d_m the layer's size (Eq. 7)."""
    return sum((MeanSquare.apply(h) for h in hidden), start=0.0)  # type: ignore[no-untyped-call]


def build_cross_entropy() -> PerExampleLoss:
    return lambda logits, targets, epoch, hidden: _cross_entropy(logits, targets)


def build_sse() -> PerExampleLoss:
    return lambda logits, targets, epoch, hidden: _sse(logits, targets)


def build_focal(gamma: float) -> PerExampleLoss:
    return lambda logits, targets, epoch, hidden: _focal(logits, targets, gamma)


def build_sse_then_ce(threshold: float) -> PerExampleLoss:
    return build_sse_then_focal(threshold, gamma=0.0)


def build_sse_then_focal(threshold: float, gamma: float) -> PerExampleLoss:
    return build_tailored(threshold, gamma, beta=math.inf)


def build_tailored(threshold: float, gamma: float, beta: float) -> PerExampleLoss:
    def tailored(logits: Tensor, targets: Tensor, epoch: int, hidden: Sequence[Tensor]) -> Tensor:
        """alpha L_focal + (1 - alpha) L_SSE + (1 - alpha) / beta L_reg (Eq. 8)."""
        alpha = second_share(epoch, threshold)
        loss = alpha * _focal(logits, targets, gamma) + (1 - alpha) * _sse(logits, targets)
        return loss if beta == math.inf else loss + (1 - alpha) / beta * _penalty(hidden)

    return tailored


def build_sae() -> PerExampleLoss:
    """sum_d |h_d - y_d| (Eq. 10)."""
    return lambda logits, targets, epoch, hidden: _errors(logits, targets).abs().sum(1)


def build_huber(beta: float) -> PerExampleLoss:
    """e^2 / (2 beta) where |e| < beta, else |e| - beta / 2; e = h - y, summed over the classes (Eq. 11)."""

    def huber(logits: Tensor, targets: Tensor, epoch: int, hidden: Sequence[Tensor]) -> Tensor:
        labels = _one_hot(logits, targets)
        return F.smooth_l1_loss(logits, labels, beta=beta, reduction="none").sum(1)

    return huber
