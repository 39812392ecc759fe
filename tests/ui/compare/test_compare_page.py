"""The Compare page: its link, its views, what it exports, and two hundred runs in a real browser."""

from __future__ import annotations

import io
import time

import pandas as pd
import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from dpviz.papers import PAPERS
from dpviz.privacy import InputError
from dpviz.runs import write_cached
from dpviz.runs.store.spending import Spending
from dpviz.training.tables import DATASETS
from dpviz.ui.common.export_figures import as_csv, as_html, as_png
from dpviz.ui.compare.link import ALL, VIEWS, Comparison, parse_link, to_link
from dpviz.ui.compare.page import TABLE, _ends_table
from dpviz.views.comparison import comparison_frame, endpoints, fold, group_of
from dpviz.views.comparison_figures import comparison_figure
from tests.browser import ROOT
from tests.views.made_runs import keep, made_run

WAIT = 90_000  # a busy machine is no reason to fail

# --- the link ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shown",
    [
        Comparison(),
        Comparison(show=(), dataset=ALL, paper="screening", view="fit", epsilon="claimed", log=False),
        Comparison(view="equal", at=0.25, highlight=("cached/curricula/constant-1", "own/0123456789abcdef")),
        *(Comparison(dataset=dataset) for dataset in DATASETS),
        *(Comparison(paper=paper) for paper in PAPERS),
    ],
)
def test_a_link_gives_back_what_was_shown(shown):
    assert parse_link(to_link(shown)) == shown


def test_the_link_of_the_first_view_is_empty():
    assert to_link(Comparison()) == {}


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({"view": "pie"}, "view"),
        ({"dataset": "imagenet"}, "dataset"),
        ({"show": "own,others"}, "show"),
        ({"epsilon": "true"}, "epsilon"),
        ({"log": "yes"}, "log"),
        ({"at": "nan"}, "at"),
        ({"at": "-1"}, "at"),
        ({"highlight": "own/../../etc"}, "highlight"),
        ({"highlight": "<script>"}, "highlight"),
        ({"highlight": ",".join(["own/a"] * 9)}, "highlight"),
        ({"page": "2"}, "page"),
    ],
)
def test_a_link_that_means_nothing_is_refused_in_a_sentence(params, word):
    with pytest.raises(InputError, match=word):
        parse_link(params)


# --- files ------------------------------------------------------------------------------------------------------------


def test_a_csv_says_which_columns_epsilon_does_not_cover():
    rows = fold(comparison_frame([made_run()]))
    back = pd.read_csv(io.BytesIO(as_csv(rows)))
    assert len(back) == 4
    assert "train_loss (not covered by epsilon)" in back.columns
    assert "train_loss" not in back.columns


def test_an_html_file_holds_everything_and_asks_no_other_host():
    page = as_html(comparison_figure(fold(comparison_frame([made_run()])))).decode()
    assert "Plotly.newPlot" in page
    assert '<script src="http' not in page
    assert "#000001" not in page  # a colour that Streamlit's template leaves for its own code to fill in


@pytest.mark.filterwarnings("ignore")  # kaleido's own, about its browser
def test_a_png_is_drawn_on_white():
    image = as_png(comparison_figure(fold(comparison_frame([made_run()]))))
    assert image.startswith(b"\x89PNG")
    from PIL import Image

    assert Image.open(io.BytesIO(image)).convert("RGB").getpixel((3, 3)) == (255, 255, 255)


# --- the page without a browser ---------------------------------------------------------------------------------------


@pytest.fixture
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return tmp_path / "runs", tmp_path / "cached"


