"""The table of a comparison at one epsilon: accuracies, baselines, differences, and the answer in words."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpviz.papers import REPORTED
from dpviz.views.comparison.answer import Answer, answer
from dpviz.views.comparison.differences import difference_frame
from dpviz.views.comparison.experiments import ComparisonData, comparison_data, fold
from dpviz.views.comparison.settings import differing_frame, setting_text, setting_title
from dpviz.views.comparison.table import (
    MOST_COLOURED,
    baselines,
    experiment_table,
    experiments,
    first_sight,
    with_differences,
)
from tests.views.made_runs import made_cached, made_run

NOISE = np.random.default_rng(5).normal(0, 0.002, 5)


def seeds(best: float, noise=NOISE, **changes) -> list:
    return [made_run(f"{best}{k}", seed=k, best=best + more, **changes) for k, more in enumerate(noise)]


def table_of(data: ComparisonData, budget: float = 2.0, column: str = "epsilon_sound", pinned: str = ""):
    table = experiment_table(experiments(fold(data.rows)), data.rows, budget, column)
    base = baselines(table, data.settings, pinned)
    return with_differences(table, base), base


def test_each_run_counts_as_far_as_the_budget_lets_it():
    data = comparison_data([made_run("a"), made_run("b", sigma=2.0, best=0.7), made_run("c", method="sgd")])
    table, _ = table_of(data, 1.2)
    assert list(table["epoch"].dropna()) == [2, 4]
    assert list(table["sound"].dropna()) == [1.0, 1.0]
    assert table["accuracy"].iloc[0] > table["accuracy"].iloc[1]
    assert math.isnan(table["accuracy"].iloc[2])
    assert table["whole_run"].iloc[2] == "no guarantee"


def test_the_claimed_budget_lets_a_run_go_further_than_the_sound_one():
    data = comparison_data([made_run()])
    assert table_of(data, 1.3, "epsilon_claimed")[0]["epoch"].item() == 3
    assert table_of(data, 1.3)[0]["epoch"].item() == 2


def test_accuracy_and_deviation_are_over_the_seeds_at_the_cursor():
    table, _ = table_of(comparison_data(seeds(0.9)), 1.0)
    values = 100 * (0.9 + NOISE - 0.25)
    assert table["accuracy"].item() == pytest.approx(values.mean())
    assert table["deviation"].item() == pytest.approx(values.std(ddof=1))
    assert table["seeds"].item() == 5


def test_the_baseline_is_plain_dp_sgd_with_constant_noise_unless_one_is_pinned():
    data = comparison_data([*seeds(0.95, clipping="auto-s"), *seeds(0.9), made_run("x", sigma=0.99, best=0.99)])
    table, base = table_of(data)
    assert table["accuracy"][base["mnist"]] == pytest.approx(100 * (0.9 + NOISE.mean() - 0.125))
    best = table.index[0]
    assert table_of(data, pinned=best)[1] == {"mnist": best}


def test_the_difference_is_paired_by_seed_with_its_interval():
    data = comparison_data([*seeds(0.91, sigma=1.5), *seeds(0.9, NOISE[::-1])])
    table, base = table_of(data, 1.0, pinned="")
    row = table[table.index != base["mnist"]].iloc[0]
    ours, theirs = (np.array(list(table["values"][group].values())) for group in (row.name, base["mnist"]))
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert row["difference"] == pytest.approx((ours - theirs).mean(), abs=0.005)
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))


def test_the_answer_names_the_best_its_lead_its_interval_and_the_choice_among_many():
    runs = [*seeds(0.9), *seeds(0.95, clipping="auto-s"), *seeds(0.7, NOISE[::-1], sigma=1.1)]
    table, base = table_of(comparison_data(runs))
    said = answer(table, base["mnist"], 2.0)
    words = said.headline
    assert words.startswith("At ε ≤ 2 on MNIST the best is **your run “Logistic regression, constant 1")
    assert "(5 seeds), 5.00 points above your run" in words
    assert "95 % interval 5.00 to 5.00, same seeds" in words
    assert said.details.startswith("Allowing for its choice among 3")


def test_where_seeds_cannot_tell_the_answer_says_so():
    close = [*seeds(0.9), *seeds(0.9001, NOISE[::-1], clipping="auto-s")]
    table, base = table_of(comparison_data(close))
    assert "too close to call" in answer(table, base["mnist"], 2.0).headline
    single = comparison_data([made_run("a"), made_run("b", best=0.95, clipping="auto-s")])
    table, base = table_of(single)
    assert "one seed each: chance cannot be judged" in answer(table, base["mnist"], 2.0).headline


def test_nothing_within_the_budget_is_said_in_words():
    table, _ = table_of(comparison_data([made_run()]), 0.01)
    assert answer(table, "", 0.01) == Answer("At ε ≤ 0.01 on MNIST no run has an epoch within the budget.")


def test_a_difference_that_rounds_to_nothing_has_no_sign():
    table, _ = table_of(comparison_data([made_run("a"), made_run("b", best=0.899999, clipping="auto-s")]))
    assert "-0.0" not in [f"{value:.1f}" for value in table["difference"]]


def test_at_first_sight_at_most_eight_are_in_colour_the_best_of_each_paper_and_own_latest_runs():
    own = [made_run(str(k), sigma=1 + k / 10, best=0.5) for k in range(30)]
    data = comparison_data(own, [made_cached(), made_cached("mnist-tanh", paper="screening")])
    table, base = table_of(data)
    chosen = first_sight(table, base)
    assert len(chosen) <= MOST_COLOURED
    assert {"cached/curricula/constant-1", "cached/screening/mnist-tanh"} <= set(chosen)
    assert sum(group.startswith("own/") for group in chosen) >= 4


def test_what_differs_is_what_differs_and_nothing_else():
    data = comparison_data([made_run("a"), made_run("b", learning_rate=0.25, optimizer="adam")])
    frame = differing_frame(data.settings, list(data.settings.index), ["a", "b"])
    assert {"Optimizer", "Learning rate"} <= set(frame.index)
    assert not {"Dataset", "Batch size", "Model", "Run"} & set(frame.index)
    assert list(frame.loc["Learning rate"]) == ["0.5", "0.25"]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("delta", 1e-5, "1e-5"), ("examples", 60000, "60,000"), ("clip_norm", 0.1, "0.1"), ("loss", math.nan, "")],
)
def test_settings_are_written_as_people_write_them(name, value, text):
    assert setting_text(name, value) == text


def test_a_knob_is_named_by_its_choice():
    assert setting_title("optimizer.weight_decay") == "Optimizer: weight decay"


def test_differences_along_epsilon_compare_what_each_had_reached_for_it():
    """A quarter of the noise costs four times as much per epoch: at epsilon 2 it has had one epoch, the other four."""
    data = comparison_data([made_run("a"), made_run("b", sigma=0.25, best=0.95)])
    one, other = data.settings.index
    frame = difference_frame(data.rows, [other], {"mnist": one})
    assert list(frame["x"]) == [2.0, 4.0, 6.0, 8.0]
    assert frame["difference"].iloc[0] == pytest.approx(100 * ((0.95 - 0.5) - (0.9 - 0.125)))
    by_epoch = difference_frame(data.rows, [other], {"mnist": one}, "epoch")
    assert list(by_epoch["difference"]) == pytest.approx([5.0] * 4)


def test_reported_results_are_in_the_table_without_seeds():
    reported = [number for number in REPORTED if number.name == "curricula/linear-decreasing"]
    table, base = table_of(comparison_data([made_run()], reported=reported))
    row = table[table["source"] == "reported"].iloc[0]
    assert math.isnan(row["seeds"])
    assert base["mnist"].startswith("own/")
