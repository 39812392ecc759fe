"""The Compare page without a browser: question, answer, table, filters, what differs, and stores of every kind."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from dpviz.privacy.audit import Audit, StepBound
from dpviz.runs import write_cached
from dpviz.runs.store.spending import Spending
from dpviz.ui.common.export_figures import as_csv, as_html
from dpviz.ui.compare.state import take_click
from dpviz.views.comparison.experiments import comparison_data, fold, group_of
from dpviz.views.comparison.figures import curves_figure
from dpviz.views.comparison.scene import Scene
from dpviz.views.comparison.table import experiment_table, experiments
from dpviz.views.comparison.views import VIEWS
from tests.browser import ROOT
from tests.views.made_runs import keep, made_run


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return tmp_path / "runs", tmp_path / "cached"


def open_page(**params: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    at.query_params.update(params)
    at.switch_page("pages/compare.py").run()
    assert not at.exception
    return at


def table(at: AppTest) -> pd.DataFrame:
    return at.dataframe[0].value


def sentence(at: AppTest) -> str:
    return at.markdown[0].value


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_before_any_run_the_papers_results_are_there(folders):
    at = open_page()
    assert table(at)["source"].str.contains("reported").all()
    assert "no run has an epoch within the budget" in sentence(at)
    assert not at.error


def test_own_and_full_length_runs_stand_beside_one_another(folders):
    own, cached = folders
    keep(own, made_run(title="Mine"))
    write_cached(made_run("x", seed=3), "curricula", "constant-1", folder=cached)
    rows = table(open_page(show="own,cached"))
    assert dict(zip(rows["name"], rows["source"], strict=True)) == {
        "Mine": "my run",
        "Constant 1": "Noise curricula, full-length run",
    }


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_stands_with_runs_and_without(folders, view):
    at = open_page(view=view, show="own")
    assert any("Nothing to compare yet" in info.value for info in at.info)
    keep(folders[0], made_run())
    keep(folders[0], made_run(method="sgd"))
    at = open_page(view=view)
    assert not any("Nothing to compare yet" in info.value for info in at.info)
    assert at.segmented_control(key="compare.view").value == view


def test_a_single_run_is_called_the_only_one_and_compared_with_nothing(folders):
    keep(folders[0], made_run(title="Mine"))
    at = open_page(show="own")
    assert sentence(at) == "At ε ≤ 2 on MNIST the only run is **your run “Mine”**, 77.50 % (one seed)."
    assert table(at)["interval"].item() == "baseline"
    assert pd.isna(table(at)["difference"].item())


def test_runs_without_an_epsilon_are_in_the_table_and_the_answer_says_that_none_counts(folders):
    keep(folders[0], made_run(method="sgd", title="Open"))
    at = open_page(show="own")
    assert sentence(at) == "At ε ≤ 2 on MNIST no run has an epoch within the budget."
    assert list(table(at)["name"]) == ["Open"]


def test_against_time_the_page_says_whose_clock_it_was(folders):
    keep(folders[0], made_run())
    captions = {view: " ".join(caption.value for caption in open_page(view=view).caption) for view in ("time", "epoch")}
    assert "clock" in captions["time"]
    assert "clock" not in captions["epoch"]


def test_filters_and_search_keep_what_they_say(folders):
    keep(folders[0], made_run(title="Digits", optimizer="adam"))
    keep(folders[0], made_run(title="Letters", sigma=2.0))
    keep(folders[0], made_run(title="Clothes", dataset="fashion-mnist"))
    assert set(table(open_page(show="own", dataset="mnist"))["name"]) == {"Digits", "Letters"}
    assert set(table(open_page(show="own", dataset="fashion-mnist"))["name"]) == {"Clothes"}
    assert len(table(open_page(show="own", dataset="all"))) == 3
    assert set(table(open_page(show="own", dataset="all", search="adam digits"))["name"]) == {"Digits"}
    assert len(table(open_page(show="own", paper="screening"))) == 0


def test_a_first_visit_opens_the_dataset_of_the_newest_run(folders):
    keep(folders[0], made_run(title="Clothes", dataset="fashion-mnist"))
    assert open_page().segmented_control(key="compare.dataset").value == "fashion-mnist"


def test_what_has_no_guarantee_is_listed_as_left_out_and_never_given_an_epsilon(folders):
    keep(folders[0], made_run(method="sgd", title="Open"))
    at = open_page(show="own")
    assert any("1 curve is not in this view: no guarantee" in expander.label for expander in at.expander)
    row = table(at).iloc[0]
    assert row["whole_run"] == "no guarantee"
    assert pd.isna(row["accuracy"])
    assert pd.isna(row["sound"])


def test_the_table_says_what_an_unfinished_run_really_spent(folders):
    keep(folders[0], made_run("a", status="stopped", count=2, written=Spending(30, 1.15, 1.25, at_most=True)))
    assert table(open_page(show="own"))["whole_run"].item() == "at most 1.250"


def test_an_audit_stands_beside_epsilon_and_one_that_failed_is_named_in_red(folders):
    keep(folders[0], made_run(audit=Audit(2.0, StepBound(1.5678, ()))))
    at = open_page(show="own")
    assert table(at)["audited"].item() == "≥ 1.567 of 2.000"  # both of the whole run, wherever the cursor is
    assert not at.error
    keep(folders[0], made_run(status="failed", title="Odd", audit=Audit(2.0, StepBound(3.0, ()))))
    at = open_page(show="own")
    assert "refuted: ≥ 3.000 of 2.000" in list(table(at)["audited"])
    (error,) = at.error
    assert "The audit failed: the proven ε does not hold" in error.value
    assert "Odd" in error.value


# --- the question -----------------------------------------------------------------------------------------------------


def test_the_cursor_drives_table_and_sentence(folders):
    for seed in range(3):
        keep(folders[0], made_run(seed=seed, best=0.9 + seed / 100))
    at = open_page(show="own", at="1.2")
    assert (table(at)["sound"] <= 1.2).all()
    assert "At ε ≤ 1.2 on MNIST" in sentence(at)
    assert f"{table(at)['accuracy'].item():.2f} %" in sentence(at)
    at.select_slider(key="compare.at").set_value(2.0).run()
    assert "At ε ≤ 2 on MNIST" in sentence(at)
    assert table(at)["sound"].item() == 2.0


def test_any_row_can_be_pinned_as_the_baseline(folders):
    runs = [made_run(sigma=sigma, best=best) for sigma, best in ((1.0, 0.9), (1.5, 0.8))]
    for run in runs:
        keep(folders[0], run)
    at = open_page(show="own", baseline=group_of(runs[1]))
    rows = table(at).set_index("name")
    assert rows.loc["Logistic regression, constant 1.5", "interval"] == "baseline"
    assert rows.loc["Logistic regression, constant 1", "difference"] == pytest.approx(10.0)
    assert "10.00 points above your run “Logistic regression, constant 1.5”" in sentence(at)


def test_a_click_on_a_point_moves_the_cursor_just_beyond_it(monkeypatch):
    state = {"compare.figure": {"selection": {"points": [{"x": 2.37956}]}}, "compare.at": 1.0}
    monkeypatch.setattr("streamlit.session_state", state)
    take_click()
    assert state["compare.at"] == 2.38
    state["compare.figure"]["selection"]["points"] = []
    take_click()
    assert state["compare.at"] == 2.38


def test_selected_rows_are_in_colour_and_stay_so_when_the_table_is_sorted_anew(folders):
    runs = [made_run(sigma=1 + k, best=0.9 - k / 50) for k in range(12)]
    for run in runs:
        keep(folders[0], run)
    chosen = group_of(runs[7])
    at = open_page(show="own", highlight=chosen)
    assert list(table(at).loc[table(at)["mark"] != ""].index) == [chosen]
    at.select_slider(key="compare.at").set_value(0.4).run()
    assert list(table(at).loc[table(at)["mark"] != ""].index) == [chosen]


def test_at_first_sight_at_most_eight_are_in_colour(folders):
    for k in range(30):
        keep(folders[0], made_run(sigma=1 + k / 10))
    marks = table(open_page(show="own"))["mark"]
    assert 1 <= (marks != "").sum() <= 8


def test_coloured_and_grouped_by_a_setting(folders):
    for k in range(4):
        keep(folders[0], made_run(sigma=1 + k, learning_rate=(0.25, 0.5)[k % 2], optimizer=("sgd", "adam")[k // 2]))
    at = open_page(show="own", colour="optimizer")
    assert table(at)["mark"].nunique() == 2
    grouped = table(open_page(show="own", group="learning_rate"))
    assert set(grouped["name"]) == {"Learning rate 0.25", "Learning rate 0.5"}


def test_what_differs_shows_the_settings_that_differ(folders):
    keep(folders[0], made_run(optimizer="adam"))
    keep(folders[0], made_run())
    at = open_page(show="own")
    at.session_state["compare.differs"] = True
    frame = at.run().table[0].value
    assert "Optimizer" in frame.index
    assert "Model" not in frame.index


# --- links and damage -------------------------------------------------------------------------------------------------


def test_a_link_to_runs_that_this_server_lacks_says_so(folders):
    run = made_run(title="Mine")
    keep(folders[0], run)
    assert not open_page(highlight=group_of(run)).warning
    at = open_page(highlight="own/0000000000000000", baseline="cached/none/none")
    assert "2 curves that this server does not have" in at.warning[0].value
    assert len(table(at))


def test_a_link_that_cannot_be_read_is_refused_and_the_page_stands(folders):
    at = open_page(view="pie")
    assert [error.value for error in at.error] == [f"View in this link must be one of {', '.join(VIEWS)}, got 'pie'."]
    assert at.segmented_control(key="compare.view").value == "epsilon"


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_compared(folders):
    keep(folders[0], made_run(title="Whole"))
    damaged = keep(folders[0], made_run(title="Damaged"))
    (folders[0] / damaged / "spec.json").write_text("{}")
    at = open_page(show="own")
    assert list(table(at)["name"]) == ["Whole"]
    assert any("1 run could not be read" in expander.label for expander in at.expander)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_csv_says_which_columns_epsilon_does_not_cover():
    rows = fold(comparison_data([made_run()]).rows)
    back = pd.read_csv(io.BytesIO(as_csv(rows)))
    assert len(back) == 4
    assert "train_loss (not covered by epsilon)" in back.columns
    assert "train_loss" not in back.columns


def test_an_html_file_holds_everything_and_asks_no_other_host():
    data = comparison_data([made_run()])
    folded = fold(data.rows)
    scene = Scene(data.rows, folded, experiment_table(experiments(folded), data.rows, 2.0), data.settings, {})
    page = as_html(curves_figure(folded, scene, "epoch", "test_accuracy")).decode()
    assert "Plotly.newPlot" in page
    assert '<script src="http' not in page
    assert "#000001" not in page  # a colour that Streamlit's template leaves for its own code to fill in
