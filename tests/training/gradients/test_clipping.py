"""No rule lets an example's gradient be longer than clip_norm; each equals its formula."""

import math

import pytest
import torch

from dpviz.training.gradients.clipping import build_clipping, example_norms
from dpviz.training.tables import CLIPPINGS


def squared_norms(seed=0):
    """Five layers of 400 examples, lengths from 1e-6 to 1e6."""
    generator = torch.Generator().manual_seed(seed)
    return 10 ** (24 * torch.rand(5, 400, generator=generator, dtype=torch.float64) - 12)


@pytest.mark.parametrize("name", CLIPPINGS)
@pytest.mark.parametrize("clip_norm", [1e-3, 0.1, 1.0, 50.0])
def test_a_clipped_gradient_is_never_longer_than_clip_norm(name, clip_norm):
    squares = squared_norms()
    factors = build_clipping(name, {})(squares, clip_norm)
    assert factors.shape == squares.shape
    assert (example_norms(factors.square() * squares) <= clip_norm).all()
    assert (factors > 0).all()


@pytest.mark.parametrize("name", ["flat", "per-layer"])
def test_a_short_gradient_is_left_alone(name):
    squares = torch.tensor([[0.0, 0.01], [0.0, 0.02]])
    assert torch.equal(build_clipping(name, {})(squares, 1.0), torch.ones(2, 2))


def test_flat_clipping_scales_the_whole_gradient_by_one_factor():
    factors = build_clipping("flat", {})(torch.tensor([[9.0], [16.0]]), 1.0)
    assert torch.allclose(factors, torch.tensor([[0.2], [0.2]]))


def test_auto_s_normalises_every_gradient():
    factors = build_clipping("auto-s", {"gamma": 0.5})(torch.tensor([[9.0, 0.0], [16.0, 0.0]]), 2.0)
    assert torch.allclose(factors[0], torch.tensor([2 / 5.5, 2 / 0.5]))
    assert torch.equal(factors[0], factors[1])


def test_per_layer_clipping_gives_each_layer_its_share():
    factors = build_clipping("per-layer", {})(torch.tensor([[9.0], [0.01]]), 1.0)
    assert torch.allclose(factors, torch.tensor([[1 / math.sqrt(2) / 3], [1.0]]))


@pytest.mark.parametrize("name", CLIPPINGS)
def test_a_gradient_that_is_not_a_number_stays_visible(name):
    assert build_clipping(name, {})(torch.tensor([[math.nan]]), 1.0).isnan().all()
