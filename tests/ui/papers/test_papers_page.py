"""The Papers page: every paper opens, verdicts and tables are there, and a row leads to Train."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

from dpviz.papers import PAPERS
from dpviz.papers.claims import claims_of
from dpviz.papers.records import VERDICTS

ROOT = Path(__file__).parents[3]


@pytest.fixture
def page(monkeypatch, tmp_path):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path))
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).switch_page("pages/papers.py")


@pytest.mark.parametrize("paper", PAPERS)
def test_each_paper_shows_what_it_proposes_what_holds_and_its_tables(page, paper):
    page.query_params["paper"] = paper
    page.run()
    assert not page.exception
    text = "\n".join(block.value for block in page.markdown)
    assert PAPERS[paper].summary[0] in text
    for claim in claims_of(paper):
        assert claim.text in text
    assert any(verdict in text for verdict in VERDICTS)
    assert len(page.dataframe) >= 1
    assert len(page.get("plotly_chart")) == 1


def test_an_unknown_paper_in_the_address_opens_the_first(page):
    page.query_params["paper"] = "no-such-paper"
    page.run()
    assert not page.exception
    assert page.subheader[0].value == PAPERS["curricula"].title


def test_bad_files_among_the_cached_runs_are_said_and_do_no_harm(page, monkeypatch, tmp_path):
    folder = tmp_path / "cached" / "curricula" / "constant-1" / "0"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("not json")
    monkeypatch.setattr("dpviz.ui.common.runs.cached_runs_folder", lambda: tmp_path / "cached")
    page.run()
    assert not page.exception
    assert [fold.label for fold in page.expander if "could not be read" in fold.label] == ["1 run could not be read"]


@pytest.fixture(scope="module")
def address(serve, tmp_path_factory):
    return serve(ROOT / "app.py", {"DPVIZ_RUNS": str(tmp_path_factory.mktemp("runs"))})


def test_a_row_opens_in_train(address, new_page):
    browser = new_page(f"{address}/papers?paper=curricula")
    browser.set_default_timeout(60_000)  # the first visit imports everything and prices every schedule
    grid = browser.get_by_test_id("stDataFrame").first
    grid.wait_for()
    browser.get_by_text("Doubts about its numbers").wait_for()
    grid.scroll_into_view_if_needed()
    browser.wait_for_timeout(500)
    box = grid.bounding_box()
    browser.mouse.click(box["x"] + 35, box["y"] + 52)  # the button of the first row; the grid is one canvas
    browser.wait_for_url("**/train*")
    browser.get_by_text("The settings come from the Papers page").wait_for()
    expect(browser.get_by_text("95.72").first).to_be_visible()


def test_a_row_of_prestige_opens_on_the_local_privacy_page(address, new_page):
    browser = new_page(f"{address}/papers?paper=prestige", viewport={"width": 1400, "height": 2600})
    browser.set_default_timeout(60_000)
    grid = browser.get_by_test_id("stDataFrame").first
    grid.wait_for()
    browser.get_by_text("Doubts about its numbers").wait_for()
    expect(browser.get_by_text("PRESTIGE has a lower test error than DJW")).to_be_visible()
    browser.wait_for_timeout(500)
    box = grid.bounding_box()
    browser.mouse.click(box["x"] + 35, box["y"] + 52 + 35)  # the second row: DJW, Gompertz loss
    browser.wait_for_url("**/local*")
    browser.get_by_text("The settings come from the Papers page").wait_for()
    expect(browser.get_by_role("combobox", name="Loss")).to_have_value("Gompertz")


def test_the_page_fits_a_narrow_screen(address, new_page):
    browser = new_page(f"{address}/papers?paper=screening", viewport={"width": 420, "height": 900})
    browser.get_by_text("Doubts about its numbers").wait_for()
    assert browser.evaluate("document.documentElement.scrollWidth") <= 420
