"""Local privacy as frames and figures."""

import math

import numpy as np
import pytest

from dpviz.privacy.local import METHODS
from dpviz.runs.local_results import SETTINGS, LocalResult
from dpviz.training.local.experiments import differences, run_trials, specs_for
from dpviz.training.local.prestige_reference import walk
from dpviz.training.local.spec import LocalSpec
from dpviz.training.local.tabular import picture_data
from dpviz.views.local import (
    METHOD_COLOURS,
    batch_rows,
    difference_frame,
    epoch_figure,
    epoch_frame,
    error_figure,
    error_frame,
    reported_frame,
    table3_frame,
    verdict,
)
from dpviz.views.plane import describe, half_disc, half_square, plane_figure


@pytest.fixture(scope="module")
def trials():
    spec = LocalSpec(epochs=3, length=4.0)
    return run_trials(picture_data(), specs_for(spec, ("prestige", "djw", "sgd"), (0.5, 1.0)), repeats=4)


@pytest.fixture(scope="module")
def rows(trials):
    return [trial.to_json() for trial in trials]


def a_gap(mean, p_value, first="prestige"):
    return {
        "first": first,
        "second": "djw",
        "budget": 1.0,
        "mean": mean,
        "low": mean - 0.01,
        "high": mean + 0.01,
        "p_value": p_value,
        "first_better": 3,
        "repeats": 20,
    }


# --- errors -------------------------------------------------------------------------------------------------------


def test_every_method_has_a_title_and_a_colour():
    assert set(METHODS) == set(METHOD_COLOURS)


def test_errors_are_percent_with_what_a_person_pays(rows):
    frame = error_frame(rows)
    assert len(frame) == 6
    assert frame["error"].iloc[0] == pytest.approx(100 * rows[0]["mean_error"])
    assert frame["epsilon_per_person"].iloc[0] == 1.5
    assert math.isnan(frame["epsilon_per_person"].iloc[-1])


def test_the_error_figure_has_a_line_and_a_band_for_each_method_and_diamonds_for_reported_ones(rows):
    figure = error_figure(error_frame(rows), reported_frame("a7a"))
    named = [trace.name for trace in figure.data if trace.name]
    assert named == ["PRESTIGE", "DJW", "SGD", "DJW, reported", "PRESTIGE, reported"]
    assert sum(trace.fill == "toself" for trace in figure.data) == 3
    reported = figure.data[-1]
    assert reported.marker.symbol == "diamond-open"
    assert list(reported.y) == pytest.approx([17.91])


def test_batch_sizes_get_lines_of_their_own(rows):
    both = [*rows, *({**row, "batch_size": 5} for row in rows)]
    names = [trace.name for trace in error_figure(error_frame(both)).data if trace.name]
    assert "PRESTIGE, batch 1" in names
    assert "PRESTIGE, batch 5" in names


def test_mini_batches_are_collected_from_results_that_differ_in_them_only(rows):
    one = a_result(rows, cross_validated=False)
    five = a_result([{**row, "batch_size": 5} for row in rows], cross_validated=False)
    assert batch_rows([one], "a7a") == []
    assert batch_rows([one, five], "mnist38") == []
    assert {row["batch_size"] for row in batch_rows([one, five], "a7a")} == {1, 5}
    assert "sgd" not in {row["method"] for row in batch_rows([one, five], "a7a")}


def test_an_empty_frame_gives_empty_axes_with_titles():
    figure = error_figure(error_frame([]))
    assert not figure.data
    assert figure.layout.xaxis.title.text
    assert not epoch_figure(epoch_frame([], 1.0)).data


def test_epochs_of_one_budget_are_drawn(rows):
    frame = epoch_frame(rows, 1.0)
    assert list(frame["epoch"].unique()) == [1, 2, 3]
    assert set(frame["budget"]) == {1.0}
    assert len(epoch_figure(frame).data) == 3
    used = frame[frame["method"] == "djw"]["used"]
    assert list(used) == [100.0] * 3


# --- the paper ----------------------------------------------------------------------------------------------------


def a_result(rows, data="a7a", **settings):
    content = {
        "data": data,
        "rows": rows,
        "differences": [],
        "settings": {name: getattr(LocalSpec(), name) for name in SETTINGS} | {"cross_validated": True, **settings},
        "provenance": {"kind": "measured"},
    }
    return LocalResult.from_json("some", content)


