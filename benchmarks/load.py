"""Many people at once, without a browser: sessions draw, fit and compare while a run trains. The server is measured.

Every session speaks Streamlit's protocol over a web socket of its own (benchmarks/streamlit_client.py) and acts once
per 15 seconds, whatever the server's speed. Release to epsilon is the time from sending a drawing to the delta that
carries its certified epsilon; a browser adds its own time to draw it. Generator, servers and training share the cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import WebSocketException

from benchmarks.app import fill, timing_row
from benchmarks.servers import Servers, running
from benchmarks.streamlit_client import StreamlitClient
from dpviz.privacy.registry import InputError
from dpviz.runs import Store

PACE = 15.0  # seconds between two actions of a person
EDITOR = "dpviz_schedule_editor"
STROKE = 4  # epochs that a stroke passes
BAR = 1000.0  # milliseconds, p95 of release to epsilon
GROWTH = 60.0  # MB per server from the middle to the end; means something from ten minutes on, once caches are full
WENT_WRONG = (LookupError, OSError, TimeoutError, WebSocketException, InputError)


def rows(sessions: int = 50, seconds: float = 240.0, servers: int = 1) -> list[dict[str, Any]]:
    """Milliseconds unless the name says otherwise; each row carries its bar."""
    if not (1 <= sessions <= 1000 and 0 < seconds <= 36_000 and 1 <= servers <= 16):
        raise InputError(
            f"sessions must be from 1 to 1000, seconds from 0 to 36000 and servers from 1 to 16, got {sessions}, "
            f"{seconds:g} and {servers}"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Store(folder / "runs")
        fill(store)
        with running(servers, folder, {"DPVIZ_RUNS": str(store.folder)}) as started:
            tally = asyncio.run(_crowd(started, store, sessions, seconds))
            tally.errors += [f"traceback in {log.name}" for log in started.logs if "Traceback" in log.read_text()]
    return tally.rows(sessions, seconds)


# --- one person


class Visitor:
    """A session and what its person does next."""

    def __init__(self, client: StreamlitClient, seed: int) -> None:
        self.client, self.rng = client, np.random.default_rng(seed)
        self.tables: list[str] = []  # accounting tables that this browser would have

    def board(self) -> dict[str, Any]:
        """What the editor was told last."""
        return _editor_data(self.client.find("bidi_component", EDITOR).element)

    async def arrive(self) -> float:
        """The first page, until its epsilon is there."""
        return await self._timed(_has_epsilon, self.client.open_page())

    async def draw(self) -> float:
        """A stroke over a few epochs; the milliseconds from letting go to its certified epsilon."""
        board = self.board()
        self.tables = sorted({*self.tables, board["table"]["name"]})
        sigmas, seq = list(board["sigmas"]), board["seq"] + 1
        first = int(self.rng.integers(0, len(sigmas) - STROKE + 1))
        sigmas[first : first + STROKE] = [float(f"{sigma:.4g}") for sigma in self.rng.uniform(0.8, 6.0, STROKE)]
        drawing = {"rev": board["rev"], "seq": seq, "sigmas": sigmas, "tables": self.tables}

        def certified(data: dict[str, Any]) -> bool:
            return (data["rev"], data["seq"]) == (board["rev"], seq) and bool(data["certified"])

        return await self._timed(
            _editor_says(certified), self.client.set_component(EDITOR, json.dumps({"draw": drawing}))
        )

    async def fit(self) -> float:
        """Another target, then the button; the milliseconds from pressing it to the epsilon of the scaled curve."""
        target = round(float(self.rng.uniform(0.5, 4.0)), 3)
        async with self.client.until(_editor_says(lambda data: data["target"] == target)):
            await self.client.type_number("Target ε", target)
        before = self.board()["rev"]
        scaled = _editor_says(lambda data: data["rev"] != before and bool(data["certified"]))
        return await self._timed(scaled, self.client.press("Fit to ε"))

    async def compare(self) -> float:
        """To Compare, until its figure is there."""
        return await self._timed(_has_figure, self.client.open_page("Compare"))

    async def move_cursor(self) -> float:
        """Another epsilon to compare at, until the figure has followed."""
        label = "At an epsilon of at most"
        slider = self.client.find("slider", label).widget
        option = str(self.rng.choice([option for option in slider.options if option not in slider.raw_value]))
        return await self._timed(_has_figure, self.client.choose("slider", label, option))

    async def return_to_board(self) -> float:
        """Back to Schedule, until its epsilon is there."""
        return await self._timed(_has_epsilon, self.client.open_page("Schedule"))

    async def _timed(self, answer: Callable[[ForwardMsg], bool], act: Awaitable[None]) -> float:
        """Milliseconds from the first byte sent to the message that answers."""
        times: list[float] = []

        def came(message: ForwardMsg) -> bool:
            if answer(message):
                times.append(time.perf_counter())
            return bool(times)

        started = time.perf_counter()
        async with self.client.until(came):
            await act
        return 1000 * (times[0] - started)


ACTIONS: tuple[tuple[str, Callable[[Visitor], Awaitable[float]]], ...] = (
    ("draw", Visitor.draw),
    ("draw", Visitor.draw),
    ("fit", Visitor.fit),
    ("compare", Visitor.compare),
    ("compare-cursor", Visitor.move_cursor),
    ("schedule", Visitor.return_to_board),
)


def _editor_data(element: Any) -> dict[str, Any]:
    (data,) = json.loads(element.bidi_component.json)
    return dict(data)


def _editor_says(wanted: Callable[[dict[str, Any]], bool]) -> Callable[[ForwardMsg], bool]:
    def came(message: ForwardMsg) -> bool:
        element = message.delta.new_element
        return element.bidi_component.component_name == EDITOR and wanted(_editor_data(element))

    return came


_has_epsilon = _editor_says(lambda data: bool(data["certified"]))


def _has_figure(message: ForwardMsg) -> bool:
    return message.delta.new_element.WhichOneof("type") == "plotly_chart"


# --- all of them


class Tally:
    """What the sessions have seen so far, and what the servers have used."""

    def __init__(self, pids: list[int]) -> None:
        self.pids = pids
        self.times: dict[str, list[float]] = {name: [] for name in ("arrive", *(name for name, _ in ACTIONS))}
        self.errors: list[str] = []
        self.memory: list[list[float]] = []  # MB, one row per second, one column per server
        self.epochs: list[int] = []
        self.received = 0
        self.started, self.own = time.perf_counter(), time.process_time()
        self.first = [_core_seconds(pid) for pid in pids]
        self.trained_first = max(seconds for pid in pids for seconds in _thread_seconds(pid))

    async def watch(self) -> None:
        while True:
            self.memory.append([_megabytes(pid) for pid in self.pids])
            await asyncio.sleep(1.0)

    def end(self) -> None:
        """Cores that were busy with serving, with training and here."""
        self.elapsed = time.perf_counter() - self.started
        used = [_core_seconds(pid) - first for pid, first in zip(self.pids, self.first, strict=True)]
        training = max(seconds for pid in self.pids for seconds in _thread_seconds(pid))  # the busiest thread of all
        training -= self.trained_first
        cores = {"serving": sum(used) - training, "training": training, "generator": time.process_time() - self.own}
        self.cores = {name: round(seconds / self.elapsed, 2) for name, seconds in cores.items()}

    def rows(self, sessions: int, seconds: float) -> list[dict[str, Any]]:
        if not self.times["draw"]:
            raise InputError(f"no session got an epsilon: {'; '.join(self.errors[:3]) or 'the time was too short'}")
        draws = self.times.pop("draw")
        count = sum(map(len, self.times.values())) + len(draws)
        memory = np.array(self.memory)
        marks = {
            f"{share} %": memory[(len(memory) - 1) * share // 100].round().tolist() for share in (0, 25, 50, 75, 100)
        }
        growth = float((np.median(memory[-5:], axis=0) - np.median(memory[len(memory) // 2 :][:5], axis=0)).max())
        trained = self.epochs[-1] - self.epochs[0]
        return [
            timing_row("release-to-epsilon", draws, BAR, max=max(draws), count=len(draws), sessions=sessions),
            *(
                timing_row(name, times, 3 * BAR, max=max(times), count=len(times))
                for name, times in self.times.items()
                if times
            ),
            {"case": "errors", "errors": len(self.errors), "bar": 0, "met": not self.errors, "first": self.errors[:3]},
            {"case": "actions per second", "value": round(count / self.elapsed, 2), "count": count, "seconds": seconds},
            {"case": "epochs trained meanwhile", "value": trained, "met": trained > 0},
            {"case": "busy cores", **self.cores, "of": os.cpu_count()},
            {"case": "received (MB)", "value": round(self.received / 1e6, 1)},
            {"case": "server memory (MB)", **marks, "growth": round(growth, 1), "bar": GROWTH, "met": growth <= GROWTH},
        ]


def _megabytes(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found else 0.0


def _core_seconds(pid: int, task: str = "") -> float:
    """Seconds of a core that a process, or one of its threads, has used."""
    fields = Path(f"/proc/{pid}{task}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _thread_seconds(pid: int) -> Iterator[float]:
    for task in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # it has ended
            yield _core_seconds(pid, f"/task/{task}")


async def _crowd(servers: Servers, store: Store, sessions: int, seconds: float) -> Tally:
    async with _training(servers.url, store):
        tally = Tally([process.pid for process in servers.processes])
        tally.epochs.append(_epochs_done(store))
        watcher = asyncio.create_task(tally.watch())
        begins = time.monotonic()
        people = (_person(servers.url, number, begins, sessions, seconds, tally) for number in range(sessions))
        await asyncio.gather(*people)
        watcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watcher
        tally.epochs.append(_epochs_done(store))
        tally.end()
    return tally


async def _person(url: str, number: int, begins: float, sessions: int, seconds: float, tally: Tally) -> None:
    """Arrive, then act once per PACE until the time is over.

    People are spread evenly over the first PACE, and some draw longer than others before they go round: else all would
    press the same button in the same seconds.
    """
    due = begins + PACE * number / sessions
    action = "connect"
    await asyncio.sleep(due - time.monotonic())
    try:
        async with StreamlitClient(url) as client:
            visitor = Visitor(client, number)
            begin = [("arrive", Visitor.arrive), *[("draw", Visitor.draw)] * (number % len(ACTIONS))]
            plan = [*begin, *ACTIONS * (1 + int(seconds / PACE / len(ACTIONS)))]
            for action, act in plan:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                if time.monotonic() > begins + seconds:
                    break
                tally.times[action].append(await act(visitor))
                due += PACE
            tally.errors += client.errors
            tally.received += client.received
    except WENT_WRONG as error:
        tally.errors.append(f"{action} of session {number}: {type(error).__name__} {error}")


def _epochs_done(store: Store) -> int:
    return max((run.epochs_done for run in store.list().runs if run.status == "running"), default=0)


@contextlib.asynccontextmanager
async def _training(url: str, store: Store) -> AsyncIterator[None]:
    """A full-size MNIST run of many epochs, launched as a person would, who goes on watching it."""
    async with StreamlitClient(url) as client:
        await client.open_page()
        await client.open_page("Train")
        async with client.until_done():
            await client.type_number("Epochs", 1000)
        await client.press("Launch")
        for _ in range(600):
            if _epochs_done(store):
                break
            await asyncio.sleep(0.1)
        else:
            raise InputError(f"the run did not start: {client.texts()[-300:]}")
        yield
