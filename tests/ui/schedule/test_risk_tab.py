"""Risk on the Schedule page: the tab, the guarantee card, the number that follows the pen, and the target."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from dpviz.privacy import MEASURES, Schedule, risk
from dpviz.privacy.rounding import percent_text
from dpviz.ui.schedule import settings
from dpviz.ui.schedule.board import BOARD, Board, as_json
from dpviz.ui.schedule.settings import Settings
from dpviz.views.numbers import risk_sentence
from tests.browser import ROOT


@pytest.fixture
def at() -> AppTest:
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()


def board(at: AppTest) -> Board:
    return at.session_state[BOARD]


def open_tab(at: AppTest, name: str = "Risk") -> None:
    at.session_state["schedule.tab"] = name
    at.run()


def choose(at: AppTest, measure: str) -> None:
    at.selectbox(key="schedule.measure").set_value(measure).run()


def choose_rate(at: AppTest, fpr: float) -> None:
    at.session_state[settings.session_key("fpr")] = fpr
    at.run()


def test_it_says_what_the_curve_and_the_pinned_ones_mean_at_the_chosen_rate(at):
    next(button for button in at.button if button.label == "Match").click().run()
    open_tab(at)
    pin = board(at).pins[0]
    risks = [Settings().risk(sigmas) for sigmas in (board(at).sigmas, pin.sigmas)]
    for fpr in (0.001, 0.05):
        choose_rate(at, fpr)
        sent = json.loads(at.get("bidi_component")[-1].proto.json)[0]
        assert sent["rates"][sent["chosen"]]["sentence"] == risk_sentence(risks[0], fpr)
        assert [curve["name"] for curve in sent["curves"]] == ["this schedule", pin.name]
        assert [curve["found"][sent["chosen"]] for curve in sent["curves"]] == [each.tpr(fpr).upper for each in risks]
        assert list(at.table[0].value["Schedule"]) == ["this schedule", pin.name]
        assert list(at.table[0].value["Members found"]) == [percent_text(*each.tpr(fpr)) for each in risks]


def test_it_follows_the_settings(at):
    open_tab(at)
    key = settings.session_key("accountant")
    next(widget for widget in at.selectbox if widget.key == key).set_value("rdp").run()
    assert at.table[0].value["Kind"][0] == "RDP upper bound"


def test_a_risk_is_worked_out_once_and_only_where_it_is_shown(at):
    open_tab(at, "Price tags")
    worked_out = settings._risk.cache_info().misses
    board(at).editor.push([2.718] * 20)
    at.run()
    assert settings._risk.cache_info().misses == worked_out
    open_tab(at, "Guarantee")
    sentence = risk_sentence(Settings().risk(board(at).sigmas), 0.001)
    assert f"What it means: {sentence}" in [text.value for text in at.markdown]
    open_tab(at)
    choose_rate(at, 0.1)
    assert settings._risk.cache_info().misses == worked_out + 1


@pytest.mark.parametrize("measure", [name for name in MEASURES if name != "epsilon"])
def test_a_target_in_any_measure_is_met_and_never_exceeded(at, measure):
    choose(at, measure)
    target = at.number_input(key="schedule.target").value
    assert target == MEASURES[measure].usual
    at.button(key="schedule.fit").click().run()
    found = Settings().risk(board(at).sigmas)
    upper = MEASURES[measure].of_risk(found, 0.001).upper
    assert 0.998 * target <= upper <= target  # 0.1 % of calibration, and sigmas are rounded up to four digits
    goal = f"{target:g}" if measure == "mu" else f"{100 * target:g} %"
    assert at.info[0].value.endswith(f" % of the target {goal}.")


def test_a_target_that_its_measure_cannot_be_is_said_at_its_field(at):
    choose(at, "advantage")
    at.number_input(key="schedule.target").set_value(2.0).run()
    assert at.error[0].value == "Target advantage must be above 0 and below 1, got 2.0; the board has no target."


def test_the_schedule_as_a_file_says_what_its_epsilon_means(at):
    assert as_json(board(at), Settings())["risk"] == Settings().risk(board(at).sigmas).to_json()


@pytest.mark.parametrize(("measure", "mu"), [("advantage", 1.2), ("tpr", 0.4), ("mu", 0.7)])
def test_the_mu_of_a_measure_is_the_gaussian_mechanisms(measure, mu):
    found = risk([(1 / mu, 1.0, 1)])
    entry = MEASURES[measure]
    assert entry.mu(entry.of_risk(found, 0.01).upper, 0.01) == pytest.approx(mu, rel=1e-3)


@pytest.mark.parametrize(
    ("title", "symbol", "note"),
    [("Advantage", "advantage", ""), ("Members found", "members found", "0.1 % false alarms · ")],
)
def test_the_risk_follows_the_pen_and_lands_where_it_was(dashboard: str, new_page, title, symbol, note):
    """Drawn a fifth away from the certified curve, the number in the browser is within 5 % of what Python then says."""
    page: Page = new_page(dashboard)
    page.get_by_role("combobox", name="Number that follows the pen").click()
    page.get_by_role("option", name=title).click()
    expect(page.locator(".symbol")).to_have_text(symbol)
    value, plot = page.locator(".value"), page.locator("svg.plot")
    expect(value).to_have_text(re.compile(r"^[\d.–]+ %$"))
    before = value.inner_text()
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + 0.25 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 0.25 * box["height"], steps=8)
    expect(value).to_have_text(re.compile(r"^≈ [\d.]+ %$"))
    meta = page.locator(".meta")
    expect(meta).to_have_text(re.compile(rf"^approximate · {note}ε ≈ .* · (within|over) target \d+ %$"))
    live = float(value.inner_text().strip("≈ %"))
    page.mouse.up()
    expect(meta).to_have_text(re.compile(rf"^certified · {note}ε .* · (within|over) target \d+ %$"))
    certified = value.inner_text()
    assert certified != before
    upper = float(certified.rpartition("–")[2].strip(" %"))
    assert live == pytest.approx(upper, rel=0.05)
    page.reload()
    expect(page.locator(".symbol")).to_have_text(symbol)
    expect(value).to_have_text(re.compile(r"^[\d.–]+ %$"))
    # The address keeps four digits of a sigma, which may move the last digit.
    assert float(value.inner_text().rpartition("–")[2].strip(" %")) == pytest.approx(upper, rel=2e-3)


def test_sentence_and_people_follow_the_line_and_the_page_follows_when_it_is_let_go(dashboard: str, new_page):
    page: Page = new_page(dashboard, color_scheme="dark")
    page.get_by_role("tab", name="Risk").click()
    found = Settings().risk(Schedule.of("linear").sigmas(Settings.epochs).tolist())
    tab = page.get_by_role("tabpanel", name="Risk")
    line, members_found = tab.get_by_role("slider", name="False alarms that"), tab.locator("tbody td").nth(1)
    expect(tab.get_by_text(risk_sentence(found, 0.001))).to_be_visible()
    expect(tab.get_by_text("1 found by guessing alone")).to_be_visible()
    line.scroll_into_view_if_needed()
    start, goal = line.bounding_box(), tab.locator("svg.plot").get_by_text("10 %", exact=True).first.bounding_box()
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    page.mouse.down()
    page.mouse.move(goal["x"] + goal["width"] / 2, start["y"] + 50, steps=5)
    expect(tab.get_by_text(risk_sentence(found, 0.1))).to_be_visible()
    expect(tab.get_by_text("100 found by guessing alone")).to_be_visible()
    expect(members_found).to_have_text(percent_text(*found.tpr(0.001)))  # Python has not heard of it
    page.mouse.up()
    expect(members_found).to_have_text(percent_text(*found.tpr(0.1)))
    line.press("End")
    expect(line).to_have_attribute("aria-valuetext", re.compile(r"^1 false alarm in 2: .* % of the members$"))
    line.press("ArrowLeft")
    expect(members_found).to_have_text(percent_text(*found.tpr(0.25)))
    page.reload()
    page.get_by_role("tab", name="Risk").click()
    expect(tab.get_by_text(risk_sentence(found, 0.25))).to_be_visible()
    expect(tab.get_by_text("250 found by guessing alone")).to_be_visible()
    expect(page.get_by_test_id("stException")).to_have_count(0)