def test_table_3_stands_beside_ours_where_it_was_run(rows):
    frame = table3_frame([a_result(rows)], "a7a")
    assert len(frame) == 8
    first = frame[(frame["Loss"] == "Hinge") & (frame["Method"] == "PRESTIGE")].iloc[0]
    assert first["Reported (Table 3)"] == "17.91 ± 0.09 %"
    ours = next(row for row in rows if row["method"] == "prestige" and row["budget"] == 1.0)
    assert first["Ours"].startswith(f"{100 * ours['mean_error']:.2f}")
    assert set(frame[frame["Loss"] != "Hinge"]["Ours"]) == {"not run"}
    assert set(table3_frame([a_result(rows, cross_validated=False)], "a7a")["Ours"]) == {"not run"}
    assert set(table3_frame([a_result(rows, threshold=0.0)], "a7a")["Ours"]) == {"not run"}


def test_nothing_is_reported_for_data_that_the_paper_did_not_use():
    assert reported_frame("breast-cancer").empty


def test_the_verdict_is_the_outcome_whichever_way_it_went():
    against = verdict([a_gap(0.2, 1e-9), a_gap(0.1, 0.5)])
    assert "lower test error than DJW at 0 and a higher one at 1 of 2 budgets" in against
    assert "+10.0 to +20.0 points" in against
    assert "at 1 and a higher one at 0 of 1" in verdict([a_gap(-0.05, 0.001)])
    assert verdict([]) == ""


def test_differences_are_worded_in_points(trials):
    gaps = [gap.to_json() for gap in differences(trials)]
    frame = difference_frame(gaps)
    assert list(frame["Difference"]) == ["PRESTIGE − DJW"] * 2
    assert difference_frame([a_gap(0.2, 1e-9)])["p (paired t)"].iloc[0] == "< 0.001"


# --- the moving picture -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_frame_has_the_same_traces(method):
    spec = LocalSpec(method, epochs=3, length=4.0, radius=1.5)
    data = picture_data()
    visits = list(walk(data, spec))[::9]
    figure = plane_figure(data, visits, spec)
    assert len(figure.frames) == len(visits) == len(figure.layout.sliders[0].steps)
    assert {len(frame.data) for frame in figure.frames} == {8}
    assert len(figure.to_json()) < 1_000_000
    assert not plane_figure(data, [], spec).data


def test_a_frame_shows_the_line_the_region_and_the_half_that_an_answer_was_drawn_from():
    spec = LocalSpec(epochs=4, length=4.0, radius=1.5)
    data = picture_data()
    visits = list(walk(data, spec))
    spoken = [visit for visit in visits if visit.sent is not None and np.linalg.norm(visit.gradient) > 0]
    silent = [visit for visit in visits if visit.sent is None]
    assert spoken
    assert silent
    for visit in (*spoken[:10], *silent[:5]):
        region, line, points, person, half, _, sent, words = plane_figure(data, [visit], spec).frames[0].data
        assert np.allclose(np.stack([line.x, line.y], axis=1) @ visit.before, 0.0)
        corners = np.stack([region.x, region.y], axis=1)
        z = visit.answered * spec.length * corners @ visit.before
        assert np.all(z >= visit.threshold - 1e-9)
        benefit = data.train_labels * (data.train_rows @ visit.before) >= 0
        assert [colour == points.marker.color[0] for colour in points.marker.color] == list(benefit == benefit[0])
        assert person.x[0] == data.train_rows[visit.person, 0]
        assert words.text[0] == describe(visit, spec)
        if visit.sent is None:
            assert len(sent.x) == len(half.x) == 0
            assert "silent" in words.text[0]
            continue
        answer = np.array([sent.x[1], sent.y[1]])
        assert np.linalg.norm(answer) == pytest.approx(1.0)
        middle = np.array([np.mean(half.x), np.mean(half.y)])
        assert answer @ middle >= 0
        assert abs(middle @ np.array([-visit.gradient[1], visit.gradient[0]])) < 1e-9


def test_half_planes_are_cut_to_the_square():
    assert len(half_square(np.array([1.0, 0.0]), 0.0)) == 4
    assert len(half_square(np.array([1.0, 0.0]), 9.0)) == 0
    assert len(half_square(np.array([1.0, 1.0]), 1.5)) == 3
    assert np.all(half_disc(np.array([0.0, 2.0]))[:, 1] >= -1e-12)
