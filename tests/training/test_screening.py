"""Better steps are always taken, worse ones by Alg. 2's rule, and a step taken back leaves no trace."""

import math

import pytest
import torch

from dpviz.privacy import guarantee
from dpviz.training.random_streams import Seeded
from dpviz.training.screening import Screening
from tests.training.small import small_spec, trainer


def screening(energies, temperature=10.0, rejections=10, draws=None):
    """Screening over a given walk of losses; `draws` replaces the uniform numbers."""
    values = iter(energies)
    made = Screening(temperature, rejections, lambda: next(values), Seeded(0, "screening"))
    if draws is not None:
        numbers = iter(draws)
        made.source.uniform = lambda count: torch.tensor([next(numbers)], dtype=torch.float64)
    made.begin_epoch()
    return made


def judged(made, steps):
    undone = []
    return [made.judge(lambda: None, lambda: undone.append(True)) for _ in range(steps)], len(undone)


def test_better_steps_are_always_accepted():
    accepted, undone = judged(screening([5.0, 4.0, 3.0, 2.0], draws=[0.999999] * 3), 3)
    assert (accepted, undone) == ([True] * 3, 0)


def test_a_worse_step_is_accepted_with_probability_exp_of_minus_change_times_heat():
    """After two accepted updates Q = 2 Q0, and the change is measured from the last accepted loss."""
    chance = math.exp(-0.1 * 2 * 3.0)
    for draw, expected in ((chance - 1e-6, True), (chance + 1e-6, False)):
        made = screening([5.0, 4.0, 3.0, 3.1], temperature=3.0, draws=[0.5, 0.5, draw])
        assert judged(made, 3)[0][-1] is expected


def test_the_first_candidate_is_judged_at_the_initial_temperature():
    chance = math.exp(-0.1 * 3.0)
    for draw, expected in ((chance - 1e-6, True), (chance + 1e-6, False)):
        assert judged(screening([5.0, 5.1], temperature=3.0, draws=[draw]), 1)[0] == [expected]


def test_after_so_many_rejections_a_step_is_accepted_anyway():
    made = screening([5.0, 4.0, *[9.0] * 8], rejections=3, draws=[0.5] * 9)
    accepted, undone = judged(made, 9)
    assert accepted == [True, False, False, False, True, True, True, True, True]
    assert undone == 3
    assert (made.accepted, made.generated) == ([6], [9])


def test_no_patience_accepts_everything():
    assert judged(screening([1.0, 2.0, 3.0, 4.0], rejections=0), 3)[0] == [True] * 3


def test_a_loss_that_is_not_a_number_is_rejected():
    assert judged(screening([1.0, math.nan], draws=[0.0]), 1)[0] == [False]


def test_a_state_goes_on_where_it_was():
    made = screening([5.0, 4.0, 4.5, 4.4])
    judged(made, 2)
    other = screening([4.4])
    other.load(made.state())
    assert other.state() == made.state()
    other.judge(lambda: None, lambda: None)
    assert sum(other.generated) == 3


def test_a_rejected_update_leaves_weights_and_optimizer_as_they_were():
    made = trainer(small_spec(method="screening", optimizer="adam", learning_rate=0.1, epochs=1))
    made.screening._accepts = lambda change, uniform: False
    before = [weights.clone() for weights in made.parameters]
    list(made.epochs())
    assert all(torch.equal(a, b) for a, b in zip(before, made.parameters, strict=True))
    assert made.optimizer.steps == 0
    assert float(sum(slot.abs().sum() for slot in made.optimizer.slots["square"])) == 0
    assert (made.screening.accepted, made.screening.generated) == ([0], [5])
    assert made.ledger == made.planned


def test_judging_uses_the_public_split_and_testing_does_not():
    made = trainer(small_spec(method="screening", knobs={"method.public_examples": 120}))
    assert len(made.public[1]) == 120
    assert len(made.test[1]) == len(made.data.test_labels) - 120
    assert torch.equal(torch.cat([made.public[1], made.test[1]]), made.data.test_labels)
    with torch.no_grad():
        logits = made.model(made.data.inputs(made.data.test_images[:120]))
        expected = torch.nn.functional.cross_entropy(logits, made.data.test_labels[:120])
    assert made.screening.energy() == pytest.approx(float(expected), rel=1e-5)


def test_screening_sometimes_rejects_in_a_real_run():
    made = trainer(small_spec(method="screening", epochs=4, learning_rate=5.0))
    list(made.epochs())
    assert 0 < sum(made.screening.accepted) < sum(made.screening.generated) == 20


def test_the_sound_ledger_charges_rejected_candidates_and_the_claimed_one_does_not():
    spec = small_spec(method="screening", epochs=4, learning_rate=5.0)
    made = trainer(spec)
    last = list(made.epochs())[-1]
    rejected = sum(made.screening.generated) - sum(made.screening.accepted)
    assert rejected > 0
    assert made.ledger.steps == sum(made.screening.generated) == 20
    plain = guarantee("dp-sgd", "none", made.phases, spec.delta).sound.upper
    kept = guarantee("screening", "none", made.phases, spec.delta, accepted=made.screening.accepted)
    assert last.epsilon_sound == pytest.approx(plain, rel=5e-3)
    assert last.epsilon_claimed == pytest.approx(kept.claimed.upper, rel=5e-3)
    assert last.epsilon_claimed < 0.99 * last.epsilon_sound
