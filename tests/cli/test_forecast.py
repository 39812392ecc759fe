"""forecast on the command line: shown from what comes with dpviz, fitted with the real trainer on a few digits."""

from __future__ import annotations

import json

import pytest

from dpviz.cli import main
from dpviz.forecast.check import difference_of
from dpviz.forecast.checked import published_checks
from dpviz.forecast.library import begun, shelf
from dpviz.forecast.report import report
from dpviz.papers import recipe
from dpviz.paths import ROOT
from dpviz.runs.differences import points
from dpviz.runs.store.cached import FORECASTS, cached_runs
from dpviz.runs.store.store import Store

RESPONSE = shelf().of(recipe("curricula/constant-1.54").spec)
SMALL = "--recipe curricula/constant-1.54 --set model=logistic --set subset=400 --set batch_size=100"


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("DPVIZ_RAY", raising=False)
    return Store()


def test_a_forecast_has_a_band_per_epoch_and_says_what_it_rests_on(capsys):
    assert main(["forecast", "--recipe", "curricula/linear-decreasing", "--sigmas", "5,4,3,2,1", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    truth = RESPONSE.forecast([5, 4, 3, 2, 1])
    assert (data["in_domain"], data["rests_on"]) == (True, len(RESPONSE.runs))
    assert data["epochs"] == truth.to_json()["epochs"]
    assert list(data["epochs"][0]) == ["epoch", "accuracy", "lower", "upper"]


def test_a_person_reads_why_a_band_is_a_guess(capsys):
    assert main(["forecast", "--recipe", "curricula/constant-1.54", "--sigmas", "9,9"]) == 0
    text = capsys.readouterr().out
    assert f"Rests on {len(RESPONSE.runs)} runs of curricula/constant-1.54" in text
    assert f"the band is a guess: sigma 9 is above the measured {RESPONSE.most_sigma:.4g}." in text


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("forecast --recipe no/such", "unknown recipe"),
        ("forecast --recipe screening/mnist", "dpviz forecast fit learns it"),
        ("forecast --recipe curricula/constant-1.54 --sigmas 1,nan", "epoch 2"),
        ("forecast --recipe curricula/constant-1.54 --sigmas x", "x"),
        (f"forecast fit {SMALL} --from-cached", "too few schedules"),
        (f"forecast fit {SMALL} --runs 0", "pilot runs must be from 1"),
    ],
)
def test_what_cannot_be_forecast_is_one_line(line, words, capsys, store):
    assert main(line.split()) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1
    assert not store.folder.exists()


def test_fit_makes_what_is_missing_and_the_forecast_is_there(capsys, store, tmp_path, monkeypatch):
    assert main(f"forecast fit {SMALL} --runs 2".split()) == 2
    assert "2 of 2 pilot runs: too few schedules" in capsys.readouterr().err
    assert main(f"forecast fit {SMALL} --runs 8 --json".split()) == 0
    heard = capsys.readouterr()
    data = json.loads(heard.out)
    assert len(store.list().runs) == data["rests_on"] == data["schedules"] == 8
    assert data["price"]["public"]
    assert "8 of 8 pilot runs, 8 runs in all: off by" in heard.err
    assert main(f"forecast {SMALL} --sigmas 2,2,2 --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["rests_on"] == 8

    # A suggestion under this forecast, checked with seeds that no fit sees; given again, nothing is trained again.
    assert main(f"suggest {SMALL} --target-epsilon 3 --check --json".split()) == 0
    check = json.loads(capsys.readouterr().out)["check"]
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    trained = store.list()
    assert main(f"suggest {SMALL} --target-epsilon 3 --check --publish --json".split()) == 0
    assert json.loads(capsys.readouterr().out)["check"] == check
    assert store.list() == trained
    assert (check["pairs"], check["paired"]) == (3, True)
    assert check["low"] <= check["mean"] <= check["high"]
    assert check["words"].startswith("Suggested against constant noise over 3 new seeds: ")

    # Published, it keeps its runs beside it, those of the check too, and apart from the papers'.
    assert main(f"forecast fit {SMALL} --runs 8 --held-out 1 --publish --json".split()) == 0
    data = json.loads(capsys.readouterr().out)
    settings = {run.key for run in store.list().runs}  # the best schedule may be the constant one
    assert (data["rests_on"], data["price"]["runs"]) == (8, len(settings))
    kept = cached_runs(paper=FORECASTS)
    assert (len(kept.runs), kept.warnings, cached_runs().runs) == (len(settings), (), ())
    (response,) = shelf().responses
    ((expected, checked),) = published_checks()
    assert {item.experiment for item in kept.runs} == {response.settings, *expected.folders}
    assert difference_of(checked).mean == check["mean"]
    assert {spec.key for spec in begun(response.settings, store)} == settings  # also once they are deleted
    assert f"({points(check['low'])} to {points(check['high'])}) | " in report(shelf(), store)
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "others"))  # somebody who has nothing but what comes with dpviz
    assert main(f"forecast fit {SMALL} --runs 8 --from-cached --json".split()) == 0
    assert json.loads(capsys.readouterr().out) == data


def test_the_committed_table_is_what_the_command_prints(capsys, monkeypatch):
    assert main(["forecast", "table"]) == 0
    made, kept = capsys.readouterr().out.split(), (ROOT / "docs/forecasts.md").read_text().split()
    assert len(made) == len(kept)
    for one, other in zip(made, kept, strict=True):
        if one != other:
            assert float(one.rstrip("%")) == pytest.approx(float(other.rstrip("%")), abs=0.3 if "%" in one else 0.011)


def test_suggest_prints_a_schedule_within_the_budget(capsys):
    line = "suggest --recipe curricula/constant-1.54 --target-epsilon 1.0 --json"
    assert main(line.split()) == 0
    data = json.loads(capsys.readouterr().out)
    assert 0.99 <= data["best"]["epsilon"] <= 1.0
    assert data["best"]["accuracy"] >= data["constant"]["accuracy"]
    assert data["worth_it"] == (data["gain"] > data["uncertainty"])
    assert main(["suggest", "--target-epsilon", "1", "--model", "logistic"]) == 2
    assert "dpviz forecast fit learns it" in capsys.readouterr().err
