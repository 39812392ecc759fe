"""Stores in a bad state: pages and lists still stand, and what is whole is still shown. Quick, so always run."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from dpviz.runs import Store
from dpviz.runs.store import store as store_module
from tests.browser import ROOT
from tests.page_words import page_words
from tests.runs.conftest import Foreground, small_spec
from tests.views.made_runs import keep, made_run

PAGES = ("schedule", "train", "compare", "gradients", "papers", "local", "guide")
READING = ("train", "compare", "gradients")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return tmp_path / "runs"


def open_page(name: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    at.switch_page(f"pages/{name}.py").run()
    assert not at.exception
    return at


def button(at: AppTest, label: str):
    return next(button for button in at.button if button.label == label)


# --- a disk that takes nothing ----------------------------------------------------------------------------------------


def test_on_a_read_only_disk_every_page_stands_and_runs_are_compared(folder, read_only):
    keep(folder, made_run(title="Kept", diagnostics=True))
    with read_only(folder):
        for name in PAGES:
            at = open_page(name)
            assert not at.error
            assert name not in READING or "Kept" in page_words(at)


def test_on_a_read_only_disk_a_launch_and_a_delete_are_refused_in_a_sentence(folder, read_only):
    run_id = keep(folder, made_run(title="Kept"))
    with read_only(folder):
        at = open_page("train")
        button(at, "Launch").click().run()
        assert "set DPVIZ_RUNS to another folder" in at.error[0].value
        at = open_page("train")
        button(at, "Yes, delete it").click().run()
        assert "set DPVIZ_RUNS to another folder" in at.error[0].value
        assert not at.exception
    assert Store(folder).get(run_id).title == "Kept"


# --- folders that are no runs, or no longer ---------------------------------------------------------------------------


def cut(folder, name: str, share: float) -> None:
    path = folder / name
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


BREAKAGES = {
    "cut-spec": lambda folder: cut(folder, "spec.json", 0.5),
    "cut-status": lambda folder: cut(folder, "status.json", 0.5),
    "empty-status": lambda folder: cut(folder, "status.json", 0.0),
    "no-status": lambda folder: (folder / "status.json").unlink(),
    "no-spec": lambda folder: (folder / "spec.json").unlink(),
    "torn-middle": lambda folder: (folder / "epochs.jsonl").write_bytes(b"{\n" + b"{}\n"),
    "binary": lambda folder: (folder / "epochs.jsonl").write_bytes(os.urandom(300) + b"\n\n"),
    "foreign": lambda folder: (shutil.rmtree(folder), folder.mkdir(), (folder / "photo.jpg").write_bytes(b"\xff\xd8")),
    "title": lambda folder: (folder / "title.json").write_text("[1, 2"),
    "folder": lambda folder: ((folder / "spec.json").unlink(), (folder / "spec.json").mkdir()),
    "huge-numbers": lambda folder: (folder / "status.json").write_text('{"status": ' + "9" * 5000 + "}"),
}


@pytest.mark.parametrize("name", READING)
def test_broken_and_foreign_folders_hide_no_whole_run_on_any_page(folder, name):
    for what, break_it in BREAKAGES.items():
        run_id = keep(folder, made_run(title=f"Broken {what}", diagnostics=True))
        break_it(folder / run_id)
    keep(folder, made_run(title="Whole", diagnostics=True))
    at = open_page(name)
    assert "Whole" in page_words(at)
    assert str(folder) not in page_words(at)


UNREADABLE = """
import os, sys
from dpviz.runs.store.store import Store
os.setgid(65534); os.setuid(65534)
listing = Store(sys.argv[1]).list()
print(len(listing.runs), *listing.warnings, sep="\\n")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to become another user")
def test_a_run_that_another_user_may_not_read_is_named_and_the_others_are_listed(python):
    with tempfile.TemporaryDirectory() as place:  # pytest's own folders are closed to others
        os.chmod(place, 0o755)
        folder = Path(place) / "runs"
        keep(folder, made_run(title="Open"))
        closed = keep(folder, made_run(title="Closed"))
        (folder / closed).chmod(0)
        out, errors = python(UNREADABLE, folder).communicate()
    assert not errors
    count, warning = out.splitlines()
    assert count == "1"
    assert closed in warning
    assert "permission denied" in warning
    assert str(folder) not in warning


# --- a clock that goes backwards --------------------------------------------------------------------------------------


def test_a_clock_that_goes_backwards_in_mid_run_changes_no_number_and_loses_nothing(tmp_path, monkeypatch):
    store = Store(tmp_path / "runs")
    runner = Foreground(store, threads=1)
    expected = store.get(runner.start(small_spec()))
    real_ns, real, back = time.time_ns, time.time, []

    def jump(progress) -> None:
        back.append(3600)  # an hour earlier with every step

    monkeypatch.setattr(time, "time", lambda: real() - sum(back))
    monkeypatch.setattr(store_module.time, "time_ns", lambda: real_ns() - 10**9 * sum(back))
    jumping = Foreground(store, threads=1, on_progress=jump)
    ids = [jumping.start(small_spec()) for _ in range(2)]
    assert len(back) == 60
    for run_id in ids:
        run = store.get(run_id)
        assert run.status == "done"
        assert [dataclasses.replace(record, seconds=0.0) for record in run.epochs] == [
            dataclasses.replace(record, seconds=0.0) for record in expected.epochs
        ]
        assert all(0 <= record.seconds < 60 for record in run.epochs)
        assert 0 < run.provenance.minutes < 2
    assert [run.id for run in store.list().runs] == [expected.id, *ids]


def test_a_server_whose_clock_is_behind_overwrites_nothing(tmp_path, monkeypatch):
    store = Store(tmp_path / "runs")
    before = [keep(store.folder, made_run(title=f"Before {number}")) for number in range(3)]
    monkeypatch.setattr(store_module, "_last_moment", 0)  # a new process
    now = time.time_ns()
    monkeypatch.setattr(store_module.time, "time_ns", lambda: now - 86_400 * 10**9)
    after = [store.create(small_spec()) for _ in range(3)]
    assert {run.id for run in store.list().runs} == {*before, *after}
    for run_id in after:
        store.release(run_id)
    titles = [json.loads((store.folder / run_id / "title.json").read_text())["title"] for run_id in before]
    assert titles == ["Before 0", "Before 1", "Before 2"]
