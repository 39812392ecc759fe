"""The Risk tab of the Schedule page: what a curve means for one person, worked out only while the tab is open."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from dpviz.privacy import Schedule
from dpviz.privacy.rounding import percent_text
from dpviz.ui.schedule import settings
from dpviz.ui.schedule.board import BOARD, Board
from dpviz.ui.schedule.settings import Settings
from dpviz.views.numbers import risk_sentence
from tests.browser import ROOT


@pytest.fixture
def at() -> AppTest:
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()


def board(at: AppTest) -> Board:
    return at.session_state[BOARD]


def open_tab(at: AppTest) -> None:
    at.session_state["schedule.tab"] = "Risk"
    at.run()


def test_it_says_what_the_curve_and_the_pinned_ones_mean_at_the_chosen_rate(at):
    next(button for button in at.button if button.label == "Match").click().run()
    open_tab(at)
    pin = board(at).pins[0]
    risks = [Settings().risk(sigmas) for sigmas in (board(at).sigmas, pin.sigmas)]
    for fpr in (0.001, 0.05):
        at.select_slider(key="schedule.fpr").set_value(fpr).run()
        assert f"**{risk_sentence(risks[0], fpr)}**" in [text.value for text in at.markdown]
        assert list(at.table[0].value["Schedule"]) == ["this schedule", pin.name]
        assert list(at.table[0].value["Members found"]) == [percent_text(*each.tpr(fpr)) for each in risks]


def test_it_follows_the_settings(at):
    open_tab(at)
    key = settings.session_key("accountant")
    next(widget for widget in at.selectbox if widget.key == key).set_value("rdp").run()
    assert at.table[0].value["Kind"][0] == "RDP upper bound"


def test_a_risk_is_worked_out_once_and_only_while_the_tab_is_open(at):
    worked_out = settings._risk.cache_info().misses
    board(at).editor.push([2.718] * 20)
    at.run()
    assert settings._risk.cache_info().misses == worked_out
    open_tab(at)
    at.select_slider(key="schedule.fpr").set_value(0.1).run()
    assert settings._risk.cache_info().misses == worked_out + 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_slider_changes_the_sentence_and_the_people(serve: Callable[..., str], new_page, scheme):
    page: Page = new_page(serve(ROOT / "app.py"), color_scheme=scheme)
    page.get_by_role("tab", name="Risk").click()
    found = Settings().risk(Schedule.of("linear").sigmas(Settings.epochs).tolist())
    expect(page.get_by_text(risk_sentence(found, 0.001))).to_be_visible()
    expect(page.get_by_text("1 found by guessing alone")).to_be_visible()
    slider = page.get_by_role("slider", name="False alarms that the attacker accepts")
    slider.focus()
    slider.press("End")
    expect(page.get_by_text(risk_sentence(found, 0.5))).to_be_visible()
    expect(page.get_by_text("500 found by guessing alone")).to_be_visible()
    expect(page.get_by_test_id("stException")).to_have_count(0)
