"""A layer's share of the per-example gradients, from its input and the gradient of its output.

A Linear or Conv2d layer sees `rows` [batch, places, ins] (for a convolution, the patches under the kernel) and gets
`grads` [batch, places, outs]; an example's weight gradient is grads^T rows. It is either written out, or its norm comes
from the Gram matrices of both (|grads^T rows|^2 = sum of (grads grads^T) * (rows rows^T)) and only the sum is formed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# glibc hands freed memory back to the system beyond twice the largest block that was ever freed (32 MiB at most). One
# large block, freed at once, lets activations reuse their pages, too.
LARGE_BLOCK = 32 * 2**20 - 2**16
GHOST_GAIN = 5  # measured: below it the Gram matrices are cheaper than writing gradients out


class Buffers:
    """Memory that is used again for every part of a batch: fresh pages cost more than the arithmetic done in them."""

    def __init__(self) -> None:
        self.held: dict[object, Tensor] = {}
        torch.empty(LARGE_BLOCK, dtype=torch.uint8)

    def take(self, key: object, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Unset memory of this shape; it stays valid until the key is taken again."""
        size = math.prod(shape)
        held = self.held.get(key)
        if held is None or held.numel() < size or held.dtype != like.dtype or held.device != like.device:
            held = self.held[key] = like.new_empty(size)
        return held[:size].view(shape)


class Share(Protocol):
    """One layer's part of every example's gradient."""

    def squared_norms(self) -> Tensor:
        """Squared length per example."""

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        """Sum over the examples, each times its factor: one tensor per parameter of the layer."""


class Written:
    """Gradients written out, one tensor [batch, ...] per parameter; `shape` brings the weight's sum into its shape."""

    def __init__(self, gradients: list[Tensor], shape: Callable[[Tensor], Tensor] | None = None) -> None:
        self.gradients, self.shape = gradients, shape

    def squared_norms(self) -> Tensor:
        return torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in self.gradients]).square().sum(0)

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        sums = [(factors @ g.flatten(1)).view(g.shape[1:]) for g in self.gradients]
        return [self.shape(sums[0]), *sums[1:]] if self.shape else sums


class Factored:
    """Gradients never written out, only the two factors that they are products of (the ghost trick)."""

    def __init__(self, rows: Tensor, grads: Tensor, bias: bool, shape: Callable[[Tensor], Tensor]) -> None:
        self.rows, self.grads, self.bias, self.shape = rows, grads, bias, shape

    def squared_norms(self) -> Tensor:
        if self.rows.shape[1] == 1:
            squares = self.grads.square().sum((1, 2)) * self.rows.square().sum((1, 2))
        else:
            squares = (_gram(self.grads) * _gram(self.rows)).sum((1, 2))
        return squares + self.grads.sum(1).square().sum(1) if self.bias else squares

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        weighted = (self.grads * factors[:, None, None]).flatten(0, 1)
        weight = self.shape(weighted.T @ self.rows.flatten(0, 1))
        return [weight, weighted.sum(0)] if self.bias else [weight]


def _gram(rows: Tensor) -> Tensor:
    return torch.bmm(rows, rows.transpose(1, 2))


def ghost_is_cheaper(places: int, ins: int, outs: int) -> bool:
    """Whether two Gram matrices of places x places cost less than writing out and reading back ins x outs numbers."""
    return places * places * (ins + outs) < GHOST_GAIN * ins * outs


def linear(layer: nn.Linear, inputs: Tensor, grads: Tensor, buffers: Buffers) -> Share:
    """Any dimensions between the batch and the features are places."""
    rows = inputs.reshape(len(inputs), -1, layer.in_features)
    grads = grads.reshape(len(grads), -1, layer.out_features)
    if ghost_is_cheaper(rows.shape[1], layer.in_features, layer.out_features):
        return Factored(rows, grads, layer.bias is not None, lambda weight: weight)
    return _written(layer, rows, grads, buffers, lambda weight: weight)


