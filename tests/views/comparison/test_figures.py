"""Figures of a comparison: few in colour, names apart, panels, marks, and every view with much and with nothing."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from dpviz.papers import REPORTED
from dpviz.privacy import risk
from dpviz.views.axes import PALE
from dpviz.views.comparison.answer import Answer
from dpviz.views.comparison.experiments import comparison_data, fold, regrouped
from dpviz.views.comparison.figures import curves_figure
from dpviz.views.comparison.marks import MARKS, OTHER, keep_slots, marks_by, marks_of, swatch
from dpviz.views.comparison.report import HTML, MARKDOWN, Report, report_text
from dpviz.views.comparison.scene import Scene, label_heights
from dpviz.views.comparison.table import baselines, experiment_table, experiments, first_sight, with_differences
from dpviz.views.comparison.views import VIEWS, cell_settings
from tests.views.made_runs import made_cached, made_run

TABLE_2 = [number for number in REPORTED if number.paper == "curricula" and number.place == "Table 2"]


def scene_of(*sources, chosen=None, **changes) -> Scene:
    data = comparison_data(*sources)
    folded = fold(data.rows)
    table = experiment_table(experiments(folded), data.rows, 2.0)
    base = baselines(table, data.settings)
    table = with_differences(table, base)
    marks = marks_of(first_sight(table, base) if chosen is None else [table.index[k] for k in chosen])
    scene = Scene(data.rows, folded, table, data.settings, marks, base)
    return dataclasses.replace(scene, **changes)


def some_runs(count: int = 12) -> list:
    return [made_run(str(k), sigma=1 + k / 10, seed=s) for k in range(count // 3) for s in range(3)]


def test_the_chosen_are_in_colour_and_named_the_rest_is_one_pale_trace_with_gaps():
    scene = scene_of([made_run(str(k), sigma=1 + k / 100) for k in range(200)], chosen=(0, 5))
    figure = curves_figure(scene.folded, scene, "epsilon_sound", "test_accuracy")
    pale = [trace for trace in figure.data if trace.mode == "lines" and trace.line.color == PALE]
    assert len(pale) == 1
    assert np.isnan(pale[0].x).sum() == 197
    drawn = {trace.line.color for trace in figure.data if trace.mode == "lines+markers"}
    assert drawn == {mark.colour for mark in MARKS[:2]}
    assert len(figure.layout.annotations) == 2


def test_hidden_curves_are_not_drawn():
    scene = scene_of(some_runs(), chosen=(0,), rest=False)
    figure = curves_figure(scene.folded, scene, "epoch", "test_accuracy")
    assert {trace.mode for trace in figure.data} == {"lines+markers"}


def test_names_at_the_ends_never_touch():
    random = np.random.default_rng(3)
    for heights in (random.uniform(0, 1, 8), np.full(8, 0.5), np.full(8, 1.0), np.linspace(0, 1, 8)):
        stands = sorted(label_heights(list(heights), 0.06, 0.02, 0.98))
        assert all(after - before >= 0.06 - 1e-9 for before, after in itertools.pairwise(stands))
        assert stands[-1] <= 0.98 + 1e-9


def test_two_datasets_are_two_panels_and_a_fit_or_frontier_never_mixes_them():
    runs = [made_run(str(k), sigma=1 + k, dataset=data) for k in range(4) for data in ("mnist", "fashion-mnist")]
    scene = scene_of(runs)
    for name in ("epsilon", "frontier", "fit"):
        figure = VIEWS[name].figure(VIEWS[name].frame(scene), scene)
        titles = {note.text for note in figure.layout.annotations}
        assert {"MNIST", "Fashion-MNIST"} <= titles
    note = VIEWS["fit"].note(VIEWS["fit"].frame(scene), scene)
    assert "MNIST:" in note
    assert "Fashion-MNIST:" in note


def test_seeds_are_drawn_as_a_line_with_a_band():
    scene = scene_of([made_run(str(s), seed=s, best=0.8 + s / 20) for s in range(3)])
    band, line = curves_figure(scene.folded, scene, "epoch", "test_accuracy").data
    assert band.fill == "toself"
    assert max(band.y) == pytest.approx(max(line.y) + 5.0)


def test_reported_results_are_open_points():
    scene = scene_of((), (), TABLE_2, epsilon="claimed")
    figure = curves_figure(scene.folded, scene, "epsilon_claimed", "test_accuracy")
    assert {trace.mode for trace in figure.data} == {"markers"}
    assert all(symbol.endswith("-open") for trace in figure.data[:-1] for symbol in np.atleast_1d(trace.marker.symbol))


@pytest.mark.parametrize("view", VIEWS.values(), ids=lambda view: view.name)
def test_every_view_stands_with_many_curves_with_one_without_epsilon_and_with_nothing(view):
    for sources in (
        (some_runs(), [made_cached()], TABLE_2),
        ([made_run()],),
        ([made_run(method="sgd")],),
        (),
    ):
        scene = scene_of(*sources)
        scene = dataclasses.replace(scene, cells=tuple(cell_settings(scene)[:2]))
        frame = view.frame(scene)
        assert view.figure(frame, scene).to_json()
        assert isinstance(view.note(frame, scene), str)


def test_marks_differ_in_colour_line_and_symbol():
    for channel in ("colour", "dash", "symbol"):
        assert len({getattr(mark, channel) for mark in MARKS}) == len(MARKS)


def test_a_curve_keeps_its_mark_while_others_come_and_go():
    before = keep_slots((), ["a", "b", "c"])
    after = keep_slots(before, ["c", "a", "d"])
    assert before == ("a", "b", "c")
    assert after == ("a", "d", "c")
    assert keep_slots(after, ["a"]) == ("a",)


def test_more_than_eight_values_of_a_setting_share_the_mark_of_the_rest():
    values = pd.Series({f"own/{k}": 10 * (k // 2) for k in range(24)})
    marks, key = marks_by(values, "batch_size")
    assert len(key) == 9
    assert key["other"] == OTHER
    assert marks["own/0"] == key["0"] == MARKS[0]
    assert marks["own/23"] == OTHER


def test_a_swatch_shows_colour_and_line():
    assert swatch(None) == ""
    assert MARKS[1].colour.removeprefix("#") in swatch(MARKS[1])
    assert "stroke-dasharray" in swatch(MARKS[1])
    assert "stroke-dasharray" not in swatch(MARKS[0])


def test_grouped_by_a_setting_runs_of_one_value_are_one_curve():
    data = comparison_data(
        [made_run(str(k), learning_rate=rate, sigma=1 + k) for k in range(2) for rate in (0.1, 0.2)], reported=TABLE_2
    )
    folded = fold(regrouped(data.rows, data.settings["learning_rate"].astype(str)))
    assert set(folded.loc[folded["source"] == "own", "name"]) == {"0.1", "0.2"}
    assert set(folded.loc[folded["source"] == "own", "seeds"]) == {2}
    assert (folded["source"] == "reported").any()


def test_a_report_holds_answer_figures_table_guarantees_and_settings_and_escapes_titles():
    scene = scene_of([made_run("a", title="<script>x</script>"), made_run("b", optimizer="adam")])
    data = comparison_data([made_run("a"), made_run("b", optimizer="adam")])
    figure = curves_figure(scene.folded, scene, "epoch", "test_accuracy")
    report = Report(
        "Mine", [Answer("The **best**.", "By luck?")], [("Curves", figure)], data.specs, data.origins, "view=epoch&at=2"
    )
    page = report_text(report, scene, HTML)
    for words in (
        "<b>best</b>",
        "By luck?",
        "Plotly.newPlot",
        "Optimizer",
        "Sound ε there",
        "What it means: An attacker who accepts 1 false alarm in 1,000",
        "It rests on",
        "measured, dpviz",
    ):
        assert words in page
    assert "<script>x" not in page
    assert "view=epoch&amp;at=2" in page
    text = report_text(report, scene, MARKDOWN)
    for words in ("# Mine", "The **best**.", "| Curve | Dataset |", "| Optimizer | ", "It rests on", r"\<script\>x"):
        assert words in text.replace("‹", r"\<")
    lengths = [line.count(" | ") for line in text.splitlines() if line.startswith("| ")]
    assert len(set(lengths)) == 2  # two whole tables


def test_risk_on_the_x_axis_is_that_of_the_steps_taken_so_far():
    runs = some_runs(6)
    specs = comparison_data(runs).specs
    scene = scene_of(runs, chosen=(0,), specs=specs)
    frame = VIEWS["risk"].frame(scene)
    [group] = scene.marks
    assert set(frame["group"]) == {group}
    assert list(frame["epoch"])[-1] == specs[group].epochs
    for epoch, found in frame[["epoch", "members_found"]].itertuples(index=False):
        assert found == 100 * risk(specs[group].phases[: int(epoch)]).tpr(0.001).upper
    figure = VIEWS["risk"].figure(frame, scene)
    assert list(figure.data[0].x) == list(frame["members_found"])


@pytest.mark.parametrize("changes", [{"curriculum": "sample"}, {"secure": True}], ids=str)
def test_a_run_whose_steps_have_no_known_risk_has_no_place_on_a_risk_axis(changes):
    run = made_run("0", **changes)
    scene = scene_of([run], chosen=(0,), specs=comparison_data([run]).specs)
    assert VIEWS["risk"].frame(scene)["members_found"].isna().all()
