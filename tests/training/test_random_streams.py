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
from dpviz.training.random_streams import (
    GRID_BITS,
    Counted,
    Secure,
    Seeded,
    add_noise,
    noise_grid,
    numbered,
    sampling,
    seeded,
)
from dpviz.training.spec import STREAMS, RunSpec
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
    specs = noise_spec(), noise_spec(**changes)
    for stream in ("noise", "screening"):
        assert independent(*(seeded(spec, stream).normal(1000) for spec in specs))
    numbers = torch.arange(1000)
    for stream in ("batches", "augmentation"):
        assert independent(*(numbered(spec, stream).chosen(0, numbers, 1000, 0.5).double() for spec in specs))


def independent(one: torch.Tensor, other: torch.Tensor) -> bool:
    return abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.2


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


# --- by number ----------------------------------------------------------------------------------------------------


def test_numbers_are_those_of_splitmix64():
    """The first outputs for the seed 1234567, as Java's SplittableRandom and its many descendants give them."""
    stream = Counted(0, "any")
    stream.key = 1234567
    drawn = [int(word) % 2**64 for word in stream.bits(0, torch.arange(1, 4), 4)]
    assert drawn == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_an_example_is_drawn_alike_whoever_draws_it():
    stream, size = Counted(0, "batches"), 1000
    whole = stream.chosen(7, torch.arange(size), size, 0.3)
    parts = [stream.chosen(7, torch.arange(*ends), size, 0.3) for ends in ((0, 333), (333, 1000))]
    assert torch.equal(torch.cat(parts), whole)
    assert not torch.equal(stream.chosen(8, torch.arange(size), size, 0.3), whole)


@pytest.mark.parametrize("rate", [1.0, 0.25, 512 / 60_000])
def test_examples_are_drawn_at_the_rate(rate):
    count = 2_000_000
    drawn = int(Counted(0, "batches").chosen(3, torch.arange(count), count, rate).sum())
    assert abs(drawn - count * rate) <= 5 * (count * rate * (1 - rate)) ** 0.5


def test_a_rate_is_compared_to_53_bits():
    rate, threshold = 0.2, math.floor(0.2 * 2**53)
    stream = Counted(0, "batches")
    words = [number * 2**11 - 2**63 for number in (0, threshold - 1, threshold, 2**53 - 1)]  # as signed numbers
    stream.bits = lambda step, numbers, size: torch.tensor(words)
    assert stream.chosen(0, torch.arange(4), 4, rate).tolist() == [True, True, False, False]


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
    batches = [sampling(noise_spec(secure=True)).chosen(0, torch.arange(400), 400, 0.5) for _ in range(2)]
    assert not torch.equal(*batches)


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
        RunSpec.from_json(data | {"streams": STREAMS + 1})


def test_a_run_of_old_goes_on_with_the_noise_it_began_with():
    old = dataclasses.replace(noise_spec(), streams=1)
    drawn = torch.randn(26_010, generator=Seeded(0, "noise").generator)
    first = torch.cat([noise.flatten() for noise in noise_of(old)[0]])
    assert torch.allclose(first, drawn.double(), atol=1e-3)


@pytest.mark.parametrize("streams", [2, 3])
def test_a_run_under_a_filter_resumes_bit_for_bit_within_an_epoch(streams):
    """Its batches are drawn for the noise of the epochs so far, also behind a checkpoint."""
    spec = dataclasses.replace(small_spec(filter_epsilon=50.0), streams=streams)
    whole, first, second = (trainer(spec) for _ in range(3))
    expected, taken = curve(whole.epochs()), []
    records = list(first.epochs(on_step=lambda step, _: taken.append(step), should_stop=lambda: len(taken) == 7))
    second.load(first.state())
    assert curve([*records, *second.epochs()]) == expected


def test_a_trainer_that_was_stopped_goes_on():
    stopped, whole = trainer(small_spec()), trainer(small_spec())
    assert list(stopped.epochs(should_stop=lambda: True)) == []
    assert curve(stopped.epochs()) == curve(whole.epochs())


@pytest.mark.parametrize("streams", [1, 2])
def test_a_checkpoint_of_old_goes_on_as_it_began(streams):
    """What is fed stood beside the rest in checkpoints of that time."""
    spec = dataclasses.replace(small_spec(), streams=streams)
    whole, first, second = (trainer(spec) for _ in range(3))
    expected, taken = curve(whole.epochs()), []
    records = list(first.epochs(on_step=lambda step, _: taken.append(step), should_stop=lambda: len(taken) == 7))
    state = first.state()
    fed = state.pop("feed")
    state["streams"]["batches"] = fed.pop("batches")
    second.load(state | fed)
    assert curve([*records, *second.epochs()]) == expected


def test_a_seeded_stream_does_not_go_on_from_nowhere():
    with pytest.raises(InputError, match="lacks a seeded stream's place"):
        Seeded(0, "batches").load(None)
