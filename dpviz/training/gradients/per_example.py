"""Clipped per-example gradient sums by book-keeping, with one backward pass.

The forward pass keeps each layer's input, one backward pass gives the gradient of every layer's output. From these two
come each example's gradient norm, layer by layer, then the factors of the clipping rule, then the weighted sum.
Bu, Wang, Zha & Karypis (2023), arXiv:2210.00038.

Large batches are worked on in parts, which bounds memory.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dpviz.training.devices import CPU, Device, out_of_memory
from dpviz.training.evaluation import Weighted, channels_last
from dpviz.training.gradients.clipping import ClippingRule, example_norms
from dpviz.training.gradients.layer_gradients import SHARES, Buffers, Share, Written, numbers, unsupported
from dpviz.training.losses import PerExampleLoss

Keep = Callable[[Tensor], Tensor]
OPACUS_EXAMPLES = 64  # worked on at once, at most
Call = tuple[nn.Module, Tensor, Tensor]  # layer, input, output


@dataclass(frozen=True)
class Clipped:
    """What a batch gave: the clipped sum, one tensor per parameter, and what was seen on the way.

    `norms` are the unclipped lengths of the examples' gradients. Apart from the gradients, which get noise, nothing
    here is covered by epsilon.
    """

    gradients: list[Tensor]
    losses: Tensor
    logits: Tensor
    norms: Tensor


class PerExample:
    """Clipped gradient sums of a model under a loss and a clipping rule, on the device where the model is.

    `physical_batch` bounds the examples worked on at once (None: chosen from the layers' sizes); larger batches are
    split, with the same result. Where memory runs out it is halved, and the batch begun again. `fallback` is None, or
    says why Opacus computes the per-example gradients instead.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: PerExampleLoss,
        clipping: ClippingRule,
        physical_batch: int | None = None,
        *,
        device: Device = CPU,
    ) -> None:
        self.model, self.loss, self.clipping, self.physical_batch = model, loss, clipping, physical_batch
        self.device = device
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.layers = [m for m in model.modules() if any(p.requires_grad for p in m.parameters(recurse=False))]
        self.buffers = Buffers(device.portions.rows)
        self.halved_to: int | None = None  # the physical batch, once memory ran out
        self._opacus: OpacusTwin | None = None
        self.fallback = next((reason for layer in self.layers if (reason := unsupported(layer))), None)
        held = sum(len(list(layer.parameters(recurse=False))) for layer in self.layers)
        if held != len(self.parameters) and not self.fallback:
            self.fallback = "weights that several layers share are not known to the fast path"

    def clipped_sum(
        self, inputs: Tensor, targets: Tensor, *, epoch: int, clip_norm: float, keep: Keep | None = None
    ) -> Clipped:
        """The sum over the batch of each example's gradient times its clipping factor.

        An infinite clip_norm clips nothing, whatever the rule. `keep` gets the losses and says which examples count.
        """
        if len(targets) == 0:
            return self._nothing(inputs)
        self.physical_batch = self.physical_batch or self._fitting(inputs)
        while True:
            try:
                return self._clipped_sum(inputs, targets, epoch, clip_norm, keep)
            except RuntimeError as error:
                if not out_of_memory(error) or self.physical_batch == 1:
                    raise
            # Behind the handler, where nothing refers to the part that failed.
            self.physical_batch = self.halved_to = math.ceil(min(self.physical_batch, len(targets)) / 2)
            self.buffers.held.clear()
            self._opacus = None  # a pass that was cut short leaves activations and gradients in it
            self.device.free_cache()

    def _clipped_sum(self, inputs: Tensor, targets: Tensor, epoch: int, clip_norm: float, keep: Keep | None) -> Clipped:
        assert self.physical_batch is not None
        gradients = [torch.zeros_like(p) for p in self.parameters]
        losses, logits, norms = [], [], []
        parts = math.ceil(len(targets) / self.physical_batch)
        for some, labels in zip(inputs.chunk(parts), targets.chunk(parts), strict=True):
            part_logits, part_losses, shares = self._shares(some, labels, epoch)
            squared_norms = torch.stack([share.squared_norms() for share in shares])
            lost = ~squared_norms.sum(0).isfinite()
            if self.device.asynchronous or lost.any():  # no factor shortens infinity: such an example counts nothing
                squared_norms = squared_norms.masked_fill(lost, 0.0)
                for share in shares:
                    share.drop(lost)
            unclipped = clip_norm == math.inf
            factors = torch.ones_like(squared_norms) if unclipped else self.clipping(squared_norms, clip_norm)
            if keep is not None:
                factors = factors * keep(part_losses)
            sums = [part for share, factor in zip(shares, factors, strict=True) for part in share.weighted_sum(factor)]
            torch._foreach_add_(gradients, sums)
            losses.append(part_losses)
            logits.append(part_logits)
            norms.append(example_norms(squared_norms))
        return Clipped(gradients, torch.cat(losses), torch.cat(logits), torch.cat(norms))

    def _nothing(self, inputs: Tensor) -> Clipped:
        """A batch without examples, which Poisson sampling may draw."""
        with torch.no_grad():
            logits = self.model(inputs)
        none = logits.new_zeros(0)
        return Clipped([torch.zeros_like(p) for p in self.parameters], none, logits, none)

    def _fitting(self, inputs: Tensor) -> int:
        """Examples that a part may have; Opacus writes the gradients of all layers out, so it gets few."""
        if not self.fallback:
            with _frozen(self.model), _recorded(self.layers) as calls:
                self.model(channels_last(inputs[:1]))
            self._look_for_reuse(calls)
        if self.fallback:
            return OPACUS_EXAMPLES
        portions = self.device.portions
        return min(portions.examples, max(1, portions.numbers // sum(numbers(*call) for call in calls)))

    def _look_for_reuse(self, calls: list[Call]) -> None:
        """A layer that works twice has two parts of each gradient, which belong together before they are clipped."""
        if len(calls) != len(self.layers) or len({layer for layer, _, _ in calls}) != len(calls):
            self.fallback = "layers that are used twice, or not at all, are not known to the fast path"

    def _shares(self, inputs: Tensor, targets: Tensor, epoch: int) -> tuple[Tensor, Tensor, list[Share]]:
        """Logits, losses and each layer's share of the per-example gradients."""
        if self.fallback:
            return self._opacus_shares(inputs, targets, epoch)
        with _frozen(self.model), _recorded(self.layers) as calls:
            logits = self.model(channels_last(inputs))
            hidden = [output for layer, _, output in calls[:-1] if isinstance(layer, Weighted)]
            losses = self.loss(logits, targets, epoch, hidden)
            outputs = [output for _, _, output in calls]
            grads = torch.autograd.grad(losses.sum(), outputs, allow_unused=True, materialize_grads=True)
        self._look_for_reuse(calls)
        if self.fallback:
            return self._opacus_shares(inputs, targets, epoch)
        with torch.no_grad():
            shares = {
                layer: SHARES[type(layer)](layer, given.detach(), grad, self.buffers)
                for (layer, given, _), grad in zip(calls, grads, strict=True)
            }
        return logits.detach(), losses.detach(), [shares[layer] for layer in self.layers]

    def _opacus_shares(self, inputs: Tensor, targets: Tensor, epoch: int) -> tuple[Tensor, Tensor, list[Share]]:
        """The same from Opacus' GradSampleModule, which writes every layer's gradients out."""
        if self._opacus is None:
            self._opacus = _opacus_twin(self.model)
        module, outputs, weights = self._opacus
        outputs.clear()
        logits = module(inputs)
        losses = self.loss(logits, targets, epoch, outputs[:-1])
        losses.sum().backward()
        shares: list[Share] = []
        taken: set[nn.Parameter] = set()  # Opacus adds up the whole gradient of a parameter that layers share
        for layer in self.layers:
            own = [p for p in layer.parameters(recurse=False) if p not in taken]
            taken.update(own)
            written = [_grad_sample(weights[p], len(inputs)) for p in own]
            if isinstance(layer, nn.Embedding) and layer.padding_idx is not None and own:
                written[0][:, layer.padding_idx] = 0.0  # Opacus does not
            if own:
                shares.append(Written(written))
        return logits.detach(), losses.detach(), shares


def _grad_sample(parameter: nn.Parameter, batch: int) -> Tensor:
    """What Opacus hung on a parameter, taken off it; zeros where the parameter was not used."""
    sample: Tensor | None = getattr(parameter, "grad_sample", None)
    parameter.grad = parameter.grad_sample = None  # type: ignore[attr-defined]
    return parameter.new_zeros(batch, *parameter.shape) if sample is None else sample


class Observed(nn.Module):
    """A layer whose outputs are kept as the next layers see them, that is behind the hooks that Opacus puts on it."""

    def __init__(self, layer: nn.Module, outputs: list[Tensor]) -> None:
        super().__init__()
        self.layer, self.outputs = layer, outputs

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x)
        self.outputs.append(output)
        return output


class OpacusTwin(NamedTuple):
    """GradSampleModule of a copy of a model, the list its layers' outputs come in, and its parameter for each of the
    model's, in the same memory."""

    module: nn.Module
    outputs: list[Tensor]
    weights: dict[nn.Parameter, nn.Parameter]


def _opacus_twin(model: nn.Module) -> OpacusTwin:
    from opacus import GradSampleModule  # seconds to import, and hardly ever needed

    weights = {p: nn.Parameter(p.detach(), p.requires_grad) for p in model.parameters()}
    twin = nn.Sequential(copy.deepcopy(model, {id(p): weight for p, weight in weights.items()}))
    outputs: list[Tensor] = []
    for parent in list(twin.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Weighted):
                setattr(parent, name, Observed(child, outputs))
    return OpacusTwin(GradSampleModule(twin, loss_reduction="sum"), outputs, weights)


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
def _recorded(layers: Sequence[nn.Module]) -> Iterator[list[Call]]:
    """Layer, input and output of each call, in order; the outputs are part of the graph."""
    calls: list[Call] = []

    def record(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        if not output.requires_grad:
            output.requires_grad_()
        calls.append((layer, given[0], output))

    handles = [layer.register_forward_hook(record) for layer in layers]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
