"""From a drawn curve to the sentence on whether it beats the constant of the same epsilon, in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, Page, expect
from streamlit.testing.v1 import AppTest

from dpviz.runs import Store
from dpviz.runs.differences import paired_difference
from dpviz.runs.sweeps.folder import sweep_ids
from dpviz.runs.sweeps.result import result
from dpviz.ui.schedule.board import BOARD
from dpviz.ui.schedule.settings import Settings, session_key
from dpviz.ui.schedule.share import encode
from tests.browser import ROOT

WAIT = 120_000  # milliseconds, for six short runs on a busy machine
CURVE = (4.0, 1.0)
MOST_CLICKS = 8


def test_the_drawn_curve_is_swept_against_its_constant_at_its_own_epsilon(
    serve: Callable[..., str], new_page: Callable[..., Page], tmp_path
) -> None:
    settings = Settings(epochs=len(CURVE))
    url = serve(ROOT / "app.py", {"DPVIZ_RUNS": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1"})
    page = new_page(f"{url}/?s={encode(CURVE, settings.to_link())}", viewport={"width": 1500, "height": 1400})
    clicks = 0

    def click(what: Locator) -> None:
        nonlocal clicks
        clicks += 1
        what.click(timeout=WAIT)

    click(page.get_by_role("button", name="Sweep against its constant"))
    expect(page.get_by_text("2 candidates, 6 runs.")).to_be_visible(timeout=WAIT)
    budget = settings.price(CURVE).upper
    expect(page.get_by_role("spinbutton", name="ε of every run")).to_have_value(f"{budget:.6g}")
    model = page.get_by_role("combobox", name="Model")
    click(model)
    model.fill("Logistic")
    click(page.get_by_role("option", name="Logistic regression"))
    examples = page.get_by_role("spinbutton", name="Training examples")
    click(examples)
    examples.fill("2000")
    examples.press("Enter")
    click(page.get_by_role("button", name="Launch sweep"))
    expect(page.get_by_text("6 of 6 runs done").first).to_be_visible(timeout=WAIT)
    sentence = page.get_by_text(re.compile("^(Winner|No winner)")).locator("..")
    expect(sentence).to_be_visible(timeout=WAIT)
    assert clicks <= MOST_CLICKS
    store = Store(tmp_path / "runs")
    swept = result(store, sweep_ids(store)[0])
    best, second = sorted(swept.rows, key=lambda row: -row.mean)
    ahead = paired_difference(*({run.seed: 100 * run.test_accuracy for run in row.done} for row in (best, second)))
    expect(sentence).to_contain_text(ahead.words)
    expect(sentence).to_contain_text("drawn curve, σ from 4.0 to 1.0")
    assert swept.sweep.epsilon == budget
    drawn, constant = swept.rows
    assert [len(set(row.candidate.specs[0].schedule.sigmas(2))) for row in (drawn, constant)] == [2, 1]
    assert drawn.epsilon == pytest.approx(budget, rel=5e-3)
    assert constant.epsilon == pytest.approx(budget, rel=5e-3)


@pytest.mark.parametrize(
    ("sigmas", "reason"), [((2.0,) * 20, "its own constant"), ((0.0, 2.0) * 10, "no constant of the same ε")]
)
def test_a_curve_without_another_constant_cannot_be_swept(sigmas: tuple[float, ...], reason: str) -> None:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    at.session_state[BOARD].editor.push(sigmas)
    at.session_state[session_key("epochs")] = len(sigmas)
    at.run()
    button = next(button for button in at.button if button.label == "Sweep against its constant")
    assert button.disabled
    assert reason in button.help
