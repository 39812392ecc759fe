"""Clipped sums equal Opacus' and a plain loop's; without clipping they equal SGD's gradient."""

import copy
import math

import opacus
import pytest
import torch
from torch import nn

from dpviz.training.gradients.clipping import build_clipping
from dpviz.training.gradients.layer_gradients import Factored
from dpviz.training.gradients.per_example import PerExample
from dpviz.training.losses import build_loss
from dpviz.training.models import build_model
from dpviz.training.tables import CLIPPINGS, MODELS

SHAPES = {
    "cnn-mnist": (1, 28, 28),
    "cnn-cifar10": (3, 32, 32),
    "scatter-mnist": (81, 7, 7),
    "scatter-cifar10": (243, 8, 8),
    "cnn-curricula": (1, 28, 28),
    "resnet20": (3, 32, 32),
    "cnn": (3, 12, 8),
    "mlp": (1, 5, 3),
    "logistic": (1, 28, 28),
}
OPACUS_WARNING = pytest.mark.filterwarnings("ignore:Full backward hook is firing:UserWarning")


@pytest.fixture(autouse=True)
def one_thread():
    """Small batches do not repay the cost of waking threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def example(name, batch=4, dtype=torch.float64):
    """A model and random data. Doubles, since a max or ReLU that rounding tips over changes a gradient for real."""
    generator = torch.Generator().manual_seed(7)
    model = build_model(name, {}, SHAPES[name], 10, generator).to(dtype)
    inputs = torch.randn(batch, *SHAPES[name], generator=generator).to(dtype)
    return model, inputs, torch.randint(10, (batch,), generator=generator)


def hidden_outputs(model, outputs):
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear)][:-1]
    return [layer.register_forward_hook(lambda layer, given, output: outputs.append(output)) for layer in layers]


def looped(model, loss, clipping, inputs, targets, epoch, clip_norm):
    """The clipped sum by its definition: one example at a time."""
    layers = [layer for layer in model.modules() if list(layer.parameters(recurse=False))]
    outputs = []
    handles = hidden_outputs(model, outputs)
    total = [torch.zeros_like(p) for p in model.parameters()]
    for one, label in zip(inputs.split(1), targets.split(1), strict=True):
        outputs.clear()
        grads = torch.autograd.grad(loss(model(one), label, epoch, outputs).sum(), list(model.parameters()))
        by_parameter = dict(zip(model.parameters(), grads, strict=True))
        own = [[by_parameter[p] for p in layer.parameters(recurse=False)] for layer in layers]
        squares = torch.stack([sum(g.square().sum() for g in grads) for grads in own])
        for factor, grads in zip(clipping(squares[:, None], clip_norm)[:, 0], own, strict=True):
            for g in grads:
                position = next(i for i, p in enumerate(by_parameter) if by_parameter[p] is g)
                total[position] += factor * g
    for handle in handles:
        handle.remove()
    return total


def opacus_sum(model, inputs, targets, clip_norm):
    """The flat-clipped sum of cross-entropy gradients from Opacus' hooks."""
    module = opacus.GradSampleModule(copy.deepcopy(model), loss_reduction="sum")
    nn.functional.cross_entropy(module(inputs), targets, reduction="sum").backward()
    samples = [p.grad_sample for p in module.parameters()]
    norms = torch.stack([g.flatten(1).square().sum(1) for g in samples]).sum(0).sqrt()
    factors = (clip_norm / norms).clamp(max=1)
    return [torch.einsum("b,b...->...", factors, g) for g in samples], norms


def distance(ours, theirs):
    """Relative to the length of the whole gradient."""
    square = sum((a - b).square().sum() for a, b in zip(ours, theirs, strict=True))
    return math.sqrt(square / sum(b.square().sum() for b in theirs))


