"""The Local privacy page: settings, card, uploads, live trials; and in a real browser."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from dpviz.privacy.registry import InputError
from dpviz.training.local.spec import LocalSpec
from dpviz.training.local.tabular import picture_data, read_upload
from dpviz.ui.common.handover import RecipeHandover
from dpviz.ui.local import trials
from dpviz.ui.local.job import Job, check_work
from tests.browser import choose, settled

ROOT = Path(__file__).parents[3]
TALL = {"width": 1100, "height": 2600}  # scrolling closes an open list
PATIENCE = 90_000  # a busy machine is no reason to fail
expect.set_options(timeout=PATIENCE)
CSV = "age,dose,outcome\n" + "".join(f"{20 + k},{k % 9},{'sick' if k % 9 > 4 else 'well'}\n" for k in range(60))


def wait(job: Job, seconds: float = 30) -> None:
    job.thread.join(seconds)
    assert not job.running


def page() -> AppTest:
    at = AppTest.from_file(str(ROOT / "pages" / "local.py"), default_timeout=60)
    at.session_state["routed"] = True
    return at.run()


@pytest.fixture(scope="module")
def first() -> AppTest:
    return page()


# --- without a browser --------------------------------------------------------------------------------------------


def test_the_page_comes_up_with_a_picture_a_card_and_table_3(first):
    assert not first.exception
    assert not first.error
    metrics = {metric.label: metric.value for metric in first.metric}
    assert metrics["Claimed ε"] == "1.000"
    assert metrics["Sound ε"] == "10.00"
    assert metrics["Labels flipped"] == "45.0 %"
    assert len(first.dataframe) >= 2
    assert first.markdown[0].value.startswith("You want to learn from people who trust nobody")
    assert "The paper's Table 3 beside ours" in [fold.label for fold in first.expander]


def test_an_experiment_from_the_papers_page_fills_in_every_setting_once():
    at = AppTest.from_file(str(ROOT / "pages" / "local.py"), default_timeout=60)
    at.session_state["routed"] = True
    at.session_state["handoff"] = RecipeHandover("prestige/mnist38-djw-gompertz")
    at.session_state["local.split"] = 1.0
    at.run()
    assert not at.exception
    assert at.selectbox(key="local.method").value == "djw"
    assert at.selectbox(key="local.loss").value == "gompertz"
    assert at.selectbox(key="local.data").value == "mnist38"
    assert at.slider(key="local.split").value == 4.0
    assert "handoff" not in at.session_state
    assert at.selectbox(key="local.result.mnist38-gompertz").value == "mnist38-gompertz"
    at.selectbox(key="local.loss").set_value("ramp").run()
    assert at.selectbox(key="local.loss").value == "ramp"


def test_an_experiment_whose_data_are_not_there_leaves_the_data_as_they_were(monkeypatch):
    monkeypatch.delenv("DPVIZ_DATA", raising=False)
    at = AppTest.from_file(str(ROOT / "pages" / "local.py"), default_timeout=60)
    at.session_state["routed"] = True
    at.session_state["handoff"] = RecipeHandover("prestige/a7a-prestige-ramp")
    at.run()
    assert not at.exception
    assert at.selectbox(key="local.data").value == "breast-cancer"
    assert "not there" in at.toast[0].value


def test_the_split_moves_epsilon_between_answer_and_gradient_and_djw_needs_none():
    at = page()
    before = {metric.label: metric.value for metric in at.metric}
    at.slider(key="local.split").set_value(1.0).run()
    after = {metric.label: metric.value for metric in at.metric}
    assert not at.exception
    assert float(after["Labels flipped"][:-2]) < float(before["Labels flipped"][:-2])
    assert float(after["Towards the gradient"][:-2]) < float(before["Towards the gradient"][:-2])
    assert after["Sound ε"] == before["Sound ε"]
    # DJW has no answer to pay for: no flips, and the whole record is covered.
    at.selectbox(key="local.method").set_value("djw").run()
    assert not at.exception
    assert any("DJW, whole records" in text.value for text in at.markdown)
    assert {metric.label: metric.value for metric in at.metric}["Labels flipped"] == "0.0 %"


def test_live_trials_give_a_figure_and_a_verdict():
    at = page()
    at.slider(key="local.repeats").set_value(2).run()
    at.number_input(key="local.epochs").set_value(2).run()
    at.button(key="local.run").click().run()
    wait(at.session_state["local.job"])
    at.run()
    assert not at.exception
    assert any("PRESTIGE has a lower test error than DJW at" in text.value for text in at.markdown)
    assert any("Your run: 2 repeats, 2 epochs" in text.value for text in at.caption)


def page_with_own_file() -> AppTest:
    at = page()
    return at.selectbox(key="local.data").set_value("upload").run()


def test_a_file_is_read_once_and_not_at_every_click(monkeypatch):
    read: list[str] = []

    def counted(content, name, label=None):
        read.append(name)
        return read_upload(content, name, label)

    monkeypatch.setattr(trials, "read_upload", counted)
    right, wrong = CSV.replace("outcome", "label"), "label,age\nsick,young\n"
    at = page_with_own_file()
    for name, content in (("right.csv", right), ("wrong.csv", wrong)):
        at.file_uploader[0].set_value((name, content.encode(), "text/csv")).run()
        for repeats in (3, 4, 5):
            at.slider(key="local.repeats").set_value(repeats).run()
            assert not at.exception
            assert len(at.error) == (name == "wrong.csv")
    assert read == ["right.csv", "wrong.csv"]
    # The same name with other content is another file.
    at.file_uploader[0].set_value(("wrong.csv", right.encode(), "text/csv")).run()
    assert not at.error
    assert read[2:] == ["wrong.csv"]


@pytest.mark.parametrize(("asked", "told"), [("2", "At most 2 MB"), ("50", "At most 20 MB")])
def test_the_page_promises_no_larger_file_than_streamlit_lets_through(monkeypatch, asked, told):
    monkeypatch.setenv("DPVIZ_MAX_UPLOAD_MB", asked)
    assert told in page_with_own_file().file_uploader[0].help


# --- jobs ---------------------------------------------------------------------------------------------------------


def test_a_job_works_in_the_background_and_keeps_rows():
    job = Job(picture_data(), [LocalSpec(epochs=2), LocalSpec("djw", epochs=2)], 3)
    wait(job)
    assert job.share == 1.0
    assert [row["method"] for row in job.rows] == ["prestige", "djw"]
    assert len(job.differences) == 1
    assert job.error == ""


def test_a_job_can_be_stopped_and_keeps_nothing():
    job = Job(picture_data(), [LocalSpec(epochs=1000)], 500)
    time.sleep(0.2)
    job.stop()
    wait(job)
    assert job.rows == ()
    assert "Stopped" in job.error


def test_too_much_work_is_refused_before_it_starts():
    with pytest.raises(InputError, match="at most 2083 repeats"):
        check_work(picture_data(), [LocalSpec(epochs=1000)] * 1000, 2500)
    with pytest.raises(InputError, match="even once"):
        check_work(picture_data(), [LocalSpec(epochs=1000)] * 10_000_000, 1)


# --- in a browser -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def url(serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("local")
    return serve(ROOT / "app.py", {"DPVIZ_RUNS": str(folder), "TMPDIR": str(folder)}) + "/local"


def choose_own_file(page: Page) -> None:
    choose(page, "Data", "My own file")
    expect(page.get_by_text("20MB per file")).to_be_visible()


def test_the_picture_plays_and_the_page_fits_a_phone(url, new_page):
    page = new_page(url, viewport={"width": 420, "height": 900})
    plot = page.locator(".js-plotly-plot").first
    expect(plot).to_be_visible()
    settled(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    words = plot.locator("text", has_text="Epoch").first
    before = words.text_content() or ""
    plot.locator(".updatemenu-button", has_text="Play").click()
    expect(words).not_to_have_text(before)


def test_a_file_as_large_as_is_documented_is_read(url, new_page, tmp_path):
    sick, well = (f"0.{digit * 297},0.{digit * 297},{word}\n" for digit, word in (("1", "sick"), ("3", "well")))
    (tmp_path / "large.csv").write_text("age,dose,label\n" + (sick + well) * (19_990_000 // len(sick + well)))
    assert 19_900_000 < (tmp_path / "large.csv").stat().st_size <= 20_000_000
    page = new_page(url, viewport=TALL)
    choose_own_file(page)
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_disabled()
    page.locator("input[type=file]").set_input_files(tmp_path / "large.csv")
    expect(page.get_by_role("combobox", name="Label column")).to_have_value("label")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()


def test_uploads_right_and_wrong(url, new_page, tmp_path):
    page = new_page(url, viewport=TALL)
    choose_own_file(page)
    box = page.locator("input[type=file]")
    large = tmp_path / "large.csv"
    with large.open("wb") as file:
        file.truncate(30_000_000)
    box.set_input_files(large)
    expect(page.get_by_text("File must be 20.0MB or smaller.")).to_be_visible()
    for name, content, message in (
        ("words.csv", CSV.replace("25,5", "25,high").replace("outcome", "label"), "Features must be numbers"),
        ("three.csv", CSV.replace("outcome", "label") + "3,4,other\n", "exactly two classes, got 3"),
        ("packed.csv", "PK\x03\x04", "must be plain text"),
    ):
        (tmp_path / name).write_text(content)
        box.set_input_files(tmp_path / name)
        expect(page.get_by_text(message)).to_be_visible()
        expect(page.get_by_test_id("stException")).to_have_count(0)
    (tmp_path / "right.csv").write_text(CSV)
    box.set_input_files(tmp_path / "right.csv")
    expect(page.get_by_role("combobox", name="Label column")).to_have_value("")
    choose(page, "Label column", "outcome")
    settled(page)
    page.get_by_role("button", name="Run", exact=True).click()
    expect(page.get_by_text("Your run: 5 repeats")).to_be_visible(timeout=2 * PATIENCE)
    expect(page.get_by_text("has a lower test error than DJW")).to_be_visible()