def conv2d(layer: nn.Conv2d, inputs: Tensor, grads: Tensor, buffers: Buffers) -> Share:
    """Patches are copied with the channels innermost, so that a row of a patch is one piece of memory."""

    def shape(weight: Tensor) -> Tensor:
        return weight.view(layer.out_channels, *layer.kernel_size, -1).permute(0, 3, 1, 2).contiguous()

    windows = patches(layer, inputs, buffers)
    batch, (places, ins) = len(inputs), (windows.shape[1:3].numel(), windows.shape[3:].numel())
    ghost = ghost_is_cheaper(places, ins, layer.out_channels)
    rows = buffers.take((layer, "rows") if ghost else "rows", windows.shape, windows).copy_(windows)
    rows = rows.view(batch, places, ins)
    grads = grads.permute(0, 2, 3, 1).reshape(batch, places, layer.out_channels)
    if ghost:
        return Factored(rows, grads, layer.bias is not None, shape)
    return _written(layer, rows, grads, buffers, shape)


def _written(
    layer: nn.Module, rows: Tensor, grads: Tensor, buffers: Buffers, shape: Callable[[Tensor], Tensor]
) -> Written:
    weights = buffers.take(layer, (len(rows), grads.shape[2], rows.shape[2]), rows)
    torch.bmm(grads.transpose(1, 2), rows, out=weights)
    return Written([weights] if layer.bias is None else [weights, grads.sum(1)], shape)


def patches(layer: nn.Conv2d, inputs: Tensor, buffers: Buffers) -> Tensor:
    """View [batch, y, x, kernel y, kernel x, channels] of what the kernel sees at each place."""
    (down, right), (high, wide) = layer.padding, layer.kernel_size
    batch, channels, height, width = inputs.shape
    height, width = height + 2 * down, width + 2 * right
    padded = buffers.take("padded", (batch, height, width, channels), inputs).zero_()
    padded[:, down : height - down, right : width - right].copy_(inputs.permute(0, 2, 3, 1))
    (step_y, step_x), (gap_y, gap_x) = layer.stride, layer.dilation
    places_y, places_x = (height - gap_y * (high - 1) - 1) // step_y + 1, (width - gap_x * (wide - 1) - 1) // step_x + 1
    example, row, pixel, _ = padded.stride()
    return padded.as_strided(
        (batch, places_y, places_x, high, wide, channels),
        (example, step_y * row, step_x * pixel, gap_y * row, gap_x * pixel, 1),
    )


def group_norm(layer: nn.GroupNorm, inputs: Tensor, grads: Tensor, buffers: Buffers) -> Share:
    """Sums over the pixels of g times the normalised input, and of g."""
    normal = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
    return Written([normal.mul_(grads).flatten(2).sum(2), grads.flatten(2).sum(2)])


SHARES: dict[type[nn.Module], Callable[..., Share]] = {
    nn.Linear: linear,
    nn.Conv2d: conv2d,
    nn.GroupNorm: group_norm,
}


def unsupported(layer: nn.Module) -> str | None:
    """Why this layer has no share here, or None."""
    if type(layer) not in SHARES:
        return f"{type(layer).__name__} layers are not known to the fast path"
    if isinstance(layer, nn.Conv2d) and (
        layer.groups != 1 or layer.padding_mode != "zeros" or isinstance(layer.padding, str)
    ):
        return "convolutions with groups or with padding other than zeros are not known to the fast path"
    return None


def numbers(layer: nn.Module, inputs: Tensor, output: Tensor) -> int:
    """How many numbers one example occupies while this layer's share is computed."""
    size = inputs[0].numel() + 2 * output[0].numel()
    if isinstance(layer, nn.Conv2d):
        places, ins = output.shape[2] * output.shape[3], layer.weight[0].numel()
        written = 0 if ghost_is_cheaper(places, ins, layer.out_channels) else layer.weight.numel()
        size += places * ins + written
    return size
