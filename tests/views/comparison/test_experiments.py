from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dpviz.papers import REPORTED
from dpviz.runs import Run
from dpviz.runs.store.spending import Spending
from dpviz.views.comparison.experiments import comparison_data, comparison_frame, endpoints, fold, unplaced
from dpviz.views.comparison.fit import frontier, log_fit
from tests.views.made_runs import made_cached, made_run

ACCURACIES = [number for number in REPORTED if number.quantity == "test_accuracy"]
TABLE_2 = [number for number in ACCURACIES if number.paper == "curricula" and number.place == "Table 2"]


def ends_at(epsilons, accuracies) -> pd.DataFrame:
    """Ends of curves as they come out of `endpoints`, with the columns that matter."""
    groups = [f"own/{k}" for k in range(len(epsilons))]
    return pd.DataFrame(
        {
            "group": groups,
            "label": groups,
            "source": "own",
            "seeds": 1,
            "epsilon_sound": epsilons,
            "test_accuracy": accuracies,
            "accuracy_spread": math.nan,
        }
    )


def test_the_state_of_the_art_stands_at_its_sound_epsilon_or_has_none():
    numbers = [number for number in ACCURACIES if number.paper == "state-of-the-art"]
    ends = endpoints(fold(comparison_frame(reported=numbers)))
    assert len(ends) == 22
    assert set(ends["dataset"]) == {"mnist", "fashion-mnist", "cifar10"}
    claimed_only = ends["label"].str.contains("DPSUR")
    assert list(ends["epsilon_sound"].isna()) == list(claimed_only)
    assert ends["epsilon_claimed"].notna().all()


# --- frames -----------------------------------------------------------------------------------------------------------


def test_seeds_fold_into_a_mean_and_a_standard_deviation():
    runs = [made_run(str(seed), seed=seed, best=best) for seed, best in enumerate((0.8, 0.9, 1.0))]
    folded = fold(comparison_frame(runs))
    assert folded["group"].nunique() == 1
    assert list(folded["seeds"]) == [3, 3, 3, 3]
    assert folded["test_accuracy"].iloc[-1] == pytest.approx(100 * (0.9 - 0.125))
    assert folded["accuracy_spread"].iloc[-1] == pytest.approx(10.0)


def test_other_settings_do_not_fold_nor_do_runs_that_are_not_finished():
    runs = [made_run("a"), made_run("b", sigma=2.0), made_run("c", seed=1, status="stopped", count=2)]
    folded = fold(comparison_frame(runs))
    assert folded["group"].nunique() == 3
    assert "MNIST, Logistic regression, constant 1 (epoch 2 of 4) — my run" in set(folded["label"])


def test_a_cached_run_that_stopped_early_stands_alone_and_says_so():
    folded = fold(comparison_frame(cached=[made_cached(), made_cached(seed=1, status="stopped", count=2)]))
    labels = folded.groupby("group")["label"].first()
    assert labels["cached/curricula/constant-1"] == "Constant 1 — Noise curricula, full-length run"
    assert labels["cached/curricula/constant-1/1"].startswith("Constant 1 (epoch 2 of 4) — Noise curricula")


def test_one_seed_has_no_spread():
    assert fold(comparison_frame([made_run()]))["accuracy_spread"].isna().all()


def test_labels_are_unique_and_say_where_a_curve_is_from():
    runs = [made_run("a", title="Same"), made_run("b", sigma=2.0, title="Same")]
    folded = fold(comparison_frame(runs, [made_cached()], ACCURACIES))
    labels = folded.groupby("group")["label"].first()
    assert labels.is_unique
    assert labels["cached/curricula/constant-1"] == "Constant 1 — Noise curricula, full-length run"
    assert labels["reported/curricula/constant-1/table-4"] == "Constant 1 — Noise curricula, reported, Table 4"


