"""Runs that may be changed on the way, on the Train page: the budget on the form, the change on the live run."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from dpviz.forecast.library import keep as keep_response
from dpviz.forecast.library import settings_key, shelf
from dpviz.forecast.seen import updated
from dpviz.papers import RECIPES
from dpviz.privacy import epoch_phases
from dpviz.runs import Store
from dpviz.runs.store.course import Course
from dpviz.runs.store.run_files import change_course
from dpviz.ui.train.course_panel import live_forecast, parse_sigmas, sigmas_text
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

RESPONSE = shelf().of(RECIPES["curricula/constant-1.54"].spec)


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


def test_the_list_changes_refuses_and_undoes_the_noise_of_a_stopped_run(folder):
    run_id = keep(folder, made_run(status="stopped", count=2, filter_epsilon=9.0, sigma=2.0))
    store = Store(folder)
    at = open_page()
    field = at.text_input(key=f"train.sigmas.{run_id}.0")
    assert field.value == "2, 2, 2, 2"
    field.set_value("1.9, 1.8").run()
    button(at, "Apply list").click().run()
    assert not at.exception
    assert store.get(run_id).course.sigmas == (2.0, 2.0, 1.9, 1.8)
    at.text_input(key=f"train.sigmas.{run_id}.1").set_value("0.2").run()
    button(at, "Apply list").click().run()
    assert any("multiply the noise to come by" in one.value for one in at.error)
    button(at, "Undo change").click().run()
    assert store.get(run_id).course.sigmas == (2.0, 2.0, 2.0, 2.0)
    button(at, "Duplicate").click().run()
    assert at.toggle(key="train.filtered").value is True
    assert at.number_input(key="train.filter_epsilon").value == 9.0


def test_a_drawing_beyond_the_budget_can_only_take_the_scale_that_fits(folder):
    run_id = keep(folder, made_run(status="stopped", count=0, filter_epsilon=9.0, sigma=2.0))
    store = Store(folder)
    at = open_page()
    assert button(at, "Apply").disabled  # nothing was drawn
    drawing = at.session_state[f"train.drawing.{run_id}"]
    drawing.editor.sigmas = (2.0, 2.0, 0.5, 0.4)
    at.run()
    assert button(at, "Apply").disabled
    assert any("times the budget" in one.value for one in at.error)
    take = next(one for one in at.button if one.label.startswith("Take "))
    scale = float(take.label.split()[1])
    take.click().run()
    fitting = drawing.editor.sigmas
    assert fitting == pytest.approx((2.0 * scale, 2.0 * scale, 0.5 * scale, 0.4 * scale), rel=1e-3)
    assert not at.error
    button(at, "Apply").click().run()
    course = store.get(run_id).course
    assert course.sigmas == fitting
    assert 0.99 < course.used <= 1
    assert any("Applied from epoch 1 on." in one.value for one in at.caption)
    assert button(at, "Apply").disabled


def test_an_epoch_that_begins_while_a_drawing_is_applied_keeps_its_noise_and_that_is_said(folder):
    run_id = keep(folder, made_run(status="stopped", count=0, filter_epsilon=9.0, sigma=2.0))
    at = open_page()
    drawing = at.session_state[f"train.drawing.{run_id}"]
    drawing.editor.sigmas = (1.9, 1.9, 1.9, 1.9)
    at.run()
    begin(folder, run_id, 1)
    button(at, "Apply").click().run()
    assert Store(folder).get(run_id).course.sigmas == (2.0, 1.9, 1.9, 1.9)
    said = "Applied from epoch 2 on. Epoch 1 had begun by then and keeps its noise."
    assert any(said in one.value for one in at.caption)
    assert drawing.editor.sigmas == (2.0, 1.9, 1.9, 1.9)


def test_a_drawing_that_was_undone_meanwhile_is_refused_with_words(folder):
    run_id = keep(folder, made_run(status="stopped", count=0, filter_epsilon=9.0, sigma=2.0))
    at = open_page()
    drawing = at.session_state[f"train.drawing.{run_id}"]
    drawing.editor.sigmas = (1.9, 1.9, 1.9, 1.9)
    at.run()
    drawing.editor.sigmas = (2.0, 2.0, 2.0, 2.0)
    button(at, "Apply").click().run()
    assert not at.exception
    assert any("The drawing is the course as it stands" in one.value for one in at.error)


def test_the_pen_shows_what_the_person_at_the_page_has_learnt(folder, monkeypatch):
    ann = Store(folder, owner="ann")
    monkeypatch.setattr("dpviz.ui.train.forecasts.store", lambda: ann)
    run = made_run(count=1, filter_epsilon=9.0, sigma=2.0)
    course = Course.planned(run.own_spec)
    assert live_forecast(run, course) is None
    keep_response(dataclasses.replace(RESPONSE, settings=settings_key(run.own_spec)), ann)
    assert live_forecast(run, course).seen == (run.epochs[0].accuracy,)


def begin(folder, run_id: str, *epochs: int) -> None:
    """Lock epochs of a run as the loop does."""
    run = Store(folder).get(run_id)
    for epoch in epochs:
        line = {"epoch": epoch, "noise_multiplier": run.course.sigmas[epoch - 1]}
        change_course(folder / run_id, run.own_spec, lambda course, line=line: line)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("course"))
    yield lab
    lab.stop()


def ask(page: Page, expression: str) -> Any:
    script = f"(svg) => {{ const editor = svg.getRootNode().scheduleEditor; return {expression}; }}"
    return page.locator("svg.plot").evaluate(script)


def stroke(page: Page, *points: tuple[int, float]) -> None:
    """From epoch to epoch (counted from 1), each at its sigma."""
    plot = page.locator("svg.plot")
    plot.scroll_into_view_if_needed()  # waits until it stands still
    box = plot.bounding_box()
    places = [ask(page, f"[editor.frame.x({epoch - 1}), editor.frame.y({sigma})]") for epoch, sigma in points]
    for number, (x, y) in enumerate(places):
        page.mouse.move(box["x"] + x, box["y"] + y, steps=6)
        if number == 0:
            page.mouse.down()
    page.mouse.up()


def test_the_pen_changes_what_is_to_come_and_nothing_else_and_outlives_a_reload(lab, new_page):
    """A stopped run of a recipe whose response was learnt: what was seen moves the accuracy to expect."""
    spec = dataclasses.replace(RECIPES["curricula/constant-1.54"].spec, filter_epsilon=1.5)
    made = made_run(status="stopped", count=2, best=0.9)
    folder = lab.folder / "runs"
    run_id = keep(folder, dataclasses.replace(made, spec=spec))
    begin(folder, run_id, 1, 2)
    page = new_page(f"{lab.url}/train", viewport={"width": 1400, "height": 1700})
    number, meta, words = page.locator(".value"), page.locator(".meta"), page.locator(".expected")
    expect(meta).to_contain_text("within the budget", timeout=WAIT)
    planned = tuple(ask(page, "Array.from(editor.sigmas)"))

    stroke(page, (1, 3.0), (2, 3.0), (2, 5.0))  # both have begun
    assert tuple(ask(page, "Array.from(editor.sigmas)")) == planned
    stroke(page, (8, 1.1), (20, 1.1))
    expect(meta).to_contain_text("over the budget", timeout=WAIT)
    expect(words).to_have_text(re.compile(rf"{len(shelf().of(spec).runs)} runs and 2 epochs seen$"))
    drawn = ask(page, "Array.from(editor.sigmas)")
    assert drawn[:7] == list(planned[:7])
    spent = spec.filter.spent(epoch_phases(drawn, spec.sample_rate))
    live = ask(page, "(editor.accountant.spend(editor.sigmas, editor.spent), editor.spent.at(-1))")
    assert live == pytest.approx(spent / spec.filter.budget, rel=1e-5)
    forecast = updated(shelf().of(spec), drawn, [record.accuracy for record in made.epochs])
    for part in ("accuracy", "lower", "upper"):
        browser = ask(page, f"Array.from(editor.outlook.{part})")
        assert 100 * np.array(browser) == pytest.approx(100 * np.array(getattr(forecast, part)), abs=1e-9)

    expect(page.get_by_role("button", name="Apply", exact=True)).to_be_disabled()
    page.get_by_role("button", name=re.compile(r"^Take 1\.\d+ times the noise")).click()
    expect(meta).to_contain_text("within the budget", timeout=WAIT)
    fitting, text = ask(page, "Array.from(editor.sigmas)"), number.inner_text()
    page.reload()
    expect(number).to_have_text(text, timeout=WAIT)
    assert ask(page, "Array.from(editor.sigmas)") == fitting
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(meta).to_contain_text("over the budget", timeout=WAIT)
    page.get_by_role("button", name="Redo", exact=True).click()
    expect(number).to_have_text(text, timeout=WAIT)

    begin(folder, run_id, 3)  # in another process, with the noise that was planned
    page.locator("svg.plot").evaluate(
        """(svg) => new Promise((done) => {
            const look = () => svg.getRootNode().scheduleEditor.locked.length === 3 ? done() : setTimeout(look, 50);
            look();
        })"""
    )
    assert ask(page, "Array.from(editor.sigmas)") == [*planned[:3], *fitting[3:]]
    stroke(page, (16, 2.0), (20, 2.0))
    expect(page.get_by_role("button", name="Apply", exact=True)).to_be_enabled(timeout=WAIT)
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.get_by_text("Applied from epoch 4 on.")).to_be_visible(timeout=WAIT)
    course = Store(folder).get(run_id).course
    assert course.sigmas[:3] == planned[:3]
    assert list(course.sigmas[3:15]) == fitting[3:15]
    assert course.sigmas[15:] == pytest.approx([2.0] * 5, rel=0.02)
    Store(folder).delete(run_id)


def test_a_running_run_is_redrawn_with_the_mouse_and_keeps_it_through_reload_stop_and_resume(lab, new_page):
    page = new_page(f"{lab.url}/train", viewport={"width": 1400, "height": 1700})
    fill_in_quick_logistic(page)
    make_it_longer(page)
    page.get_by_text("May be changed on the way").first.click()
    expect(page.get_by_role("spinbutton", name="Budget ε")).to_be_visible(timeout=WAIT)
    launch(page, "Course")
    expect(page.locator("svg.plot")).to_be_visible(timeout=WAIT)
    store = Store(lab.folder / "runs")
    run_id = store.list().runs[-1].id
    stroke(page, (50, 2.0), (60, 2.0))
    drawn = ask(page, "Array.from(editor.sigmas)")[49:]
    assert drawn == pytest.approx([2.0] * 11, rel=0.02)
    apply = page.get_by_role("button", name="Apply", exact=True)
    expect(apply).to_be_enabled(timeout=WAIT)  # the server has the drawing
    page.reload()
    expect(page.locator("svg.plot")).to_be_visible(timeout=WAIT)
    expect(apply).to_be_enabled(timeout=WAIT)
    apply.click()
    expect(page.get_by_text("Applied from epoch 50 on.")).to_be_visible(timeout=WAIT)
    assert list(store.get(run_id).course.sigmas[49:]) == drawn
    page.reload()
    expect(page.get_by_role("button", name="Undo change")).to_be_visible(timeout=WAIT)
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
