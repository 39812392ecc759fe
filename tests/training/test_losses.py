"""Each loss equals its equation, written here with plain numbers."""

import math

import pytest
import torch
import torch.nn.functional as F

from dpviz.training.losses import MeanSquare, build_loss, second_share
from dpviz.training.tables import LOSSES

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.1, 0.2, 3.0]], dtype=torch.float64)
TARGETS = torch.tensor([0, 1])
HIDDEN = [torch.full((2, 3, 2, 2), 2.0, dtype=torch.float64), torch.tensor([[1.0, 3.0], [0.0, 0.0]]).double()]
SURPRISE = [
    -math.log(math.exp(row[t]) / sum(map(math.exp, row))) for row, t in zip(LOGITS.tolist(), (0, 1), strict=True)
]
SSE = [(1 + 1 + 0.25) / 2, (0.01 + 0.64 + 9) / 2]
PENALTY = [4 + 5, 4 + 0]


def values(name, epoch=0, **knobs):
    return build_loss(name, knobs)(LOGITS, TARGETS, epoch, HIDDEN).tolist()


def focal(gamma):
    return [(1 - math.exp(-s)) ** gamma * s for s in SURPRISE]


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_gives_one_finite_number_per_example(name):
    loss = build_loss(name, {})(LOGITS, TARGETS, 3, HIDDEN)
    assert loss.shape == (2,)
    assert loss.isfinite().all()


@pytest.mark.parametrize("name", LOSSES)
def test_an_example_s_loss_does_not_depend_on_the_others(name):
    loss = build_loss(name, {})
    alone = loss(LOGITS[:1], TARGETS[:1], 1, [h[:1] for h in HIDDEN])
    assert torch.allclose(alone, loss(LOGITS, TARGETS, 1, HIDDEN)[:1])


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("size", [0.0, 1e3])
def test_gradients_stay_finite_at_extreme_logits(name, size):
    logits = torch.tensor([[size, -size], [-size, size]], requires_grad=True)
    build_loss(name, {})(logits, torch.tensor([0, 0]), 0, []).sum().backward()
    assert logits.grad.isfinite().all()


def test_cross_entropy_is_the_surprise_of_the_true_class():
    assert values("cross-entropy") == pytest.approx(SURPRISE)


def test_sse_is_half_the_squared_error_eq_5():
    assert values("sse") == pytest.approx(SSE)


@pytest.mark.parametrize("gamma", [0.0, 0.5, 2.0, 5.0])
def test_focal_loss_plays_down_easy_examples_eq_6(gamma):
    assert values("focal", gamma=gamma) == pytest.approx(focal(gamma))


@pytest.mark.parametrize(("epoch", "threshold"), [(0, 0.0), (3, 7.0), (20, 2.0)])
def test_the_second_loss_takes_over_around_the_threshold(epoch, threshold):
    alpha = 1 / (1 + math.exp(threshold - epoch))
    assert second_share(epoch, threshold) == pytest.approx(alpha)

    def mix(second):
        return [alpha * b + (1 - alpha) * a for a, b in zip(SSE, second, strict=True)]

    assert values("sse+ce", epoch, threshold=threshold) == pytest.approx(mix(SURPRISE))
    assert values("sse+focal", epoch, threshold=threshold, gamma=2.0) == pytest.approx(mix(focal(2.0)))
    tailored = [m + (1 - alpha) / 11 * p for m, p in zip(mix(focal(5.0)), PENALTY, strict=True)]
    assert values("tailored", epoch, threshold=threshold, gamma=5.0, beta=11.0) == pytest.approx(tailored)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_the_penalty_has_the_gradient_of_its_equation_eq_7(layout):
    hidden = torch.randn(3, 4, 5, 2, dtype=torch.float64).contiguous(memory_format=layout).requires_grad_()
    assert torch.autograd.gradcheck(MeanSquare.apply, (hidden,))
    assert torch.autograd.gradgradcheck(MeanSquare.apply, (hidden,))
    (grad,) = torch.autograd.grad(MeanSquare.apply(hidden).sum(), hidden)
    assert grad.is_contiguous(memory_format=layout)


def test_sae_is_the_sum_of_absolute_errors_eq_10():
    assert values("sae") == pytest.approx([1 + 1 + 0.5, 0.1 + 0.8 + 3])


def test_huber_turns_from_squared_to_absolute_at_beta_eq_11():
    near, far = lambda e: e * e / 2 / 0.7, lambda e: e - 0.35
    expected = [far(1) + far(1) + near(0.5), near(0.1) + far(0.8) + far(3)]
    assert values("huber", beta=0.7) == pytest.approx(expected)


def test_large_thresholds_do_not_overflow():
    assert second_share(0, 1e6) == pytest.approx(0)


def test_the_focal_loss_of_a_certain_example_is_zero():
    logits = torch.tensor([[40.0, 0.0]])
    assert build_loss("focal", {"gamma": 2.0})(logits, torch.tensor([0]), 0, []).item() == pytest.approx(0, abs=1e-12)
    assert F.cross_entropy(logits, torch.tensor([0])).item() < 1e-12
