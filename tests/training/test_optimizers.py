"""Optimizers equal PyTorch's, adam-bc takes out the noise, and what is saved is all there is."""

import math

import pytest
import torch

from dpviz.privacy.registry import InputError
from dpviz.training.optimizers import build_optimizer
from dpviz.training.rates import rate
from dpviz.training.tables import OPTIMIZERS, RATES


def start():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(4, 3, generator=generator), torch.randn(5, generator=generator)]


def gradients(steps=6):
    generator = torch.Generator().manual_seed(1)
    return [[torch.randn(p.shape, generator=generator) for p in start()] for _ in range(steps)]


def run(name, knobs, noise_std=0.0, learning_rate=0.1, steps=6):
    weights = start()
    optimizer = build_optimizer(name, knobs, weights)
    for given in gradients(steps):
        optimizer.step(given, learning_rate, noise_std)
    return weights


@pytest.mark.parametrize(
    ("name", "knobs", "theirs", "options"),
    [
        ("sgd", {}, torch.optim.SGD, {}),
        ("sgd", {"momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
        ("sgd", {"momentum": 0.9, "nesterov": True}, torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        ("rmsprop", {"beta2": 0.9}, torch.optim.RMSprop, {"alpha": 0.9}),
        ("adam", {"beta1": 0.8, "beta2": 0.99}, torch.optim.Adam, {"betas": (0.8, 0.99)}),
    ],
)
def test_an_optimizer_equals_pytorchs(name, knobs, theirs, options):
    weights = [torch.nn.Parameter(p) for p in start()]
    reference = theirs(weights, lr=0.1, **options)
    for given in gradients():
        for p, gradient in zip(weights, given, strict=True):
            p.grad = gradient.clone()
        reference.step()
    for mine, other in zip(run(name, knobs), weights, strict=True):
        torch.testing.assert_close(mine, other.detach(), rtol=1e-6, atol=1e-6)


def test_lion_steps_by_the_sign_and_updates_its_mean_afterwards():
    weights = [torch.tensor([1.0, 1.0])]
    lion = build_optimizer("lion", {"beta1": 0.9, "beta2": 0.5, "weight_decay": 0.1}, weights)
    lion.step([torch.tensor([2.0, -3.0])], 0.01)
    torch.testing.assert_close(weights[0], torch.tensor([1 - 0.01 * 1.1, 1 + 0.01 * 0.9]))
    torch.testing.assert_close(lion.slots["mean"][0], torch.tensor([1.0, -1.5]))
    before = weights[0].clone()
    # 0.9 * mean + 0.1 * gradient is still positive, then negative: the mean decides against this gradient's sign.
    lion.step([torch.tensor([-8.0, 13.0])], 0.01)
    torch.testing.assert_close(weights[0], before - 0.01 * (torch.tensor([1.0, -1.0]) + 0.1 * before))


def test_adam_bc_without_noise_and_floor_is_adam():
    for mine, other in zip(run("adam-bc", {"floor": 0.0}), run("adam", {"stability": 0.0}), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def test_adam_bc_divides_by_the_size_without_the_noise():
    weights = [torch.zeros(1)]
    optimizer = build_optimizer("adam-bc", {"beta1": 0.0, "beta2": 0.9, "floor": 1e-8}, weights)
    for _ in range(3):
        weights[0].zero_()
        optimizer.step([torch.tensor([5.0])], 1.0, noise_std=3.0)
    torch.testing.assert_close(weights[0], torch.tensor([-5.0 / 4.0]))  # sqrt(5^2 - 3^2) = 4


def test_adam_bc_takes_out_the_noise_that_was_there_under_a_schedule():
    weights = [torch.zeros(200_000)]
    optimizer = build_optimizer("adam-bc", {"beta1": 0.0, "beta2": 0.5, "floor": 1e-12}, weights)
    generator = torch.Generator().manual_seed(0)
    for std in (2.0, 2.0, 0.5, 0.1):
        optimizer.step([1 + std * torch.randn(200_000, generator=generator)], 0.0, std)
    corrected = optimizer.slots["square"][0] / (1 - 0.5**4)
    assert float(corrected.mean()) == pytest.approx(1.0, abs=0.02)


def test_adam_bc_stays_finite_where_the_noise_is_all_there_is():
    assert all(bool(p.isfinite().all()) for p in run("adam-bc", {}, noise_std=10.0))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_saved_state_goes_on_bit_for_bit(name, tmp_path):
    given = gradients(8)
    knobs = {"momentum": 0.9} if name == "sgd" else {}
    whole, half = start(), start()
    uninterrupted, first = build_optimizer(name, knobs, whole), build_optimizer(name, knobs, half)
    for gradient in given:
        uninterrupted.step(gradient, 0.1, 0.2)
    for gradient in given[:3]:
        first.step(gradient, 0.1, 0.2)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second = build_optimizer(name, knobs, half)
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for gradient in given[3:]:
        second.step(gradient, 0.1, 0.2)
    assert all(torch.equal(a, b) for a, b in zip(whole, half, strict=True))


def test_a_saved_state_does_not_change_with_the_optimizer():
    optimizer = build_optimizer("adam", {}, start())
    optimizer.step(gradients()[0], 0.1)
    state = optimizer.state_dict()
    before = state["slots"]["mean"][0].clone()
    optimizer.step(gradients()[1], 0.1)
    assert torch.equal(state["slots"]["mean"][0], before)


@pytest.mark.parametrize("name", RATES)
def test_a_rate_starts_at_its_start(name):
    assert rate(0.5, 0, 10, name, {}) == 0.5
    assert rate(0.5, 0, 1, name, {}) == 0.5


def test_rates_follow_their_formulas():
    assert [rate(2.0, t, 5, "constant", {}) for t in range(5)] == [2.0] * 5
    assert [rate(2.0, t, 5, "linear", {"final": 0.5}) for t in range(5)] == pytest.approx([2, 1.75, 1.5, 1.25, 1])
    assert rate(2.0, 2, 5, "cosine", {"final": 0.5}) == pytest.approx(1.5)
    assert rate(2.0, 4, 5, "cosine", {"final": 0.5}) == pytest.approx(1.0)
    assert rate(2.0, 1, 5, "cosine", {"final": 0.0}) == pytest.approx(1 + math.cos(math.pi / 4))
    assert [rate(2.0, t, 5, "step", {"factor": 0.5, "every": 2}) for t in range(5)] == [2, 2, 1, 1, 0.5]


def test_a_rate_beyond_the_numbers_is_refused():
    with pytest.raises(InputError, match="epoch 401"):
        rate(1.0, 400, 500, "step", {"factor": 10.0, "every": 1})
