"""The Gradients page: what it shows of a run, and how it says that epsilon does not cover it."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from tests.browser import ROOT
from tests.views.made_runs import keep, made_run


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return tmp_path / "runs"


def open_page(**params: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    at.query_params.update(params)
    at.switch_page("pages/gradients.py").run()
    assert not at.exception
    return at


def test_without_diagnostics_the_page_says_how_to_get_them(folder):
    keep(folder, made_run())
    at = open_page()
    assert any("No run has diagnostics yet" in info.value for info in at.info)


def test_everything_is_marked_as_not_covered_by_epsilon(folder):
    assert any("not covered by epsilon" in warning.value for warning in open_page().warning)


def test_a_run_with_diagnostics_shows_its_figures(folder):
    keep(folder, made_run(diagnostics=True, title="Seen"))
    at = open_page()
    assert len(at.get("plotly_chart")) == 7
    assert any("75 % of them are clipped in epoch 4" in caption.value for caption in at.caption)


def test_the_epoch_slider_moves_through_the_run(folder):
    keep(folder, made_run(diagnostics=True))
    at = open_page()
    at.select_slider(key="gradients.epoch").set_value(2).run()
    assert not at.exception
    assert any("in epoch 2" in caption.value for caption in at.caption)


def test_two_runs_show_their_confusion_side_by_side_the_shorter_one_at_its_end(folder):
    keep(folder, made_run(diagnostics=True, title="Short", epochs=2))
    keep(folder, made_run(diagnostics=True, title="Long", epochs=6))
    at = open_page()
    assert len(at.get("plotly_chart")) == 7
    other = at.selectbox(key="gradients.other")
    other.set_value(next(option for option in other.options if option.startswith("Short"))).run()
    assert len(at.get("plotly_chart")) == 8
    shown = [text.value for text in at.markdown]
    assert "**Long**, epoch 6" in shown
    assert "**Short**, epoch 2" in shown


def test_a_run_of_one_epoch_has_no_slider(folder):
    keep(folder, made_run(diagnostics=True, epochs=1))
    assert len(open_page().select_slider) == 0


def test_a_link_opens_its_run_and_one_that_is_not_here_is_told(folder):
    first = keep(folder, made_run(diagnostics=True, title="First"))
    keep(folder, made_run(diagnostics=True, title="Second"))
    assert open_page(run=first).selectbox(key="gradients.run").value == first
    at = open_page(run="nothing")
    assert len(at.error) == 1
    assert at.selectbox(key="gradients.run").value != "nothing"


def test_a_title_is_shown_as_typed_and_never_as_a_picture_from_elsewhere(folder):
    keep(folder, made_run(diagnostics=True, title="![x](http://elsewhere/y.png)"))
    assert not any("![x](http" in text.value for text in open_page().markdown)
