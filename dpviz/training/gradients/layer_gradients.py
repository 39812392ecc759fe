"""A layer's share of the per-example gradients, from its input and the gradient of its output.

A Linear layer or a convolution sees `rows` [batch, places, ins] (its inputs, or the patches under the kernel) and gets
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
# Measured: below the first the Gram matrices are cheaper than written-out gradients; strips pay if they are at least as
# wide as the second.
GHOST_GAIN, LEAST_STRIP = 5, 16
ROUNDING = 2  # units of rounding of a product of two numbers, one of them scaled, on its way into a sum


class Buffers:
    """Memory that is used again for every part of a batch: fresh pages cost more than the arithmetic done in them.

    `rows` is how many numbers of a convolution's rows each thread makes at once.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.held: dict[object, Tensor] = {}
        torch.empty(LARGE_BLOCK, dtype=torch.uint8)

    def take(self, key: object, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Unset memory of this shape; it stays valid until the key is taken again."""
        return self._hold(key, shape, like, like.new_empty)

    def framed(self, key: object, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """The same for images [batch, height, width, ...] in a frame of zeros; a key has frames of one width only."""
        return self._hold((key, shape[1:]), shape, like, like.new_zeros)

    def _hold(self, key: object, shape: tuple[int, ...], like: Tensor, make: Callable[[int], Tensor]) -> Tensor:
        size = math.prod(shape)
        held = self.held.get(key)
        if held is None or held.numel() < size or held.dtype != like.dtype or held.device != like.device:
            held = self.held[key] = make(size)
        return held[:size].view(shape)


class Share(Protocol):
    """One layer's part of every example's gradient."""

    def squared_norms(self) -> Tensor:
        """Squared length per example, and never less than that of what `weighted_sum` adds up for it."""

    def drop(self, examples: Tensor) -> None:
        """Set the gradients of these examples to zero."""

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        """Sum over the examples, each times its factor: one tensor per parameter of the layer."""


class Written:
    """Gradients written out, one tensor [batch, ...] each; `shape` makes the parameters' gradients of their sums."""

    def __init__(self, gradients: list[Tensor], shape: Callable[[list[Tensor]], list[Tensor]] | None = None) -> None:
        self.gradients, self.shape = gradients, shape

    def squared_norms(self) -> Tensor:
        return torch.stack([torch.linalg.vector_norm(g.flatten(1), dim=1) for g in self.gradients]).square().sum(0)

    def drop(self, examples: Tensor) -> None:
        for gradient in self.gradients:
            gradient.masked_fill_(examples.view(-1, *(1,) * (gradient.dim() - 1)), 0.0)

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        sums = [(factors @ g.flatten(1)).view(g.shape[1:]) for g in self.gradients]
        return self.shape(sums) if self.shape else sums


class Factored:
    """Gradients never written out, only the two factors that they are products of (the ghost trick)."""

    def __init__(self, rows: Tensor, grads: Tensor, bias: bool, shape: Callable[[Tensor], Tensor]) -> None:
        self.rows, self.grads, self.bias, self.shape = rows, grads, bias, shape

    def squared_norms(self) -> Tensor:
        """A bias is a weight of an input that is always 1, which adds 1 to every product of two rows.

        The products of several places may cancel. So they are added up in double precision, and what rounding may add
        to the weighted sum, a tiny share of |grads_p| |rows_p| for each place p, counts on top.
        """
        one = float(self.bias)
        if self.rows.shape[1] == 1:
            return self.grads.square().sum((1, 2)) * (self.rows.square().sum((1, 2)) + one)
        grads, rows = _gram(self.grads.double()), _gram(self.rows.double()) + one
        squares = (grads * rows).sum((1, 2)).clamp(min=0.0)
        places = (_diagonal(grads) * _diagonal(rows)).sqrt().sum(1)
        rounding = ROUNDING * torch.finfo(self.grads.dtype).eps * places
        return (squares.sqrt() + rounding).square().to(self.grads.dtype)

    def drop(self, examples: Tensor) -> None:
        """In copies: inputs and gradients belong to the forward and the backward pass."""
        kept = ~examples[:, None, None]
        self.rows, self.grads = self.rows.where(kept, 0.0), self.grads.where(kept, 0.0)

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        weighted = (self.grads * factors[:, None, None]).flatten(0, 1)
        weight = self.shape(weighted.T @ self.rows.flatten(0, 1))
        return [weight, weighted.sum(0)] if self.bias else [weight]


class LookedUp:
    """Gradients [n, width] of a table's rows: entry k is example k's whole gradient of row k, or zero; none twice."""

    def __init__(self, gradients: Tensor, examples: Tensor, rows: Tensor, batch: int, size: int) -> None:
        self.gradients, self.examples, self.rows, self.batch, self.size = gradients, examples, rows, batch, size

    def squared_norms(self) -> Tensor:
        """Added up in double precision: a long text has many rows. Without it, what rounding may take off is added."""
        squares: Tensor = torch.linalg.vector_norm(self.gradients, dim=1).square()
        if has_doubles(squares):
            squares = squares.double()
        else:
            squares = squares * (1 + len(squares) * torch.finfo(squares.dtype).eps)
        return squares.new_zeros(self.batch).index_add_(0, self.examples, squares).to(self.gradients.dtype)

    def drop(self, examples: Tensor) -> None:
        self.gradients.masked_fill_(examples[self.examples][:, None], 0.0)

    def weighted_sum(self, factors: Tensor) -> list[Tensor]:
        total = self.gradients.new_zeros(self.size, self.gradients.shape[1])
        return [total.index_add_(0, self.rows, factors[self.examples, None] * self.gradients)]


def _gram(rows: Tensor) -> Tensor:
    return torch.bmm(rows, rows.transpose(1, 2))


def _diagonal(matrices: Tensor) -> Tensor:
    return matrices.diagonal(dim1=1, dim2=2)


def has_doubles(values: Tensor) -> bool:
    return values.device.type != "mps"


def ghost_is_cheaper(places: int, ins: int, outs: int) -> bool:
    """Whether two Gram matrices of places x places cost less than writing out and reading back ins x outs numbers."""
    return places * places * (ins + outs) < GHOST_GAIN * ins * outs


def linear(layer: nn.Linear, inputs: Tensor, grads: Tensor, buffers: Buffers) -> Share:
    """Any dimensions between the batch and the features are places."""
    rows = inputs.reshape(len(inputs), -1, layer.in_features)
    grads = grads.reshape(len(grads), -1, layer.out_features)
    ghost = ghost_is_cheaper(rows.shape[1], layer.in_features, layer.out_features)
    if ghost and (has_doubles(rows) or rows.shape[1] == 1):  # several places need double precision
        return Factored(rows, grads, layer.bias is not None, lambda weight: weight)
    weights = torch.bmm(grads.transpose(1, 2), rows)
    return Written([weights] if layer.bias is None else [weights, grads.sum(1)])


Convolution = nn.Conv1d | nn.Conv2d


def _pair(values: tuple[int, ...], fill: int) -> tuple[int, int]:
    """Kernel, stride, padding or dilation in two dimensions: a Conv1d slides over images of height 1."""
    first, second = (fill, *values)[-2:]
    return first, second


def _images(values: Tensor, groups: int) -> Tensor:
    """[batch x groups, channels of a group, height, width]: a group sees its own channels only, as an example does."""
    flat = values.unsqueeze(2) if values.dim() == 3 else values
    return flat if groups == 1 else flat.reshape(len(flat) * groups, -1, *flat.shape[2:])


def convolution(layer: Convolution, inputs: Tensor, grads: Tensor, buffers: Buffers) -> Share:
    """Rows have the channels innermost, so that they are copied in long pieces, and for a few examples at a time."""
    outs, ins = layer.out_channels // layer.groups, layer.weight.shape[1:].numel()
    inputs, grads = _images(inputs, layer.groups), _images(grads, layer.groups)
    batch, places = len(inputs), grads.shape[2:].numel()
    grads = grads.permute(0, 2, 3, 1).reshape(batch, places, outs)
    if layer.groups == 1 and ghost_is_cheaper(places, ins, outs) and has_doubles(grads):
        (rows,) = conv_rows(layer, inputs, buffers, layer)
        return Factored(rows, grads, layer.bias is not None, lambda weight: _conv_weight(layer, [weight]))
    pieces = _pair(layer.kernel_size, 1)[0] // strip_height(layer)
    weights = buffers.take((layer, "weights"), (pieces, batch, outs, ins // pieces), grads)
    few = max(1, buffers.rows * torch.get_num_threads() * pieces // (places * ins))
    for start in range(0, batch, few):
        some = slice(start, start + few)
        for piece, weight in zip(conv_rows(layer, inputs[some], buffers, None), weights, strict=True):
            torch.bmm(grads[some].transpose(1, 2), piece, out=weight[some])

    def shape(sums: list[Tensor]) -> list[Tensor]:
        return [_conv_weight(layer, sums[:pieces]), *sums[pieces:]]

    examples = batch // layer.groups
    written = [*weights.view(pieces, examples, layer.out_channels, ins // pieces)]
    return Written(written if layer.bias is None else [*written, grads.sum(1).view(examples, -1)], shape)


def _conv_weight(layer: Convolution, pieces: list[Tensor]) -> Tensor:
    """The weight's gradient from its pieces [outs, kernel y of the piece x kernel x x channels]."""
    whole = torch.stack(pieces, 1).view(layer.out_channels, *_pair(layer.kernel_size, 1), layer.weight.shape[1])
    return whole.permute(0, 3, 1, 2).contiguous().view(layer.weight.shape)


def strip_height(layer: Convolution) -> int:
    """Rows of the kernel that are served at once: a stride of them, or all.

    A strip of one place is then the next strip of the place above it, and copied once: less is copied, in exchange for
    smaller products.
    """
    (high, wide), (step, _), (gap, _) = (_pair(v, 1) for v in (layer.kernel_size, layer.stride, layer.dilation))
    shared = high % step == 0 and (step == 1 or gap == 1)
    return step if shared and step * wide * layer.weight.shape[1] >= LEAST_STRIP else high


def conv_rows(layer: Convolution, inputs: Tensor, buffers: Buffers, owner: nn.Module | None) -> list[Tensor]:
    """What the kernel sees, [batch, places, ins], in one piece for an owner who keeps it, else maybe in strips."""
    assert not isinstance(layer.padding, str), unsupported(layer)
    (down, right), (high, wide) = _pair(layer.padding, 0), _pair(layer.kernel_size, 1)
    (step_y, step_x), (gap_y, gap_x) = _pair(layer.stride, 1), _pair(layer.dilation, 1)
    batch, channels, height, width = inputs.shape
    height, width = height + 2 * down, width + 2 * right
    places_y, places_x = (height - gap_y * (high - 1) - 1) // step_y + 1, (width - gap_x * (wide - 1) - 1) // step_x + 1
    padded = inputs.permute(0, 2, 3, 1)
    if down or right or not padded.is_contiguous():
        padded = buffers.framed(("padded", down, right), (batch, height, width, channels), inputs)
        padded[:, down : height - down, right : width - right].copy_(inputs.permute(0, 2, 3, 1))
    example, row, pixel, _ = padded.stride()
    strip = strip_height(layer) if owner is None else high
    below = [y * gap_y // step_y for y in range(0, high, strip)]  # how far each strip of a place is below its first
    shape = (batch, places_y + below[-1], places_x, strip, wide, channels)
    stride = (example, step_y * row, step_x * pixel, gap_y * row, gap_x * pixel, 1)
    rows = buffers.take((owner, "rows"), shape, inputs).copy_(padded.as_strided(shape, stride))
    rows = rows.view(batch, -1, strip * wide * channels)
    return [rows[:, y * places_x :][:, : places_y * places_x] for y in below]


def group_norm(layer: nn.GroupNorm, inputs: Tensor, grads: Tensor, buffers: Buffers) -> Share:
    """Sums over the pixels of g times the normalised input, and of g."""
    normal = F.group_norm(inputs, layer.num_groups, eps=layer.eps)
    return Written([normal.mul_(grads).flatten(2).sum(2), grads.flatten(2).sum(2)])


def layer_norm(layer: nn.LayerNorm, inputs: Tensor, grads: Tensor, buffers: Buffers) -> Share:
    """Sums over the places of g times the normalised input, and of g."""
    places = inputs.shape[1 : inputs.dim() - len(layer.normalized_shape)].numel()
    shape = (len(inputs), places, *layer.normalized_shape)
    normal = F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    sums = (normal.mul_(grads).view(shape).sum(1), grads.reshape(shape).sum(1))
    return Written([*sums] if layer.bias is not None else [sums[0]])


def embedding(layer: nn.Embedding, inputs: Tensor, grads: Tensor, buffers: Buffers) -> Share:
    """Words that an example repeats add up; a table of all words would be written out for each example otherwise.

    Each example's words are sorted, so that equal ones stand side by side and share an entry. There are as many entries
    as words: how many differ is not asked, and those left over stay zero.
    """
    batch, size = len(inputs), layer.num_embeddings
    words, order = inputs.reshape(batch, -1).sort(dim=1, stable=True)
    new = torch.ones_like(words, dtype=torch.bool)
    new[:, 1:] = words[:, 1:] != words[:, :-1]
    entries = new.flatten().cumsum(0) - 1
    rows, examples = words.new_zeros(2, words.numel(), dtype=torch.int64)
    rows.scatter_(0, entries, words.flatten().long())
    examples.scatter_(0, entries, torch.arange(batch, device=words.device)[:, None].expand_as(words).flatten())
    entry = torch.empty_like(order).scatter_(1, order, entries.view_as(order))
    sums = grads.new_zeros(words.numel(), layer.embedding_dim)
    sums.index_add_(0, entry.flatten(), grads.reshape(-1, layer.embedding_dim))
    if layer.padding_idx is not None:
        sums.masked_fill_((rows == layer.padding_idx)[:, None], 0.0)
    return LookedUp(sums, examples, rows, batch, size)


SHARES: dict[type[nn.Module], Callable[..., Share]] = {
    nn.Linear: linear,
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.Embedding: embedding,
}


def unsupported(layer: nn.Module) -> str | None:
    """Why this layer has no share here, or None."""
    if type(layer) not in SHARES:
        return f"{type(layer).__name__} layers are not known to the fast path"
    if isinstance(layer, Convolution) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return "convolutions with padding other than a number of zeros are not known to the fast path"
    return None


def numbers(layer: nn.Module, inputs: Tensor, output: Tensor) -> int:
    """How many numbers one example occupies in this layer: input, output, its gradient, and what is written out."""
    size = inputs[0].numel() + 2 * output[0].numel()
    if isinstance(layer, Convolution):
        places, ins = output[0, 0].numel(), layer.weight[0].numel()
        ghost = layer.groups == 1 and ghost_is_cheaper(places, ins, layer.out_channels)
        size += places * ins if ghost else layer.weight.numel()
    return size
