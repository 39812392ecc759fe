"""Two servers on one store behind nginx, as examples/nginx.conf sets them up; sessions without a browser."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.load import ACTIONS, Visitor
from benchmarks.servers import Servers, nginx_path, running, site_for
from benchmarks.streamlit_client import StreamlitClient
from dpviz.privacy.registry import InputError
from dpviz.runs import Store
from tests.browser import APP

COOKIE = "dpviz_server"
PEOPLE = 10


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "runs")


@pytest.fixture
def servers(tmp_path, store) -> Iterator[Servers]:
    if nginx_path() is None:
        pytest.skip("nginx is not installed")
    with running(2, tmp_path, {"DPVIZ_RUNS": str(store.folder), "OMP_NUM_THREADS": "1"}) as started:
        yield started


def run_apart(story: Coroutine[None, None, None]) -> None:
    """In a thread with an event loop of its own: Playwright keeps one running in the tests' thread."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, story).result()


async def wait_until(holds, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to be"
        await asyncio.sleep(0.1)


async def upload_a_curve(client: StreamlitClient) -> str:
    """What the page says after a list of five sigmas was uploaded."""
    fragment = client.find("file_uploader", "Or a CSV file").fragment
    async with client.until_done(fragment):
        await client.upload("Or a CSV file", "curve.csv", b"5\n4\n3\n2\n1\n")
    return client.texts()


async def launch_quick_logistic(client: StreamlitClient, epochs: int) -> None:
    """Logistic regression: an epoch takes a second or so, once torch is loaded."""
    await client.open_page()
    await client.open_page("Train")
    async with client.until_done():
        await client.choose("selectbox", "Model", "Logistic regression")
    async with client.until_done():
        await client.type_number("Epochs", epochs)
    await client.press("Launch")


def test_a_session_and_its_uploads_stay_in_one_process_and_go_on_in_the_other_when_it_dies(servers):
    async def story() -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(StreamlitClient(servers.url)) for _ in range(PEOPLE)]
            assert len({client.cookies[COOKIE] for client in clients}) == PEOPLE
            for client in clients:
                await client.open_page()
                assert "5 epochs were read." in await upload_a_curve(client)
            servers.processes[0].kill()
            servers.processes[0].wait()
            await wait_until(lambda: any(client.errors for client in clients))
            await asyncio.sleep(1.0)  # all that break, break
            lost = [client for client in clients if client.errors]
            assert 0 < len(lost) < PEOPLE, "all sessions were in one process"
            for client in clients:
                if client not in lost:
                    assert await Visitor(client, 0).draw() > 0
            async with StreamlitClient(servers.url, dict(lost[0].cookies)) as again:  # the cookie leads elsewhere now
                await again.open_page()
                assert "5 epochs were read." in await upload_a_curve(again)

    run_apart(story())


def test_a_run_launched_in_one_process_is_listed_and_announced_by_the_other_and_left_to_the_first(servers, store):
    async def story() -> None:
        first, second = servers.urls
        async with StreamlitClient(first) as owner, StreamlitClient(second) as other, StreamlitClient(second) as reader:
            await launch_quick_logistic(owner, 10)
            await wait_until(lambda: [run.status for run in store.list().runs] == ["running"])
            for client in (other, reader):
                await client.open_page()
            await other.open_page("Train")
            assert "running in another process" in other.texts()
            with pytest.raises(LookupError):
                other.find("button", "Stop")
            await wait_until(lambda: [run.status for run in store.list().runs] == ["done"])
            await wait_until(lambda: "is done" in reader.texts(), 20.0)  # a toast on the Schedule page
            assert not [*owner.errors, *other.errors, *reader.errors]

    run_apart(story())


def test_every_action_of_the_load_gets_its_answer(serve, tmp_path):
    async def story(url: str) -> None:
        async with StreamlitClient(url) as client:
            visitor = Visitor(client, 3)
            await visitor.arrive()
            drawn = visitor.board()["certified"]
            for name, act in ACTIONS:
                assert await act(visitor) > 0, name
            assert visitor.board()["certified"] != drawn
            assert client.errors == []

    run_apart(story(serve(APP, {"DPVIZ_RUNS": str(tmp_path)})))


def test_the_example_takes_any_number_of_servers():
    site, url = site_for(["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"], 4)
    assert url == "http://127.0.0.1:4"
    assert "listen 127.0.0.1:4;" in site
    assert re.findall(r"^    server (\S+)", site, re.MULTILINE) == [f"127.0.0.1:{port}" for port in (1, 2, 3)]


def test_the_client_asks_this_machine_only():
    with pytest.raises(InputError, match="on this machine"):
        StreamlitClient("http://example.org:8501")
