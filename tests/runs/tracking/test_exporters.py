"""Runs that go out: every tracker and every file gives back the numbers that went in, and no others."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from dpviz.privacy import InputError
from dpviz.runs.store.spending import Spending
from dpviz.runs.tracking.exporters import EXPORT_NAMES, FILES, export_runs, exported_run, finite, numbers_of
from dpviz.runs.tracking.trackers import TRACKERS, _rounded_up
from tests.runs.tracking.tracker_readers import READERS
from tests.views.made_runs import made_run, made_spec

MORE = Spending(43, 1.7, 2.1)  # stopped within its fifth epoch
# Trackers' own clients use what other packages have deprecated.
TRACKER_WARNINGS = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def stopped_run(**changes):
    return made_run("20260102-0304-ab", title="A run", status="stopped", diagnostics=True, written=MORE, **changes)


def values(name: str, run) -> dict[int, float]:
    return {record.epoch: getattr(record, name) for record in run.epochs}


def test_every_tracker_has_a_reader_in_these_tests():
    assert set(READERS) == set(TRACKERS)
    assert set(EXPORT_NAMES) == {*TRACKERS, *FILES}


@pytest.fixture
def place(name, tmp_path, monkeypatch) -> str:
    """Where each tracker is to write; the working directory is the test's own, since some write beside it."""
    pytest.importorskip(TRACKERS[name].package)
    monkeypatch.chdir(tmp_path)
    if name == "trackio":  # reads its folder when it is imported
        monkeypatch.setattr("trackio.utils.TRACKIO_DIR", tmp_path)
        monkeypatch.setattr("trackio.sqlite_storage.TRACKIO_DIR", tmp_path)
    return {"tensorboard": str(tmp_path / "logs"), "mlflow": str(tmp_path / "mlflow.db")}.get(name, "project")


@TRACKER_WARNINGS
@pytest.mark.parametrize("name", READERS)
def test_a_tracker_gives_back_the_numbers(name, place):
    run = stopped_run()
    export_runs([run], name, place)
    parameters, curves = READERS[name](place, run)
    near = np.float32 if name == "tensorboard" else float  # event files hold single precision
    for measure in ("test_accuracy", "test_loss", "noise_multiplier"):
        assert curves[measure] == {epoch: near(value) for epoch, value in values(measure, run).items()}
    bounds = {measure: values(measure, run) for measure in ("epsilon_claimed", "epsilon_sound")}
    bounds |= {"spent_claimed": {4: MORE.epsilon_claimed}, "spent_sound": {4: MORE.epsilon_sound}}
    for measure, exact in bounds.items():
        assert curves[measure].keys() == exact.keys()
        for epoch, value in exact.items():  # an upper bound stays one
            assert value <= curves[measure][epoch] <= value * (1 + 2e-7 * (near is np.float32))
    assert set(curves) == {"test_accuracy", "test_loss", "noise_multiplier", *bounds}
    assert float(parameters["learning_rate"]) == run.spec.learning_rate
    assert parameters["schedule.name"] == "constant"
    assert parameters["run_id"] == run.id
    assert "adding or removing one example" in parameters["rests_on"]
    assert parameters["risk"] == exported_run(run).parameters["risk"]


@TRACKER_WARNINGS
@pytest.mark.parametrize("name", READERS)
def test_private_metrics_go_only_when_asked_for_and_infinity_never_as_a_number(name, place):
    run = made_run("20260102-0304-cd", diagnostics=True, sigma=0.5)
    first = dataclasses.replace(run.epochs[0], epsilon_sound=math.inf, epsilon_claimed=None)
    run = dataclasses.replace(run, epochs=(first,))
    export_runs([run], name, place, private_metrics=True)
    _, curves = READERS[name](place, run)
    assert not any("epsilon" in measure or "spent" in measure for measure in curves)
    assert curves["not_covered/train_loss"] == {1: 1.0}
    assert curves["not_covered/clipped_fraction"] == {1: 0.75}
    assert {"not_covered/train_accuracy", "not_covered/seconds"} <= set(curves)


@TRACKER_WARNINGS
@pytest.mark.parametrize("name", ["tensorboard"])
def test_event_files_written_twice_hold_a_run_once(name, place):
    run = stopped_run()
    export_runs([run], name, place, private_metrics=True)
    export_runs([run], name, place)
    _, curves = READERS[name](place, run)
    assert list(curves["test_accuracy"]) == [1, 2, 3, 4]
    assert not any("not_covered" in measure for measure in curves)