def open_page(**params: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    at.query_params.update(params)
    at.switch_page("pages/compare.py").run()
    assert not at.exception
    return at


def opened_table(at: AppTest) -> pd.DataFrame:
    at.session_state[TABLE] = True
    return at.run().dataframe[0].value


def labels_to_highlight(at: AppTest) -> list[str]:
    return list(at.multiselect(key="compare.highlight").options)


def test_before_any_run_the_papers_results_are_there(folders):
    at = open_page()
    assert any("reported" in label for label in labels_to_highlight(at))
    assert not at.error


def test_own_and_full_length_runs_stand_beside_one_another(folders):
    own, cached = folders
    keep(own, made_run(title="Mine"))
    write_cached(made_run("x", seed=3), "curricula", "constant-1", folder=cached)
    labels = labels_to_highlight(open_page(show="own,cached"))
    assert labels == ["Mine — my run", "Constant 1 — curricula, full-length run"]


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_stands_with_runs_and_without(folders, view):
    at = open_page(view=view, show="own")
    assert any("Nothing to compare yet" in info.value for info in at.info)
    keep(folders[0], made_run())
    keep(folders[0], made_run(method="sgd"))
    at = open_page(view=view)
    assert not any("Nothing to compare yet" in info.value for info in at.info)
    assert at.segmented_control(key="compare.view").value == view


def test_against_time_the_page_says_whose_clock_it_was(folders):
    keep(folders[0], made_run())
    captions = {view: " ".join(caption.value for caption in open_page(view=view).caption) for view in ("time", "epoch")}
    assert "clock" in captions["time"]
    assert "clock" not in captions["epoch"]


def test_filters_keep_what_they_say(folders):
    keep(folders[0], made_run(title="Digits"))
    keep(folders[0], made_run(title="Clothes", dataset="fashion-mnist"))
    assert labels_to_highlight(open_page(show="own")) == ["Digits — my run"]
    assert labels_to_highlight(open_page(show="own", dataset="fashion-mnist")) == ["Clothes — my run"]
    assert len(labels_to_highlight(open_page(show="own", dataset="all"))) == 2
    assert labels_to_highlight(open_page(show="own", paper="screening")) == []


def test_what_has_no_guarantee_is_listed_as_left_out_and_never_given_an_epsilon(folders):
    keep(folders[0], made_run(method="sgd", title="Open"))
    at = open_page(show="own")
    assert any("1 curve is not in this view: no guarantee" in expander.label for expander in at.expander)
    assert not at.dataframe
    table = opened_table(at)
    assert list(table["Sound ε"]) == ["no guarantee"]
    assert list(table["Claimed ε"]) == ["none"]


def test_at_equal_epsilon_the_table_is_sorted_and_within_the_budget(folders):
    keep(folders[0], made_run())
    at = open_page(show="own,reported", view="equal", at="1.2")
    table = at.dataframe[0].value
    assert (table["epsilon_sound"] <= 1.2).all()
    assert table["test_accuracy"].is_monotonic_decreasing
    assert "MNIST, Logistic regression, constant 1 — my run" in set(table["label"])


def test_a_link_highlights_its_curves_and_one_that_is_gone_is_forgotten(folders):
    run = made_run(title="Mine")
    keep(folders[0], run)
    assert open_page(highlight=group_of(run)).multiselect(key="compare.highlight").value == [group_of(run)]
    assert open_page(highlight="own/0000000000000000").multiselect(key="compare.highlight").value == []


def test_a_link_that_cannot_be_read_is_told_and_the_page_stands(folders):
    at = open_page(view="pie")
    assert [error.value for error in at.error] == [f"View in this link must be one of {', '.join(VIEWS)}, got 'pie'."]
    assert at.segmented_control(key="compare.view").value == "epsilon"


def test_a_run_that_cannot_be_read_is_named_and_the_others_are_compared(folders):
    keep(folders[0], made_run(title="Whole"))
    damaged = keep(folders[0], made_run(title="Damaged"))
    (folders[0] / damaged / "spec.json").write_text("{}")
    at = open_page(show="own")
    assert labels_to_highlight(at) == ["Whole — my run"]
    assert any("1 run could not be read" in expander.label for expander in at.expander)


# --- a real browser ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowded(serve, tmp_path_factory):
    """A server with two hundred runs of twenty epochs and one full-length run."""
    folder = tmp_path_factory.mktemp("crowded")
    for k in range(199):
        keep(folder / "runs", made_run(sigma=0.8 + k / 100, epochs=20, best=0.8 + k / 2000, seed=k % 5))
    keep(folder / "runs", made_run(title="Mine", epochs=20, sigma=9.0))
    write_cached(made_run("x", epochs=20), "curricula", "constant-1", folder=folder / "cached")
    env = {"DPVIZ_RUNS": str(folder / "runs"), "DPVIZ_CACHED_RUNS": str(folder / "cached")}
    return serve(ROOT / "app.py", env)


def legend(page: Page):
    return page.locator(".js-plotly-plot .legendtext")


def test_an_own_run_and_a_full_length_run_are_drawn_in_colour_among_two_hundred(crowded, new_page):
    mine = group_of(made_run(title="Mine", epochs=20, sigma=9.0))
    page = new_page(f"{crowded}/compare?highlight={mine},cached/curricula/constant-1")
    expected = ["Mine — my run", "Constant 1 — curricula, full-length run"]
    expect(legend(page).filter(has_text="my run").first).to_be_visible(timeout=WAIT)
    for text in expected:
        expect(legend(page).filter(has_text=text)).to_be_visible(timeout=WAIT)
    assert legend(page).count() <= 4


def test_two_hundred_runs_are_drawn_within_two_seconds(crowded, new_page):
    page = new_page(f"{crowded}/guide")
    curves = page.get_by_role("figure", name="Against epsilon").locator(".scatterlayer path.js-line")
    seconds = []
    for _ in range(5):
        page.get_by_test_id("stTopNavLink").filter(has_text="Guide").click()
        expect(page.get_by_role("heading", name="Guide", exact=True)).to_be_visible(timeout=WAIT)
        expect(curves).to_have_count(0, timeout=WAIT)
        began = time.monotonic()
        page.get_by_test_id("stTopNavLink").filter(has_text="Compare").click()
        curves.first.wait_for(timeout=WAIT)
        seconds.append(time.monotonic() - began)
        if seconds[-1] <= 2:
            break
    # Other work on the machine makes single visits slow; the page itself is as fast as the fastest.
    assert min(seconds) <= 2, seconds


def test_the_link_button_writes_an_address_that_shows_the_same_in_a_new_session(crowded, new_page):
    page = new_page(f"{crowded}/compare")
    page.get_by_role("radio", name="Frontier").click()
    expect(legend(page).filter(has_text="best for its epsilon")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Link to this view").click()
    page.wait_for_url("**view=frontier**", timeout=WAIT)
    other = new_page(page.url)
    expect(legend(other).filter(has_text="best for its epsilon")).to_be_visible(timeout=WAIT)


def test_files_are_made_when_asked_for(crowded, new_page):
    page = new_page(f"{crowded}/compare")
    expect(legend(page).first).to_be_visible(timeout=WAIT)
    with page.expect_download(timeout=WAIT) as waiting:
        page.get_by_role("button", name="CSV").click()
    rows = pd.read_csv(waiting.value.path())
    assert rows["group"].nunique() > 200


def test_the_table_of_results_says_what_an_unfinished_run_really_spent():
    runs = [made_run("a", status="stopped", count=2, written=Spending(30, 1.15, 1.25, at_most=True)), made_run("b")]
    table = _ends_table(endpoints(fold(comparison_frame(runs))))
    assert sorted(table["Sound ε"]) == ["2.000", "at most 1.250"]
    assert sorted(table["Claimed ε"]) == ["1.600", "at most 1.150"]
