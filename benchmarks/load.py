"""Many people at once: browser sessions that draw, calibrate and compare while a run trains. Needs Chromium.

Every session is a context of one browser with its own cookies, as a person's own window would be; they act at the same
time and pause as people do. Release to epsilon is what the editor itself measures: from letting go of the pen to the
certified number.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
import urllib.parse
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from playwright.async_api import Browser, Page, TimeoutError, async_playwright, expect

from benchmarks.app import SETTINGS, _fill, _row
from dpviz.privacy import Schedule
from dpviz.privacy.registry import InputError
from dpviz.runs import Store
from dpviz.ui.schedule.share import encode
from tests.browser import CHROMIUM_ARGUMENTS, ROOT, chromium_path, start_server, stop_server

EPOCHS = 20
PAUSE = (1.0, 4.0)  # seconds between two things that a person does
PATIENCE = 60_000
LOOK = 0.25  # seconds between two looks for an answer; the editor takes the time, and looking is work for the machine
BAR = 2000.0  # milliseconds, p95 of release to epsilon
GROWTH = 400.0  # MB from the first quarter to the end
FAILED = "[data-testid=stException]"


def rows(sessions: int = 20, minutes: float = 5.0) -> list[dict[str, Any]]:
    """Milliseconds unless the name says otherwise; each row carries its bar."""
    if not (1 <= sessions <= 100 and 0 < minutes <= 600):
        raise InputError(f"sessions must be from 1 to 100 and minutes from 0 to 600, got {sessions} and {minutes}")
    expect.set_options(timeout=PATIENCE)
    with tempfile.TemporaryDirectory() as folder:
        _fill(Store(Path(folder) / "runs"))
        log = Path(folder) / "server.log"
        process, url = start_server(ROOT / "app.py", {"DPVIZ_RUNS": str(Path(folder) / "runs")}, log)
        try:
            found = asyncio.run(_crowd(url, process.pid, sessions, 60 * minutes))
        finally:
            stop_server(process)
        found[1]["errors"] += log.read_text().count("Traceback")
    return found


class Tally:
    """What the sessions have seen so far."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.releases: list[float] = []
        self.deeds = {"draw": 0, "calibrate": 0, "compare": 0}
        self.errors: list[str] = []
        self.memory: list[tuple[float, float]] = []
        self.work = Work(pid)

    async def watch(self) -> None:
        """The server's resident memory in MB and everybody's work, every second."""
        while True:
            text = Path(f"/proc/{self.pid}/status").read_text()
            found = re.search(r"VmRSS:\s+(\d+) kB", text)
            if found:
                self.memory.append((time.monotonic(), int(found.group(1)) / 1024))
            self.work.look()
            await asyncio.sleep(1.0)


class Work:
    """Seconds of a core that server and browser have used since the first look: which of them is the brake?

    The server's busiest thread is the training; it is counted apart. A process that has ended counts with what it had.
    """

    def __init__(self, pid: int) -> None:
        self.server = Path(f"/proc/{pid}/task")
        self.first: dict[str, float] = {}
        self.last: dict[str, float] = {}

    def look(self) -> None:
        browser = [
            file for file in Path("/proc").glob("[0-9]*/stat") if b"chromium" in _read(file.with_name("cmdline"))
        ]
        for file in (*browser, *self.server.glob("*/stat")):
            fields = _read(file).rpartition(b")")[2].split()
            if fields:
                self.last[str(file)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.first = self.first or dict(self.last)

    def seconds(self) -> dict[str, float]:
        used = {file: last - self.first.get(file, 0.0) for file, last in self.last.items()}
        threads = [seconds for file, seconds in used.items() if file.startswith(str(self.server))]
        training = max(threads)
        return {"server": sum(threads) - training, "training": training, "browser": sum(used.values()) - sum(threads)}


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it has ended
        return b""


async def _crowd(url: str, pid: int, sessions: int, seconds: float) -> list[dict[str, Any]]:
    tally = Tally(pid)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path(), args=list(CHROMIUM_ARGUMENTS))
        trained = await _launch(browser, url)
        pages = [await _arrive(browser, url) for _ in range(sessions)]  # one after the other: browser and server share
        watcher = asyncio.create_task(tally.watch())  # this machine, and it is the server that is measured
        deadline = time.monotonic() + seconds
        await asyncio.gather(*(_session(page, number, deadline, tally) for number, page in enumerate(pages)))
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
        training = await _still_training(trained)
        await browser.close()
    return _result(tally, sessions, seconds, training)


async def _launch(browser: Browser, url: str) -> Page:
    """A full-size MNIST run of many epochs, launched as a person would."""
    page = await (await browser.new_context(viewport={"width": 1280, "height": 900})).new_page()
    await page.goto(f"{url}/train")
    epochs = page.get_by_role("spinbutton", name="Epochs")
    await epochs.fill("1000")
    await epochs.press("Enter")
    await page.get_by_role("button", name="Launch", exact=True).click()
    await expect(page.get_by_text(re.compile(r"step [\d,]+ of"))).to_be_visible()
    return page