def test_a_result_printed_in_several_tables_is_one_point_that_names_them_all():
    linear = [number for number in ACCURACIES if number.name == "curricula/linear-decreasing"]
    assert len(linear) == 3
    row = comparison_frame(reported=linear)
    assert row["place"].item() == "Table 2, Table 3, Table 4"
    assert row["epsilon_claimed"].item() == 1.40


def test_equal_accuracies_at_different_epsilons_stay_different_results():
    one = TABLE_2[0]
    other = dataclasses.replace(one, epsilon=9.0)
    assert len(comparison_frame(reported=[one, other, one])) == 2


def test_every_reported_accuracy_has_a_row_with_a_dataset():
    frame = comparison_frame(reported=ACCURACIES)
    assert set(frame["test_accuracy"]) == {100 * number.value for number in ACCURACIES}
    assert set(frame["dataset"]) == {"mnist", "fashion-mnist", "cifar10"}


def test_a_reported_result_keeps_the_papers_epsilon_and_gets_the_sound_one_of_its_recipe():
    folded = fold(comparison_frame(reported=TABLE_2))
    linear = folded[folded["group"] == "reported/curricula/linear-decreasing/table-2"].iloc[0]
    assert linear["epsilon_claimed"] == 1.40
    # dp_accounting: 1.0038 at interval 1e-4.
    assert linear["epsilon_sound"] == pytest.approx(1.0038, abs=2e-3)


def test_a_reported_result_of_a_sorted_curriculum_has_no_sound_epsilon():
    rows = comparison_frame(reported=[number for number in ACCURACIES if "/sample-" in number.name])
    assert len(rows) > 3
    assert rows["epsilon_sound"].isna().all()


def test_what_has_no_guarantee_is_named_as_having_no_place():
    folded = fold(comparison_frame([made_run("a"), made_run("b", method="sgd")]))
    assert unplaced(folded, "epsilon_sound") == ["MNIST, Logistic regression, no noise — my run"]
    assert unplaced(folded, "epoch") == []


def test_ends_are_the_last_epochs_and_every_reported_point():
    tang = [number for number in ACCURACIES if number.experiment == "tang-dp-sgd"]
    ends = endpoints(fold(comparison_frame([made_run()], reported=tang)))
    assert list(ends["epsilon_claimed"]) == [pytest.approx(1.6), 1.0, 3.0, 7.0]


def test_the_frontier_keeps_what_nothing_cheaper_beats():
    ends = ends_at([1.0, 2.0, 2.0, 3.0, 4.0, math.inf, math.nan], [80, 85, 90, 88, 95, 99, 99])
    assert list(frontier(ends)["test_accuracy"]) == [80, 90, 95]


def test_epsilons_within_the_certified_band_are_equal_on_the_frontier():
    ends = ends_at([0.30772, 0.30778, 1.0, 1.0005], [90.0, 91.0, 93.0, 92.0])
    assert list(frontier(ends)["test_accuracy"]) == [91.0, 93.0]


def test_the_epsilon_of_a_folded_curve_is_its_dearest_seeds():
    cheap, dear = made_run("a", seed=0), made_run("b", seed=1)
    epochs = tuple(dataclasses.replace(record, epsilon_sound=2 * record.epsilon_sound) for record in dear.epochs)
    folded = fold(comparison_frame([cheap, dataclasses.replace(dear, epochs=epochs)]))
    assert list(folded["epsilon_sound"]) == [1.0, 2.0, 3.0, 4.0]


def test_short_names_leave_out_the_dataset_and_are_unique_on_it():
    runs = [made_run("a", title="Same"), made_run("b", sigma=2.0, title="Same"), made_run("c", sigma=3.0)]
    other = made_run("d", title="Same", dataset="fashion-mnist")
    short = fold(comparison_frame([*runs, other])).groupby("group", sort=False)["short"].first()
    assert list(short) == ["Same", "Same (2)", "Logistic regression, constant 3", "Same"]


def short_names(runs: list[Run]) -> list[str]:
    return list(fold(comparison_data(runs).rows).groupby("group", sort=False)["short"].first())


