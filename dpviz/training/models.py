"""Models by name, with initial weights drawn from a generator: the global random state is shared by threads.

In every convolutional block the pooling comes before the non-linearity. Both non-linearities rise, so the order does
not change the function, and the non-linearity then runs on the pooled values only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dpviz.privacy.registry import InputError, Value
from dpviz.training.tables import MODELS

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}
SCATTER_GROUPS = 27
CHANNELS_PER_GROUP = 8


def build_model(
    name: str, knobs: Mapping[str, Value], input_shape: tuple[int, ...], classes: int, generator: torch.Generator
) -> nn.Module:
    """The model with fresh weights. `input_shape` is one example's, without the batch."""
    entry, shape = MODELS[name], tuple(input_shape)
    if entry.inputs not in (None, shape):
        raise InputError(f"{name} takes inputs of shape {entry.inputs}, got {shape}; choose another model or dataset")
    with torch.device("meta"):
        model: nn.Module = entry.make(knobs, shape, classes)
    model = model.to_empty(device=generator.device)
    for layer in model.modules():
        _initialise(layer, generator)
    return model


@torch.no_grad()
def _initialise(layer: nn.Module, generator: torch.Generator) -> None:
    """PyTorch's own defaults: uniform within 1 / sqrt(fan in) for weights and biases; ones and zeros for norms."""
    if isinstance(layer, nn.Linear | nn.Conv2d):
        bound = 1 / math.sqrt(layer.weight[0].numel())
        layer.weight.uniform_(-bound, bound, generator=generator)
        if layer.bias is not None:
            layer.bias.uniform_(-bound, bound, generator=generator)
    elif isinstance(layer, nn.GroupNorm) and layer.affine:
        layer.weight.fill_(1.0)
        layer.bias.zero_()


def cnn_mnist(_shape: tuple[int, ...], classes: int, activation: str) -> nn.Module:
    act = ACTIVATIONS[activation]
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, stride=2, padding=2), nn.MaxPool2d(2, stride=1), act()),
        *(nn.Conv2d(16, 32, 4, stride=2), nn.MaxPool2d(2, stride=1), act()),
        *(nn.Flatten(), nn.Linear(512, 32), act(), nn.Linear(32, classes)),
    )


def cnn_cifar10(_shape: tuple[int, ...], classes: int, activation: str) -> nn.Module:
    act = ACTIVATIONS[activation]
    blocks: list[nn.Module] = []
    for before, after in ((3, 32), (32, 64), (64, 128)):
        blocks += [nn.Conv2d(before, after, 3, padding=1), act()]
        blocks += [nn.Conv2d(after, after, 3, padding=1), nn.MaxPool2d(2), act()]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(2048, 128), act(), nn.Linear(128, classes))


def _scatter_norm(channels: int) -> nn.Module:
    """Group normalisation without weights: it looks at one example only, so it costs no privacy.

    Tramer & Boneh (2021), arXiv:2011.11660, Sec. 3: they normalise either so or with noisy statistics of the dataset.
    """
    return nn.GroupNorm(SCATTER_GROUPS, channels, affine=False)


def scatter_mnist(_shape: tuple[int, ...], classes: int, activation: str) -> nn.Module:
    act = ACTIVATIONS[activation]
    return nn.Sequential(
        _scatter_norm(81),
        *(nn.Conv2d(81, 16, 3, stride=2, padding=1), nn.MaxPool2d(2, stride=1), act()),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2, stride=1), act()),
        *(nn.Flatten(), nn.Linear(128, 32), act(), nn.Linear(32, classes)),
    )


def scatter_cifar10(_shape: tuple[int, ...], classes: int, activation: str) -> nn.Module:
    act = ACTIVATIONS[activation]
    blocks: list[nn.Module] = [_scatter_norm(243)]
    for before in (243, 64):
        blocks += [nn.Conv2d(before, 64, 3, padding=1), act()]
        blocks += [nn.Conv2d(64, 64, 3, padding=1), nn.MaxPool2d(2), act()]
    return nn.Sequential(*blocks, nn.Flatten(), nn.Linear(256, classes))


def cnn_curricula(_shape: tuple[int, ...], classes: int, activation: str, hidden: int) -> nn.Module:
    """The paper gives no kernel sizes; these are of the Keras model that DP-SGD on MNIST is usually shown with."""
    act = ACTIVATIONS[activation]
    head = (nn.Linear(512, hidden), act(), nn.Linear(hidden, classes)) if hidden else (nn.Linear(512, classes),)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.MaxPool2d(2, stride=1), act()),
        *(nn.Conv2d(16, 32, 4, stride=2), nn.MaxPool2d(2, stride=1), act()),
        *(nn.Flatten(), *head),
    )


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


def resnet20(_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Three stages of three blocks with 16, 32 and 64 channels; batch normalisation would mix examples."""
    stem = (nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.GroupNorm(16 // CHANNELS_PER_GROUP, 16), nn.ReLU())
    stages = [
        Block(before if first else after, after, stride if first else 1)
        for before, after, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2))
        for first in (True, False, False)
    ]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def logistic(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