@OPACUS_WARNING
@pytest.mark.parametrize("name", MODELS)
def test_the_clipped_sum_equals_opacus_on_every_model(name):
    model, inputs, targets = example(name)
    clip_norm = 3.0 if name == "resnet20" else 1.0
    theirs, norms = opacus_sum(model, inputs, targets, clip_norm)
    ours = PerExample(model, build_loss("cross-entropy", {}), build_clipping("flat", {})).clipped_sum(
        inputs, targets, epoch=0, clip_norm=clip_norm
    )
    assert distance(ours.gradients, theirs) < 1e-9
    assert torch.allclose(ours.norms, norms, rtol=1e-9)


@OPACUS_WARNING
@pytest.mark.parametrize("name", ["cnn-mnist", "scatter-mnist", "scatter-cifar10", "cnn-curricula", "logistic"])
def test_single_precision_is_within_1e_5_of_opacus(name):
    model, inputs, targets = example(name, dtype=torch.float32)
    theirs, _ = opacus_sum(model, inputs, targets, 1.0)
    step = PerExample(model, build_loss("cross-entropy", {}), build_clipping("flat", {}))
    assert distance(step.clipped_sum(inputs, targets, epoch=0, clip_norm=1.0).gradients, theirs) < 1e-5


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rule", CLIPPINGS)
def test_every_rule_equals_its_definition_with_the_tailored_loss(name, rule):
    model, inputs, targets = example(name, batch=2)
    loss, clipping = build_loss("tailored", {"threshold": 1.0}), build_clipping(rule, {})
    ours = PerExample(model, loss, clipping).clipped_sum(inputs, targets, epoch=2, clip_norm=0.7)
    assert distance(ours.gradients, looped(model, loss, clipping, inputs, targets, 2, 0.7)) < 1e-9


@pytest.mark.parametrize("name", MODELS)
def test_without_clipping_the_sum_is_the_plain_gradient(name):
    model, inputs, targets = example(name)
    losses = nn.functional.cross_entropy(model(inputs), targets, reduction="none")
    plain = torch.autograd.grad(losses.sum(), list(model.parameters()))
    for rule in CLIPPINGS:
        step = PerExample(model, build_loss("cross-entropy", {}), build_clipping(rule, {}))
        ours = step.clipped_sum(inputs, targets, epoch=0, clip_norm=math.inf)
        assert distance(ours.gradients, plain) < 1e-12
        assert torch.allclose(ours.losses, losses)


@pytest.mark.parametrize("name", ["cnn-mnist", "scatter-mnist"])
@pytest.mark.parametrize("physical_batch", [1, 4, 100])
def test_splitting_the_batch_changes_nothing(name, physical_batch):
    model, inputs, targets = example(name, batch=9)
    whole, split = (
        PerExample(model, build_loss("tailored", {}), build_clipping("flat", {}), physical_batch=size).clipped_sum(
            inputs, targets, epoch=1, clip_norm=0.5
        )
        for size in (9, physical_batch)
    )
    assert distance(split.gradients, whole.gradients) < 1e-12
    assert torch.allclose(split.losses, whole.losses)
    assert torch.allclose(split.logits, whole.logits)
    assert torch.allclose(split.norms, whole.norms)


def test_an_empty_batch_gives_zeros():
    model, inputs, targets = example("cnn-mnist", batch=0)
    nothing = PerExample(model, build_loss("cross-entropy", {}), build_clipping("flat", {})).clipped_sum(
        inputs, targets, epoch=0, clip_norm=1.0
    )
    assert [g.shape for g in nothing.gradients] == [p.shape for p in model.parameters()]
    assert not any(g.any() for g in nothing.gradients)
    assert nothing.logits.shape == (0, 10)


def test_examples_that_are_not_kept_do_not_count():
    model, inputs, targets = example("cnn-mnist")
    step = PerExample(model, build_loss("cross-entropy", {}), build_clipping("flat", {}), physical_batch=4)
    losses = step.clipped_sum(inputs, targets, epoch=0, clip_norm=1.0).losses
    middle = losses.median()
    masked = step.clipped_sum(inputs, targets, epoch=0, clip_norm=1.0, keep=lambda own: own <= middle)
    alone = step.clipped_sum(inputs[losses <= middle], targets[losses <= middle], epoch=0, clip_norm=1.0)
    assert distance(masked.gradients, alone.gradients) < 1e-12
    assert len(masked.losses) == len(inputs)


