"""Own data on the pages: uploaded with the mouse, priced on Schedule, trained on; refused where nothing may change."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

from dpviz.privacy import Schedule, epoch_phases, epsilon
from dpviz.runs import Store
from dpviz.training.data.own.source import Options
from dpviz.training.data.own.store import add, remove
from dpviz.training.tables import DATASETS
from dpviz.views.numbers import epsilon_text
from tests.browser import ROOT, start_server, stop_server
from tests.training.data.own.made_files import TRAIN, as_csv, as_npz
from tests.views.made_runs import keep, made_run

WAIT = 90_000


@pytest.fixture
def folder(tmp_path, monkeypatch):
    for variable in ("DPVIZ_RUNS", "DPVIZ_CACHED_RUNS", "DPVIZ_DATA"):
        monkeypatch.setenv(variable, str(tmp_path / variable))
    return tmp_path


def open_page(name: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).switch_page(f"pages/{name}.py").run()
    assert not at.exception
    return at


def button(at: AppTest, label: str):
    return next(button for button in at.button if button.label == label)


def test_own_data_fill_the_schedule_page_in_and_go_to_train_with_the_schedule(folder):
    add("bars", as_npz(folder / "b.npz"), Options())
    at = open_page("schedule")
    at.selectbox(key="schedule.dataset").set_value("bars").run()
    assert any(caption.value.startswith("1,200 training examples") for caption in at.caption)
    button(at, "Train this schedule").click().run()
    at.switch_page("pages/train.py").run()
    assert not at.exception
    shown = {key: at.session_state[f"train.{key}"] for key in ("dataset", "examples", "schedule", "delta")}
    assert shown == {"dataset": "bars", "examples": TRAIN, "schedule": "custom", "delta": "0.0001"}
    assert at.number_input(key="train.size.batch_size").value == 32
    assert any("What is treated as public" in expander.label for expander in at.expander)
    price = epsilon(epoch_phases(Schedule.of("linear").sigmas(20), 32 / TRAIN), 1e-4)
    assert epsilon_text(price) in [metric.value for metric in at.metric if metric.label == "Sound ε"]


def test_a_small_dataset_brings_a_batch_and_a_delta_that_suit_it(folder):
    at = open_page("train")
    at.text_input(key="train.delta").set_value("0.01").run()
    at.selectbox(key="train.dataset").set_value("breast-cancer").run()
    assert not at.error
    assert at.number_input(key="train.size.batch_size").value == 32
    assert at.text_input(key="train.delta").value == "0.001"


def test_pages_go_on_without_data_that_were_removed(folder):
    add("bars", as_npz(folder / "b.npz"), Options())
    keep(folder / "DPVIZ_RUNS", made_run(dataset="bars", model="logistic", batch_size=100, subset=0))
    pages = {name: open_page(name) for name in ("train", "schedule")}
    for name, at in pages.items():
        at.selectbox(key=f"{name}.dataset").set_value("bars").run()
    remove("bars")
    assert "bars" not in DATASETS
    for at in pages.values():
        at.run()
        assert not at.exception
    assert pages["train"].session_state["train.dataset"] == "mnist"
    assert pages["schedule"].session_state["schedule.dataset"] == "own"
    button(pages["train"], "Duplicate").click().run()
    assert not pages["train"].exception
    assert pages["train"].session_state["train.dataset"] == "mnist"
    assert "bars" in [str(option) for option in open_page("compare").segmented_control(key="compare.dataset").options]


def test_nothing_is_uploaded_where_nothing_may_change_or_everybody_would_see_it(folder, monkeypatch):
    assert open_page("train").get("file_uploader")
    with monkeypatch.context() as patch:
        patch.setattr("dpviz.ui.train.add_data.person", lambda: "somebody")
        assert not open_page("train").get("file_uploader")
    monkeypatch.setenv("DPVIZ_READ_ONLY", "1")
    assert not open_page("train").get("file_uploader")


# --- with the mouse ---------------------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path):
    names = ("DPVIZ_RUNS", "DPVIZ_DATA")
    env = {name: str(tmp_path / name) for name in names} | {"OMP_NUM_THREADS": "1"}
    process, url = start_server(ROOT / "app.py", env, tmp_path / "log.txt")
    yield url
    stop_server(process)


def test_a_file_is_uploaded_with_the_mouse_and_trained_on(server, new_page, tmp_path):
    page = new_page(f"{server}/train", viewport={"width": 1400, "height": 1400})
    page.get_by_role("button", name="Add your data").click()
    chooser = page.get_by_test_id("stFileUploaderDropzoneInput")
    chooser.set_input_files(as_csv(tmp_path / "Sick People.csv"))
    expect(page.get_by_role("textbox", name="Name")).to_have_value("sick-people", timeout=WAIT)
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text(re.compile("Column 'age' holds numbers, so say their public range"))).to_be_visible(
        timeout=WAIT
    )
    assert list((tmp_path / "DPVIZ_DATA" / "own").glob("*")) == []

    chooser.set_input_files(as_npz(tmp_path / "Bars 1.npz"))
    expect(page.get_by_role("textbox", name="Name")).to_have_value("bars-1", timeout=WAIT)
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_text("Your data bars-1 were added")).to_be_visible(timeout=WAIT)
    page.keyboard.press("Escape")
    expect(page.get_by_role("combobox", name="Dataset")).to_have_value("bars-1", timeout=WAIT)
    page.get_by_role("textbox", name="Title").fill("Mine")
    page.get_by_role("textbox", name="Title").press("Enter")
    expect(page.get_by_text("Your data bars-1 were added")).to_have_count(
        0, timeout=WAIT
    )  # the form stays in place now
    for label, value in (("Epochs", "3"), ("Batch size", "100")):
        field = page.get_by_role("spinbutton", name=label)
        field.fill(value)
        field.press("Enter")
        expect(field).to_have_value(value, timeout=WAIT)
    page.get_by_role("button", name="Launch").click()
    expect(page.get_by_role("heading", name=re.compile("Mine"))).to_contain_text("done", timeout=WAIT)
    store = Store(tmp_path / "DPVIZ_RUNS")
    (summary,) = store.list().runs
    run = store.get(summary.id)
    assert (run.spec.dataset, run.spec.size) == ("bars-1", TRAIN)
    assert run.epochs[0].test_accuracy < run.epochs[-1].test_accuracy
    assert run.epochs[-1].epsilon_sound == epsilon(epoch_phases([1.23] * 3, 100 / TRAIN), run.spec.delta).upper
