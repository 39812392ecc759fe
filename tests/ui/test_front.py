"""What stands before Streamlit: its files at once, its pages with their scripts named early, all else untouched."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dpviz.ui.front import HOME, STATIC, needed, script
from tests.ui.conftest import ROOT

REST = 1500  # milliseconds, as in ahead.js


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    return serve(ROOT / "app.py", {"DPVIZ_RUNS": str(tmp_path_factory.mktemp("runs"))})


def test_a_file_of_streamlits_comes_whole_with_its_type_and_may_be_kept(address):
    path = script("PlotlyChart")
    with urllib.request.urlopen(f"{address}{path}") as answer:
        assert answer.read() == (STATIC / "js" / Path(path).name).read_bytes()
        assert answer.headers["Content-Type"] in ("text/javascript", "application/javascript")
        assert "immutable" in answer.headers["Cache-Control"]


@pytest.mark.parametrize("path", ["/static/../index.html", "/static/%2e%2e/%2e%2e/config.py", "/static/js/../../x"])
def test_an_address_that_leads_out_of_the_folder_is_refused(address, path):
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(f"{address}{path}")


def test_a_page_names_the_scripts_that_the_home_page_needs(address):
    with urllib.request.urlopen(f"{address}/compare") as answer:
        assert answer.headers["Content-Type"].startswith("text/html")
        assert answer.headers["Cache-Control"] == "no-cache"
        named = re.findall(r'<link rel="modulepreload" crossorigin href="\.([^"]+)"', answer.read().decode())
    assert len(set(named)) == len(named)
    own = named.index(next(path for path in named if "react-dom" in path))
    assert all(named.index(script(widget)) > own for widget in HOME)


def test_other_answers_are_left_alone(address):
    with urllib.request.urlopen(f"{address}/_stcore/health") as answer:
        assert answer.read() == b"ok"


def test_what_a_script_imports_is_found_each_once(tmp_path):
    texts = {"a": 'import"./b.js";import{x}from"./c.js"', "b": 'import"./a.js"', "c": "", "d": ""}
    files = {}
    for name, text in texts.items():
        files[f"/static/js/{name}.js"] = tmp_path / f"{name}.js"
        files[f"/static/js/{name}.js"].write_text(text)
    assert sorted(needed(["/static/js/a.js"], files)) == [f"/static/js/{name}.js" for name in "abc"]


LOADED = "performance.getEntriesByType('resource').some((file) => file.name.includes('PlotlyChart'))"


def test_the_code_for_figures_is_loaded_once_the_hand_rests_and_not_while_it_moves(address, new_page):
    page: Page = new_page(address)
    expect(page.locator("svg.plot")).to_be_visible()
    for step in range(10):
        page.mouse.move(100 + step, 300)
        page.wait_for_timeout(REST / 5)
        assert not page.evaluate(LOADED)
    page.wait_for_function(LOADED, timeout=10 * REST)


def test_the_code_for_figures_is_loaded_when_another_page_is_asked_for(address, new_page):
    page: Page = new_page(address)
    page.get_by_role("link", name="Train").click()
    page.wait_for_function(LOADED, timeout=REST)
