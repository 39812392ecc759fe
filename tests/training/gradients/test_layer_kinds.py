"""Every kind of layer on its own and in small models: equal to Opacus and to a plain loop, never longer than C."""

import math

import pytest
import torch
from torch import nn

from dpviz.training.gradients import layer_gradients
from dpviz.training.gradients.clipping import build_clipping
from dpviz.training.gradients.per_example import PerExample
from dpviz.training.losses import build_loss
from dpviz.training.tables import CLIPPINGS
from tests.training.gradients.test_per_example import OPACUS_WARNING, distance, looped, one_thread, opacus_sum

__all__ = ["one_thread"]
BATCH, CLASSES = 5, 4
# Opacus 1.6 gives padding a gradient and fails on a LayerNorm without a bias.
OPACUS_LACKS = ("embedding, padding", "embedding of tables", "layer norm, places")
WORDS = (6,)


class Mean(nn.Module):
    """Over the places, which come second."""

    def forward(self, x):
        return x.mean(1)


class Turn(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2)


def head(layer, *more):
    return nn.Sequential(layer, nn.Tanh(), *more, nn.Flatten(), nn.LazyLinear(CLASSES))


# Name -> the model, and the shape of its inputs; words are whole numbers up to 7.
KINDS = {
    "embedding": (lambda: nn.Sequential(nn.Embedding(8, 3), Mean(), nn.Linear(3, CLASSES)), WORDS),
    "embedding, padding": (lambda: head(nn.Embedding(8, 3, padding_idx=2)), WORDS),
    "embedding of tables": (lambda: head(nn.Embedding(8, 3, padding_idx=-1)), (2, 3)),
    "text": (lambda: head(nn.Embedding(8, 6), nn.LayerNorm(6), Turn(), nn.Conv1d(6, 4, 3, padding=1)), WORDS),
    "conv1d": (lambda: head(nn.Conv1d(3, 5, 3, stride=2, padding=2, dilation=2)), (3, 11)),
    "conv1d, wide": (lambda: head(nn.Conv1d(16, 40, 3, bias=False)), (16, 5)),
    "conv1d, groups": (lambda: head(nn.Conv1d(4, 6, 3, groups=2)), (4, 9)),
    "conv2d, groups": (lambda: head(nn.Conv2d(4, 6, (3, 2), groups=2, padding=(1, 0), stride=(2, 1))), (4, 7, 6)),
    "conv2d, depthwise": (lambda: head(nn.Conv2d(3, 6, 3, groups=3, bias=False)), (3, 6, 6)),
    "conv2d, wide groups": (lambda: head(nn.Conv2d(32, 4, 3, groups=2, dilation=2)), (32, 6, 7)),
    "layer norm": (lambda: head(nn.LayerNorm(7)), (7,)),
    "layer norm, places": (lambda: head(nn.Linear(4, 5), nn.LayerNorm(5, bias=False)), (3, 4)),
    "layer norm, two dimensions": (lambda: head(nn.LayerNorm((3, 4))), (2, 3, 4)),
}


def case(name, dtype=torch.float64):
    build, shape = KINDS[name]
    generator = torch.Generator().manual_seed(5)
    words = "embedding" in name or name == "text"
    inputs = torch.randint(8, (BATCH, *shape), generator=generator)
    if not words:
        inputs = torch.randn(BATCH, *shape, generator=generator).to(dtype)
    model = build().to(dtype)
    model(inputs)
    with torch.no_grad():
        for weights in model.parameters():
            weights.normal_(generator=generator)
    return model, inputs, torch.arange(BATCH) % CLASSES


def step_of(model, rule="flat", loss="cross-entropy"):
    return PerExample(model, build_loss(loss, {}), build_clipping(rule, {}))


@OPACUS_WARNING
@pytest.mark.parametrize("name", [name for name in KINDS if name not in OPACUS_LACKS])
def test_every_kind_is_within_1e_5_of_opacus_in_single_precision(name):
    model, inputs, targets = case(name, torch.float32)
    theirs, norms = opacus_sum(model, inputs, targets, 1.0)
    step = step_of(model)
    ours = step.clipped_sum(inputs, targets, epoch=0, clip_norm=1.0)
    assert step.fallback is None
    assert distance(ours.gradients, theirs) < 1e-5
    assert torch.allclose(ours.norms, norms, rtol=1e-5)


@pytest.mark.parametrize("rule", CLIPPINGS)
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_equals_its_definition_under_every_rule(name, rule):
    model, inputs, targets = case(name)
    step = step_of(model, rule, "tailored")
    ours = step.clipped_sum(inputs, targets, epoch=1, clip_norm=0.3)
    assert step.fallback is None
    assert distance(ours.gradients, looped(model, step.loss, step.clipping, inputs, targets, 1, 0.3)) < 1e-9


