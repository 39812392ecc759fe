"""export on the command line."""

from __future__ import annotations

import csv
import io
import json

import pytest

from dpviz.cli import main
from dpviz.runs.store.store import Store
from tests.views.made_runs import keep, made_run

CACHED = "losing-less/mnist-ce-t-cnn/0"


@pytest.fixture
def run_id(tmp_path, monkeypatch) -> str:
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    return keep(Store().folder, made_run(title="Own", diagnostics=True))


def test_export_writes_own_and_full_length_runs_and_names_each_once(run_id, capsys, tmp_path):
    assert main(("export", run_id, CACHED, run_id, "--to", "csv")) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 4 + 40
    assert {row["run"] for row in rows} == {run_id, CACHED}
    assert [float(row["epsilon_sound"]) for row in rows[:4]] == [0.5, 1.0, 1.5, 2.0]
    assert main(("export", run_id, "--to", "json", "--json")) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["run_id"], "train_loss" in run["epochs"][0]) == (run_id, False)
    out = tmp_path / "runs.json"
    assert main(("export", run_id, "--to", "json", "--out", str(out), "--with-private-metrics")) == 0
    said = capsys.readouterr().out
    assert "exported 1 run to" in said
    assert "epsilon does not cover them" in said
    assert json.loads(out.read_text())["runs"][0]["epochs"][0]["train_loss"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("{run}", "--to", "mlflow"), "MLflow needs a database file or a server's address; none is given"),
        (("{run}", "--to", "neptune", "--out", "x"), "argument --to: invalid choice"),
        (("{run}", "gone", "--to", "csv"), "there is no run 'gone'"),
        (("../x/y", "--to", "csv"), "there is no full-length run"),
        (("{run}",), "the following arguments are required: --to"),
    ],
)
def test_what_cannot_be_exported_is_one_sentence(arguments, sentence, run_id, capsys):
    assert main(("export", *(word.format(run=run_id) for word in arguments))) == 2
    complaint = capsys.readouterr().err
    assert sentence in complaint
    assert complaint.count("\n") == 1
