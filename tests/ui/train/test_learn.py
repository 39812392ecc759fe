"""Learning a response on the Train page: what it will cost, the pilots in one box, and the forecast behind a curve."""

from __future__ import annotations

import dataclasses
import re

import pytest
from playwright.sync_api import Page, expect

from dpviz.forecast.designs import pilots
from dpviz.forecast.evidence import fitted, runs_like
from dpviz.forecast.learner import learners
from dpviz.forecast.library import history, keep, response_to, settings_key
from dpviz.forecast.seen import updated
from dpviz.runs import Store
from dpviz.runs.settings import DEFAULT, change
from dpviz.training.limits import READ_ONLY
from dpviz.training.spec import RunSpec
from dpviz.ui.common.announce import at_work, learnt_words
from dpviz.ui.compare.data import newest_dataset
from dpviz.ui.train.forecasts import settings_name
from tests.browser import choose
from tests.ui.train.test_train_page import (
    WAIT,
    Lab,
    button,
    folder,
    launch,
    metrics,
    open_page,
    runs_list,
    type_number,
)
from tests.views.made_runs import keep as keep_run
from tests.views.made_runs import made_epochs, made_run

__all__ = ["folder"]  # a fixture
OPEN = {"learn.open": True}
TINY = change(DEFAULT, {"dataset": "breast-cancer", "model": "logistic", "batch_size": "455"})


def keep_pilots(folder, spec: RunSpec, count: int, first: int = 0, status: str = "done", least: int = 0) -> None:
    for pilot in (pilot for pilot in pilots(spec, count)[first:] if pilot.epochs >= least):
        epochs = made_epochs(pilot, pilot.epochs if status == "done" else 2)
        run = dataclasses.replace(made_run(status=status), spec=pilot, epochs=epochs, title=f"pilot of {spec.model}")
        keep_run(folder, run)


def page_words(at) -> str:
    return "\n".join(one.value for one in (*at.markdown, *at.caption, *at.error))


def labels(at) -> list[str]:
    return [one.label for one in at.button]


def test_before_it_starts_the_form_says_how_many_how_long_and_what_it_costs(folder):
    assert "Learn the response" not in labels(open_page())
    at = open_page(**OPEN)
    assert at.number_input(key="learn.pilots").value == 24
    assert re.search(r"24 runs to make, of 5 to \d+ epochs each: nothing alike was timed", page_words(at))
    assert "MNIST is public: its pilot runs cost nobody any privacy." in page_words(at)
    keep_pilots(folder, DEFAULT, 3)
    at = open_page(**OPEN)
    assert "21 runs to make, 3 are there already" in page_words(at)
    assert re.search(r"each: about .* one after another, from an earlier run", page_words(at))
    at.selectbox(key="train.method").set_value("sgd").run()
    assert "so its accuracy does not follow a noise schedule" in page_words(at)
    assert "Learn the response" not in labels(at)


def test_more_pilots_than_may_wait_are_refused_before_they_start(folder, monkeypatch):
    monkeypatch.setenv("DPVIZ_MAX_QUEUE", "10")
    assert "at most 10 waiting runs are allowed here, got 24" in page_words(open_page(**OPEN)).lower()


def test_pilots_are_one_box_and_neither_rows_of_the_list_nor_curves_on_compare(folder):
    keep_pilots(folder, DEFAULT, 9)
    keep_pilots(folder, DEFAULT, 12, first=9, status="stopped")
    run_id = keep_run(folder, made_run(title="Mine"))
    at = open_page()
    assert list(runs_list(at).value["name"]) == ["Mine"]
    assert {"Resume pilots", "Yes, delete pilots", "Fit again with 9 new runs"} <= set(labels(at))
    Store(folder).delete(run_id)
    assert newest_dataset() == ""
    at = open_page()
    at.toggle(key="train.pilots").set_value(True).run()
    assert len(runs_list(at).value) == 12
    button(at, "Yes, delete pilots").click().run()
    assert not at.exception
    assert Store(folder).list().runs == ()


