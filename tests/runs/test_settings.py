"""Settings by name: what is asked for changes, the rest stays, and nothing is guessed."""

from __future__ import annotations

import dataclasses

import pytest

from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import Schedule
from dpviz.runs.settings import DEFAULT, change, parse


def test_a_field_a_knob_and_a_schedule_change_by_name():
    spec = change(
        DEFAULT,
        parse(["batch_size=256", "optimizer.momentum=0.5", "schedule=linear", "schedule.start=4", "delta=1e-6"]),
    )
    assert (spec.batch_size, spec.delta, spec.schedule) == (256, 1e-6, Schedule.of("linear", start=4))
    assert spec.knobs_of("optimizer")["momentum"] == 0.5


def test_a_schedule_keeps_its_other_knobs_and_a_new_one_starts_from_its_defaults():
    spec = dataclasses.replace(DEFAULT, schedule=Schedule.of("linear", start=9, end=2))
    assert change(spec, {"schedule.end": "3"}).schedule == Schedule.of("linear", start=9, end=3)
    assert change(spec, {"schedule": "cosine"}).schedule == Schedule.of("cosine")


def test_a_new_choice_starts_from_its_own_defaults():
    spec = change(dataclasses.replace(DEFAULT, knobs=(("optimizer.momentum", 0.9),)), {"optimizer": "adam"})
    assert spec.knobs_of("optimizer") == {"beta1": 0.9, "beta2": 0.999, "stability": 1e-8}


def test_a_list_of_sigmas_is_a_schedule():
    assert change(DEFAULT, {"schedule": "5,4,3", "epochs": 3}).schedule == Schedule.custom([5, 4, 3])


def test_a_list_does_not_stretch_but_a_formula_does():
    listed = change(DEFAULT, {"schedule": "5,4,3", "epochs": 3})
    with pytest.raises(InputError, match="the custom schedule has 3 epochs, but 4 were asked for"):
        change(listed, {"epochs": 4})
    line = change(DEFAULT, {"schedule": "linear", "epochs": 4})
    assert line.schedule.sigmas(line.epochs)[-1] == change(line, {"epochs": 9}).schedule.sigmas(9)[-1] == 1.0


def test_a_recipe_keeps_its_name_only_while_it_is_that_recipe():
    spec = dataclasses.replace(DEFAULT, recipe="a-paper/a-row")
    assert change(spec, {"seed": 5, "epochs": 2, "diagnostics": "true"}).recipe == "a-paper/a-row"
    assert change(spec, {"learning_rate": 0.25}).recipe == ""
    assert change(spec, {"optimizer.momentum": 0.1}).recipe == ""
    assert change(spec, {"schedule.sigma": 2}).recipe == ""


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["batch_size"], "key=value"),
        (["=3"], "key=value"),
        (["batch_size="], "key=value"),
        (["seed=1", "seed=2"], "seed is set twice"),
        (["speed=3"], "unknown setting 'speed'"),
        (["recipe=mine"], "unknown setting 'recipe'"),
        (["knobs=1"], "unknown setting 'knobs'"),
        (["optimizer=sdg"], "unknown optimizer 'sdg'"),
        (["optimizer.momentun=0.9"], "sgd has no knob 'momentun'"),
        (["optimiser.momentum=0.9"], "unknown knob 'optimiser.momentum'"),
        (["schedule=cosin"], "unknown schedule 'cosin'"),
        (["schedule.slope=3"], "constant has no knob 'slope'"),
        (["schedule=custom"], "needs its list"),
        (["schedule=5,4,x"], "epoch 3"),
        (["schedule=5,4", "schedule.start=3"], "has no knobs"),
        (["batch_size=nan"], "batch_size must be a number"),
        (["batch_size=2.5"], "whole number"),
        (["learning_rate=inf"], "learning_rate must be a number"),
        (["delta=2"], "delta must be"),
        (["epochs=0"], "epochs must be"),
        (["secure=maybe"], "secure must be true or false"),
        (["model=cnn", "model.blocks=6"], "choose another model"),
    ],
)
def test_bad_settings_are_refused_in_words(pairs, words):
    with pytest.raises(InputError) as caught:
        change(DEFAULT, parse(pairs))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
