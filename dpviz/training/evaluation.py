"""What a model makes of examples: logits, pre-activations, losses and predictions, in chunks and without gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from dpviz.training.losses import PerExampleLoss

CHUNK = 250  # measured: the activations of more leave the cache
Weighted = nn.Conv1d | nn.Conv2d | nn.Linear  # the layers whose outputs are called pre-activations


@dataclass(frozen=True)
class Evaluation:
    """Per-example losses and predicted classes, on the CPU and in the examples' order."""

    losses: Tensor
    predictions: Tensor
    labels: Tensor

    @property
    def loss(self) -> float:
        return float(self.losses.double().mean())

    @property
    def accuracy(self) -> float:
        return float((self.predictions == self.labels).double().mean())


def evaluate(
    model: nn.Module,
    loss: PerExampleLoss,
    images: Tensor,
    labels: Tensor,
    epoch: int,
    inputs: Callable[[Tensor], Tensor] | None = None,
) -> Evaluation:
    """The model's losses and predictions on these examples, of which `inputs` makes what a model takes.

    The host waits once, at the end.
    """
    device = next(model.parameters()).device
    losses, predictions = [], []
    with torch.no_grad():
        for some, targets in zip(images.split(CHUNK), labels.split(CHUNK), strict=True):
            logits, hidden = forward(model, (inputs or as_inputs)(some.to(device)))
            losses.append(loss(logits, targets.to(device), epoch, hidden))
            predictions.append(logits.argmax(1))
    return Evaluation(torch.cat(losses).cpu(), torch.cat(predictions).cpu(), labels.cpu())


def as_inputs(examples: Tensor) -> Tensor:
    """Stored examples as a model takes them: floats, but for tokens, which stay the whole numbers that they are."""
    return examples if is_tokens(examples) else examples.float()


def is_tokens(examples: Tensor) -> bool:
    """Whether they are numbers of words, to be looked up: int64 or int32. Bytes are pixels."""
    return examples.dtype in (torch.int64, torch.int32)


def channels_last(inputs: Tensor) -> Tensor:
    """A copy of images whose channels lie side by side, in which convolutions run two to three times as fast."""
    return inputs.clone(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def forward(model: nn.Module, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Logits, and the pre-activations (outputs) of every convolution and fully connected layer but the last."""
    seen: list[Tensor] = []
    inputs = channels_last(inputs)
    layers = weighted_layers(model).values()
    handles = [layer.register_forward_hook(lambda _layer, _inputs, output: seen.append(output)) for layer in layers]
    try:
        logits = model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    return logits, seen[:-1]


def weighted_layers(model: nn.Module) -> dict[str, Weighted]:
    """Convolutions and fully connected layers by name, in the order in which they were added."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, Weighted)}
