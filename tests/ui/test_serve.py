"""The dashboard's server: it listens before it has loaded, keeps who comes early waiting, and says what went wrong."""

from __future__ import annotations

import asyncio
import signal
import socket
import threading
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from playwright.sync_api import expect

from dpviz.serve import Later, main, serve
from dpviz.ui.front import page_text
from tests.ui.conftest import APP, start_server, start_streamlit, stop_server


class Hello:
    """A small application; `begun` and `ended` tell of its life."""

    def __init__(self) -> None:
        self.begun = self.ended = False

    @asynccontextmanager
    async def lifespan(self, app):
        self.begun = True
        yield
        self.ended = True

    async def __call__(self, scope, receive, send):
        assert self.begun
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})


def elsewhere(function, *arguments):
    """The function's result, from a thread of its own: in this one the browser's loop is running."""
    with ThreadPoolExecutor() as pool:
        return pool.submit(function, *arguments).result(60)


async def ask(app) -> bytes:
    sent = []

    async def send(message):
        sent.append(message)

    await app({"type": "http", "path": "/", "method": "GET"}, None, send)
    return sent[-1]["body"]


async def live(app, talk):
    """Run an application's life as a server does, with `talk` in the middle of it."""
    begin, end, started = asyncio.Event(), asyncio.Event(), asyncio.Event()
    begin.set()

    async def receive():
        await (begin if not started.is_set() else end).wait()
        return {}

    async def send(message):
        started.set()

    life = asyncio.create_task(app({"type": "lifespan"}, receive, send))
    await started.wait()
    await talk()
    end.set()
    await life


def test_who_comes_before_the_application_is_loaded_waits_for_it_and_its_life_is_ended():
    hello, loaded = Hello(), threading.Event()

    def load():
        loaded.wait(10)
        return hello, hello.lifespan

    app = Later(load)

    async def talk():
        answer = asyncio.create_task(ask(app))
        await asyncio.sleep(0.05)
        assert not answer.done()
        loaded.set()
        assert await answer == b"hello"
        assert not hello.ended

    elsewhere(asyncio.run, live(app, talk))
    assert hello.ended


def test_an_application_that_cannot_be_loaded_ends_the_server_with_its_error():
    def load():
        raise RuntimeError("no such thing")

    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(RuntimeError, match="no such thing"):
        elsewhere(serve, Later(load), listening)


def test_a_port_in_use_is_named_in_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert f"port {port}" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(("option", "value"), [("--port", "99999"), ("--host", "nowhere.invalid")])
def test_an_address_that_cannot_be_is_named_in_one_line(capsys, option, value):
    assert main([option, value]) == 2
    error = capsys.readouterr().err
    assert value in error
    assert error.count("\n") == 1


def test_a_page_comes_before_streamlit_is_loaded_and_works_once_it_is(tmp_path, new_page):
    process, url = start_server(APP, {}, tmp_path / "log.txt", answers="/")
    try:
        with urllib.request.urlopen(url) as answer:
            assert answer.read().decode() == page_text()
        page = new_page(f"{url}/guide")
        expect(page.get_by_role("heading", name="Guide", exact=True)).to_be_visible()
        with pytest.raises(OSError):  # another of this machine's addresses; one that listens to all would answer
            urllib.request.urlopen(url.replace("127.0.0.1", "127.0.0.2"))
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    finally:
        stop_server(process)
    assert (tmp_path / "log.txt").read_text().splitlines() == [f"dpviz is at {url} (Ctrl-C ends it)"]


def test_streamlits_own_command_serves_the_same(tmp_path, new_page):
    process, url = start_streamlit(APP, {"DPVIZ_RUNS": str(tmp_path)}, tmp_path / "log.txt")
    try:
        page = new_page(url)
        expect(page.locator(".meta")).to_contain_text("certified")
    finally:
        stop_server(process)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url)
