"""local on the command line, with real records."""

from __future__ import annotations

import json

import pytest

from dpviz.cli import main
from dpviz.cli.local import missing
from dpviz.papers import LOCAL_RECIPES
from dpviz.training.local.tabular import Tabular, load_tabular

FAST = ("--repeats", "3", "--epochs", "2", "--budgets", "0.8,1.6")


@pytest.fixture
def dpviz(capsys):
    """Run a command; its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        return code, *capsys.readouterr()

    return run


def test_local_prints_a_row_for_each_method_and_budget(dpviz):
    code, out, _ = dpviz("local", "--data", "breast-cancer", *FAST, "--json")
    assert code == 0
    rows = json.loads(out)["rows"]
    assert [(row["method"], row["budget"]) for row in rows] == [
        (method, budget) for method in ("prestige", "djw", "sgd") for budget in (0.8, 1.6)
    ]
    for row in rows:
        assert {"method", "budget", "mean_error", "std_error", "epsilon_per_person"} <= set(row)
        assert 0 <= row["mean_error"] <= 1
        assert row["epsilon_per_person"] == (None if row["method"] == "sgd" else 2 * row["budget"])


def test_local_is_repeatable_and_seeds_differ(dpviz):
    command = ("local", *FAST, "--methods", "djw", "--json")
    first, again, other = (json.loads(dpviz(*command, "--seed", seed)[1])["rows"] for seed in ("0", "0", "1"))
    assert first == again
    assert first != other


def test_local_says_what_it_compared_and_what_is_covered(dpviz):
    code, out, _ = dpviz("local", *FAST)
    assert code == 0
    assert "455 people" in out
    assert "prestige - djw" in out
    assert "covers the label only" in out


def test_local_takes_a_file_and_every_setting(dpviz, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text(
        "a,b,outcome\n" + "".join(f"{k % 7},{k % 5},{'sick' if k % 7 > 3 else 'well'}\n" for k in range(80))
    )
    settings = ["--loss", "ramp", "--loss-knob", "-2", "--batch-size", "5", "--threshold", "0", "--mu", "0.5"]
    settings += [
        "--share",
        "0.5",
        "--regularization",
        "2",
        "--radius",
        "2",
        "--length",
        "5",
        "--gradient-label",
        "true",
    ]
    code, out, err = dpviz("local", "--data", str(path), "--label", "outcome", *FAST, *settings, "--json")
    assert code == 0, err
    row = json.loads(out)["rows"][0]
    assert (row["loss"], row["batch_size"], row["regularization"]) == ("ramp", 5, 2.0)


def test_local_chooses_lambda_by_cross_validation_and_writes_where_results_come_from(dpviz, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "folder" / "result.json"
    command = ["local", "--repeats", "2", "--epochs", "2", "--budgets", "1", "--methods", "djw", "--out", str(out)]
    assert dpviz(*command, "--cross-validate", "--folds", "2")[0] == 0
    saved = json.loads(out.read_text())
    assert saved["settings"]["cross_validated"]
    assert saved["rows"][0]["regularization"] in [10.0**power for power in range(-3, 4)]
    assert saved["provenance"]["command"].endswith("--epochs 2 --cross-validate --folds 2")
    assert str(tmp_path) not in out.read_text()
    assert {"commit", "versions", "minutes"} <= set(saved["provenance"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--data", "mnist39"), "unknown data 'mnist39'"),
        (("--data", "nothing.csv"), "nothing.csv cannot be read"),
        (("--budgets", "0.8,x"), "budgets are numbers"),
        (("--budgets", "-1"), "epsilon must be above 0"),
        (("--budgets", "nan"), "epsilon must be above 0"),
        (("--methods", "adam"), "unknown method 'adam'"),
        (("--methods", ""), "unknown method ''"),
        (("--loss", "square"), "unknown loss 'square'"),
        (("--repeats", "0"), "repeats must be"),
        (("--repeats", "2.5"), "whole number"),
        (("--mu", "nan"), "mu must be"),
        (("--cross-validate", "--folds", "1"), "folds"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(dpviz, arguments, message):
    code, out, err = dpviz("local", *arguments)
    assert code == 2
    assert out == ""
    assert err.startswith("dpviz: ")
    assert err.count("\n") == 1
    assert message in err


def test_a_result_that_cannot_be_written_is_said(dpviz, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = dpviz("local", *FAST, "--methods", "djw", "--out", str(tmp_path / "file" / "x.json"))
    assert code == 2
    assert "cannot write" in err


# --- reproduce ----------------------------------------------------------------------------------------------------


def test_reproduce_makes_the_methods_of_one_data_and_loss_that_are_missing(dpviz, monkeypatch, tmp_path):
    """The real thing but for its size: 60 of MNIST's images, two folds."""
    whole = load_tabular("mnist38")
    parts = (whole.train_rows, whole.train_labels, whole.test_rows, whole.test_labels)
    few = Tabular("mnist38", *(part[:60] for part in parts))
    monkeypatch.setattr("dpviz.training.local.tabular.load_tabular", lambda *asked: few)
    monkeypatch.setattr("dpviz.cli.local.FOLDS", 2)
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path))
    recipes = [LOCAL_RECIPES["prestige/mnist38-djw-ramp"]]
    assert missing(recipes) == tuple(recipes)
    code, out, _ = dpviz("reproduce", "prestige/mnist38-djw-ramp", "--json")
    made = json.loads(out)
    names = ["prestige/mnist38-djw-ramp", "prestige/mnist38-prestige-ramp"]
    assert [row["experiment"] for row in made["runs"]] == names
    assert (code, made["missing"]) == (0, 0)
    assert not missing(LOCAL_RECIPES[name] for name in names)
    assert len(missing(LOCAL_RECIPES.values())) == 14
    code, out, _ = dpviz("reproduce", names[1], "--json")
    assert (code, json.loads(out)) == (0, {"runs": [], "missing": 0})


def test_reproduce_knows_the_experiments_under_local_privacy(dpviz):
    _, out, _ = dpviz("reproduce", "prestige", "--list", "--json")
    rows = json.loads(out)["runs"]
    assert [row["experiment"] for row in rows] == list(LOCAL_RECIPES)
    assert {row["state"] for row in rows} == {"cached"}
    code, _, error = dpviz("reproduce", "prestige/a7a-djw")
    assert code == 2
    assert "the nearest are prestige/a7a-djw-" in error
