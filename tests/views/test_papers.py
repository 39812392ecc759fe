"""The papers' tables beside our runs, and one picture for each idea."""

from __future__ import annotations

import dataclasses
import math

import pytest

from dpviz.papers import LOCAL_RECIPES, PAPERS, RECIPES, reported_of
from dpviz.papers.records import HEADLINES, Gain
from dpviz.runs import Provenance, Run
from dpviz.runs.experiments import Measured, experiments
from dpviz.runs.experiments import measured as measured_results
from dpviz.runs.local_results import local_results
from dpviz.runs.store.cached import cached_runs
from dpviz.views.ideas import idea_figure
from dpviz.views.numbers import epsilon_number
from dpviz.views.papers import (
    CLOSE_CALL,
    COLUMNS,
    FROM_TEXT,
    OURS,
    OURS_ONLY,
    PAPER,
    agreement,
    forest_figure,
    mark,
    pairs_frame,
    pairs_words,
    table_frames,
)
from tests.views.made_runs import made_epochs


def measured(recipe, *bests, epochs=None):
    """Runs of a recipe that end at 0.5 / epochs below these accuracies."""
    spec = RECIPES[recipe].spec
    count = epochs or spec.epochs
    seeded = [dataclasses.replace(spec, seed=seed) for seed in range(len(bests))]
    runs = [
        Run(recipe, own, "done", made_epochs(own, count, best=best + 0.5 / count), "", Provenance("measured", "dpviz"))
        for own, best in zip(seeded, bests, strict=True)
    ]
    return {recipe: Measured.of_runs(runs)}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_reported_accuracy_and_every_recipe_is_in_one_of_the_tables(paper):
    frames = table_frames(paper, {})
    told = [number for number in reported_of(paper) if number.quantity in HEADLINES]
    assert sum(len(frame) for name, frame in frames.items() if name != OURS_ONLY) == len(told)
    shown = {recipe for frame in frames.values() for recipe in frame["recipe"].dropna()}
    assert shown == {it.name for it in (*RECIPES.values(), *LOCAL_RECIPES.values()) if it.paper == paper}


@pytest.mark.parametrize("paper", PAPERS)
def test_without_runs_the_reported_numbers_stand_alone(paper):
    for frame in table_frames(paper, {}).values():
        assert list(frame.columns) == list(COLUMNS)
        assert frame[["ours", "spread", "seeds", "difference"]].isna().all(axis=None)
    assert "No full-length run" in agreement(table_frames(paper, {}).values())


def test_tables_come_before_numbers_from_the_text():
    assert list(table_frames("optimizers", {}))[:2] == ["Table 2", "Fig. 3"]
    assert list(table_frames("curricula", {}))[-2:] == [FROM_TEXT, OURS_ONLY]


def test_ours_is_a_mean_over_seeds_with_its_spread_and_its_difference():
    frame = table_frames("curricula", measured("curricula/linear-decreasing", 0.95, 0.94, 0.96))["Table 2"]
    row = frame[frame["recipe"] == "curricula/linear-decreasing"].iloc[0]
    assert (row["ours"], row["spread"], row["seeds"]) == pytest.approx((95.0, 1.0, 3))
    assert row["difference"] == pytest.approx(95.0 - 94.63)
    assert row["epsilon_reported"] == "1.400"
    assert float(row["epsilon_claimed"]) == float(row["epsilon_sound"]) == pytest.approx(1.004, abs=3e-3)


def test_one_seed_has_no_spread():
    frame = table_frames("curricula", measured("curricula/linear-decreasing", 0.95))["Table 2"]
    assert math.isnan(frame["spread"].max())


def test_a_run_that_stopped_early_says_so():
    results = measured("curricula/linear-decreasing", 0.95, epochs=7)
    frame = table_frames("curricula", results)["Table 2"]
    row = frame[frame["recipe"] == "curricula/linear-decreasing"].iloc[0]
    assert "ours stopped after 7 of 20 epochs, at a sound epsilon of " in row["note"]
    assert row["ours"] == pytest.approx(95.0)


def test_a_run_that_stopped_early_is_not_held_against_the_reported_end():
    results = measured("curricula/linear-decreasing", 0.60, epochs=7)
    assert "No full-length run" in agreement(table_frames("curricula", results).values())
    assert next(row for row in experiments(results) if row.measured).difference is None


def test_a_number_at_a_smaller_epsilon_is_compared_where_that_epsilon_was_spent():
    """Table 3 of screening: what it costs to reach 94 % and 96 %, by the classic conversion."""
    frame = table_frames("screening", measured("screening/mnist-tanh", 0.98))["Table 3"]
    rows = frame[frame["recipe"] == "screening/mnist-tanh"]
    assert list(rows["epsilon_reported"]) == ["1.230", "1.470", "2.920"]
    assert list(rows["ours"]) == sorted(rows["ours"])
    assert rows["ours"].max() < 98


def test_a_number_at_an_epsilon_that_the_run_never_spends_is_not_compared():
    """Table 3 of screening: ReLU gets to 86 % on Fashion-MNIST at epsilon 5.86; its run here ends at 3."""
    frame = table_frames("screening", measured("screening/fashion-dpsgd", 0.85))["Table 3"]
    rows = frame[frame["recipe"] == "screening/fashion-dpsgd"].set_index("epsilon_reported")
    assert rows["ours"].notna().to_dict() == {"2.200": True, "2.880": True, "5.860": False}