@pytest.mark.parametrize("rule", CLIPPINGS)
@pytest.mark.parametrize("name", KINDS)
def test_one_example_of_every_kind_is_never_longer_than_clip_norm(name, rule):
    model, inputs, targets = case(name, torch.float32)
    step = step_of(model, rule, "sse")
    for scale in (1.0, 1e3):
        with torch.no_grad():
            next(model.parameters()).mul_(scale)
        for one, target in zip(inputs.split(1), targets.split(1), strict=True):
            gradients = step.clipped_sum(one, target, epoch=0, clip_norm=1e-2).gradients
            assert 0 < math.sqrt(sum(part.double().square().sum() for part in gradients)) <= 1e-2


def test_an_embedded_example_whose_gradient_is_not_finite_counts_nothing():
    model, inputs, targets = case("embedding", torch.float32)
    inputs[0], inputs[1:] = 7, inputs[1:].clamp(max=6)
    step = step_of(model, loss="sse")
    without = step.clipped_sum(inputs[1:], targets[1:], epoch=0, clip_norm=1.0)
    with torch.no_grad():
        model[0].weight[7] = math.inf
    ours = step.clipped_sum(inputs, targets, epoch=0, clip_norm=1.0)
    assert distance(ours.gradients, without.gradients) < 1e-6


# --- parameters that work in two places ---------------------------------------------------------------------------


class Twice(nn.Module):
    """One layer that is called twice."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.last(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, CLASSES)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Unused(nn.Module):
    """A layer that does nothing."""

    def __init__(self):
        super().__init__()
        self.idle, self.last = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.last(x)


@OPACUS_WARNING
@pytest.mark.parametrize(("kind", "reason"), [(Twice, "used twice"), (Tied, "share"), (Unused, "not at all")])
@pytest.mark.parametrize("physical_batch", [None, 2])
def test_shared_weights_are_clipped_as_one_gradient(kind, reason, physical_batch):
    torch.manual_seed(0)
    model, inputs, targets = kind().double(), torch.randn(BATCH, 6).double(), torch.arange(BATCH) % CLASSES
    loss = build_loss("cross-entropy", {})
    step = PerExample(model, loss, build_clipping("flat", {}), physical_batch)
    total = [torch.zeros_like(p) for p in model.parameters()]
    for one, target in zip(inputs.split(1), targets.split(1), strict=True):
        own = loss(model(one), target, 0, []).sum()
        grads = torch.autograd.grad(own, list(model.parameters()), allow_unused=True, materialize_grads=True)
        norm = math.sqrt(sum(grad.square().sum() for grad in grads))
        for part, grad in zip(total, grads, strict=True):
            part += grad * min(1.0, 0.05 / norm)
        alone = step.clipped_sum(one, target, epoch=0, clip_norm=0.05).gradients
        assert math.sqrt(sum(part.square().sum() for part in alone)) <= 0.05
    ours = step.clipped_sum(inputs, targets, epoch=0, clip_norm=0.05)
    assert distance(ours.gradients, total) < 1e-9
    assert reason in step.fallback


def test_layers_that_are_frozen_get_no_gradient():
    model, inputs, targets = case("text")
    model[0].requires_grad_(False)
    step = step_of(model)
    ours = step.clipped_sum(inputs, targets, epoch=0, clip_norm=1.0)
    assert [g.shape for g in ours.gradients] == [p.shape for p in list(model.parameters())[1:]]
    assert [p.requires_grad for p in model.parameters()][:2] == [False, True]


def test_a_device_without_doubles_gets_the_same_sums(monkeypatch):
    """Gradients are written out where ghost norms would need double precision."""
    torch.manual_seed(0)
    words, labels = torch.randint(20, (12, 6)), torch.arange(12) % 3
    model = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 300), nn.Tanh(), nn.Flatten(), nn.Linear(1800, 3))

    def clipped():
        made = PerExample(model, build_loss("cross-entropy", {}), build_clipping("flat", {}))
        return made.clipped_sum(words, labels, epoch=0, clip_norm=0.1)

    expected = clipped()
    monkeypatch.setattr(layer_gradients, "has_doubles", lambda values: False)
    found = clipped()
    torch.testing.assert_close(found.norms, expected.norms, rtol=1e-4, atol=0.0)
    torch.testing.assert_close(found.gradients, expected.gradients, rtol=1e-4, atol=1e-7)
