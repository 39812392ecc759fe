"""sweep on the command line, with the real trainer on a few digits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dpviz.cli import main
from dpviz.runs.store.store import Store

ROOT = Path(__file__).parents[2]
TEXT = """
title = "Falling noise"
seeds = [0, 1]
epsilon = 2.0
[settings]
model = "logistic"
subset = 2000
batch_size = 200
epochs = 3
learning_rate = 2.0
[[grid]]
schedule = ["constant", "linear"]
"""


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("DPVIZ_RAY", raising=False)
    return Store()


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "sweep.toml"
    path.write_text(TEXT)
    return path


def test_a_sweep_prints_rows_winner_and_price_and_again_only_what_it_has(file, store, capsys):
    assert main(["sweep", str(file), "--json"]) == 0
    out, err = capsys.readouterr()
    data = json.loads(out)
    assert (data["runs"], data["done"], data["failed"]) == (4, 4, 0)
    assert [line.partition(":")[0] for line in err.splitlines()] == [f"{k} of 4" for k in (1, 2, 3, 4)]
    for row in data["rows"]:
        assert 1.998 <= row["epsilon"] <= 2.0
        assert 0 < row["test_accuracy"]["mean"] < 1
        assert row["test_accuracy"]["std"] >= 0
    assert data["selection"]["single"] <= 2.0 < data["selection"]["drawn"] < data["selection"]["composed"]
    assert main(["sweep", str(file)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "The winner is schedule=" in out
    assert "All 4 runs composed" in out
    assert len(store.list().runs) == 4


def test_an_interrupted_sweep_ends_as_stopped_and_goes_on_when_given_again(file, store, capsys):
    file.write_text(TEXT.replace("epochs = 3", "epochs = 40").replace("epsilon = 2.0", ""))
    command = [sys.executable, "-m", "dpviz", "sweep", str(file)]
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not any(run.epochs_done for run in store.list().runs):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"give the same file again to go on" in out
    stopped = store.list().runs
    assert {run.status for run in stopped} <= {"stopped", "done"}
    assert any(0 < run.epochs_done < 40 for run in stopped)
    before = {run.id: store.get(run.id).epochs for run in stopped}
    assert main(["sweep", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["done"] == 4
    assert len(store.list().runs) == 4
    for run_id, epochs in before.items():
        assert store.get(run_id).epochs[: len(epochs)] == epochs


@pytest.mark.parametrize(
    ("text", "words"),
    [("x = 1", "no 'x'"), ("[grid]\nloss = ['hubris']", "unknown loss"), ("\x00", "TOML")],
)
def test_a_wrong_file_is_one_line_and_nothing_is_written(file, store, capsys, text, words):
    file.write_text(text)
    assert main(["sweep", str(file)]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1
    assert not store.folder.exists()


def test_a_missing_file_is_one_line(tmp_path, capsys):
    assert main(["sweep", str(tmp_path / "none.toml")]) == 2
    assert "No such file" in capsys.readouterr().err