def test_the_model_is_left_as_it_was():
    model, inputs, targets = example("resnet20", batch=2)
    before = copy.deepcopy(model.state_dict())
    PerExample(model, build_loss("tailored", {}), build_clipping("flat", {})).clipped_sum(
        inputs, targets, epoch=0, clip_norm=1.0
    )
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert not any(layer._forward_hooks for layer in model.modules())


class Odd(nn.Module):
    """A layer that the fast path does not know."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.full((5,), 0.5, dtype=torch.float64))

    def forward(self, x):
        return x * self.scale


ODD_MODELS = {
    "Odd": lambda: nn.Sequential(nn.Flatten(), nn.Linear(48, 5), Odd(), nn.Tanh(), nn.Linear(5, 4)),
    "padding": lambda: nn.Sequential(nn.Conv2d(3, 2, 3, padding="same"), nn.Tanh(), nn.Flatten(), nn.Linear(32, 4)),
}


@OPACUS_WARNING
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", ODD_MODELS)
@pytest.mark.parametrize("rule", CLIPPINGS)
def test_unknown_layers_fall_back_to_opacus_and_say_so(name, rule):
    generator = torch.Generator().manual_seed(0)
    model = ODD_MODELS[name]().double()
    inputs = torch.randn(5, 3, 4, 4, generator=generator).double()
    targets = torch.randint(4, (5,), generator=generator)
    loss, clipping = build_loss("tailored", {}), build_clipping(rule, {})
    step = PerExample(model, loss, clipping, physical_batch=2)
    assert name in step.fallback
    for _ in range(2):
        ours = step.clipped_sum(inputs, targets, epoch=0, clip_norm=0.3)
        assert distance(ours.gradients, looped(model, loss, clipping, inputs, targets, 0, 0.3)) < 1e-9


class Cramped(nn.Module):
    """Passes on what it gets; for more than two examples memory runs out, in one of the passes."""

    def __init__(self, where):
        super().__init__()
        self.where = where

    def forward(self, x):
        if len(x) > 2 and self.where == "forward":
            self.fail(x)
        if len(x) > 2 and x.requires_grad:
            x.register_hook(self.fail)
        return x * 1.0

    @staticmethod
    def fail(_):
        raise torch.OutOfMemoryError("out of memory")


@OPACUS_WARNING
@pytest.mark.parametrize("where", ["forward", "backward"])
@pytest.mark.parametrize("middle", [Odd, nn.Tanh], ids=["by Opacus", "fast path"])
def test_a_pass_that_memory_cut_short_leaves_nothing_to_the_next(where, middle):
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 5), middle(), Cramped(where), nn.Linear(5, 4)).double()
    inputs, targets = torch.randn(5, 6, generator=generator).double(), torch.randint(4, (5,), generator=generator)
    loss, clipping = build_loss("tailored", {}), build_clipping("flat", {})
    step = PerExample(model, loss, clipping, physical_batch=4)
    for _ in range(2):
        ours = step.clipped_sum(inputs, targets, epoch=0, clip_norm=0.3)
        assert distance(ours.gradients, looped(model, loss, clipping, inputs, targets, 0, 0.3)) < 1e-9
        with torch.no_grad():
            torch._foreach_sub_(step.parameters, ours.gradients)
    assert step.halved_to == 2


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 3, (3, 2), stride=(2, 1), padding=(1, 2), dilation=(2, 1)),
        nn.Conv2d(2, 40, 3, stride=4, bias=False),
        nn.Conv2d(2, 3, (6, 4), stride=(2, 3), padding=(1, 2)),
        nn.Conv2d(2, 3, (4, 5), stride=(2, 1), padding=2, dilation=(2, 1)),
        nn.Linear(10, 3, bias=False),
    ],
)
def test_every_shape_of_a_layer_equals_its_definition(layer):
    generator = torch.Generator().manual_seed(3)
    model = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.LazyLinear(4)).double()
    inputs = torch.randn(4, 2, 9, 10, generator=generator).double()
    targets = torch.randint(4, (4,), generator=generator)
    model(inputs)
    loss, clipping = build_loss("tailored", {}), build_clipping("flat", {})
    step = PerExample(model, loss, clipping)
    assert step.fallback is None
    ours = step.clipped_sum(inputs, targets, epoch=0, clip_norm=0.3)
    assert distance(ours.gradients, looped(model, loss, clipping, inputs, targets, 0, 0.3)) < 1e-9


# --- sensitivity --------------------------------------------------------------------------------------------------


def cancelling(places: int, gap: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and output gradients of 64 examples whose places all but cancel one another, up to a relative gap."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(64, 1, 40, generator=generator, dtype=torch.float64).expand(64, places, 40)
    grads = torch.randn(64, 1, 24, generator=generator, dtype=torch.float64).expand(64, places, 24).clone()
    grads[:, 1::2] *= -1
    rows = rows + gap * torch.randn(64, places, 40, generator=generator, dtype=torch.float64)
    grads = grads + gap * torch.randn(64, places, 24, generator=generator, dtype=torch.float64)
    return rows.float(), grads.float()


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gap", [0.0, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3, 1.0])
def test_no_example_is_longer_than_clip_norm_however_its_places_cancel(clipping, bias, gap):
    clip_norm = 1e-6  # about as long as what is left of gradients that cancel
    for seed in range(5):
        share = Factored(*cancelling(4, gap, seed), bias, lambda weight: weight)
        factors = build_clipping(clipping, {})(share.squared_norms()[None], clip_norm)[0]
        assert factors.isfinite().all()
        for k in range(64):
            alone = torch.zeros(64)
            alone[k] = factors[k]
            length = math.sqrt(sum(part.double().square().sum() for part in share.weighted_sum(alone)))
            assert length <= clip_norm


@pytest.mark.parametrize("clipping", CLIPPINGS)
@pytest.mark.parametrize("name", MODELS)
def test_one_examples_share_of_the_sum_is_never_longer_than_clip_norm(name, clipping):
    """Examples that are tame, huge, tiny, constant and far off, each summed alone, in single precision."""
    model, inputs, _ = example(name, batch=6, dtype=torch.float32)
    inputs *= torch.tensor([1.0, 1e3, 1e-6, 0.0, 1e6, 30.0]).view(-1, 1, 1, 1)
    inputs[5] += 1e4
    perexample = PerExample(model, build_loss("sse", {}), build_clipping(clipping, {}))
    for one in inputs.split(1):
        for clip_norm in (1e-3, 1.0):
            found = perexample.clipped_sum(one, torch.tensor([3]), epoch=0, clip_norm=clip_norm).gradients
            assert math.sqrt(sum(part.double().square().sum() for part in found)) <= clip_norm


@OPACUS_WARNING
@pytest.mark.parametrize("value", [math.inf, math.nan, 1e30])
@pytest.mark.parametrize("fallback", [None, "by Opacus"])
@pytest.mark.parametrize("name", ["cnn-mnist", "scatter-mnist", "logistic"])
def test_an_example_whose_gradient_is_not_finite_counts_nothing(name, fallback, value):
    model, inputs, targets = example(name, dtype=torch.float32)
    perexample = PerExample(model, build_loss("sse", {}), build_clipping("flat", {}))
    perexample.fallback = fallback
    without = perexample.clipped_sum(inputs[1:], targets[1:], epoch=0, clip_norm=1.0)
    inputs[0] = value
    found = perexample.clipped_sum(inputs, targets, epoch=0, clip_norm=1.0)
    if value == 1e30 and name != "logistic":  # what is normalised on the way may well be finite
        assert sum(part.square().sum() for part in found.gradients).isfinite()
    else:
        assert distance(found.gradients, without.gradients) < 1e-5
    assert found.norms.isfinite().all()
