"""The wheel, as a stranger has it: built from the checkout, used outside of it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

import dpviz
from dpviz.runs.tracking.trackers import TRACKERS
from dpviz.ui.common.navigation import PAGES
from tests.browser import free_port, stop_server, wait_for_server

ROOT = Path(__file__).parents[1]
LINEAR = "--schedule linear --start 5 --end 1 --epochs 20 --dataset-size 60000 --batch-size 600"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the package from the wheel, and nothing else in it."""
    built, target = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "-w", str(built)], check=True)
    (wheel,) = built.glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--no-index", "--target", str(target), str(wheel)], check=True)
    return target


def outside(installed: Path, tmp_path: Path, **more: str) -> dict:
    """How to start a process that knows the wheel and not the checkout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("DPVIZ_")}
    home = {"PYTHONPATH": str(installed), "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    return {"cwd": tmp_path, "env": env | home | more}


def test_the_command_prices_a_schedule_outside_of_the_checkout(installed, tmp_path):
    command = [sys.executable, str(installed / "bin" / "dpviz"), "epsilon", *LINEAR.split(), "--json"]
    done = subprocess.run(command, **outside(installed, tmp_path), capture_output=True, text=True, check=True)
    band = json.loads(done.stdout)["pld"]
    assert band["lower"] <= 1.0038 <= band["upper"] < 1.01


def test_the_import_is_light_and_knows_its_folders(installed, tmp_path):
    code = (
        "import sys, json, dpviz, dpviz.paths as paths\n"
        "heavy = [name for name in ('torch', 'streamlit', 'pandas', 'opacus', 'plotly') if name in sys.modules]\n"
        "print(json.dumps([dpviz.__file__, dpviz.__version__, heavy, paths.IN_CHECKOUT, str(paths.runs_folder())]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], **outside(installed, tmp_path), capture_output=True, text=True, check=True
    )
    file, version, heavy, in_checkout, runs = json.loads(done.stdout)
    assert Path(file).is_relative_to(installed)
    assert (version, heavy, in_checkout) == (dpviz.__version__, [], False)
    assert Path(runs) == tmp_path / "data" / "dpviz" / "runs"


def test_numpy_and_scipy_are_all_it_needs(installed):
    (found,) = importlib.metadata.distributions(path=[str(installed)])
    needed = [line for line in found.requires or () if "extra ==" not in line]
    assert {line.split(">")[0] for line in needed} == {"numpy", "scipy"}
    assert found.metadata["License-Expression"] == "Apache-2.0"
    assert set(found.metadata.get_all("Provides-Extra")) == {
        *("app", "train", "data", "cluster", "signin", "dev"),
        *TRACKERS,
    }
    assert found.version == dpviz.__version__


@pytest.fixture(scope="module")
def served(installed, tmp_path_factory) -> Iterator[str]:
    folder, port = tmp_path_factory.mktemp("elsewhere"), free_port()
    log = folder / "log.txt"
    with log.open("wb") as output:
        command = [sys.executable, "-m", "dpviz", "app", f"--port={port}"]
        process = subprocess.Popen(command, **outside(installed, folder), stdout=output, stderr=output)
    url = wait_for_server(process, f"http://127.0.0.1:{port}", log)
    yield url
    stop_server(process)


@pytest.mark.parametrize("entry", PAGES, ids=lambda entry: entry.title)
def test_the_installed_dashboard_serves_every_page(served, new_page, entry):
    page = new_page(f"{served}/{entry.url_path}")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_test_id("stException")).to_have_count(0)


def test_the_installed_dashboard_has_the_papers_runs(served, new_page):
    page = new_page(f"{served}/compare")
    expect(page.get_by_text("the best is “").first).to_be_visible(timeout=60_000)