def test_runs_are_learnt_from_on_demand_and_then_the_forecast_is_there(folder):
    keep_pilots(folder, DEFAULT, 9)
    store = Store(folder)
    at = open_page()
    assert "Expected accuracy" not in metrics(at)
    button(at, "Fit again with 9 new runs").click().run()
    learner = learners(store)[settings_key(DEFAULT)]
    learner.wait(60)
    assert learner.problem == ""
    response = response_to(DEFAULT, store)
    assert response == fitted(DEFAULT, runs_like(DEFAULT, store))
    words = learnt_words(settings_key(DEFAULT), learner, store)
    assert re.fullmatch(r"Forecast of \*\*CNN, 28 x 28 on MNIST\*\*: off by .* \(9 runs\)\.", words)
    learner.problem = "pilot run a failed: no data"
    assert learnt_words(settings_key(DEFAULT), learner, store) == f"{words} Pilot run a failed: no data."
    assert "MNIST, CNN, 28 x 28: pilot run a failed: no data." in page_words(open_page())
    learner.problem = ""

    finished = dataclasses.replace(made_run(title="Mine"), spec=DEFAULT, epochs=made_epochs(DEFAULT, 5))
    keep_run(folder, finished)
    at = open_page()
    assert re.fullmatch(r"\d+\.\d % \(.*\)", metrics(at)["Expected accuracy"])
    words = page_words(at)
    assert re.search(r"Forecast .* %.*, measured 80\.00 %: .*\. The forecast rests on 9 runs", words)
    assert "No test of the forecast" not in words
    button(at, "Fit again with 1 new run").click().run()
    learner = learners(store)[settings_key(DEFAULT)]
    learner.wait(60)
    assert [fit.runs for fit in history(settings_key(DEFAULT), store)] == [9, 10]
    at = open_page()
    assert "No test of the forecast: it was fitted to this run, too." in page_words(at)
    assert not [label for label in labels(at) if label.startswith("Fit again")]


def test_a_run_that_is_changed_on_the_way_is_forecast_from_its_real_noise_and_leaves_the_domain_with_words(folder):
    keep_pilots(folder, DEFAULT, 9)
    store = Store(folder)
    response = fitted(DEFAULT, runs_like(DEFAULT, store))
    keep(response, store)
    spec = dataclasses.replace(DEFAULT, filter_epsilon=9.0)
    run_id = keep_run(folder, dataclasses.replace(made_run(status="stopped"), spec=spec, epochs=made_epochs(spec, 2)))
    for epoch in (1, 2):
        store.claim(run_id)
        store.begin_epoch(run_id, epoch)
        store.release(run_id)
    before = page_words(open_page())
    assert f"Forecast of its end: {100 * response.forecast([1.23] * 5).accuracy[-1]:.1f} %" in before
    moved = updated(response, [1.23] * 5, [record.accuracy for record in made_epochs(spec, 2)])
    assert f"; with the epochs seen so far: {100 * moved.accuracy[-1]:.1f} %" in before
    store.redraw(run_id, [40.0])
    after = page_words(open_page())
    assert f"Forecast of its end: {100 * response.forecast([1.23] * 4 + [40.0]).accuracy[-1]:.1f} %" in after
    assert "the band is a guess: sigma 40 is above the measured" in after


def test_read_only_learns_nothing_and_says_why(folder, monkeypatch):
    keep_pilots(folder, DEFAULT, 9)
    monkeypatch.setenv(READ_ONLY, "1")
    at = open_page(**OPEN)
    for label in ("Learn the response", "Yes, delete pilots", "Fit again with 9 new runs"):
        assert button(at, label).disabled


def test_a_response_is_named_by_its_experiment_or_by_data_and_model():
    assert settings_name(TINY) == "Breast cancer, Logistic regression"
    assert settings_name(dataclasses.replace(DEFAULT, recipe="curricula/constant-1.54")).startswith("Constant")


def test_pilots_at_work_are_not_announced_one_by_one(folder):
    store = Store(folder)
    store.create(pilots(DEFAULT, 1)[0], title="pilot of cnn-mnist")
    other = store.create(DEFAULT)
    assert at_work(store) == {other}


# --- in a real browser


@pytest.fixture
def lab(tmp_path):
    keep_pilots(tmp_path / "runs", TINY, 9, least=8)  # two short ones are left to train
    lab = Lab(tmp_path)
    yield lab
    lab.stop()


def fill_in_tiny(page: Page) -> None:
    """Whole batches of 455 people: a step per epoch."""
    choose(page, "Dataset", "Breast cancer")
    choose(page, "Model", "Logistic regression")
    type_number(page, "Batch size", "455")


def test_a_response_is_learnt_through_a_reload_and_lies_behind_a_live_curve(lab, new_page):
    page = new_page(f"{lab.url}/train", viewport={"width": 1400, "height": 1600})
    fill_in_tiny(page)
    page.get_by_text("Learn the response: which").click()
    expect(page.get_by_role("spinbutton", name="Pilot runs")).to_be_visible(timeout=WAIT)
    type_number(page, "Pilot runs", "9")
    expect(page.get_by_text("2 runs to make, 7 are there already")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Learn the response", exact=True).click()
    expect(page.get_by_text(re.compile("of 9 done"))).to_be_visible(timeout=WAIT)
    page.reload()
    expect(page.get_by_text(re.compile(r"off by .* \([89] runs\)")).first).to_be_visible(timeout=WAIT)
    expect(page.get_by_text(re.compile("9 of 9 done"))).to_be_visible(timeout=WAIT)
    fill_in_tiny(page)
    type_number(page, "Epochs", "300")
    launch(page, "Long")
    expect(page.get_by_text(re.compile("Forecast of its end: .*300 epochs are more than"))).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("forecast, with its band")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("heading", name=re.compile("Long"))).to_contain_text("stopped", timeout=WAIT)
