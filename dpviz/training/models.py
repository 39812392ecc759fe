"""MODELS as torch modules. Initial weights come from a generator: the global random state is shared by threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpviz.privacy.registry import InputError, Value
from dpviz.training import architectures as layers
from dpviz.training.architectures import MODELS, Shape
from dpviz.training.own_models import build_own

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}
CHANNELS_PER_GROUP = 8


def build_model(
    name: str,
    knobs: Mapping[str, Value],
    input_shape: Shape,
    classes: int,
    generator: torch.Generator,
    *,
    tokens: bool = False,
) -> nn.Module:
    """The model with fresh weights. `input_shape` is one example's; `tokens` says that examples are whole numbers."""
    entry = MODELS[name]
    if entry.own:
        return build_own(name, tuple(input_shape), classes, generator, tokens=tokens)
    if tokens:
        raise InputError(f"{name} takes numbers and cannot look up tokens; give a model of your own, module:function")
    with torch.device("meta"):
        steps = entry.steps(tuple(input_shape), classes, knobs)
        model: nn.Module = nn.Sequential(*(MODULES[type(layer)](layer, shape) for layer, shape in steps))
    model = model.to_empty(device=generator.device)
    for module in model.modules():
        _initialise(module, generator)
    return model


@torch.no_grad()
def _initialise(module: nn.Module, generator: torch.Generator) -> None:
    """PyTorch's own defaults: uniform within 1 / sqrt(fan in) for weights and biases; ones and zeros for norms."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        bound = 1 / math.sqrt(module.weight[0].numel())
        module.weight.uniform_(-bound, bound, generator=generator)
        if module.bias is not None:
            module.bias.uniform_(-bound, bound, generator=generator)
    elif isinstance(module, nn.GroupNorm) and module.affine:
        module.weight.fill_(1.0)
        module.bias.zero_()


class Block(nn.Module):
    """Two convolutions around a shortcut without weights: strided, missing channels padded with zeros.

    He et al. (2016), arXiv:1512.03385, Sec. 4.2: option A.
    """

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.stride, self.missing = stride, after - before
        self.first = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.GroupNorm(after // CHANNELS_PER_GROUP, after)
        self.second = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.second_norm = nn.GroupNorm(after // CHANNELS_PER_GROUP, after)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.missing:
            shortcut = x[:, :, :: self.stride, :: self.stride]
            shortcut = F.pad(shortcut, (0, 0, 0, 0, self.missing // 2, self.missing - self.missing // 2))
        inner = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(inner)) + shortcut)


# Kind of layer -> its module, from the layer and the shape of its inputs.
MODULES: dict[type[layers.Layer], Callable[..., nn.Module]] = {
    layers.Conv: lambda layer, shape: nn.Conv2d(
        shape[0], layer.channels, layer.kernel, stride=layer.stride, padding=layer.padding, bias=layer.bias
    ),
    layers.MaxPool: lambda layer, shape: nn.MaxPool2d(layer.kernel, layer.stride),
    layers.Norm: lambda layer, shape: nn.GroupNorm(layer.groups, shape[0], affine=layer.affine),
    layers.Residual: lambda layer, shape: Block(shape[0], layer.channels, layer.stride),
    layers.AveragePool: lambda layer, shape: nn.AdaptiveAvgPool2d(1),
    layers.Activation: lambda layer, shape: ACTIVATIONS[layer.name](),
    layers.Flatten: lambda layer, shape: nn.Flatten(),
    layers.Dense: lambda layer, shape: nn.Linear(shape[0], layer.units),
}
