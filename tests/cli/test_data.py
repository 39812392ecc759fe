"""data add, list and remove on the command line, and training on what was added."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dpviz.cli import main
from tests.browser import ROOT
from tests.training.data.own.made_files import TRAIN, as_csv, as_folder, as_npz

MODEL = "cnn"
ROWS = int(os.environ.get("DPVIZ_ROWS", 100_000))  # make big-table asks for 2,000,000


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def dpviz(capsys):
    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("make", "flags"), [(lambda path: as_npz(path / "b.npz"), ()), (as_folder, ("--size", "20x24", "--grey"))]
)
def test_images_of_any_size_are_added_and_trained_on_at_the_epsilon_of_their_number(dpviz, tmp_path, make, flags):
    code, out, _ = dpviz("data", "add", "bars", make(tmp_path / "bars" if flags else tmp_path), *flags, "--json")
    added = json.loads(out)
    assert code == 0
    assert (added["size"], added["shape"], len(added["class_names"])) == (TRAIN, [1, 20, 24], 3)
    assert any("training examples (1,200)" in words for words in added["public"])
    settings = ("--set", "batch_size=100", "--set", "delta=1e-4")
    code, out, err = dpviz("train", "--dataset", "bars", "--model", MODEL, "--epochs", "3", *settings, "--json")
    assert code == 0, err
    (run,) = json.loads(out)["runs"]
    accuracies = [epoch["test_accuracy"] for epoch in run["epochs"]]
    assert 1 / 3 < accuracies[0] < accuracies[-1]
    sizes = ("--dataset-size", str(TRAIN), "--batch-size", "100", "--epochs", "3", "--delta", "1e-4")
    _, out, _ = dpviz("epsilon", "--sigma", "1.23", *sizes, "--json")
    assert run["epochs"][-1]["epsilon"]["sound"] == json.loads(out)["pld"]["upper"]


def test_own_data_are_listed_and_removed_and_their_runs_stay(dpviz, tmp_path):
    dpviz("data", "add", "people", as_csv(tmp_path / "p.csv"), "--label", "ill", "--bounds", "age=0,100")
    _, out, _ = dpviz("data", "--json")
    assert {"dataset": "people", "there": True, "folder": str(tmp_path / "data" / "own")} in json.loads(out)["datasets"]
    settings = ("--set", "batch_size=20", "--set", "model=logistic", "--epochs", "1")
    code, _, err = dpviz("train", "--dataset", "people", *settings)
    assert code == 0, err
    assert dpviz("data", "remove", "people")[0] == 0
    assert list((tmp_path / "data" / "own").iterdir()) == []
    code, out, _ = dpviz("runs", "list", "--json")
    (run,) = json.loads(out)["runs"]
    assert (run["dataset"], run["status"]) == ("people", "done")
    assert dpviz("runs", "show", run["run_id"])[0] == 0
    code, _, err = dpviz("train", "--dataset", "people", *settings)
    assert (code, "unknown dataset 'people'" in err) == (2, True)


@pytest.mark.parametrize(
    "line", [("add",), ("add", "x"), ("remove",), ("list", "x"), ("remove", "x", "y"), ("remove", "gone")]
)
def test_what_is_missing_or_too_much_is_one_sentence(dpviz, line):
    code, out, err = dpviz("data", *line)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_a_setting_that_is_given_twice_is_refused(dpviz):
    code, _, err = dpviz("train", "--dataset", "mnist", "--set", "dataset=mnist")
    assert (code, "given twice" in err) == (2, True)


def test_a_large_table_is_added_with_little_memory_and_trained_on(dpviz, tmp_path):
    """Twenty columns; the peak above what the process holds before is at most four times the file."""
    block = "".join(
        f"{','.join(f'{(row * (column + 3) % 997) / 997:.5f}' for column in range(18))},{('no', 'so')[row % 2]},"
        f"{int(row * 3 % 997 > 498)}\n"
        for row in range(1000)
    )
    path = tmp_path / "large.csv"
    with path.open("w") as file:
        file.write(",".join([*(f"c{column}" for column in range(18)), "side", "label"]) + "\n")
        file.writelines(block for _ in range(ROWS // 1000))
    code = """
        import resource, sys, time, pyarrow.csv, pyarrow.parquet
        from pathlib import Path
        from dpviz.training.data.own.source import Options
        from dpviz.training.data.own.store import add
        held, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        add("large", Path(sys.argv[1]), Options(label="label", value_range=(0, 1)))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print((peak - held) * 1024 / Path(sys.argv[1]).stat().st_size, time.monotonic() - began)
    """
    run = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    done = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, check=True)
    share, seconds = map(float, done.stdout.split())
    assert share < 4
    settings = ("--set", f"batch_size={ROWS // 50}", "--set", "clip_norm=1", "--epochs", "1", "--json")
    settings = (*settings, "--set", "delta=1e-7", "--set", "learning_rate=4")
    code, out, err = dpviz("train", "--dataset", "large", "--model", "logistic", *settings)
    assert code == 0, err
    (trained,) = json.loads(out)["runs"]
    assert trained["epochs"][0]["test_accuracy"] > 0.8
    print(f"{path.stat().st_size / 1e6:.0f} MB of CSV, {ROWS:,} rows: {seconds:.1f} s, peak {share:.2f} x the file")
