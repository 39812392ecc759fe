"""Flips and crops: they move an image, never mix two, and are drawn evenly."""

import pytest
import torch

from dpviz.training.augmentation import augment, draw_crops
from dpviz.training.random_streams import Counted, Seeded

STREAMS = [Seeded(0, "augmentation"), Counted(0, "augmentation")]


@pytest.mark.parametrize("stream", STREAMS)
def test_augmentation_moves_and_flips_but_never_mixes_examples(stream):
    images = torch.arange(1.0, 65.0).view(64, 1, 1, 1).expand(64, 3, 32, 32)
    result = augment(images, draw_crops(stream, 0, torch.arange(64), 64))
    assert result.shape == images.shape
    assert all(set(picture.unique().tolist()) <= {0.0, float(number)} for number, picture in enumerate(result, 1))
    assert 0 < int((result[:, 0, 0, 0] == 0).sum()) < 64


@pytest.mark.parametrize("stream", STREAMS)
def test_augmentation_gives_the_image_or_its_mirror_image_where_there_is_no_padding(stream):
    image = torch.rand(1, 3, 32, 32)
    results = augment(image.expand(40, -1, -1, -1), draw_crops(stream, 0, torch.arange(40), 40, padding=0), padding=0)
    flips = [bool((result == image[0].flip(2)).all()) for result in results]
    assert all(flip or bool((result == image[0]).all()) for flip, result in zip(flips, results, strict=True))
    assert 5 < sum(flips) < 35


@pytest.mark.parametrize("stream", STREAMS)
def test_every_place_is_as_likely_as_any_other(stream):
    count = 90_000
    top, left, flipped = draw_crops(stream, 5, torch.arange(count), count)
    for places in (top, left):
        assert torch.bincount(places.flatten(), minlength=9).sub(count / 9).abs().max() < 5 * (count / 9) ** 0.5
    assert abs(int(flipped.sum()) - count / 2) < 5 * (count / 4) ** 0.5
    assert abs(float(torch.corrcoef(torch.stack([top, left]).flatten(1).double())[0, 1])) < 0.02
