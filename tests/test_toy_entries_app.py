"""The README's table "I want to add" is true: a paper, a page, a command and a kind of file, each added where its row
says and nowhere else, to a copy of the project, are listed and work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser import ROOT, free_port, stop_server, wait_for_server
from tests.views.made_runs import keep, made_run

PAPER = """
order = 99
title = "A toy paper"
short_title = "Toy"
authors = "Ann Author"
year = 2026
picture = "dpviz.views.ideas:steps_figure"
picture_sentence = "Steps of a toy."
summary = ["Toys are trained in private."]
methods = ["none"]
doubts = ["It is a toy."]

[base]
epochs = 3

[recipes]
quiet = { title = "Quiet toy", schedule = 2.0 }
"""

PAGE = """
import streamlit as st

from dpviz.ui.common.shell import ensure_navigation

ensure_navigation()
st.title("The toy page")
"""

COMMAND = """
from dpviz.cli.command import Command

COMMANDS = (Command("toy", "play", lambda parser: None, lambda args: ({"played": True}, "played")),)
"""

ENTRIES = {
    "a page": 'Page("pages/toy.py", "Toy", "toy", "Play with it."),',
    "a file to download": 'FileFormat("Toy file", "{name}.toy", "text/plain", lambda *content: b"a toy"),',
}


def where(thing: str) -> str:
    """What the README says about adding such a thing."""
    return re.search(rf"^\| {thing} \| (.+) \|$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)[1]


def folder_of(thing: str) -> str:
    """The first folder that its row names."""
    return re.search(r"`((?:dpviz|pages)/[\w/]*)`", where(thing))[1]


def insert(project: Path, thing: str) -> None:
    """Put the toy first into every table that its row names."""
    tables = re.findall(r"`([A-Z_]+)` in `([^`]+\.py)`", where(thing))
    assert tables
    for table, name in tables:
        file = project / name
        text, count = re.subn(
            rf"^({table}\b.* = \(\n)",
            rf"\1    {ENTRIES[thing]}\n",
            file.read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
        assert count == 1, f"{name} has no table {table}"
        file.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A copy of the project with the toys in it."""
    copy = tmp_path_factory.mktemp("toys")
    for name in ("dpviz", "pages", ".streamlit"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("app.py", "pyproject.toml"):
        shutil.copy(ROOT / name, copy / name)
    paper = copy / folder_of("a paper") / "toy"
    paper.mkdir()
    (paper / "paper.toml").write_text(PAPER, encoding="utf-8")
    (paper / "table-1.csv").write_text("experiment,epsilon,test_accuracy\nquiet,1.5,0.875\n", encoding="utf-8")
    (copy / folder_of("a page") / "toy.py").write_text(PAGE, encoding="utf-8")
    (copy / folder_of("a command") / "toy.py").write_text(COMMAND, encoding="utf-8")
    for thing in ENTRIES:
        insert(copy, thing)
    return copy


def surroundings(project: Path) -> dict[str, str]:
    own = {"PYTHONPATH": str(project), "DPVIZ_RUNS": str(project / "runs")}
    return {**os.environ, **own, "DPVIZ_CACHED_RUNS": str(ROOT / "cached_runs")}


def dpviz(project: Path, *words: str) -> str:
    command = [sys.executable, "-m", "dpviz", *words]
    done = subprocess.run(command, cwd=project, env=surroundings(project), capture_output=True, text=True, check=True)
    return done.stdout


def test_a_command_is_listed_and_runs(project):
    assert re.search(r"^ +toy +play$", dpviz(project, "--help"), re.MULTILINE)
    assert json.loads(dpviz(project, "toy", "--json")) == {"played": True}


def test_a_paper_is_listed_last_and_its_experiment_is_priced_and_can_be_made(project):
    assert ", toy; all, if left out" in " ".join(dpviz(project, "papers", "--help").split())
    (row,) = json.loads(dpviz(project, "papers", "toy", "--json"))["experiments"]
    assert (row["name"], row["reported"]["value"], row["reported"]["place"]) == ("toy/quiet", 0.875, "Table 1")
    assert 0 < row["epsilon"]["sound"] == row["epsilon"]["claimed"] < row["reported"]["epsilon"] == 1.5
    listed = json.loads(dpviz(project, "reproduce", "toy", "--list", "--json"))["runs"]
    assert {(run["experiment"], run["state"]) for run in listed} == {("toy/quiet", "missing")}


@pytest.fixture(scope="module")
def address(project):
    keep(project / "runs", made_run())
    port, log = free_port(), project / "log.txt"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "dpviz", "app", f"--port={port}"]
        process = subprocess.Popen(command, cwd=project, env=surroundings(project), stdout=output, stderr=output)
    yield wait_for_server(process, f"http://127.0.0.1:{port}", log)
    stop_server(process)


def test_a_paper_has_its_page_with_its_picture_and_its_table(address, new_page):
    page = new_page(f"{address}/papers?paper=toy")
    expect(page.get_by_role("heading", name="A toy paper")).to_be_visible()
    expect(page.get_by_role("radio", name="Toy", exact=True)).to_be_checked()
    expect(page.locator(".js-plotly-plot")).to_be_visible()
    expect(page.get_by_text("Steps of a toy.").last).to_be_visible()
    expect(page.get_by_text("Table 1 (1)", exact=True)).to_be_visible()


def test_a_page_is_in_the_navigation_and_in_the_guide(address, new_page):
    page = new_page(f"{address}/guide")
    expect(page.get_by_text("Play with it.")).to_be_visible()
    page.get_by_test_id("stTopNavLink").filter(has_text="Toy").click()
    expect(page.get_by_role("heading", name="The toy page")).to_be_visible()
    assert page.url == f"{address}/toy"


@pytest.mark.parametrize(("path", "name"), [("", "schedule"), ("compare", "dpviz-epsilon"), ("train", "run-.+")])
def test_a_kind_of_file_has_its_button_and_is_downloaded(address, new_page, path, name):
    page = new_page(f"{address}/{path}")
    page.set_default_timeout(60_000)  # a busy machine is no reason to fail
    if not path:
        page.get_by_role("tab", name="Files and code").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Toy file").click()
    assert re.fullmatch(rf"{name}\.toy", download.value.suggested_filename)
    assert Path(download.value.path()).read_text(encoding="utf-8") == "a toy"
