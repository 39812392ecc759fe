"""Servers killed, doubled and pestered while a run trains, in a real browser. Minutes: `make test-faults`."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from dpviz.runs import Run, Store
from dpviz.training.spec import EpochRecord
from tests.browser import ROOT, start_server, stop_server
from tests.runs.conftest import Foreground
from tests.ui.train.test_train_page import fill_in_quick_logistic, heading, launch

pytestmark = pytest.mark.faults
WAIT = 90_000
EPOCHS, STEPS = 60, 100


class Servers:
    """Servers on one store; each can be killed."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.processes = folder, []
        self.store = Store(folder / "runs")

    def start(self) -> str:
        env = {"DPVIZ_RUNS": str(self.store.folder), "OMP_NUM_THREADS": "1"}
        process, url = start_server(ROOT / "app.py", env, self.folder / f"log-{len(self.processes)}.txt")
        self.processes.append(process)
        return url

    def kill(self, number: int) -> None:
        """kill -9: no handler runs, nothing is written any more."""
        self.processes[number].kill()
        self.processes[number].wait()

    def threads(self, number: int) -> int:
        return len(list(Path(f"/proc/{self.processes[number].pid}/task").iterdir()))


@pytest.fixture
def servers(tmp_path) -> Iterator[Servers]:
    made = Servers(tmp_path)
    yield made
    for process in made.processes:
        stop_server(process)


def launch_run(page: Page, title: str) -> None:
    """Sixty epochs of a hundred short steps: longer than any of these tests."""
    fill_in_quick_logistic(page)
    for label, value in (("Training examples", "20000"), ("Epochs", str(EPOCHS))):
        field = page.get_by_role("spinbutton", name=label)
        field.fill(value)
        field.press("Enter")
        expect(field).to_have_value(value)
    page.get_by_role("textbox", name="Title").fill(title)
    page.keyboard.press("Enter")
    page.wait_for_timeout(2000)  # the form moves while it is worked out; a click on a moving button is lost
    launch(page, title)
    expect(page.get_by_text(re.compile(rf"step [\d,]+ of {EPOCHS * STEPS:,}"))).to_be_visible(timeout=WAIT)


def numbers(run: Run) -> list:
    return [dataclasses.replace(record, seconds=0.0) for record in run.epochs]


def undisturbed(run: Run, folder: Path) -> list:
    """The numbers of the same settings trained in one go, as many epochs as the run has."""
    store = Store(folder / "undisturbed")

    def enough(run_id: str, record: EpochRecord) -> None:
        if record.epoch == len(run.epochs):
            runner.stop(run_id)

    runner = Foreground(store, threads=1, on_epoch=enough)
    return numbers(store.get(runner.start(run.spec)))


def wait_for_epochs(page: Page, store: Store, count: int) -> None:
    for _ in range(600):
        if store.list().runs[-1].epochs_done >= count:
            return
        page.wait_for_timeout(100)
    raise AssertionError("the run does not go on")


def resume_and_stop(page: Page, store: Store, title: str) -> Run:
    """Two epochs more; the run as it is then."""
    done = store.list().runs[-1].epochs_done
    page.get_by_role("button", name="Resume").click()
    wait_for_epochs(page, store, done + 2)
    page.get_by_role("button", name="Stop").click()
    expect(heading(page, title)).to_contain_text("stopped", timeout=WAIT)
    return store.get(store.list().runs[-1].id)


def test_a_server_killed_in_mid_run_leaves_a_run_that_the_next_server_takes_on_to_the_same_numbers(servers, new_page):
    page = new_page(f"{servers.start()}/train")
    launch_run(page, "Killed")
    wait_for_epochs(page, servers.store, 2)
    servers.kill(0)
    (summary,) = servers.store.list().runs
    assert summary.status == "interrupted"
    kept = numbers(servers.store.get(summary.id))
    assert 2 <= len(kept) < EPOCHS
    page = new_page(f"{servers.start()}/train")
    expect(heading(page, "Killed")).to_contain_text("interrupted", timeout=WAIT)
    run = resume_and_stop(page, servers.store, "Killed")
    assert numbers(run)[: len(kept)] == kept
    assert numbers(run) == undisturbed(run, servers.folder)


def test_two_servers_on_one_store_share_runs_and_one_takes_over_when_the_other_is_killed(servers, new_page):
    first, second = new_page(f"{servers.start()}/train"), new_page(f"{servers.start()}/train")
    launch_run(first, "Shared")
    # The second server sees the run, and leaves it to the first.
    expect(second.get_by_text(re.compile(r"Shared — running in another process, epoch"))).to_be_visible(timeout=WAIT)
    expect(second.get_by_role("button", name="Stop")).to_have_count(0)
    expect(second.get_by_role("button", name="Delete")).to_have_count(0)
    wait_for_epochs(second, servers.store, 2)
    servers.kill(0)
    expect(heading(second, "Shared")).to_contain_text("interrupted", timeout=WAIT)
    run = resume_and_stop(second, servers.store, "Shared")
    assert numbers(run) == undisturbed(run, servers.folder)


def test_two_servers_train_side_by_side_and_neither_disturbs_the_other(servers, new_page):
    pages = [new_page(f"{servers.start()}/train") for _ in range(2)]
    for number, page in enumerate(pages):
        launch_run(page, f"Side {number}")
    wait_for_epochs(pages[1], servers.store, 3)
    for number, page in enumerate(pages):
        stop = page.get_by_role("button", name="Stop")
        expect(stop).to_have_count(1)  # each server has a button for its own run only; rows move when a run ends
        stop.click()
        expect(heading(page, f"Side {number}")).to_contain_text("stopped", timeout=WAIT)
    listing = servers.store.list()
    assert [run.status for run in listing.runs] == ["stopped"] * 2
    assert listing.warnings == ()
    one, other = (numbers(servers.store.get(run.id)) for run in listing.runs)
    assert len(other) >= 3
    assert one[: len(other)] == other[: len(one)]


def test_a_page_reloaded_fifty_times_during_a_run_neither_stops_nor_doubles_it(servers, new_page):
    page = new_page(f"{servers.start()}/train")
    launch_run(page, "Reloaded")
    page.wait_for_timeout(2000)
    before = servers.threads(0)
    for _ in range(50):
        page.reload()
    expect(heading(page, "Reloaded")).to_contain_text("running", timeout=WAIT)
    (summary,) = servers.store.list().runs
    wait_for_epochs(page, servers.store, summary.epochs_done + 2)
    page.get_by_role("button", name="Stop").click()
    expect(heading(page, "Reloaded")).to_contain_text("stopped", timeout=WAIT)
    run = servers.store.get(summary.id)
    assert numbers(run) == undisturbed(run, servers.folder)
    assert servers.threads(0) <= before + 20
    assert "Traceback" not in (servers.folder / "log-0.txt").read_text()
