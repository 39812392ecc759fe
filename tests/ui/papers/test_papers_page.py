"""The Papers page: every paper opens, verdicts and tables are there, and a row leads to Train."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

from dpviz.papers import PAPERS
from dpviz.papers.claims import claims_of
from dpviz.papers.records import VERDICTS
from dpviz.runs.experiments import findings
from dpviz.ui.papers.page import results
from dpviz.ui.papers.results_table import results_table
from dpviz.views.papers import NONE, table_frames

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
    tables = [block.proto.body for block in page.get("html") if "<table" in block.proto.body]
    assert sum(table.count("<tr>") - 1 for table in tables) == sum(map(len, table_frames(paper, {}).values()))
    drawn = [finding for _, finding in findings(claims_of(paper), results()[0]) if finding.pairs]
    assert len(page.get("plotly_chart")) == 1 + len(drawn)


def test_the_address_follows_the_choice_and_the_choice_the_address(page):
    page.run()
    assert page.query_params["paper"] == "curricula"
    page.get("button_group")[0].set_value("screening").run()
    assert page.query_params["paper"] == "screening"
    page.query_params["paper"] = "prestige"  # as after going back
    page.run()
    assert page.header[0].value == PAPERS["prestige"].title


def test_a_table_shows_whole_names_and_notes_and_leads_to_the_page_that_runs_it():
    frame = table_frames("curricula", results()[0])["Table 2"]
    table = results_table(frame.assign(note="a <b>"), error=False)
    assert '<a href="train?recipe=curricula/linear-decreasing">Linear, falling from 5 to 1</a>' in table
    assert table.count("a &lt;b&gt;") == len(frame)
    assert "Place" not in table  # nothing in it
    local = results_table(table_frames("prestige", {})["Table 3"], error=True)
    assert '<a href="local?recipe=prestige/mnist38-djw-hinge">' in local


def test_audited_runs_stand_beside_claimed_and_sound_epsilon():
    name = "losing-less/mnist-ce-t-cnn"
    frame = next(f for f in table_frames("losing-less", results()[0]).values() if name in set(f["recipe"]))
    assert frame[frame["recipe"] == name]["epsilon_audited"].iloc[0].startswith("≥ 2.3")
    assert "Audited ε" in results_table(frame, error=False)
    assert "Audited ε" not in results_table(frame.assign(epsilon_audited=NONE), error=False)


def test_an_unknown_paper_in_the_address_opens_the_first(page):
    page.query_params["paper"] = "no-such-paper"
    page.run()
    assert not page.exception
    assert page.header[0].value == PAPERS["curricula"].title


def test_bad_files_among_the_cached_runs_are_said_and_do_no_harm(page, monkeypatch, tmp_path):
    folder = tmp_path / "cached" / "curricula" / "constant-1" / "0"
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text("not json")
    monkeypatch.setattr("dpviz.ui.common.runs.cached_runs_folder", lambda: tmp_path / "cached")
    page.run()
    assert not page.exception
    assert [fold.label for fold in page.expander if "could not be read" in fold.label] == ["1 run could not be read"]


def test_an_experiment_opens_in_train(dashboard, new_page):
    browser = new_page(f"{dashboard}/papers?paper=curricula", viewport={"width": 390, "height": 900})
    browser.set_default_timeout(60_000)  # the first visit imports everything and prices every schedule
    link = browser.get_by_role("link", name="Linear, falling from 5 to 1", exact=True).first
    link.wait_for()
    wide = "node => node.scrollWidth > node.clientWidth"
    assert not browser.locator("table.results").evaluate_all(f"tables => tables.some({wide})")
    assert browser.evaluate("document.documentElement.scrollWidth") <= 390
    link.click()
    browser.wait_for_url("**/train*")
    browser.get_by_text("The settings come from the Papers page").wait_for()


def test_an_experiment_of_prestige_opens_on_the_local_privacy_page(dashboard, new_page):
    browser = new_page(f"{dashboard}/papers?paper=prestige")
    browser.set_default_timeout(60_000)
    browser.get_by_role("link", name="MNIST 3 / 8, DJW, Gompertz loss").first.click()
    browser.wait_for_url("**/local*")
    browser.get_by_text("The settings come from the Papers page").wait_for()
    browser.get_by_text("More settings: loss").click()
    expect(browser.get_by_role("combobox", name="Loss")).to_have_value("Gompertz")


def test_nothing_of_the_last_paper_is_left_when_the_next_one_comes(dashboard, new_page):
    browser = new_page(f"{dashboard}/papers?paper=curricula")
    browser.get_by_text("Doubts about its numbers").wait_for()
    browser.get_by_text("Optimizers", exact=True).click()
    browser.get_by_text("The printed noise multipliers give the printed epsilons.").wait_for()
    assert browser.get_by_text("Noise that falls beats its rising mirror image").count() == 0
    assert browser.url.endswith("?paper=optimizers")


def test_an_address_with_an_unknown_experiment_says_so(page):
    page.switch_page("pages/train.py")
    page.query_params["recipe"] = "curricula/no-such"
    page.run()
    assert not page.exception
    assert "No paper has an experiment curricula/no-such" in page.warning[0].value
