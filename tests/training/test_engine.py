"""One loop for every method: it is plain SGD without noise, its ledger is the planned one, it resumes bit for bit."""

import dataclasses
import io
import math
from itertools import pairwise, product

import pytest
import torch

from dpviz.privacy import guarantee_path
from dpviz.privacy.records import Ledger, Phase, epoch_phases
from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import Schedule
from dpviz.training.data.readers import Data
from dpviz.training.devices import pick_device
from dpviz.training.divergence import Diverged
from dpviz.training.engine import Trainer
from dpviz.training.losses import build_loss
from dpviz.training.models import build_model
from dpviz.training.random_streams import sampling, seeded
from dpviz.training.tables import CLIPPINGS, CURRICULA, LOSSES, METHODS, OPTIMIZERS, RATES
from tests.training.small import TEST, TRAIN, curve, quiet, small_data, small_spec, trainer


def weights_of(made: Trainer) -> torch.Tensor:
    return torch.cat([weights.detach().flatten() for weights in made.parameters])


def saved(state):
    """A state as it comes back from disk."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return torch.load(io.BytesIO(buffer.getvalue()), weights_only=True)


# --- what a step is -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sgd", "dp-sgd"])
def test_no_noise_and_no_clipping_equals_plain_sgd(method):
    """dp-sgd with sigma 0 and a clipping norm that nothing reaches, and sgd itself, against torch.optim.SGD.

    That one in double precision: in single precision a maximum of two equal numbers may be the other one.
    """
    settings = {"schedule": Schedule.of("constant", sigma=0.0), "clip_norm": 1e6, "learning_rate": 0.1}
    spec = small_spec(method=method, model="cnn-mnist", knobs={"optimizer.momentum": 0.9}, epochs=1, **settings)
    mine = trainer(spec)
    list(mine.epochs())

    data, batches = small_data(), sampling(spec)
    model = build_model("cnn-mnist", {}, data.shape, 10, seeded(spec, "weights").generator).double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(5):
        index = batches.chosen(step, torch.arange(TRAIN), TRAIN, spec.sample_rate).nonzero().squeeze(1)
        optimizer.zero_grad()
        logits = model(data.inputs(data.train_images[index]).double())
        loss = torch.nn.functional.cross_entropy(logits, data.train_labels[index], reduction="sum")
        (loss / spec.batch_size).backward()
        optimizer.step()
    theirs = torch.cat([weights.detach().flatten() for weights in model.parameters()])
    torch.testing.assert_close(weights_of(mine).double(), theirs, rtol=1e-5, atol=1e-6)


def test_noise_scales_with_the_clipping_norm_of_the_epoch():
    spec = small_spec(
        schedule=Schedule.of("constant", sigma=1.0), clip_norm_schedule="step", clip_norm=1.0, epochs=2,
        knobs={"clip_norm_schedule.factor": 0.1, "clip_norm_schedule.every": 1},
    )  # fmt: skip
    made = trainer(spec)
    made.perexample.loss = lambda logits, targets, epoch, hidden: 0 * logits.sum(1)
    states = [weights_of(made)]
    for _ in made.epochs():
        states.append(weights_of(made))
    first, second = (float((b - a).norm()) for a, b in pairwise(states))
    assert second / first == pytest.approx(0.1, rel=0.05)
    assert made.ledger == Ledger([Phase(1.0, 0.2, 10)])


def test_one_example_moves_the_gradient_by_no_more_than_the_clipping_norm():
    made = trainer(small_spec(schedule=Schedule.of("constant", sigma=0.0), clip_norm=0.05))
    data, images = made.data, made.data.inputs(made.data.train_images)
    sums = [
        made.perexample.clipped_sum(images[:n], data.train_labels[:n], epoch=0, clip_norm=0.05).gradients
        for n in (50, 51)
    ]
    difference = torch.cat([(b - a).flatten() for a, b in zip(*sums, strict=True)])
    assert float(difference.norm()) <= 0.05 * 1.0001


def test_batches_are_poisson_samples():
    made = trainer(small_spec(epochs=1))
    sizes = [int(made.feed.sampler.draw(made.feed.sampling, step).size) for step in range(300)]
    mean, variance = sum(sizes) / 300, float(torch.tensor(sizes, dtype=torch.float64).var())
    assert mean == pytest.approx(80, abs=3 * 8 / math.sqrt(300))
    assert variance == pytest.approx(400 * 0.2 * 0.8, rel=0.3)


def test_an_empty_batch_still_gets_its_noise_and_its_charge():
    made = trainer(small_spec(schedule=Schedule.of("constant", sigma=1.0), epochs=1))
    made.feed.sampling.chosen = lambda step, numbers, size, rate: torch.zeros(len(numbers), dtype=torch.bool)
    before = weights_of(made)
    records = list(made.epochs())
    assert not torch.equal(before, weights_of(made))
    assert made.ledger == made.planned
    assert records[0].train_loss == 0.0


# --- the ledger ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "curriculum"),
    [(m, c) for m, c in product(METHODS, CURRICULA) if not (m == "screening" and c in ("sample", "dynamic"))],
)
def test_the_ledger_recorded_equals_the_ledger_planned(method, curriculum):
    schedule = Schedule.of("constant", sigma=0.0) if method == "sgd" else Schedule.custom([2.0, 2.0, 0.7])
    spec = small_spec(method=method, curriculum=curriculum, schedule=schedule, epochs=3)
    made = trainer(spec)
    list(made.epochs())
    assert made.ledger == Ledger(epoch_phases(schedule.sigmas(3), spec.sample_rate)) == made.planned


@pytest.mark.parametrize("method", METHODS)
def test_epsilon_never_falls_and_plain_sgd_has_none(method):
    schedule = Schedule.of("constant", sigma=0.0 if method == "sgd" else 1.5)
    records = list(trainer(small_spec(method=method, schedule=schedule, epochs=3)).epochs())
    epsilons = [record.epsilon_sound for record in records]
    if method == "sgd":
        assert epsilons == [None] * 3
        assert [record.epsilon_claimed for record in records] == [None] * 3
    else:
        assert epsilons == sorted(epsilons)
        assert epsilons[0] > 0


@pytest.mark.parametrize("method", ["dp-sgd", "screening"])
def test_each_epochs_epsilon_is_the_previewed_one(method):
    made = trainer(small_spec(method=method, epochs=4))
    preview = guarantee_path(method, "none", made.phases, 1e-5)
    assert [r.epsilon_sound for r in made.epochs()] == [sound for _, sound in preview]


def test_screening_claims_only_what_it_accepted():
    made = trainer(small_spec(method="screening", epochs=4, learning_rate=5.0))
    record = list(made.epochs())[-1]
    assert sum(made.screening.accepted) < sum(made.screening.generated)
    assert record.epsilon_claimed < record.epsilon_sound


def test_a_ledger_that_left_the_plan_is_an_error():
    made = trainer(small_spec(epochs=1))
    made.sigmas[0] = 0.5
    with pytest.raises(RuntimeError, match="was planned"):
        list(made.epochs())


def test_a_run_goes_on_where_the_schedule_is_rounded_otherwise():
    spec = small_spec(epochs=2)
    first = trainer(spec)
    next(iter(first.epochs()))
    state = saved(first.state())
    state["spent"][0][0] = math.nextafter(state["spent"][0][0], 9.0)
    second = trainer(spec)
    second.load(state)
    assert len(list(second.epochs())) == 1


def test_a_sorted_curriculum_has_no_sound_epsilon():
    assert [r.epsilon_sound for r in trainer(small_spec(curriculum="sample")).epochs()] == [None, None]


# --- combinations -------------------------------------------------------------------------------------------------


COMBINATIONS = [
    *({"loss": name} for name in LOSSES),
    *({"optimizer": name, "learning_rate": 0.01} for name in OPTIMIZERS),
    *({"clipping": name} for name in CLIPPINGS),
    *({"curriculum": name, "loss": "tailored", "optimizer": "adam-bc", "learning_rate": 0.01} for name in CURRICULA),
    *({"learning_rate_schedule": name, "clip_norm_schedule": name} for name in RATES),
]


@pytest.mark.parametrize("changes", COMBINATIONS, ids=lambda changes: "-".join(map(str, changes.values())))
def test_choices_combine(changes):
    records = list(trainer(small_spec(model="cnn-mnist", epochs=1, **changes)).epochs())
    assert math.isfinite(records[0].train_loss)
    assert 0 <= records[0].test_accuracy <= 1


def test_learning_happens():
    records = list(trainer(quiet(epochs=8, learning_rate=0.1)).epochs())
    assert records[-1].test_accuracy > 0.7
    assert records[-1].train_loss < records[0].train_loss


def test_a_seed_decides_the_curve_and_another_seed_another_one():
    same, again, other = (curve(trainer(small_spec(seed=seed)).epochs()) for seed in (3, 3, 4))
    assert same == again
    assert same != other


def test_the_global_random_state_is_neither_used_nor_changed():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = curve(trainer(small_spec(method="screening", diagnostics=True)).epochs())
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    assert curve(trainer(small_spec(method="screening", diagnostics=True)).epochs()) == first


# --- stopping and resuming ----------------------------------------------------------------------------------------


RESUMED = [
    {"model": "cnn-mnist", "knobs": {"optimizer.momentum": 0.9}},
    {"optimizer": "adam-bc", "learning_rate": 0.01},
    {"curriculum": "sample"},
    {"curriculum": "dynamic", "model": "cnn-mnist"},
    {"method": "screening", "optimizer": "lion", "learning_rate": 0.01},
]


@pytest.mark.parametrize("stop_after", [3, 5, 7])
@pytest.mark.parametrize("changes", RESUMED, ids=lambda changes: "-".join(map(str, changes.values())))
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(changes, stop_after):
    spec = small_spec(epochs=3, **changes)
    whole = trainer(spec)
    expected = curve(whole.epochs())

    first, taken = trainer(spec), []
    records = list(
        first.epochs(on_step=lambda done, _: taken.append(done), should_stop=lambda: len(taken) == stop_after)
    )
    state = saved(first.state())
    second = trainer(spec)
    second.load(state)
    records += second.epochs()
    assert curve(records) == expected
    assert torch.equal(weights_of(second), weights_of(whole))
    assert second.ledger == whole.ledger


def test_augmented_runs_resume_too():
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(120, 3, 32, 32, generator=generator), torch.arange(120) % 10
    data = Data(images[:80], labels[:80], images[80:], labels[80:])
    spec = small_spec(dataset="cifar10", subset=80, batch_size=20, epochs=1, knobs={"dataset.augment": True})
    whole, plain = (
        Trainer(spec, data=data),
        Trainer(small_spec(dataset="cifar10", subset=80, batch_size=20, epochs=1), data=data),
    )
    expected = curve(whole.epochs())
    assert curve(plain.epochs()) != expected
    first, taken = Trainer(spec, data=data), []
    assert list(first.epochs(on_step=lambda done, _: taken.append(done), should_stop=lambda: len(taken) == 2)) == []
    second = Trainer(spec, data=data)
    second.load(saved(first.state()))
    assert curve(second.epochs()) == expected


def test_a_run_stops_within_one_step_and_reports_each():
    made, seen = trainer(small_spec()), []
    assert (
        list(made.epochs(on_step=lambda done, total: seen.append((done, total)), should_stop=lambda: len(seen) == 2))
        == []
    )
    assert seen == [(1, 10), (2, 10)]
    assert made.ledger.steps == 2


def test_a_checkpoint_of_other_settings_is_refused():
    state = trainer(small_spec()).state()
    with pytest.raises(InputError, match="other settings"):
        trainer(small_spec(seed=1)).load(state)


def test_a_state_does_not_change_as_training_goes_on():
    made = trainer(small_spec(method="screening"))
    state = made.state()
    before = [weights.clone() for weights in state["weights"]]
    list(made.epochs())
    assert all(torch.equal(a, b) for a, b in zip(before, state["weights"], strict=True))
    assert (state["epoch"], state["spent"], state["screening"]["accepted"]) == (0, [], [])


# --- errors -------------------------------------------------------------------------------------------------------


def test_a_diverging_run_stops_with_the_step_and_the_likely_cause():
    spec = quiet(loss="sse", learning_rate=1000.0, epochs=20)
    with pytest.raises(Diverged, match=r"became (nan|inf) by step \d+ \(epoch \d+\): the learning rate \(1000\)"):
        list(trainer(spec).epochs())


def test_one_examples_loss_does_not_end_a_private_run():
    """Whether a run ends is seen from outside, so it must not hang on a single example."""
    data = small_data()
    images = data.inputs(data.train_images)
    images[::10] = math.inf
    floats = dataclasses.replace(data, train_images=images, test_images=data.inputs(data.test_images), scale=None)
    made = Trainer(small_spec(epochs=1), data=floats)
    records = list(made.epochs())
    assert math.isfinite(records[0].train_loss)
    assert made.ledger == made.planned


def test_weights_that_are_lost_in_the_last_step_are_noticed():
    made = trainer(small_spec(epochs=1))
    made.optimizer.step = lambda *_: made.parameters[0].data.fill_(math.nan) if made.step == 4 else None
    with pytest.raises(Diverged, match="nan"):
        list(made.epochs())


def test_bad_settings_are_refused_before_training():
    with pytest.raises(InputError, match="clip_norm must stay above 0"):
        trainer(small_spec(clip_norm_schedule="linear", knobs={"clip_norm_schedule.final": 0.0}))
    with pytest.raises(InputError, match="public_examples"):
        trainer(small_spec(method="screening", knobs={"method.public_examples": TEST}))
    with pytest.raises(InputError, match="only 400 came"):
        Trainer(small_spec(subset=500), data=small_data())


def test_devices_are_picked_by_name():
    assert pick_device("cpu") == "cpu"
    assert pick_device("auto") in ("cuda", "mps", "cpu")
    with pytest.raises(InputError, match="unknown device 'gpu'"):
        pick_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no cuda device"):
            pick_device("cuda")


# --- evaluation ----------------------------------------------------------------------------------------------------


def test_test_loss_is_the_runs_own_loss():
    spec = small_spec(loss="tailored", model="cnn-mnist", epochs=1, knobs={"loss.threshold": 3.0})
    made = trainer(spec)
    record = next(made.epochs())
    hidden, handles = [], []
    layers = [m for m in made.model.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)][:-1]
    for layer in layers:
        handles.append(layer.register_forward_hook(lambda _layer, _inputs, output: hidden.append(output)))
    with torch.no_grad():
        logits = made.model(made.data.inputs(made.data.test_images))
        losses = build_loss("tailored", {"threshold": 3.0})(logits, made.data.test_labels, 0, hidden)
    assert record.test_loss == pytest.approx(float(losses.mean()), rel=1e-5)