def test_where_there_is_no_guarantee_the_table_says_so():
    frame = table_frames("curricula", {})["Table 4"]
    sorted_rows = frame[frame["recipe"] == "curricula/sample-constant-1"]
    assert list(sorted_rows["epsilon_sound"]) == ["no guarantee"]
    assert list(frame[frame["recipe"] == "curricula/constant-0"]["epsilon_sound"]) == ["∞"]


def test_near_above_and_below_have_marks_of_their_own():
    assert [mark(points) for points in (0.9, -0.9, 1.5, -1.5)] == ["≈", "≈", "▲", "▼"]
    assert [mark(points, error=True) for points in (0.9, 1.5, -1.5)] == ["≈", "▼", "▲"]


def test_errors_under_local_privacy_stand_beside_the_reported_ones():
    results, warnings = measured_results(cached=(), local=local_results()[0])
    assert not warnings
    frame = table_frames("prestige", results)["Table 3"]
    run = frame[frame["ours"].notna()]
    assert (len(frame), len(run)) == (48, 16)
    assert set(run["recipe"]) == set(LOCAL_RECIPES)
    row = run.set_index("recipe").loc["prestige/mnist38-djw-hinge"]
    assert (row["reported"], row["seeds"]) == pytest.approx((9.53, 20))
    assert row["difference"] == pytest.approx(row["ours"] - 9.53)
    assert tuple(row[f"epsilon_{kind}"] for kind in ("reported", "claimed", "sound")) == ("1.000", "1.000", "10.00")
    notes = run.set_index("recipe")["note"]
    assert "labels only" in notes["prestige/mnist38-prestige-hinge"]
    assert not notes["prestige/mnist38-djw-hinge"]


def test_agreement_counts_what_is_near():
    results = measured("curricula/linear-decreasing", 0.95) | measured("curricula/constant-5", 0.95)
    words = agreement(table_frames("curricula", results).values())
    assert words.startswith("3 of 4 reported")
    assert "+4.09" in words


def test_every_row_has_a_title_that_people_can_read():
    for paper in PAPERS:
        for frame in table_frames(paper, {}).values():
            assert all(frame["title"])
            assert not frame["title"].str.contains(r"^[a-z]").any()


def test_a_pair_within_chance_is_drawn_open_and_the_papers_beside_it():
    pairs = (Gain(0.66, 0.1, 3, "Linear", 2.27), Gain(-0.03, 0.06, 3, "Quadratic"))
    frame = pairs_frame(pairs)
    assert list(frame["source"]) == [OURS, PAPER, CLOSE_CALL]
    assert list(frame["title"]) == ["Linear", "Linear", "Quadratic"]
    figure = forest_figure(frame)
    assert {trace.name: list(trace.x) for trace in figure.data} == {OURS: [0.66], CLOSE_CALL: [-0.03], PAPER: [2.27]}
    assert list(figure.data[0].error_x.array) == [0.1]
    assert list(figure.layout.yaxis.categoryarray) == ["Quadratic", "Linear"]
    assert pairs_words(pairs) == ("Linear +0.66, 0.10 may be chance, paper +2.27; Quadratic -0.03, 0.06 may be chance")


def test_experiments_list_every_recipe_and_what_has_none():
    rows = experiments({})
    assert len({row.name for row in rows}) == len(rows)
    assert set(RECIPES) <= {row.name for row in rows}
    assert {"screening/fashion-free", "prestige/a7a-djw-hinge"} <= {row.name for row in rows}
    row = next(row for row in rows if row.name == "curricula/linear-decreasing")
    assert (row.reported.epsilon, row.difference) == (1.4, None)
    assert row.claimed == row.sound == pytest.approx(1.004, abs=3e-3)


def test_what_screening_claims_is_what_its_runs_accepted():
    name = "screening/cifar10"
    results, _ = measured_results(cached=cached_runs(paper="screening").runs)
    (planned,), (ours,) = (
        [row for row in experiments(known, "screening") if row.name == name] for known in ({}, results)
    )
    assert planned.claimed == planned.sound == ours.sound
    assert ours.claimed == max(run.epochs[-1].epsilon_claimed for run in results[name].runs) < ours.sound
    shown = table_frames("screening", results)["Table 1"].set_index("recipe").loc[name]
    assert (shown["epsilon_claimed"], shown["epsilon_sound"]) == (
        epsilon_number(ours.claimed),
        epsilon_number(ours.sound),
    )


@pytest.mark.parametrize("paper", PAPERS.values(), ids=lambda paper: paper.name)
def test_every_paper_has_a_picture_of_its_idea(paper):
    figure = idea_figure(paper)
    assert len(figure.data) >= 1
    assert figure.layout.xaxis.title.text
    assert figure.layout.yaxis.title.text
    assert all(len(trace.x) == len(trace.y) > 3 for trace in figure.data)
    assert paper.picture_sentence.endswith(".")


def test_papers_are_in_their_order_and_no_two_share_a_place_a_short_title_or_a_picture():
    papers = list(PAPERS.values())
    assert papers == sorted(papers, key=lambda paper: paper.order)
    assert len({paper.order for paper in papers}) == len(papers)
    assert len({paper.short_title for paper in papers}) == len({paper.picture for paper in papers}) == len(papers)
