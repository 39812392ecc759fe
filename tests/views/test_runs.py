from __future__ import annotations

import math

import pytest

from dpviz.privacy.schedules import Schedule
from dpviz.views.axes import AXES
from dpviz.views.runs import epsilon_words, run_figure, run_frame, run_name, schedule_words, spent_words
from tests.views.made_runs import made_run, made_spec


def test_a_frame_has_one_row_an_epoch_with_accuracies_in_percent_and_time_added_up():
    frame = run_frame([made_run()])
    assert list(frame["epoch"]) == [1, 2, 3, 4]
    assert frame["test_accuracy"].iloc[-1] == pytest.approx(100 * (0.9 - 0.125))
    assert list(frame["minutes"]) == [0.5, 1.0, 1.5, 2.0]


def test_no_guarantee_is_nan_in_the_frame_and_never_drawn_against_epsilon():
    frame = run_frame([made_run(method="sgd")])
    assert frame["epsilon_sound"].isna().all()
    assert [len(trace.x) for trace in run_figure(frame, "epsilon_sound").data] == [0, 0]
    assert [len(trace.x) for trace in run_figure(frame, "epoch").data] == [4, 4]


@pytest.mark.parametrize("x", ["epoch", "epsilon_sound", "epsilon_claimed", "minutes"])
@pytest.mark.parametrize("measure", ["accuracy", "loss"])
def test_an_empty_frame_gives_empty_axes_with_titles(x, measure):
    figure = run_figure(run_frame([]), x, measure)
    assert figure.layout.xaxis.title.text == AXES[x].title
    assert measure in figure.layout.yaxis.title.text.lower()
    assert all(len(trace.x) == 0 for trace in figure.data)


def test_training_curves_say_that_epsilon_does_not_cover_them():
    names = [trace.name for trace in run_figure(run_frame([made_run()])).data]
    assert names == ["test data", "training data, not covered by epsilon"]


def test_a_run_is_called_by_its_title_then_its_recipe_then_its_settings():
    assert run_name(made_run(title="My best")) == "My best"
    assert run_name(made_run(recipe="curricula/constant-1")) == "Constant 1"
    assert run_name(made_run(sigma=1.5)) == "MNIST, Logistic regression, constant 1.5"


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (Schedule.of("linear", start=5, end=1), "linear 5 to 1"),
        (Schedule.of("constant", sigma=2), "constant 2"),
        (Schedule.of("step-decay"), "step-decay"),
        (Schedule.custom([4, 3, 2, 1]), "own curve"),
    ],
)
def test_a_schedule_in_words(schedule, words):
    spec = made_spec()
    assert schedule_words(type(spec)(schedule=schedule, epochs=4)) == words


def test_an_epsilon_that_is_missing_is_no_guarantee_and_never_a_number():
    assert epsilon_words(None) == epsilon_words(math.nan) == "no guarantee"
    assert epsilon_words(math.inf) == "∞"
    assert epsilon_words(1.23456) == "1.235"


def test_what_was_spent_says_at_most_only_of_a_number():
    assert spent_words(1.23456, False) == "1.235"
    assert spent_words(1.23456, True) == "at most 1.235"
    assert spent_words(None, True) == spent_words(math.nan, True) == "no guarantee"
    assert spent_words(math.inf, True) == "∞"
