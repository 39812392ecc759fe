"""The noise is there: in every parameter, at every step, of the right size, and another one in every run."""

import dataclasses
import hashlib
import json
import math
from itertools import combinations, pairwise

import pytest
import torch
from scipy.stats import chi2, kstest

from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import Schedule
from dpviz.training.random_streams import GRID_BITS, Secure, Seeded, add_noise, noise_grid, randomness, seeded
from dpviz.training.spec import RunSpec
from tests.training.small import curve, small_spec, trainer

SIGMA, CLIP_NORM, RATE, BATCH = 1.5, 0.2, 0.5, 80


def noise_spec(**changes) -> RunSpec:
    settings = {
        "schedule": Schedule.of("constant", sigma=SIGMA),
        "clip_norm": CLIP_NORM,
        "learning_rate": RATE,
        "batch_size": BATCH,
        "model": "cnn-mnist",
        "epochs": 2,
    }
    return small_spec(**(settings | changes))


def noise_of(spec: RunSpec) -> list[list[torch.Tensor]]:
    """What each step adds to each parameter, in units of sigma C; the loss is made flat, so there is nothing else."""
    made = trainer(spec)
    made.perexample.loss = lambda logits, targets, epoch, hidden: 0 * logits.sum(1)
    states = [[weights.detach().double().clone() for weights in made.parameters]]
    step = made.optimizer.step

    def recorded(*arguments) -> None:
        step(*arguments)
        states.append([weights.detach().double().clone() for weights in made.parameters])

    made.optimizer.step = recorded
    list(made.epochs())
    unit = spec.learning_rate * SIGMA * CLIP_NORM / BATCH
    return [[(old - new) / unit for old, new in zip(*pair, strict=True)] for pair in pairwise(states)]


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("changes", [{}, {"clipping": "auto-s"}, {"clipping": "per-layer"}, {"curriculum": "masked"}])
def test_every_parameter_gets_noise_of_the_right_size_at_every_step(secure, changes):
    """The squares of a parameter's noise are chi-squared with as many degrees of freedom as it has numbers."""
    for step in noise_of(noise_spec(secure=secure, **changes)):
        for noise in step:
            share = chi2.cdf(float(noise.square().sum()), noise.numel())
            assert 1e-7 < share < 1 - 1e-7


def test_noise_is_normal_and_has_no_memory():
    flat = [torch.cat([noise.flatten() for noise in step]) for step in noise_of(noise_spec())]
    assert kstest(flat[0].numpy(), "norm").pvalue > 1e-4
    for one, other in combinations(flat, 2):
        assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 6 / math.sqrt(one.numel())


@pytest.mark.parametrize(
    "changes",
    [
        {"schedule": Schedule.of("constant", sigma=2.0)},
        {"epochs": 3},
        {"learning_rate": 0.25},
        {"clip_norm": 0.1},
        {"loss": "sse"},
        {"seed": 1},
        {"method": "screening"},
        {"delta": 1e-6},
    ],
    ids=str,
)
def test_runs_that_differ_in_anything_differ_in_their_noise_and_batches(changes):
    for stream in ("noise", "batches", "screening", "augmentation"):
        one, other = seeded(noise_spec(), stream).normal(1000), seeded(noise_spec(**changes), stream).normal(1000)
        assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.2


def test_runs_of_one_seed_start_from_the_same_weights():
    """So that their difference is less a matter of chance."""
    one, same, other = (trainer(spec) for spec in (noise_spec(), noise_spec(loss="sse"), noise_spec(seed=1)))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters, same.parameters, strict=True))
    assert not torch.equal(one.parameters[0], other.parameters[0])


def test_looking_at_a_run_does_not_change_its_noise():
    plain, watched = (trainer(small_spec(diagnostics=inside)) for inside in (False, True))
    assert curve(plain.epochs()) == curve(watched.epochs())


def test_the_noise_reaches_beyond_the_end_of_single_precision():
    """Normal numbers made of 24 bits end at 5.77, so a value beyond tells which neighbour it came from."""
    noise = torch.cat([seeded(noise_spec(seed=seed), "noise").normal(1_000_000) for seed in range(4)])
    assert noise.dtype == torch.float64
    assert len(noise.unique()) == len(noise)  # of 24-bit numbers half would be there twice
    assert not torch.equal(noise, noise.float().double())


def test_noise_is_added_before_the_sum_is_narrowed():
    """Just above half a unit of 1: narrowed first, the noise would be half a unit, and the sum 1."""
    noise = torch.tensor([2.0**-24 + 2.0**-50], dtype=torch.float64)
    assert float(add_noise(torch.tensor([1.0]), noise)) == 1 + 2.0**-23


# --- secure -------------------------------------------------------------------------------------------------------


def test_secure_sums_lie_on_one_grid_whatever_the_value_was():
    """Float32 sums of a value and its noise miss many of the sums that a neighbouring value has; these miss none."""
    std, count = 0.37, 200_000
    grid = noise_grid(std)
    assert std * 2.0**-GRID_BITS / 2 < grid <= std * 2.0**-GRID_BITS
    value = 0.1234567
    for shift in (0.0, 2.0**-25, 1 / 3):
        noise = std * Secure().normal(count)
        sums = add_noise(torch.full((count,), value + shift), noise, grid)
        steps = sums.double() / grid
        assert torch.equal(steps, steps.round())
        assert float((steps % 2).mean()) == pytest.approx(0.5, abs=0.01)  # no multiple is out of reach
        assert float((sums.double() - value - shift).std()) == pytest.approx(std, rel=0.01)


def test_two_secure_runs_share_neither_noise_nor_batches():
    first, second = (noise_of(noise_spec(secure=True, epochs=1)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert not any(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    streams = [randomness(noise_spec(secure=True), "batches").uniform(9) for _ in range(2)]
    assert not torch.equal(*streams)


def test_secure_numbers_are_standard_normal_and_uniform():
    source = Secure()
    assert kstest(source.normal(50_000).numpy(), "norm").pvalue > 1e-4
    assert kstest(source.uniform(50_000).numpy(), "uniform").pvalue > 1e-4
    assert not torch.equal(source.normal(9), source.normal(9))


# --- runs that people have ----------------------------------------------------------------------------------------


def old_json(spec: RunSpec) -> dict:
    data = spec.to_json()
    del data["streams"]
    return data


def test_a_spec_of_old_reads_as_the_first_version_and_keeps_its_key():
    data = old_json(small_spec())
    old = RunSpec.from_json(data)
    assert old.streams == 1
    text = json.dumps({k: v for k, v in data.items() if k != "recipe"}, sort_keys=True, separators=(",", ":"))
    assert old.key == hashlib.sha256(text.encode()).hexdigest()[:16]
    assert old.key != small_spec().key
    with pytest.raises(InputError, match="streams"):
        RunSpec.from_json(data | {"streams": 3})


def test_a_run_of_old_goes_on_with_the_noise_it_began_with():
    old = dataclasses.replace(noise_spec(), streams=1)
    drawn = torch.randn(26_010, generator=Seeded(0, "noise").generator)
    first = torch.cat([noise.flatten() for noise in noise_of(old)[0]])
    assert torch.allclose(first, drawn.double(), atol=1e-3)


def test_a_seeded_stream_does_not_go_on_from_nowhere():
    with pytest.raises(InputError, match="lacks a seeded stream's place"):
        Seeded(0, "batches").load(None)
