from __future__ import annotations

import math

import pytest

from dpviz.privacy.schedules import Schedule
from dpviz.views.axes import AXES
from dpviz.views.runs import (
    baseline_name,
    epsilon_words,
    nearest_baselines,
    run_figure,
    run_frame,
    run_name,
    schedule_words,
    spent_words,
)
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
        (Schedule.of("step-decay"), "step decay"),
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


# --- baselines


def test_baselines_are_finished_runs_of_the_same_dataset_and_model_nearest_in_epsilon_one_per_experiment():
    near, nearer, far = (made_run(sigma=sigma, title=str(sigma)) for sigma in (1.5, 1.1, 8.0))
    others = [
        far,
        near,
        made_run(sigma=1.1, seed=1, title="another seed of the same"),
        nearer,
        made_run(sigma=1.01, status="stopped", count=2),
        made_run(sigma=1.01, dataset="fashion-mnist"),
        made_run(sigma=1.01, model="cnn-mnist"),
        made_run(seed=3, title="the run itself with another seed"),
    ]
    found = nearest_baselines(made_run(), 2.0, others, most=2)
    assert [run.title for run in found] == ["another seed of the same", "1.5"]


def test_a_run_without_epsilon_is_laid_over_runs_without_one_first():
    private, free = made_run(), made_run(method="sgd", learning_rate=0.1, title="free")
    assert nearest_baselines(made_run(method="sgd"), None, [private, free], most=1) == [free]


def test_baselines_lie_behind_the_run_as_far_as_it_reaches_and_their_names_say_what_they_are():
    run, other = made_run(), made_run(sigma=2.0, epochs=9, count=9, title="Half <b>the</b> price")
    name = baseline_name(other, "full-length run")
    assert name == "full-length run: Half &lt;b&gt;the&lt;/b&gt; price (ε 2.250)"
    figure = run_figure(run_frame([run]), "epoch", "accuracy", {name: run_frame([other])}, reach=4)
    assert [trace.name for trace in figure.data] == [name, "test data", "training data, not covered by epsilon"]
    assert list(figure.data[0].x) == [1, 2, 3, 4]
    against_epsilon = run_figure(run_frame([run]), "epsilon_sound", "loss", {name: run_frame([other])}, reach=0.6)
    assert list(against_epsilon.data[0].x) == [0.25, 0.5]
