"""The accuracy to expect on the Schedule page: it follows the pen in the browser, and says the same as Python."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from dpviz.forecast.library import begin, keep, response_name, settings_key, shelf
from dpviz.papers import recipe
from dpviz.privacy import epoch_phases, epsilon
from dpviz.runs.store.cached import cached_runs
from dpviz.runs.store.store import Store
from dpviz.ui.schedule.board import BOARD
from dpviz.ui.schedule.outlook import AIM, CHOICE, NONE
from dpviz.ui.schedule.search import SEARCH
from dpviz.ui.schedule.settings import Settings
from dpviz.views.forecast import runs_frame, shape_figure, shape_frame, shape_words
from tests.browser import ROOT

RESPONSE = shelf().of(recipe("curricula/constant-1.54").spec)


def ask(page: Page, expression: str) -> Any:
    script = f"(svg) => {{ const editor = svg.getRootNode().scheduleEditor; return {expression}; }}"
    return page.locator("svg.plot").evaluate(script)


def shown(page: Page) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Sigmas, and the accuracy, lower and upper end that the browser worked out for them."""
    parts = "[editor.sigmas, editor.outlook.accuracy, editor.outlook.lower, editor.outlook.upper]"
    return tuple(map(np.array, ask(page, f"{parts}.map((part) => Array.from(part))")))


def agree(page: Page, batch_size: int = 600) -> None:
    sigmas, *browser = shown(page)
    forecast = RESPONSE.forecast(sigmas, batch_size)
    for one, other in zip(browser, (forecast.accuracy, forecast.lower, forecast.upper), strict=True):
        assert 100 * one == pytest.approx(100 * np.array(other), abs=1e-9)


def test_the_accuracy_to_expect_follows_the_pen_and_says_the_same_as_python(dashboard: str, new_page):
    page: Page = new_page(dashboard, viewport={"width": 1400, "height": 1200})
    words, plot = page.locator(".expected"), page.locator("svg.plot")
    expect(words).to_have_text(re.compile(rf"^accuracy ≈ 9\d\.\d % \(9\d\.\d–9\d\.\d\) · {len(RESPONSE.runs)} runs$"))
    expect(plot.get_by_text("accuracy to expect, %")).to_be_visible()
    agree(page)
    before, box = words.inner_text(), plot.bounding_box()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.05 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.95 * box["width"], box["y"] + 0.05 * box["height"], steps=8)
    expect(words).to_have_text(re.compile(r"a guess: σ above \d(\.\d+)?$"))  # the button is still down
    agree(page)
    page.mouse.up()
    assert words.inner_text() != before

    # Another batch size was never measured.
    field = page.get_by_role("spinbutton", name="Batch size")
    field.fill("300")
    field.press("Enter")
    expect(words).to_have_text(re.compile(r"another batch size$"))
    agree(page, 300)
    field.fill("600")
    field.press("Enter")

    # A hundred epochs are more than what was measured.
    epochs = page.get_by_role("spinbutton", name="Epochs")
    epochs.fill("100")
    epochs.press("Enter")
    expect(words).to_have_text(re.compile(rf"more than {RESPONSE.epochs} epochs"))
    agree(page)

    # The best schedule at the target is pinned, and its price and verdict are said.
    epochs.fill("20")
    epochs.press("Enter")
    page.get_by_role("button", name="Suggest", exact=True).click()
    page.get_by_role("button", name="Cancel").click()  # a search that is cancelled pins nothing
    expect(page.get_by_text("Searching for a schedule")).to_have_count(0)
    page.get_by_role("button", name="Suggest", exact=True).click()
    expect(page.get_by_text("Searching for a schedule")).to_be_visible()
    assert page.get_by_text("Pinned as “suggested”").count() == 0
    expect(page.get_by_text("Pinned as “suggested”")).to_be_visible()
    expect(page.locator(".legend")).to_contain_text("suggested")

    page.get_by_role("combobox", name="Accuracy to expect of").click()
    page.get_by_role("option", name="none").click()
    expect(words).to_be_hidden()
    expect(plot.get_by_text("accuracy to expect, %")).to_be_hidden()


@pytest.mark.speed
def test_a_pointer_move_with_a_forecast_at_a_hundred_epochs_takes_at_most_four_milliseconds(dashboard, new_page):
    page: Page = new_page(dashboard, viewport={"width": 1400, "height": 1200})
    words, plot = page.locator(".expected"), page.locator("svg.plot")
    epochs = page.get_by_role("spinbutton", name="Epochs")
    epochs.fill("100")
    epochs.press("Enter")
    expect(words).to_have_text(re.compile(rf"more than {RESPONSE.epochs} epochs"))
    box = plot.bounding_box()
    slow = []
    for _ in range(5):  # the least disturbed stroke counts
        count = len(ask(page, "editor.stats.moves"))
        page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.3 * box["height"])
        page.mouse.down()
        for turn in range(4):
            x = box["x"] + (0.95 if turn % 2 == 0 else 0.1) * box["width"]
            page.mouse.move(x, box["y"] + (0.2 + 0.05 * turn) * box["height"], steps=32)
        page.mouse.up()
        slow.append(float(np.quantile(ask(page, "editor.stats.moves")[count:], 0.95)))
        if slow[-1] <= 4.0:
            break
    assert min(slow) <= 4.0
    agree(page)


