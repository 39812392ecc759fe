"""What a stranger may bring to a page: titles, links, files. And what a page must never show or do."""

from __future__ import annotations

import socket
import threading
import tomllib

import pandas as pd
import pytest
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

from dpviz.privacy import InputError
from dpviz.runs.execution import pace as timing
from dpviz.runs.execution.pace import Pace, StepTimings
from dpviz.runs.store.run_files import without_paths
from dpviz.training.local.spec import LocalSpec
from dpviz.training.local.tabular import picture_data
from dpviz.ui.common.export_figures import as_csv, as_html
from dpviz.ui.local.job import Job
from dpviz.ui.train import launch
from dpviz.views.comparison.figures import curves_figure
from tests.browser import ROOT, start_server, stop_server
from tests.page_words import page_words
from tests.views.comparison.test_figures import scene_of
from tests.views.made_runs import keep, made_run, made_spec

EVIL = "<script>window.sprung=1</script><img src=x onerror=window.sprung=1>![x](http://192.0.2.1/y.png)"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return tmp_path / "runs"


def open_page(script: str, **query: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, value in query.items():
        at.query_params[name] = value
    at.switch_page(script).run()
    assert not at.exception
    return at


def button(at: AppTest, label: str):
    return next(button for button in at.button if button.label == label)


# --- titles and links -------------------------------------------------------------------------------------------------


def exported_page() -> str:
    scene = scene_of([made_run("a", title=EVIL), made_run("b", title=EVIL, sigma=1.5, best=0.8)])
    return as_html(curves_figure(scene.folded, scene, "epsilon_sound", "test_accuracy")).decode()


def test_a_title_in_an_exported_page_is_no_markup(tmp_path, new_page):
    text = exported_page()
    assert "<script>window.sprung" not in text
    (tmp_path / "figure.html").write_text(text)
    page = new_page("about:blank")
    page.set_content(text)
    page.locator(".main-svg").first.wait_for()
    assert page.evaluate("window.sprung") is None
    assert page.locator("img[src=x]").count() == 0


def test_a_title_on_the_pages_is_text(tmp_path, new_page):
    keep(tmp_path / "runs", made_run(title=EVIL, diagnostics=True))
    keep(tmp_path / "runs", made_run(title=EVIL + "2", diagnostics=True))
    env = {"DPVIZ_RUNS": str(tmp_path / "runs"), "DPVIZ_CACHED_RUNS": str(tmp_path / "cached")}
    process, url = start_server(ROOT / "app.py", env, tmp_path / "log.txt")
    try:
        for place in ("train", "compare", "gradients"):
            page = new_page(f"{url}/{place}")  # fails if the page asks another host
            expect(page.locator(".js-plotly-plot").first).to_be_visible()
            assert page.evaluate("window.sprung") is None
            assert page.locator("img[src=x], img[src*='192.0.2.1']").count() == 0
    finally:
        stop_server(process)


@pytest.mark.parametrize("script", ["pages/compare.py", "app.py"])
def test_a_link_that_holds_a_picture_is_quoted_and_not_shown(folder, script):
    name = "view" if "compare" in script else "s"
    at = open_page(script, **{name: "![x](http://192.0.2.1/y.png) <b>*a*"})
    shown = " ".join(error.value for error in at.error)
    assert shown
    assert "![x]" not in shown
    assert "<b>" not in shown.replace("\\<b", "")


@pytest.mark.parametrize("script", ["pages/train.py", "pages/gradients.py"])
@pytest.mark.parametrize("asked", ["../../etc/passwd", "..", "%2e%2e", "a" * 10_000, "<script>", "\0", ""])
def test_a_run_in_a_link_that_is_no_run_changes_nothing(folder, script, asked):
    keep(folder, made_run(title="Here", diagnostics=True))
    assert "Here" in page_words(open_page(script, run=asked))


def test_a_title_that_looks_like_a_formula_is_text_in_a_spreadsheet():
    frame = pd.DataFrame({"label": ["=HYPERLINK(1)", "@x", "plain"], "test_accuracy": [1.0, -2.0, 3.0]})
    lines = as_csv(frame).decode().splitlines()
    assert lines[1:] == ["'=HYPERLINK(1),1.0", "'@x,-2.0", "plain,3.0"]


# --- paths and errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cannot open /home/ann/secret/x.pt: gone", "cannot open .../x.pt: gone"),
        ("'/etc/passwd' is no data", "'.../passwd' is no data"),
        (f"{ROOT}/dpviz/x.py failed", ".../x.py failed"),
        ("http://example.org/a/b sent 404", "http://example.org/a/b sent 404"),
        ("accuracy and/or loss, 1/2 of it", "accuracy and/or loss, 1/2 of it"),
    ],
)
def test_errors_that_are_kept_name_files_and_no_folders(text, shown):
    assert without_paths(text) == shown


