"""Random flips and crops of images: one draw per example and step, so that an example still counts once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from dpviz.training.random_streams import Counted, Seeded

PADDING = 4


class Crops(NamedTuple):
    """Where each image is cut out of itself with zeros around, and whether it is flipped left to right; columns."""

    top: Tensor
    left: Tensor
    flipped: Tensor


def draw_crops(stream: Seeded | Counted, step: int, numbers: Tensor, size: int, padding: int = PADDING) -> Crops:
    """A crop for each of these examples, out of so many, at a step; flipped with probability 1/2."""
    places = 2 * padding + 1
    if isinstance(stream, Counted):
        bits = stream.bits(step, numbers, size)[:, None]
        top, left = ((bits >> by & 0x7FFFFFFF) % places for by in (1, 32))
        return Crops(top, left, (bits & 1).bool())
    with stream.generator.device:  # older streams draw on the CPU, wherever the images are
        top, left = (torch.randint(places, (len(numbers), 1), generator=stream.generator) for _ in range(2))
        flipped = torch.rand(len(numbers), 1, generator=stream.generator) < 0.5
    return Crops(*(drawn.to(numbers.device) for drawn in (top, left, flipped)))


def augment(images: Tensor, crops: Crops, padding: int = PADDING) -> Tensor:
    """Each image cropped from itself padded with zeros; zero is the mean colour after normalisation."""
    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    with images.device:
        rows = crops.top + torch.arange(height)
        columns = crops.left + torch.where(crops.flipped, torch.arange(width - 1, -1, -1), torch.arange(width))
        picked = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2)