def test_only_what_was_fitted_on_the_dataset_can_be_chosen():
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()
    on_mnist = [response_name(response) for response in shelf().responses if response.dataset == "mnist"]
    assert at.selectbox(key=CHOICE).options == [*on_mnist, "none"]
    assert len(on_mnist) < len(shelf().responses)
    assert response_name(RESPONSE) == "Noise curricula: Small CNN, 28 x 28, cross entropy"
    at.selectbox(key=CHOICE).set_value(NONE).run()
    assert at.selectbox(key=CHOICE).value == NONE
    at.selectbox(key=CHOICE).set_value(RESPONSE.settings).run()
    at.selectbox(key="schedule.dataset").set_value("own").run()
    assert at.selectbox(key=CHOICE).options == ["none"]


# --- what can be asked of a forecast, without a browser ---------------------------------------------------------------


@pytest.fixture
def at() -> AppTest:
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()


def test_fit_to_accuracy_scales_the_shape_and_says_what_is_out_of_reach(at):
    before = np.array(at.session_state[BOARD].sigmas)
    at.number_input(key=AIM).set_value(94.5).run()
    at.button(key="schedule.fit_accuracy").click().run()
    after = np.array(at.session_state[BOARD].sigmas)
    assert after / before == pytest.approx((after / before)[0], rel=1e-3)
    assert RESPONSE.forecast(after).accuracy[-1] == pytest.approx(0.945, abs=1e-4)
    assert "accuracy to expect 94.5 % (" in at.info[0].value
    assert "Outside of what was measured: sigma" in at.info[0].value
    at.number_input(key=AIM).set_value(99.0).run()
    at.button(key="schedule.fit_accuracy").click().run()
    assert "99.00% is out of reach" in at.error[0].value
    assert tuple(after) == at.session_state[BOARD].sigmas


def suggest(at: AppTest) -> None:
    """Ask for a suggestion and look again until the search, if one began, has ended."""
    next(button for button in at.button if button.label == "Suggest").click().run()
    until = time.monotonic() + 60
    while SEARCH.key in at.session_state and at.session_state[SEARCH.key] and time.monotonic() < until:
        time.sleep(0.1)
        at.run()


def test_a_search_that_is_cancelled_pins_nothing(at):
    next(button for button in at.button if button.label == "Suggest").click().run()
    search = at.session_state[SEARCH.key]
    at.button(key="schedule.cancel").click().run()
    assert SEARCH.key not in at.session_state
    until = time.monotonic() + 60
    while search.running and time.monotonic() < until:
        time.sleep(0.05)
    at.run()
    assert (search.suggestion, search.problem) == (None, "Cancelled; nothing was pinned.")
    assert (at.session_state[BOARD].pins, len(at.info), len(at.error)) == ([], 0, 0)


def test_a_suggestion_is_pinned_within_the_target_and_replaces_the_last_one(at):
    at.number_input(key="schedule.target").set_value(0.5).run()
    for _ in range(2):
        suggest(at)
    (pin,) = at.session_state[BOARD].pins
    assert pin.name == "suggested"
    assert 0.49 <= epsilon(epoch_phases(pin.sigmas, 0.01), 1e-5).upper <= 0.5
    assert "keep it simple" in at.info[0].value
    at.number_input(key="schedule.target").set_value(None).run()
    suggest(at)
    assert "needs a target ε" in at.error[0].value


def test_the_trade_off_tab_shows_this_shape_and_the_runs_it_rests_on(at):
    at.session_state["schedule.tab"] = "Trade-off"
    at.run()
    words = next(text.value for text in at.markdown if text.value.startswith("From half to four times"))
    assert (
        f"as expected from {len(RESPONSE.runs)} runs of “Noise curricula: Small CNN, 28 x 28, cross entropy”. "
        "Part of it lies outside" in words
    )
    at.selectbox(key=CHOICE).set_value(NONE).run()
    assert any("*Learn the response* on Train" in text.value for text in at.markdown)


def test_what_a_part_of_the_dataset_or_runs_that_are_gone_showed_is_not_offered(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path))
    store, whole = Store(tmp_path), recipe("curricula/constant-1.54").spec
    part, wide = (dataclasses.replace(whole, **change) for change in ({"subset": 2000}, {"learning_rate": 0.2}))
    for spec, title in ((part, "part"), (wide, "wide"), (dataclasses.replace(whole, clip_norm=0.3), "gone")):
        keep(dataclasses.replace(RESPONSE, settings=settings_key(spec), recipe=title), store)
    begin([part, wide], store)
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    assert {"part", "gone"} & set(at.selectbox(key=CHOICE).options) == set()
    assert "wide" in at.selectbox(key=CHOICE).options


def test_the_frame_of_a_shape_has_the_drawn_curve_and_only_runs_that_were_fitted_to():
    sigmas = tuple(np.linspace(5, 1, 20).tolist())
    frame = shape_frame(RESPONSE, sigmas, Settings().price, 600)
    drawn = frame[frame["factor"] == 1.0].iloc[0]
    assert drawn["epsilon"] == Settings().price(sigmas).upper
    assert drawn["accuracy"] == pytest.approx(100 * RESPONSE.forecast(sigmas).accuracy[-1])
    assert frame["epsilon"].is_monotonic_decreasing
    assert list(frame["in_domain"]) == [5 * factor <= RESPONSE.most_sigma for factor in frame["factor"]]
    runs = [item.run.summary for item in cached_runs(paper="curricula").runs]
    dots = runs_frame(RESPONSE, runs)
    assert len(dots) == 69
    assert len(shape_figure(frame, dots).data[-1].x) == 66  # three of them have no noise
    assert shape_words(shape_frame(RESPONSE, [0.0], Settings().price, 600), RESPONSE).startswith(
        "An epoch without noise"
    )
