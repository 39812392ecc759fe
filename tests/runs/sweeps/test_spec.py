"""What a sweep is: its description read strictly, its candidates, and noise scaled to one budget."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpviz.privacy import SCHEDULES, InputError, Schedule
from dpviz.privacy.schedules import CUSTOM
from dpviz.runs.sweeps.equal_epsilon import at_epsilon, scaled
from dpviz.runs.sweeps.spec import Range, Search, Sweep, read_toml
from dpviz.training.pricing import planned_guarantee
from tests.runs.conftest import small_spec

GRID = """
title = "Falling noise"
seeds = [0, 1]
[settings]
model = "logistic"
subset = 2000
batch_size = 200
epochs = 4
[[grid]]
schedule = "constant"
[[grid]]
schedule = ["linear", "exponential"]
"schedule.start" = [3.0, 5.0]
"""
SEARCH = """
[search]
trials = 6
[search.space]
loss = ["cross-entropy", "sse"]
learning_rate = { low = 0.1, high = 4.0, log = true }
batch_size = { low = 100, high = 400 }
optimizer.momentum = [0.0, 0.9]
"""


def space_text(space: str) -> str:
    return f"[search]\ntrials = 5\n[search.space]\n{space}"


def sound(spec) -> float:
    return planned_guarantee(spec).sound.upper


def test_grids_lie_side_by_side_and_each_is_every_combination():
    sweep = read_toml(GRID)
    assert (sweep.size, sweep.runs) == (5, 10)
    labels = [sweep.candidate(settings).label for settings in sweep.combinations()]
    assert labels == [
        "schedule=constant",
        "schedule=linear, schedule.start=3.0",
        "schedule=linear, schedule.start=5.0",
        "schedule=exponential, schedule.start=3.0",
        "schedule=exponential, schedule.start=5.0",
    ]


def test_a_candidate_has_a_run_for_each_seed_and_the_settings_that_were_asked_for():
    sweep = read_toml(GRID)
    first, second = sweep.candidate((("schedule", "linear"), ("schedule.start", 3.0))).specs
    assert (first.seed, second.seed) == (0, 1)
    assert first.schedule == Schedule.of("linear", start=3.0)
    assert (first.model, first.subset, first.epochs) == ("logistic", 2000, 4)
    assert dataclasses.replace(second, seed=0) == first


def test_a_sweep_is_the_same_after_saving_and_its_title_is_only_a_label():
    for text in (GRID, SEARCH):
        sweep = read_toml(text)
        assert Sweep.from_json(sweep.to_json()) == sweep
    assert read_toml(GRID).id == read_toml(GRID.replace("Falling", "Sinking")).id
    assert read_toml(GRID).id != read_toml(GRID.replace("[0, 1]", "[0, 2]")).id


def test_a_search_has_lists_and_ranges_and_whole_numbers_where_both_ends_are_whole():
    space = dict(read_toml(SEARCH).search.space)
    assert space["learning_rate"] == Range(0.1, 4.0, log=True)
    assert space["batch_size"].whole
    assert not space["learning_rate"].whole
    assert space["optimizer.momentum"] == (0.0, 0.9)


def test_a_recipe_is_where_settings_start_from():
    sweep = read_toml('recipe = "curricula/linear-decreasing"\ngrid = { learning_rate = [0.1, 0.2] }')
    assert sweep.start.schedule.name == "linear"
    assert sweep.start.batch_size == 600


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "either grids or a search"),
        (GRID + SEARCH, "either grids or a search"),
        ("x = 1", "no 'x'"),
        ("grid = 5", "table of settings"),
        ("[grid]", "at least one setting"),
        ("[grid]\nlearning_rate = []", "different values"),
        ("[grid]\nlearning_rate = [1, 1]", "different values"),
        ("[grid]\nlearning_rate = [nan]", "finite number"),
        ("[grid]\nlearning_rate = ['much']", "must be a number"),
        ("[grid]\nlernrate = [1]", "unknown setting"),
        ("[grid]\nseed = [0, 1]", "seeds ="),
        ("[grid]\ndelta = [1e-5, 1e-6]", "one delta"),
        ("seeds = [0, 0]\n[grid]\nlearning_rate = [1]", "different whole numbers"),
        ("seeds = 3\n[grid]\nlearning_rate = [1]", "list such as"),
        ("seeds = [true]\n[grid]\nlearning_rate = [1]", "whole numbers"),
        ("epsilon = -1\n[grid]\nlearning_rate = [1]", "finite number > 0"),
        ("epsilon = nan\n[grid]\nlearning_rate = [1]", "finite number"),
        ("epsilon = 1\n[grid]\nmethod = ['dp-sgd']\ncurriculum = ['none', 'sample']", "no sound epsilon"),
        ("epsilon = 1\n[grid]\n'schedule.sigma' = [0.0]", "costs infinity"),
        ("epsilon = 1\n[grid]\n'schedule.sigma' = [1.0, 2.0]", "is the same run as"),
        ("[grid]\nschedule = ['constant', 'linear']\n'schedule.start' = [3]", "grid]] of their own"),
        ("recipe = 5\n[grid]\nlearning_rate = [1]", "recipe must be a name"),
        ("recipe = 'no/such'\n[grid]\nlearning_rate = [1]", "no/such"),
        ("[settings]\nseed = 1\n[grid]\nlearning_rate = [1]", "seeds ="),
        ("[search]\ntrials = 0\n[search.space]\nloss = ['sse']", "trials"),
        ("[search]\ntrials = 5\n[search.space]\nlearning_rate = {low = 4, high = 1}", "low < high"),
        ("[search]\ntrials = 5\n[search.space]\nlearning_rate = {low = 0, high = 1, log = true}", "low > 0"),
        ("[search]\ntrials = 5\n[search.space]\nlearning_rate = 1", "list of values or a range"),
        (space_text("learning_rate = {low = 1, high = 1e6}"), "from 1e-08 to 1000"),
        (space_text("optimizer.momentum = {low = 0, high = 2.5}"), "from 0 to 0.9999"),
        (space_text("'schedule.sigma' = {low = 1, high = 2}\nschedule = ['constant', 'linear']"), "no knob 'sigma'"),
        (space_text("'schedule.sigma' = [1, 2]\nschedule = {low = 1, high = 2}"), "no knobs"),
        ("epsilon = 1.0\n" + space_text("schedule.sigma = {low = 1, high = 2}"), "changes nothing"),
        ("epsilon = 1.0\n" + space_text("schedule.sigma = {low = 0, high = 2}"), "without noise"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(text, words):
    with pytest.raises(InputError, match=r"(?s)" + words.replace("[", r"\[").replace("]", r"\]")):
        read_toml(text)


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != CUSTOM])
def test_every_named_schedule_is_scaled_under_its_own_name(name):
    schedule = Schedule.of(name)
    twice = scaled(schedule, 2.5, 8)
    assert twice.name == name
    assert np.allclose(twice.sigmas(8), 2.5 * schedule.sigmas(8), rtol=1e-12)


def test_a_curve_that_its_knobs_cannot_say_becomes_a_list():
    assert scaled(Schedule.of("constant", sigma=9e8), 3.0, 2) == Schedule.custom([2.7e9, 2.7e9])
    assert scaled(Schedule.custom([2.0, 1.0]), 0.5, 2) == Schedule.custom([1.0, 0.5])


@pytest.mark.parametrize("schedule", [Schedule.of("constant"), Schedule.of("linear"), Schedule.custom([3, 1, 2])])
def test_at_equal_epsilon_every_schedule_meets_the_budget_and_never_exceeds_it(schedule):
    spec = dataclasses.replace(small_spec(), schedule=schedule)
    achieved = sound(at_epsilon(spec, 1.5))
    assert 1.5 * 0.999 <= achieved <= 1.5


def test_settings_that_make_no_run_are_a_candidate_with_its_reason():
    space = (("batch_size", (20, 5000)),)
    sweep = Sweep(small_spec(), (0,), search=Search(2, space))
    assert sweep.candidate((("batch_size", 5000),)).error.startswith("batch_size must be at most")
