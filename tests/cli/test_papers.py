"""papers and reproduce, as a person or a script would call them."""

from __future__ import annotations

import argparse
import dataclasses
import json

import pytest

from dpviz.cli import main
from dpviz.cli.papers import duration
from dpviz.papers import RECIPES
from dpviz.runs.store.cached import cached_runs

CACHED = "curricula/linear-decreasing-c3"  # an experiment whose seed 0 comes with dpviz


def run(capsys, *line):
    code = main([*line, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_papers_lists_every_experiment_with_what_is_reported_ours_and_both_epsilons(capsys):
    code, data = run(capsys, "papers")
    assert code == 0
    rows = {row["name"]: row for row in data["experiments"]}
    assert set(RECIPES) <= set(rows)
    row = rows["curricula/linear-decreasing"]
    assert row["paper"] == "curricula"
    assert row["reported"] == {"value": 0.9463, "epsilon": 1.4, "place": "Table 2", "quantity": "test_accuracy"}
    assert rows[CACHED]["ours"].keys() == {"mean", "std", "seeds", "epochs", "shortened"}
    assert 0.5 < rows[CACHED]["ours"]["mean"] < 1
    assert row["epsilon"]["claimed"] == row["epsilon"]["sound"] == pytest.approx(1.004, abs=3e-3)
    assert rows["curricula/sample-constant-1"]["epsilon"]["sound"] is None
    assert all(row["reported"] is None or 0 <= row["reported"]["value"] <= 1 for row in rows.values())
    assert all(row["reported"] is None or row["reported"]["place"] for row in rows.values())


def test_the_runs_that_come_along_are_of_full_length_and_those_of_four_papers_audited(capsys):
    _, data = run(capsys, "papers")
    assert not [row["name"] for row in data["experiments"] if row["ours"] and row["ours"]["shortened"]]
    epsilons = {row["name"]: row["epsilon"] for row in data["experiments"] if row["epsilon"]["audited"] is not None}
    assert {name.split("/")[0] for name in epsilons} == {"curricula", "losing-less", "optimizers", "screening"}
    assert len(epsilons) >= 9
    assert all(0 < found["audited"] < found["sound"] for found in epsilons.values())
    assert main(["papers", "screening"]) == 0
    assert ">= 3.393" in capsys.readouterr().out


def test_papers_gives_a_verdict_for_every_claim(capsys):
    _, data = run(capsys, "papers", "screening")
    assert {row["paper"] for row in data["experiments"]} == {"screening"}
    verdicts = {claim["name"]: claim["verdict"] for claim in data["claims"]}
    assert verdicts["accepted-only"] == "does not hold"


def test_papers_lists_every_reported_accuracy_also_those_of_other_papers(capsys):
    _, data = run(capsys, "papers", "state-of-the-art")
    assert len(data["reported"]) == 22
    number = next(row for row in data["reported"] if row["experiment"] == "cifar10-de" and row["epsilon"] == 8)
    assert (number["value"], number["epsilon_sound"], number["place"]) == (0.814, 8, "arXiv:2204.13650, as reported")


def test_papers_reads_as_a_table(capsys):
    assert main(["papers", "curricula"]) == 0
    text = capsys.readouterr().out
    assert "curricula/linear-decreasing" in text
    assert "Noise that falls beats its rising mirror image" in text


def test_a_run_that_stopped_early_is_marked_in_table_and_json(capsys, monkeypatch):
    listing = cached_runs()
    whole = next(item for item in listing.runs if item.run.spec.recipe == CACHED)
    run_of_7 = dataclasses.replace(whole.run, status="stopped", epochs=whole.run.epochs[:7])
    short = dataclasses.replace(listing, runs=(dataclasses.replace(whole, run=run_of_7),))
    monkeypatch.setattr("dpviz.cli.papers.cached_runs", lambda: short)
    assert main(["papers", "curricula"]) == 0
    assert "(7 of 20 epochs)" in capsys.readouterr().out
    _, data = run(capsys, "papers", "curricula")
    (ours,) = (row["ours"] for row in data["experiments"] if row["name"] == CACHED)
    assert (ours["epochs"], ours["shortened"]) == (7, True)


def test_reproduce_lists_what_there_is_to_do_and_trains_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    code, data = run(capsys, "reproduce", CACHED, "--seeds", "0,9", "--list")
    assert code == 0
    assert {row["seed"]: row["state"] for row in data["runs"]} == {0: "cached", 9: "missing"}
    assert not (tmp_path / "runs").exists()


def test_reproduce_with_no_time_ends_at_once(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    code, data = run(capsys, "reproduce", "curricula/constant-3", "--seeds", "99", "--time-budget", "0s")
    assert (code, data) == (0, {"runs": [], "missing": 1})


@pytest.mark.parametrize(("text", "seconds"), [("2h", 7200), ("1h30m", 5400), ("45s", 45), ("90m", 5400)])
def test_times_are_written_with_their_units(text, seconds):
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "-1h", "1.5h", "2 h", "30m2h"])
def test_a_time_without_units_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="2h"):
        duration(text)


@pytest.mark.parametrize(
    "line",
    [
        ["reproduce", "curiculla"],
        ["reproduce", "curricula/no-such"],
        ["reproduce", "--time-budget", "soon"],
        ["reproduce", "--seeds", "one"],
        ["papers", "nobody"],
    ],
)
def test_a_wrong_word_is_answered_in_one_line(capsys, line):
    assert main(line) == 2
    error = capsys.readouterr().err
    assert error.startswith("dpviz: ")
    assert error.count("\n") == 1
