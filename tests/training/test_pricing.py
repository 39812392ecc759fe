"""A run's price: one answer, whoever asks, and the one that training records."""

import dataclasses

import pytest

from dpviz.papers.priced_claims import cost
from dpviz.privacy import Assumptions, Schedule, epoch_phases, epsilon, guarantee
from dpviz.runs.experiments import epsilons
from dpviz.runs.store.spending import spending
from dpviz.training.pricing import AS_TRAINED, planned_guarantee, planned_path, steps_guarantee
from tests.training.small import quiet, small_spec, trainer


def test_a_specs_phases_are_its_schedule_one_epoch_each():
    spec = small_spec(schedule=Schedule.of("linear", start=3.0, end=1.0), epochs=3)
    assert spec.phases == epoch_phases([3.0, 2.0, 1.0], 0.2)


def test_the_planned_epsilon_is_the_one_that_training_records():
    spec = small_spec()
    *_, last = trainer(spec).epochs()
    assert (last.epsilon_claimed, last.epsilon_sound) == planned_guarantee(spec).uppers == planned_path(spec)[-1]


def test_plan_path_spending_and_results_agree():
    spec = small_spec(delta=1e-6)
    sound = planned_guarantee(spec).sound.upper
    assert sound == epsilon(spec.phases, 1e-6).upper
    assert sound == spending(spec, 10).epsilon_sound == planned_path(spec)[-1][1] == epsilons(spec)[1] == cost(spec)


def test_what_uses_the_data_without_a_price_has_no_sound_epsilon():
    assert planned_guarantee(quiet()).uppers == (None, None)
    claimed, sound = planned_guarantee(small_spec(curriculum="sample")).uppers
    assert claimed > 0
    assert sound is None


@pytest.mark.parametrize(
    "assumptions", [Assumptions("rdp"), Assumptions(adjacency="replace-one"), Assumptions(sampling="fixed-order")]
)
def test_other_assumptions_give_the_price_of_the_same_steps_under_them(assumptions):
    spec = small_spec()
    found = planned_guarantee(spec, assumptions)
    assert found == guarantee("dp-sgd", "none", spec.phases, spec.delta, assumptions)
    assert found.sound == epsilon(spec.phases, spec.delta, assumptions)
    assert found.sound.upper > planned_guarantee(spec).sound.upper
    assert Assumptions() == AS_TRAINED


def test_runs_that_differ_by_their_seed_are_priced_once():
    spec = small_spec(delta=3e-6)
    first = planned_guarantee(spec)
    before = steps_guarantee.cache_info().misses
    assert planned_guarantee(dataclasses.replace(spec, seed=7)) is first
    assert steps_guarantee.cache_info().misses == before
