"""Sweeps on the Train page: the form's parts, what is shown of a finished one, and a real one in a real browser."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect

from dpviz.privacy import InputError
from dpviz.runs import BackgroundRunner, Store
from dpviz.runs.drive import Drive
from dpviz.runs.fold import result
from dpviz.runs.settings import change
from dpviz.runs.sweep import Sweep
from dpviz.runs.sweeps import sweep_ids
from dpviz.ui.sweep_form import parse_values, setting_title, variable
from dpviz.views.sweeps import progress_text, sweep_frame
from tests.runs.conftest import small_spec
from tests.ui.conftest import ROOT
from tests.ui.test_train_page import WAIT, button, fill_in_quick_logistic, folder, open_page

__all__ = ["folder"]  # a fixture


def test_values_are_typed_with_commas_as_numbers_or_words():
    assert parse_values("learning_rate", "0.5, 1,2e-1") == (0.5, 1, 0.2)
    assert parse_values("model.activation", "tanh, relu") == ("tanh", "relu")


@pytest.mark.parametrize("text", ["", " , ", "1, 1"])
def test_other_values_are_refused_in_a_sentence(text):
    with pytest.raises(InputError, match="Learning rate needs different values"):
        parse_values("learning_rate", text)


def test_everything_that_decides_a_run_can_be_varied_and_its_seed_and_delta_cannot():
    names = variable(small_spec())
    assert {"schedule", "schedule.sigma", "loss", "optimizer.momentum", "learning_rate", "epochs"} <= set(names)
    assert not {"seed", "delta", "diagnostics"} & set(names)
    assert len(names) == len(set(names))
    assert not [name for name in variable(change(small_spec(), {"schedule": "3,2,1"})) if name.startswith("schedule.")]
    assert setting_title("schedule.start") == "Noise: start"


@pytest.fixture
def finished(folder) -> Sweep:
    store = Store(folder)
    runner = BackgroundRunner(store, threads=1)
    sweep = Sweep(small_spec(epochs=1), (0, 1), ((("learning_rate", (0.5, 2.0)),),), title="Rates")
    Drive(sweep, store, runner).run()
    runner.close()
    return sweep


def test_the_table_has_a_row_a_candidate_the_best_first_and_names_the_winner(finished, folder):
    found = result(Store(folder), finished.id)
    frame = sweep_frame(found)
    assert list(frame["learning_rate"]) == ["2.0", "0.5"]
    assert list(frame["note"]) == ["winner", ""]
    assert frame["accuracy"].is_monotonic_decreasing
    assert (frame["spread"] >= 0).all()
    assert progress_text(found) == "4 of 4 runs done"


def test_a_finished_sweep_shows_its_winner_and_what_choosing_costs_and_can_be_forgotten(finished, folder):
    at = open_page()
    texts = [markdown.value for markdown in at.markdown]
    assert any("Winner: learning" in text for text in texts)
    assert any("All 4 runs composed" in text and "not a guarantee" in text for text in texts)
    assert not [one for one in at.button if one.label in ("Stop sweep", "Resume sweep")]
    button(at, "Forget").click().run()
    assert not at.exception
    assert sweep_ids(Store(folder)) == ()
    assert len(Store(folder).list().runs) == 4


def test_a_sweep_is_counted_before_it_is_launched_and_a_read_only_server_launches_none(folder, monkeypatch):
    monkeypatch.setenv("DPVIZ_READ_ONLY", "1")
    at = open_page(**{"sweep.keys": ["learning_rate", "loss"], "sweep.values.learning_rate": "0.5, 1, 2"})
    at.multiselect(key="sweep.values.loss").set_value(["cross-entropy", "sse"]).run()
    assert any("6 candidates, 6 runs" in markdown.value for markdown in at.markdown)
    assert button(at, "Launch sweep").disabled


def test_settings_that_cannot_be_calibrated_are_a_sentence_and_no_launch(folder):
    keys = {"sweep.keys": ["schedule.sigma"], "sweep.values.schedule.sigma": "0", "sweep.equal": True}
    at = open_page(**keys)
    assert any("costs infinity" in markdown.value for markdown in at.markdown)
    assert "Launch sweep" not in [one.label for one in at.button]


# --- a real sweep in a real browser -----------------------------------------------------------------------------------


def vary(page: Page, label: str) -> None:
    box, options = page.get_by_role("combobox", name="What to vary"), page.get_by_role("option")
    deadline = time.monotonic() + WAIT / 1000
    while not options.count() and time.monotonic() < deadline:  # a rerun of the page may close the list again
        box.click()
        page.wait_for_timeout(1000)
    box.fill(label)
    options.filter(has_text=re.compile(f"^{label}$")).click()
    page.keyboard.press("Escape")


def type_values(page: Page, label: str, values: str) -> None:
    field = page.get_by_role("textbox", name=label)
    field.fill(values)
    field.press("Enter")


def test_a_sweep_of_two_by_two_is_launched_watched_to_its_end_and_folded(serve, new_page, tmp_path):
    runs = tmp_path / "runs"
    url = serve(ROOT / "app.py", {"DPVIZ_RUNS": str(runs), "OMP_NUM_THREADS": "1"})
    page = new_page(f"{url}/train", viewport={"width": 1500, "height": 1400})
    fill_in_quick_logistic(page)
    page.get_by_text("Sweep: many runs at once").click()
    vary(page, "Learning rate")
    type_values(page, "Learning rate", "0.5, 2")
    vary(page, "Noise: sigma")
    type_values(page, "Noise: sigma", "1, 2")
    expect(page.get_by_text("4 candidates, 4 runs.")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Launch sweep").click()
    expect(page.get_by_text("4 of 4 runs done")).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("All 4 runs composed")).to_be_visible(timeout=WAIT)
    expect(page.get_by_test_id("stDataFrame")).to_be_visible(timeout=WAIT)
    store = Store(runs)
    found = result(store, sweep_ids(store)[0])
    assert (found.done, found.failed) == (4, 0)
    expect(page.get_by_text("Winner:")).to_contain_text("learning")