async def _still_training(page: Page) -> bool:
    """Whether steps are still taken; then the run is stopped."""
    shown = page.get_by_text(re.compile(r"step [\d,]+ of"))
    before = await shown.inner_text()
    with suppress(AssertionError):
        await expect(shown).not_to_have_text(before)
    after = await shown.inner_text()
    await page.get_by_role("button", name="Stop", exact=True).first.click()
    return after != before


# --- one person


async def _arrive(browser: Browser, url: str) -> Page:
    """A new visitor, with a priced curve on the drawing board."""
    page = await (await browser.new_context(viewport={"width": 1100, "height": 900})).new_page()
    page.set_default_timeout(PATIENCE)
    curve = encode(Schedule.of("linear").sigmas(EPOCHS).tolist(), SETTINGS)
    await page.goto(f"{url}/?s={urllib.parse.quote(curve)}")
    await expect(page.locator(".meta")).to_contain_text("certified")
    return page


async def _session(page: Page, number: int, deadline: float, tally: Tally) -> None:
    """Draw twice, calibrate, compare, and again, until the time is over."""
    rng = np.random.default_rng(number)
    deeds = (("draw", _draw), ("draw", _draw), ("calibrate", _calibrate), ("compare", _compare))
    try:
        while time.monotonic() < deadline:
            for name, deed in deeds:
                await deed(page, rng, tally)
                tally.deeds[name] += 1
                if await page.locator(FAILED).count():
                    tally.errors.append(f"{name}: an exception on the page")
                await asyncio.sleep(rng.uniform(*PAUSE))
                if time.monotonic() > deadline:
                    break
    except (AssertionError, TimeoutError) as error:
        tally.errors.append(f"session {number}: {str(error).splitlines()[0]}")
    await page.context.close()


async def _replies(page: Page) -> list[float]:
    return await page.locator("svg.plot").evaluate("(svg) => svg.getRootNode().scheduleEditor.stats.replies")


async def _draw(page: Page, rng: np.random.Generator, tally: Tally) -> None:
    """A freehand stroke over a fifth of the curve; the wait for its certified epsilon."""
    before = len(await _replies(page))
    box = await page.locator("svg.plot").bounding_box()
    assert box is not None
    left = box["x"] + box["width"] * rng.uniform(0.15, 0.7)
    top = box["y"] + box["height"] * rng.uniform(0.15, 0.4)
    await page.mouse.move(left, top)
    await page.mouse.down()
    await page.mouse.move(left + box["width"] * 0.2, top + 20, steps=12)
    await page.mouse.up()
    deadline = time.monotonic() + PATIENCE / 1000
    while len(replies := await _replies(page)) <= before:
        assert time.monotonic() < deadline, "no epsilon after a stroke"
        await asyncio.sleep(LOOK)
    tally.releases.extend(replies[before:])


async def _calibrate(page: Page, rng: np.random.Generator, tally: Tally) -> None:
    """Another target, then the curve scaled to it."""
    target = page.get_by_role("spinbutton", name="Target ε")
    await target.fill(f"{rng.uniform(0.5, 4.0):.3f}")
    await target.press("Enter")
    await page.get_by_role("button", name="Fit to ε").click()
    await expect(page.locator(".meta")).to_contain_text("certified")


async def _compare(page: Page, rng: np.random.Generator, tally: Tally) -> None:
    """To the Compare page and its figure, and back to the drawing board."""
    await page.get_by_test_id("stTopNavLink").filter(has_text="Compare").click()
    await expect(page.locator(".js-plotly-plot .plot-container").first).to_be_visible()
    await page.get_by_test_id("stTopNavLink").filter(has_text="Schedule").click()
    await expect(page.locator(".meta")).to_contain_text("certified")


def _result(tally: Tally, sessions: int, seconds: float, training: bool) -> list[dict[str, Any]]:
    if not tally.releases:
        raise InputError(f"no session got an epsilon: {'; '.join(tally.errors[:3])}")
    begun = tally.memory[0][0]
    megabytes = {share: _at(tally.memory, begun + share * seconds) for share in (0.0, 0.25, 0.5, 1.0)}
    growth = megabytes[1.0] - megabytes[0.25]
    memory = {f"{100 * share:.0f} %": round(value) for share, value in megabytes.items()}
    deeds = sum(tally.deeds.values())
    work = {f"{who} a deed": round(used / deeds, 3) for who, used in tally.work.seconds().items()}
    return [
        _row("release-to-epsilon", tally.releases, BAR, sessions=sessions, minutes=seconds / 60),
        {"case": "errors", "errors": len(tally.errors), "bar": 0, "met": not tally.errors, "first": tally.errors[:3]},
        {"case": "deeds", **tally.deeds, "still_training": training, "met": training},
        {"case": "work (seconds of a core)", **work},
        {"case": "server memory (MB)", **memory, "growth": round(growth), "bar": GROWTH, "met": growth <= GROWTH},
    ]


def _at(memory: list[tuple[float, float]], moment: float) -> float:
    """The memory at a moment, as the median of the five seconds around it."""
    return float(np.median([value for when, value in memory if abs(when - moment) <= 2.5] or [memory[-1][1]]))
