"""The shell: the way in, and what a fresh server has to do before the first page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from dpviz.ui.common.navigation import PAGES
from tests.browser import ROOT, start_server, stop_server

APP = ROOT / "app.py"


@pytest.fixture
def fresh_server(tmp_path):
    """A server that nobody has asked for anything yet: its process and its address."""
    expect.set_options(timeout=20_000)
    process, url = start_server(APP, {}, tmp_path / "log.txt")
    yield process, url
    stop_server(process)


def test_a_deep_link_as_the_first_hit_of_a_fresh_server_shows_the_page_with_its_navigation(fresh_server, new_page):
    _, url = fresh_server
    page = new_page(f"{url}/guide")
    expect(page.get_by_role("heading", name="Guide", exact=True)).to_be_visible()
    links = page.get_by_test_id("stTopNavLink")
    expect(links).to_contain_text([page.title for page in PAGES])
    assert page.url.endswith("/guide")
    links.filter(has_text="Schedule").click()
    expect(page.get_by_role("heading", name="Draw a noise schedule")).to_be_visible()


@pytest.mark.parametrize("place", PAGES, ids=lambda place: place.title)
def test_no_page_asks_for_anything_that_is_not_there(place, dashboard, new_page):
    page = new_page("about:blank")
    answers: list[tuple[int, str]] = []
    page.on("response", lambda response: answers.append((response.status, response.url)))
    page.goto(f"{dashboard}/{place.url_path}")
    expect(page.get_by_test_id("stHeading").first).to_be_visible()
    page.wait_for_load_state("networkidle")
    assert (200, f"{dashboard}/_stcore/health") in answers
    assert [answer for answer in answers if answer[0] >= 400] == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not tell what a process has done")
def test_the_first_page_takes_a_fresh_server_no_torch(fresh_server, new_page):
    process, url = fresh_server
    expect(new_page(url).locator(".meta")).to_contain_text("certified")
    assert "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()


@pytest.mark.speed
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="this system does not tell what a process has done")
def test_the_first_page_takes_a_fresh_server_three_seconds_of_work(fresh_server, new_page):
    """Seconds of a core rather than of the clock, which other work on the machine would stretch."""
    process, url = fresh_server
    before = seconds_of_work(process.pid)
    expect(new_page(url).locator(".meta")).to_contain_text("certified")
    assert seconds_of_work(process.pid) - before <= 3.0


def seconds_of_work(pid: int) -> float:
    user, kernel = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(kernel)) / os.sysconf("SC_CLK_TCK")


def test_the_home_page_and_the_guide_import_no_torch():
    code = (
        "import sys, dpviz.ui.schedule.page, dpviz.ui.guide.page, dpviz.ui.schedule.export, dpviz.views.schedules\n"
        "assert not {'torch', 'opacus', 'torchvision'} & set(sys.modules), 'heavy'"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("entry", PAGES, ids=lambda entry: entry.title)
def test_every_page_comes_in_through_the_navigation(entry):
    assert "\nensure_navigation()" in entry.path.read_text(encoding="utf-8")


def test_every_page_in_the_folder_is_in_the_navigation():
    assert {path.name for path in (ROOT / "pages").glob("*.py")} == {page.path.name for page in PAGES}
    assert len({page.url_path for page in PAGES}) == len(PAGES)
    assert [page.title for page in PAGES if not page.url_path] == ["Schedule"]


def test_the_warm_up_fills_what_the_first_pages_ask_for():
    code = (
        "from dpviz.ui.common.shell import _load_schedule\n"
        "from dpviz.ui.compare import data as compare\n"
        "from dpviz.ui.schedule import settings\n"
        "_load_schedule(), compare.prepare()\n"
        "assert settings._price.cache_info().currsize and compare._material.cache_info().currsize, 'cold'"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