def test_a_page_that_fails_shows_no_details_and_the_log_keeps_them(tmp_path, new_page):
    script = tmp_path / "app.py"
    script.write_text("raise RuntimeError('the secret is 42')")
    log = tmp_path / "log.txt"
    process, url = start_server(script, {}, log)
    try:
        page = new_page(url)
        expect(page.get_by_test_id("stException")).to_be_visible()
        shown = page.locator("body").inner_text()
    finally:
        stop_server(process)
    assert "secret" not in shown
    assert str(tmp_path) not in shown
    assert "the secret is 42" in log.read_text()


def test_the_server_answers_on_this_machine_only():
    config = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())
    assert config["server"]["address"] == "127.0.0.1"
    assert config["client"]["showErrorDetails"] == "none"
    assert not config["browser"]["gatherUsageStats"]
    assert socket.gethostbyname(config["server"]["address"]) == "127.0.0.1"


# --- read-only and limits ---------------------------------------------------------------------------------------------


def test_a_read_only_dashboard_explores_and_compares(folder, monkeypatch):
    keep(folder, made_run(title="Here", diagnostics=True))
    monkeypatch.setenv("DPVIZ_READ_ONLY", "1")
    for script in ("schedule", "train", "compare", "gradients", "papers", "local", "guide"):
        at = open_page(f"pages/{script}.py")
        assert not at.error


def test_a_read_only_dashboard_neither_uploads_nor_computes(folder, monkeypatch):
    monkeypatch.setenv("DPVIZ_READ_ONLY", "1")
    local = open_page("pages/local.py")
    assert "My own file" not in local.selectbox(key="local.data").options
    assert local.button(key="local.run").disabled
    assert "read-only" in local.button(key="local.run").help
    with pytest.raises(InputError, match="read-only"):
        Job(picture_data(), [LocalSpec()], 2)
    with pytest.raises(InputError, match="read-only"):
        StepTimings().start(made_spec())
    assert button(open_page("pages/train.py"), "Launch").disabled
    assert open_page("app.py").file_uploader[0].disabled


def test_settings_above_a_limit_are_one_sentence_and_no_launch(folder, monkeypatch):
    monkeypatch.setenv("DPVIZ_MAX_EPOCHS", "4")
    at = open_page("pages/train.py")
    assert [error.value for error in at.error] == [
        "At most 4 epochs per run are allowed here, got 5; take fewer epochs (the limit is set by DPVIZ_MAX_EPOCHS)."
    ]
    assert "Launch" not in [button.label for button in at.button]


def test_the_limits_are_told_at_the_launch_button(folder, monkeypatch):
    monkeypatch.setenv("DPVIZ_MAX_EPOCHS", "77")
    assert "77 epochs per run" in button(open_page("pages/train.py"), "Launch").help


def test_a_queue_that_is_full_says_so_on_the_page(folder, monkeypatch):
    monkeypatch.setenv("DPVIZ_MAX_QUEUE", "1")
    at = open_page("pages/train.py")
    at.text_input(key="train.seeds").set_value("0, 1").run()
    button(at, "Launch").click().run()
    assert "At most 1 waiting runs are allowed here, got 2" in at.error[0].value
    assert not folder.exists()


def test_while_other_settings_are_timed_the_page_says_so(folder, monkeypatch):
    gate = threading.Event()

    def gated_steps(settings):
        assert gate.wait(120)
        return Pace(0.1, 1.0)

    monkeypatch.setattr(timing, "try_steps", gated_steps)
    others = StepTimings()
    monkeypatch.setattr(launch, "step_timings", lambda: others)
    others.start(made_spec(batch_size=77))
    at = open_page("pages/train.py")
    button(at, "Time a few steps").click().run()
    assert [error.value for error in at.error] == [
        "Only one trial runs at a time, and other settings are being timed; try again soon."
    ]
    gate.set()
