"""Clipped per-example gradient sums by book-keeping, with one backward pass.

The forward pass keeps each layer's input, one backward pass gives the gradient of every layer's output. From these two
come each example's gradient norm, layer by layer, then the factors of the clipping rule, then the weighted sum.
Bu, Wang, Zha & Karypis (2023), arXiv:2210.00038.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpviz.training.clipping import ClippingRule, example_norms
from dpviz.training.losses import PerExampleLoss

Keep = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Clipped:
    """What one batch gave: the clipped sum, and what was seen on the way (not covered by epsilon)."""

    gradients: list[Tensor]
    losses: Tensor
    logits: Tensor
    norms: Tensor
    clipped_fraction: float


class LinearShare:
    """A Linear layer's part of the per-example gradients: g a^T, whose norm is |g| |a|."""

    def __init__(self, layer: nn.Linear, inputs: Tensor, grads: Tensor) -> None:
        self.layer, self.inputs, self.grads = layer, inputs, grads

    def squared_norms(self) -> Tensor:
        own = self.grads.square().sum(1)
        return own * (self.inputs.square().sum(1) + (self.layer.bias is not None))

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        weighted = self.grads * factors[:, None]
        weight = weighted.T @ self.inputs
        return [weight] if self.layer.bias is None else [weight, weighted.sum(0)]


class ConvShare:
    """A Conv2d layer's part: each example's gradient is small enough to be written out."""

    def __init__(self, layer: nn.Conv2d, inputs: Tensor, grads: Tensor) -> None:
        self.layer = layer
        patches = F.unfold(inputs, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
        flat = grads.flatten(2)
        self.weights = torch.bmm(flat, patches.transpose(1, 2)).flatten(1)
        self.biases = None if layer.bias is None else flat.sum(2)

    def squared_norms(self) -> Tensor:
        squares = self.weights.square().sum(1)
        return squares if self.biases is None else squares + self.biases.square().sum(1)

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        weight = (factors @ self.weights).view(self.layer.weight.shape)
        return [weight] if self.biases is None else [weight, factors @ self.biases]


class GroupNormShare:
    """A GroupNorm layer's part: sums over the pixels of g times the normalised input, and of g."""

    def __init__(self, layer: nn.GroupNorm, inputs: Tensor, grads: Tensor) -> None:
        normal = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
        self.weights = (grads * normal).flatten(2).sum(2)
        self.biases = grads.flatten(2).sum(2)

    def squared_norms(self) -> Tensor:
        return self.weights.square().sum(1) + self.biases.square().sum(1)

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        return [factors @ self.weights, factors @ self.biases]


SHARES = {nn.Linear: LinearShare, nn.Conv2d: ConvShare, nn.GroupNorm: GroupNormShare}


class PerExample:
    """Clipped gradient sums of a model under a loss and a clipping rule.

    `physical_batch` bounds the examples worked on at once; larger batches are split, with the same result. `fallback`
    is None, or says why the model's gradients come from Opacus' GradSampleModule instead of book-keeping.
    """

    def __init__(
        self, model: nn.Module, loss: PerExampleLoss, clipping: ClippingRule, physical_batch: int | None = None
    ) -> None:
        self.model, self.loss, self.clipping = model, loss, clipping
        self.physical_batch = physical_batch or 256
        self.layers = [m for m in model.modules() if any(True for _ in m.parameters(recurse=False))]
        self.fallback = next((reason for m in self.layers if (reason := _unsupported(m))), None)

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, *, epoch: int, clip_norm: float, keep: Keep | None = None
    ) -> Clipped:
        """The sum over the batch of each example's gradient times its clipping factor.

        An infinite clip_norm clips nothing, whatever the rule. `keep` gets the losses and says which examples count.
        """
        parts = [
            self._part(some, labels, epoch, clip_norm, keep)
            for some, labels in zip(inputs.split(self.physical_batch), targets.split(self.physical_batch), strict=True)
        ]
        gradients = [sum(grads[1:], start=grads[0]) for grads in zip(*(part.gradients for part in parts), strict=True)]
        counts = torch.tensor([len(part.losses) for part in parts], dtype=torch.float64)
        fractions = torch.tensor([part.clipped_fraction for part in parts], dtype=torch.float64)
        return Clipped(
            gradients,
            torch.cat([part.losses for part in parts]),
            torch.cat([part.logits for part in parts]),
            torch.cat([part.norms for part in parts]),
            float((counts * fractions).sum() / counts.sum().clamp_min(1)),
        )

    def per_example_norms(self, inputs: Tensor, targets: Tensor, *, epoch: int) -> Tensor:
        """The length of each example's gradient, unclipped."""
        return self.clipped_sum(inputs, targets, epoch=epoch, clip_norm=math.inf).norms

    def _part(self, inputs: Tensor, targets: Tensor, epoch: int, clip_norm: float, keep: Keep | None) -> Clipped:
        if len(targets) == 0:
            return self._nothing(inputs)
        with _frozen(self.model), _recorded(self.layers) as seen:
            logits = self.model(inputs)
            hidden = [output for layer, _, output in seen[:-1] if isinstance(layer, nn.Conv2d | nn.Linear)]
            losses = self.loss(logits, targets, epoch, hidden)
            grads = torch.autograd.grad(losses.sum(), [output for _, _, output in seen])
        with torch.no_grad():
            losses, logits = losses.detach(), logits.detach()
            shares = {
                layer: SHARES[type(layer)](layer, given.detach(), grad)
                for (layer, given, _), grad in zip(seen, grads, strict=True)
            }
            squared_norms = torch.stack([shares[layer].squared_norms() for layer in self.layers])
            counted = torch.ones_like(losses) if keep is None else keep(losses).to(losses.dtype)
            factors = (
                torch.ones_like(squared_norms) if clip_norm == math.inf else self.clipping(squared_norms, clip_norm)
            )
            factors = factors * counted
            gradients = [
                gradient
                for layer, factor in zip(self.layers, factors, strict=True)
                for gradient in shares[layer].weighted_sum(factor)
            ]
        norms = example_norms(squared_norms)
        return Clipped(gradients, losses, logits, norms, float((norms > clip_norm).float().mean()))

    def _nothing(self, inputs: Tensor) -> Clipped:
        """A batch without examples, which Poisson sampling may draw."""
        with torch.no_grad():
            logits = self.model(inputs)
        none = logits.new_zeros(0)
        return Clipped([torch.zeros_like(p) for p in self.model.parameters()], none, logits, none, 0.0)


def _unsupported(layer: nn.Module) -> str | None:
    """Why book-keeping cannot serve this layer, or None."""
    if type(layer) not in SHARES:
        return f"{type(layer).__name__} layers are not known to the fast path"
    if isinstance(layer, nn.Conv2d) and (
        layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str)
    ):
        return "convolutions with groups, or padding other than a number of zeros, are not known to the fast path"
    return None


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Without gradients of the weights, the backward pass computes those of the outputs only."""
    wanted = [p for p in model.parameters() if p.requires_grad]
    for p in wanted:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in wanted:
            p.requires_grad_(True)


@contextmanager
def _recorded(layers: list[nn.Module]) -> Iterator[list[tuple[nn.Module, Tensor, Tensor]]]:
    """Layer, input and output of each call, in order; the outputs are part of the graph."""
    seen: list[tuple[nn.Module, Tensor, Tensor]] = []

    def record(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> Tensor:
        if not output.requires_grad:
            output = output.requires_grad_()
        seen.append((layer, given[0], output))
        return output

    handles = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()
