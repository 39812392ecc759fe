"""The end of a run is announced on whatever page the person is, once per run and session."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

from dpviz.runs import Store
from dpviz.runs.store.records import Summary
from dpviz.ui.common.announce import at_work, end_words
from tests.browser import ROOT
from tests.views.made_runs import made_epochs, made_spec


@pytest.fixture
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return Store(tmp_path / "runs")


def begin(store: Store, title: str) -> str:
    run_id = store.create(made_spec(), title=title)
    store.set_status(run_id, "running")
    return run_id


def end(store: Store, run_id: str, status: str) -> None:
    for record in made_epochs(made_spec(), 4):
        store.append(run_id, record)
    store.set_status(run_id, status)
    store.release(run_id)


def toasts(at: AppTest) -> list[str]:
    assert not at.exception
    return [toast.value for toast in at.toast]


def test_a_run_that_ends_is_announced_once_on_the_page_at_hand(store):
    run_id = begin(store, "Mine — *now*")
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    assert toasts(at.run()) == []
    end(store, run_id, "done")
    assert toasts(at.run()) == [r"**Mine — \*now\*** is done: 77.50 % at ε 2.000."]
    assert toasts(at.run()) == []


def test_a_run_that_was_stopped_or_had_ended_before_is_not_announced(store):
    end(store, begin(store, "Before"), "done")
    stopped = begin(store, "Stopped")
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    end(store, stopped, "stopped")
    assert toasts(at.run()) == []
    assert at_work(store) == frozenset()


def test_in_a_browser_the_toast_comes_by_itself_on_another_page(tmp_path, serve, new_page):
    store = Store(tmp_path / "runs")
    run_id = begin(store, "Meanwhile")
    page = new_page(f"{serve(ROOT / 'app.py', {'DPVIZ_RUNS': str(store.folder)})}/guide")
    expect(page.get_by_role("heading", name="Ways to read a number wrongly")).to_be_visible(timeout=60_000)
    page.wait_for_timeout(3000)  # until the page was looked through once
    end(store, run_id, "done")
    expect(page.get_by_test_id("stToast")).to_contain_text("Meanwhile is done: 77.50 % at ε 2.000.", timeout=60_000)


def test_a_failure_and_an_interruption_say_what_happened():
    failed = Summary("a", "failed", "", title="A", error="batch_size must be at most 5, got 6")
    assert end_words(failed) == "**A** failed. Batch size must be at most 5, got 6."
    assert "can be resumed" in end_words(Summary("b", "interrupted", "", title="B"))
    free = Summary("c", "done", "", title="C", test_accuracy=0.5)
    assert end_words(free) == "**C** is done: 50.00 % without a guarantee."
