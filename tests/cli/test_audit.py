"""audit on the command line: of a run, of a full-length run, and of a new one with canaries."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dpviz.cli import main
from dpviz.privacy.audit import Audit, Guesses, StepBound
from dpviz.runs.audits import repeat_audit
from dpviz.runs.store import run_files as files
from dpviz.runs.store.cached import read_cached, write_cached
from dpviz.runs.store.store import Store
from dpviz.training.engine import Trainer
from tests.training.small import small_data, small_spec
from tests.views.made_runs import keep, made_run

SMALL = ("--set", "model=logistic", "--set", "subset=1000", "--set", "batch_size=100", "--epochs", "2")
REFUTED = Audit(1.5, StepBound(2.0, (Guesses(1.0, 10, 940, 100, 840),), ("the noise of different steps is not ...",)))


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return Store()


def audit(capsys, *arguments: str, code: int = 0) -> dict:
    assert main(["audit", *arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_recipe_is_trained_with_canaries_and_its_run_is_read_again(capsys, store):
    new = audit(capsys, "--recipe", "losing-less/mnist-ce-t-cnn", "--canaries", "200", *SMALL)
    assert list(new) == ["proven", "step", "one_run"]
    assert list(new["step"]) == ["lower", "fpr", "tpr", "trials"]
    assert list(new["one_run"]) == ["lower", "canaries", "guesses", "correct"]
    assert (new["one_run"]["canaries"], new["one_run"]["guesses"]) == (200, 20)
    assert 0 < new["step"]["lower"] <= new["proven"]
    (summary,) = store.list().runs
    assert audit(capsys, summary.id) == new
    run = store.get(summary.id)
    assert run.spec.canaries == 200
    assert run.to_json()["audit"]["step"]["guesses"][0]["noise_multiplier"] == 1.23
    assert main(["audit", summary.id]) == 0
    text = capsys.readouterr().out
    assert "proven at most" in text
    assert "gradients are part of what was trained" in text
    assert "no proof" in text


def test_an_audit_that_failed_is_loud(capsys, store):
    run_id = keep(store.folder, made_run(status="failed", audit=REFUTED))
    assert audit(capsys, run_id, code=1)["failures"] == list(REFUTED.failures)
    assert main(["audit", run_id]) == 1
    text = capsys.readouterr().out
    assert "THE AUDIT FAILED" in text
    assert "Likely causes" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give a run's id"),
        (("a", "--recipe", "b"), "give a run's id"),
        (("--repeat",), "give a run's id"),
        (("no/such/0",), "there is no full-length run 'no/such/0'"),
        (("../../etc",), "there is no full-length run"),
        (("a/../0",), "there is no full-length run"),
        (("curricula/sample-constant-1/0",), "cannot be audited: the order comes from a model"),
        (("curricula/sample-constant-1/0", "--repeat"), "cannot be audited"),
        (("curricula/constant-5/0",), "has no audit"),
        (("--canaries", "-1"), "canaries must be"),
        (("--canaries", "10", "--set", "method=sgd", "--set", "schedule.sigma=0"), "canaries test an epsilon"),
    ],
)
def test_what_cannot_be_audited_is_said_in_one_line(capsys, arguments, words):
    assert main(["audit", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert words in error


@pytest.fixture
def full_length(tmp_path, monkeypatch) -> Path:
    """A small run as if it were an experiment's, made before there were audits; data are read from memory."""
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    spec = small_spec()
    epochs = tuple(Trainer(spec, data=small_data()).epochs())
    run = made_run(epochs=len(epochs))
    monkeypatch.setattr("dpviz.training.engine.load_for", lambda spec, folder: small_data())
    return write_cached(type(run)(**{**vars(run), "spec": spec, "epochs": epochs}), "curricula", "small")


def test_a_repeat_puts_the_audit_beside_a_full_length_run_of_the_same_curve(full_length):
    before = read_cached(full_length).run
    found = repeat_audit("curricula/small/0")
    after = read_cached(full_length).run
    assert (before.audit, after.audit) == (None, found)
    assert after.epochs == before.epochs
    lines = (full_length / files.EPOCHS).read_text().replace('"test_accuracy": 0.', '"test_accuracy": 0.0')
    (full_length / files.EPOCHS).write_text(lines)
    with pytest.raises(Exception, match="it is another run"):
        repeat_audit("curricula/small/0")