@pytest.mark.parametrize("name", ["trackio"])  # which prints much, and again when its process ends
def test_standard_output_is_for_the_result_alone(name, place, tmp_path):
    arguments = ("export", "losing-less/mnist-ce-t-cnn/0", "--to", name, "--out", place, "--json")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "TRACKIO_DIR": str(tmp_path)}
    command = [sys.executable, "-m", "dpviz", *arguments]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"to": name, "runs": [arguments[1]], "private_metrics": False}


@pytest.mark.parametrize("value", [2.1, 0.1, 1.0, 1e-9, 2.0**-149 / 3, 1e30])
def test_an_upper_bound_stays_one_in_single_precision(value):
    rounded = _rounded_up(value)
    assert np.float32(rounded) == rounded >= value
    assert rounded <= max(value * (1 + 2.0**-23), 2.0**-149)


def test_a_csv_gives_back_the_numbers(tmp_path):
    stopped, plain = stopped_run(), made_run("other", method="sgd", title="=1+1")
    export_runs([stopped, plain], "csv", str(tmp_path / "runs.csv"))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert [row["run"] for row in rows] == [stopped.id] * 4 + [plain.id] * 4
    for row, record in zip(rows, stopped.epochs, strict=False):
        for measure, value in numbers_of(record, private=False).items():
            assert float(row[measure]) == value
        assert (float(row["spent_sound"]), row["at_most"], int(row["step"])) == (2.1, "False", record.step)
    assert rows[-1]["epsilon_sound"] == rows[-1]["spent_sound"] == ""  # no guarantee, no number
    assert rows[-1]["title"] == "'=1+1"
    assert not any("train" in column or "seconds" in column for column in rows[0])
    private = export_runs([stopped], "csv", private_metrics=True)
    assert {"not_covered/train_loss", "not_covered/clipped_fraction"} <= set(private.splitlines()[0].split(","))


def test_a_json_file_has_what_epsilon_covers_unless_more_is_asked_for():
    run = stopped_run()
    (public,) = json.loads(export_runs([run], "json"))["runs"]
    (whole,) = json.loads(export_runs([run], "json", private_metrics=True))["runs"]
    assert whole == json.loads(json.dumps(run.to_json()))
    assert public["spec"] == whole["spec"]
    assert public["epochs"][0] == {
        name: value
        for name, value in whole["epochs"][0].items()
        if name in ("epoch", "step", "noise_multiplier", "test_accuracy", "test_loss", "epsilon")
    }
    assert "audit" not in public
    assert "minutes" not in public["provenance"]


def test_numbers_of_a_foreign_run_count_as_private():
    record = dataclasses.replace(made_run().epochs[0], metrics={"epsilon_sound": 0.1, "grad": 3.0})
    assert numbers_of(record, private=False)["epsilon_sound"] == 0.5
    assert "grad" not in str(numbers_of(record, private=False))
    assert numbers_of(record, private=True)["epsilon_sound"] == 0.5
    assert numbers_of(record, private=True)["not_covered/grad"] == 3.0
    assert finite({"a": None, "b": math.inf, "c": 1.0}) == {"c": 1.0}


def test_parameters_carry_the_risk_rounded_up():
    run = made_run()
    words = exported_run(run).parameters["risk"]
    shares = [float(text) / 100 for text in re.findall(r"([\d.]+) %", words)]
    stated = dict(zip(shares[1::2], shares[:-1:2], strict=True))
    assert list(stated) == [0.001, 0.01, 0.1]
    for fpr, tpr in stated.items():
        assert run.risk.tpr(fpr).upper <= tpr <= 1.02 * run.risk.tpr(fpr).upper
    assert run.risk.advantage.upper <= shares[-1] <= 1.02 * run.risk.advantage.upper


def test_parameters_say_where_there_is_no_guarantee():
    assert exported_run(made_run(method="sgd")).parameters["risk"] == "no risk is stated"
    assert exported_run(made_run(method="sgd")).parameters["guarantee"] == "no sound epsilon"
    no_noise = dataclasses.replace(made_run(), spec=made_spec(sigma=0.0))
    assert exported_run(no_noise).parameters["guarantee"].startswith("sound epsilon infinity at delta 1e-05")


def test_what_cannot_be_exported_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="TensorBoard needs a folder; none is given"):
        export_runs([made_run()], "tensorboard")
    with pytest.raises(InputError, match="unknown tracker 'neptune'; choose one of tensorboard"):
        export_runs([made_run()], "neptune", "x")
    with pytest.raises(InputError, match=r"cannot write .*no such file"):
        export_runs([made_run()], "csv", str(tmp_path / "missing" / "a.csv"))