def test_own_runs_of_one_name_are_told_apart_by_their_settings_then_seed_then_date():
    runs = [made_run("a"), made_run("b", clipping="auto-s"), made_run("c", clipping="auto-s", batch_size=400)]
    name = "Logistic regression, constant 1"
    assert short_names(runs) == [
        f"{name}, Flat, batch size 200",
        f"{name}, AUTO-S, batch size 200",
        f"{name}, AUTO-S, batch size 400",
    ]
    stopped = [made_run(str(seed), seed=seed, status="stopped", count=2) for seed in (3, 5)]
    name += " (epoch 2 of 4)"
    assert short_names(stopped) == [f"{name}, seed 3", f"{name}, seed 5"]
    later = dataclasses.replace(stopped[0], id="x", created="2026-02-03T04:05:06+00:00")
    assert short_names([stopped[0], later]) == [f"{name}, 2026-01-02 03:04", f"{name}, 2026-02-03 04:05"]


def test_no_paper_is_called_by_its_folder():
    data = comparison_data(cached=[made_cached()], reported=ACCURACIES)
    texts = [*fold(data.rows)["label"], *data.settings["paper"]]
    assert "Losing less" in texts
    assert not [text for text in texts if "losing-less" in text or "state-of-the-art" in text]


# --- the fit ----------------------------------------------------------------------------------------------------------


def test_a_fit_finds_the_line_it_was_given():
    epsilons = np.array([0.5, 1.0, 2.0, 4.0])
    fit = log_fit(ends_at(epsilons, 90 + 3 * np.log(epsilons)))
    assert (fit.slope, fit.intercept, fit.r) == pytest.approx((3.0, 90.0, 1.0))
    assert fit.band(epsilons) == pytest.approx(np.zeros(4), abs=1e-6)


def test_r_and_p_are_pearsons_of_accuracy_and_log_epsilon():
    ends = endpoints(fold(comparison_frame(reported=TABLE_2)))
    fit = log_fit(ends, "epsilon_claimed")
    expected = stats.pearsonr(np.log(ends["epsilon_claimed"]), ends["test_accuracy"])
    assert (fit.r, fit.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert fit.points == 8


def test_the_band_covers_the_true_line_about_as_often_as_it_says():
    random = np.random.default_rng(1)
    epsilons = np.geomspace(0.3, 8, 12)
    covered = 0
    for _ in range(400):
        fit = log_fit(ends_at(epsilons, 90 + 2 * np.log(epsilons) + random.normal(0, 1, 12)))
        at = np.array([3.0])
        covered += abs(fit.line(at) - (90 + 2 * np.log(at))) <= fit.band(at)
    assert 0.92 <= covered.item() / 400 <= 0.98


@pytest.mark.parametrize(
    "ends",
    [
        ends_at([1.0, 2.0], [80, 90]),
        ends_at([1.0, 1.0, 1.0], [80, 85, 90]),
        ends_at([1.0, 2.0, 3.0], [90, 90, 90]),
        ends_at([math.nan, math.inf, 0.0], [80, 85, 90]),
    ],
    ids=["two points", "one epsilon", "one accuracy", "no epsilon"],
)
def test_too_little_for_a_line_gives_none(ends):
    assert log_fit(ends) is None


def test_an_unfinished_run_ends_at_what_it_really_spent_not_at_its_last_epoch():
    stopped = made_run("a", status="stopped", count=2, written=Spending(27, 1.1, 1.2, at_most=True))
    end = endpoints(fold(comparison_frame([stopped, made_run("b")], [made_cached()], TABLE_2)))
    first = end.iloc[0]
    assert (first["epsilon_sound"], first["spent_sound"], first["spent_claimed"]) == (1.0, 1.2, 1.1)
    assert list(end["at_most"]) == [True] + [False] * (len(end) - 1)
    rest = end[1:]
    assert rest["spent_sound"].equals(rest["epsilon_sound"])
    assert rest["spent_claimed"].equals(rest["epsilon_claimed"])
