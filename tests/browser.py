"""A Streamlit server on a free port and a real Chromium, shared by every browser test.

A plugin of tests/conftest.py: fixtures that two files import would start two of Playwright, and it takes only one.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

expect.set_options(timeout=30_000)  # a busy machine is no reason to fail

ROOT = Path(__file__).parents[1]
APP = ROOT / "app.py"
CHROMIUM_NAMES = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


def chromium_path() -> str | None:
    """The Chromium to drive: DPVIZ_CHROMIUM, else one on the PATH, else (None) Playwright's own."""
    if os.environ.get("DPVIZ_CHROMIUM"):
        return os.environ["DPVIZ_CHROMIUM"]
    return next((path for name in CHROMIUM_NAMES if (path := shutil.which(name))), None)


def free_port() -> int:
    """A port that is free now: odd or even, so that two test processes never pick the same one before they listen.

    Drawn here, below the range from which Linux gives ports away: those that it gives to listeners are all odd.
    """
    parity = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 2
    while True:
        port = 20_000 + 2 * secrets.randbelow(6_000) + parity
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def start_server(
    script: Path, env: Mapping[str, str], log: Path, *, answers: str = "/_stcore/health"
) -> tuple[subprocess.Popen[bytes], str]:
    """A server, started from the project's folder, and its address once it answers: the dashboard's or a script's."""
    if script == APP:
        return _start(["-m", "dpviz", "app"], "--port", env, log, answers)
    return start_streamlit(script, env, log, answers=answers)


def start_streamlit(
    script: Path, env: Mapping[str, str], log: Path, *, answers: str = "/_stcore/health"
) -> tuple[subprocess.Popen[bytes], str]:
    """Streamlit's own server for this script."""
    return _start(["-m", "streamlit", "run", str(script)], "--server.port", env, log, answers)


def _start(
    command: list[str], port_option: str, env: Mapping[str, str], log: Path, answers: str
) -> tuple[subprocess.Popen[bytes], str]:
    port = free_port()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command, f"{port_option}={port}"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdout=output,
            stderr=output,
        )
    return process, wait_for_server(process, f"http://127.0.0.1:{port}", log, answers)


def wait_for_server(
    process: subprocess.Popen[bytes], url: str, log: Path, answers: str = "/_stcore/health", seconds: float = 60
) -> str:
    """The address, once the server answers; a server that does not start is ended, and its log told."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}{answers}", timeout=10):
                return url
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.02)
    process.kill()
    process.wait()
    raise RuntimeError(f"the server did not start:\n{log.read_text()}")


def stop_server(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.fixture(scope="session")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """`serve(script, env)` starts a server and gives its address; it lives until the session ends."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(script: Path, env: Mapping[str, str] | None = None) -> str:
        log = tmp_path_factory.mktemp("server") / "log.txt"
        process, url = start_server(script, env or {}, log)
        processes.append(process)
        return url

    yield start
    for process in processes:
        stop_server(process)


@pytest.fixture(scope="session")
def dashboard(serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a dashboard without runs, shared by all tests that launch none."""
    return serve(APP, {"DPVIZ_RUNS": str(tmp_path_factory.mktemp("no-runs"))})


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=chromium_path(), args=list(CHROMIUM_ARGUMENTS))
        yield chromium
        chromium.close()


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """`new_page(url, **options)` opens a page in a context of its own; the test fails if it asks any outside host."""
    contexts: list[BrowserContext] = []
    outside: list[str] = []

    def open_page(url: str, **options: object) -> Page:
        context = browser.new_context(**{"viewport": {"width": 1100, "height": 900}, **options})
        contexts.append(context)
        context.on("request", lambda request: outside.append(request.url) if is_outside(request.url) else None)
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.goto(url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not outside, f"the page asked other hosts: {outside}"


def settled(page: Page) -> None:
    """Wait until the page's script has run to its end."""
    expect(page.get_by_test_id("stApp")).to_have_attribute("data-test-script-state", "notRunning")


def choose(page: Page, label: str, option: str) -> None:
    """Take an option of a list once the page stands still: a rerun closes an open list."""
    box = page.get_by_role("combobox", name=label)
    expect(box).to_be_visible()
    settled(page)
    box.click()
    box.fill(option)
    page.get_by_role("option", name=option).first.click()
    expect(box).to_have_value(option)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A real browser on a busy machine can miss its moment: these tests, and no others, get a second try."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.flaky(reruns=1))


def is_outside(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1:", "ws://127.0.0.1:", "data:", "blob:", "about:"))
