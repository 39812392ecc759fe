"""Runs that may be changed on the way, on the Train page: the budget on the form, the change on the live run."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from dpviz.runs import Store
from dpviz.ui.train.course_panel import parse_sigmas, sigmas_text
from dpviz.ui.train.run_form import quick
from tests.ui.train.test_train_page import (
    WAIT,
    Lab,
    button,
    fill_in_quick_logistic,
    heading,
    launch,
    make_it_longer,
    metrics,
    open_page,
)
from tests.views.made_runs import keep, made_run, made_spec


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return tmp_path / "runs"


def test_sigmas_are_typed_with_commas_or_spaces():
    assert parse_sigmas(" 1.5, 1.4 1.2;1 ") == ["1.5", "1.4", "1.2", "1"]
    assert sigmas_text((1.5, 2.0)) == "1.5, 2"


def test_the_toggle_declares_a_budget_with_room_and_says_what_holds(folder):
    at = open_page()
    fixed = metrics(at)["Sound ε"]
    at.toggle(key="train.filtered").set_value(True).run()
    assert not at.exception
    budget = at.number_input(key="train.filter_epsilon").value
    assert budget > float(fixed.partition("–")[2] or fixed)
    assert metrics(at)["Sound ε"].startswith("≤ ")
    assert metrics(at)["Claimed ε"] == "none"
    assert any("Feldman & Zrnic" in one.value for one in at.markdown)
    at.number_input(key="train.filter_epsilon").set_value(0.01).run()
    assert any("needs a budget of" in one.value for one in at.error)
    assert quick(made_spec(filter_epsilon=9.0)).filter is None


def test_the_panel_changes_refuses_and_undoes_the_noise_of_a_stopped_run(folder):
    run_id = keep(folder, made_run(status="stopped", count=2, filter_epsilon=9.0, sigma=2.0))
    store = Store(folder)
    at = open_page()
    field = at.text_input(key=f"train.sigmas.{run_id}.0")
    assert field.value == "2, 2, 2, 2"
    field.set_value("1.9, 1.8").run()
    button(at, "Apply").click().run()
    assert not at.exception
    assert store.get(run_id).course.sigmas == (2.0, 2.0, 1.9, 1.8)
    at.text_input(key=f"train.sigmas.{run_id}.1").set_value("0.2").run()
    button(at, "Apply").click().run()
    assert any("multiply the noise to come by" in one.value for one in at.error)
    button(at, "Undo change").click().run()
    assert store.get(run_id).course.sigmas == (2.0, 2.0, 2.0, 2.0)
    button(at, "Duplicate").click().run()
    assert at.toggle(key="train.filtered").value is True
    assert at.number_input(key="train.filter_epsilon").value == 9.0


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("course"))
    yield lab
    lab.stop()


def test_a_running_run_is_redrawn_and_keeps_it_through_reload_stop_and_resume(lab, new_page):
    page = new_page(f"{lab.url}/train", viewport={"width": 1400, "height": 1400})
    fill_in_quick_logistic(page)
    make_it_longer(page)
    page.get_by_text("May be changed on the way").first.click()
    expect(page.get_by_role("spinbutton", name="Budget ε")).to_be_visible(timeout=WAIT)
    launch(page, "Course")
    field = page.get_by_role("textbox", name="σ of the epochs to come")
    expect(field).to_be_visible(timeout=WAIT)
    field.fill("1.5, 1.4")
    field.press("Enter")
    page.get_by_role("button", name="Apply").click()
    expect(page.get_by_role("button", name="Undo change")).to_be_visible(timeout=WAIT)
    store = Store(lab.folder / "runs")
    run_id = store.list().runs[-1].id
    assert store.get(run_id).course.sigmas[-2:] == (1.5, 1.4)
    page.reload()
    expect(page.get_by_role("button", name="Undo change")).to_be_visible(timeout=WAIT)
    expect(field).to_have_value(re.compile("1.5, 1.4$"), timeout=WAIT)
    page.get_by_role("button", name="Stop").click()
    expect(heading(page, "Course")).to_contain_text("stopped", timeout=WAIT)
    stopped = store.get(run_id)
    page.get_by_role("button", name="Resume").click()
    expect(heading(page, "Course")).to_contain_text("running", timeout=WAIT)
    expect(page.get_by_text(re.compile(rf"^{len(stopped.epochs)} of 60"))).to_have_count(0, timeout=WAIT)
    page.get_by_role("button", name="Stop").click()
    expect(heading(page, "Course")).to_contain_text("stopped", timeout=WAIT)
    resumed = store.get(run_id)
    assert len(resumed.epochs) > len(stopped.epochs)
    assert resumed.course.sigmas == stopped.course.sigmas
