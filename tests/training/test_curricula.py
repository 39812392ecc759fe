"""Sorted curricula visit each example once, easy first; the masked one only decides which gradients count."""

import pytest
import torch

from dpviz.privacy.schedules import Schedule
from dpviz.training.curricula import batches, build_curriculum, regression_losses
from dpviz.training.random_streams import sampling
from tests.training.small import TRAIN, small_data, small_spec, trainer


def build(name, knobs=None, own_losses=None):
    return build_curriculum(name, knobs or {}, small_data(), own_losses or (lambda epoch: torch.zeros(TRAIN)))


@pytest.mark.parametrize("steps", [1, 5, 7, TRAIN])
def test_consecutive_batches_hold_every_example_once(steps):
    parts = batches(torch.randperm(TRAIN, generator=torch.Generator().manual_seed(0)), steps)
    assert len(parts) == steps
    assert torch.cat(parts).sort().values.tolist() == list(range(TRAIN))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_logistic_regression_fits_and_its_losses_are_log_losses():
    losses = regression_losses(small_data())
    assert losses.shape == (TRAIN,)
    # Below log 2 the true class has more than half of the probability: the example is classified rightly.
    assert float((losses < 0.6931).float().mean()) > 0.95
    assert torch.equal(losses, regression_losses(small_data()))


def test_the_sample_order_is_easy_to_hard_and_stays():
    curriculum = build("sample")
    order = curriculum.order(0, None)
    losses = regression_losses(small_data())[order]
    assert bool((losses.diff() >= 0).all())
    assert curriculum.order(1, order) is order


def test_the_dynamic_order_follows_the_models_own_loss_of_the_epoch():
    curriculum = build("dynamic", own_losses=lambda epoch: torch.arange(TRAIN).float() * (1 if epoch == 0 else -1))
    first = curriculum.order(0, None)
    assert first.tolist() == list(range(TRAIN))
    assert curriculum.order(1, first).tolist() == list(range(TRAIN))[::-1]


def test_the_dynamic_order_is_taken_from_the_model_as_it_is_at_the_start_of_each_epoch():
    made = trainer(small_spec(curriculum="dynamic", epochs=2))
    orders = []
    for _ in range(2):
        expected = made._training_losses(made.epoch).argsort(stable=True)
        next(iter(made.epochs()))
        assert torch.equal(made.feed.order, expected)
        orders.append(made.feed.order)
    assert not torch.equal(*orders)


@pytest.mark.parametrize("name", ["sample", "dynamic"])
def test_a_sorted_epoch_uses_every_example_exactly_once(name):
    made = trainer(small_spec(curriculum=name, epochs=1))
    seen = []
    take = made.feed.take

    def spy(*place):
        batch = take(*place)
        seen.append(batch[0])
        return batch

    made.feed.take = spy
    list(made.epochs())
    assert [len(images) for images in seen] == [80] * 5
    sums = torch.cat(seen).flatten(1).sum(1).sort().values
    torch.testing.assert_close(sums, made.data.inputs(made.data.train_images).flatten(1).sum(1).sort().values)


def test_the_mask_follows_its_threshold_and_then_goes():
    curriculum = build("masked", {"start": 1.0, "end": 3.0, "warmup": 3})
    losses = torch.tensor([0.5, 1.5, 2.5, 3.5])
    assert [curriculum.keep(epoch)(losses).tolist().count(True) for epoch in range(3)] == [1, 2, 3]
    assert curriculum.keep(3) is None
    assert curriculum.order(0, None) is None


def test_a_mask_of_one_epoch_uses_its_start():
    curriculum = build("masked", {"start": 1.0, "end": 3.0, "warmup": 1})
    assert curriculum.keep(0)(torch.tensor([0.5, 1.5])).tolist() == [True, False]
    assert curriculum.keep(1) is None


def test_masked_examples_do_not_move_the_weights():
    knobs = {"curriculum.start": 0.0, "curriculum.end": 0.0, "curriculum.warmup": 5}
    from dpviz.privacy.schedules import Schedule

    made = trainer(small_spec(curriculum="masked", knobs=knobs, schedule=Schedule.of("constant", sigma=0.0), epochs=1))
    before = [weights.clone() for weights in made.parameters]
    list(made.epochs())
    assert all(torch.equal(a, b) for a, b in zip(before, made.parameters, strict=True))


def test_a_threshold_above_every_loss_is_no_curriculum():
    knobs = {"curriculum.start": 100.0, "curriculum.end": 100.0, "curriculum.warmup": 5}
    noiseless = Schedule.of("constant", sigma=0.0)
    masked = trainer(small_spec(curriculum="masked", knobs=knobs, schedule=noiseless))
    plain = trainer(small_spec(schedule=noiseless))
    masked.feed.sampling = sampling(plain.spec)  # each run draws its own
    assert [r.test_loss for r in masked.epochs()] == pytest.approx([r.test_loss for r in plain.epochs()], rel=1e-6)
