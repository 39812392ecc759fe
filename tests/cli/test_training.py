"""train, runs and data on the command line, with the real trainer on a few digits."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dpviz.cli import main
from dpviz.privacy import epoch_phases, guarantee
from dpviz.privacy.rounding import epsilon_number
from dpviz.runs.store.spending import Spending
from dpviz.runs.store.store import Store
from tests.views.made_runs import keep, made_run

ROOT = Path(__file__).parents[2]
SMALL = ("--set", "model=logistic", "--set", "subset=2000", "--set", "batch_size=200", "--set", "learning_rate=2")


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch) -> Store:
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # such small steps are no faster with two, and much slower beside others
    return Store()


@pytest.fixture
def dpviz(capsys):
    """Run a command; its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        return code, *capsys.readouterr()

    return run


def test_train_prints_json_with_accuracy_as_a_fraction_and_both_epsilons(dpviz, store):
    code, out, err = dpviz("train", *SMALL, "--epochs", "2", "--seeds", "0,1", "--json")
    assert code == 0
    runs = json.loads(out)["runs"]
    assert [run["status"] for run in runs] == ["done", "done"]
    assert [run["run_id"] for run in runs] == [run.id for run in store.list().runs]
    for run in runs:
        assert [epoch["epoch"] for epoch in run["epochs"]] == [1, 2]
        assert all(0 < epoch["test_accuracy"] < 1 for epoch in run["epochs"])
        assert all(epoch["epsilon"]["sound"] == epoch["epsilon"]["claimed"] > 0 for epoch in run["epochs"])
    assert err.count("test accuracy") == 4


def test_train_starts_from_a_recipe_and_keeps_its_name_only_while_unchanged(dpviz, store):
    code, out, _ = dpviz("train", "--recipe", "losing-less/mnist-ce-t-cnn", *SMALL, "--epochs", "1")
    assert code == 0
    (run,) = store.list().runs
    assert run.recipe == ""
    assert run.title.startswith("losing-less/mnist-ce-t-cnn with model=logistic")
    assert run.title in out
    assert store.get(run.id).spec.schedule.sigmas(1)[0] == 1.23


def test_a_method_without_a_guarantee_prints_none_and_null(dpviz):
    arguments = ("train", *SMALL, "--epochs", "1", "--set", "method=sgd", "--set", "schedule.sigma=0")
    code, out, err = dpviz(*arguments, "--json")
    assert json.loads(out)["runs"][0]["epochs"][0]["epsilon"] == {"claimed": None, "sound": None}
    assert "epsilon none" in err
    code, out, _ = dpviz(*arguments)
    assert code == 0
    assert out.count("none") == 4
    _, out, _ = dpviz("runs", "list", "--json")
    assert all(run["epsilon"] == {"claimed": None, "sound": None} for run in json.loads(out)["runs"])


def test_no_noise_prints_infinity(dpviz):
    arguments = ("train", *SMALL, "--epochs", "1", "--set", "schedule.sigma=0", "--json")
    _, out, _ = dpviz(*arguments)
    assert json.loads(out)["runs"][0]["epochs"][0]["epsilon"]["sound"] == "infinity"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--set", "model=foo"), "unknown model 'foo'"),
        (("--set", "epochs"), "key=value"),
        (("--recipe", "no/such"), "unknown recipe"),
        (("--seeds", "0,x"), "whole numbers"),
        (("--seeds", "1,1"), "different"),
        (("--seeds", "-1"), "seed"),
        (("--seeds", "0", "--set", "seed=1"), "twice"),
        (("--epochs", "0"), "epochs must be"),
        (("--epochs", "2.5"), "whole number"),
        (("--epochs", "3", "--set", "epochs=4"), "twice"),
        (("--epochs", "3", "--set", "schedule=5,4"), "2 epochs, but 3 were asked for"),
        (("--set", "batch_size=nan"), "batch_size"),
        (("--set", "subset=100"), "batch_size must be at most the 100"),
        (("--device", "tpu"), "tpu"),
        (("--data-dir", "/no/such/folder"), "--data-dir"),
        (("--title", "x" * 200), "at most 120"),
        (("--fast",), "unrecognized"),
    ],
)
def test_bad_settings_give_one_line_exit_code_2_and_write_nothing(dpviz, store, arguments, words):
    code, out, err = dpviz("train", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert not store.folder.exists()


def test_a_failed_run_prints_its_cause_and_exits_with_1(dpviz):
    settings = ("method=sgd", "schedule.sigma=0", "loss=sse", "learning_rate=1000")
    arguments = [part for setting in settings for part in ("--set", setting)]
    code, out, _ = dpviz("train", *SMALL[:-2], *arguments)
    assert code == 1
    assert "is most likely too high" in out


def test_ctrl_c_stops_the_run_with_a_checkpoint_and_resume_ends_it(dpviz, store):
    command = [sys.executable, "-m", "dpviz", "train", *SMALL, "--epochs", "60", "--json"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)
    process.stderr.readline()  # the first epoch has ended
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    (run,) = json.loads(out)["runs"]
    assert (process.returncode, run["status"]) == (130, "stopped"), err
    assert "stopping; Ctrl-C once more leaves at once" in err
    assert "Traceback" not in err
    assert 1 <= len(run["epochs"]) < 60
    assert store.read_checkpoint(run["run_id"]) is not None
    code, out, _ = dpviz("runs", "resume", run["run_id"], "--json")
    (resumed,) = json.loads(out)["runs"]
    assert (code, resumed["status"], len(resumed["epochs"])) == (0, "done", 60)
    assert resumed["epochs"][: len(run["epochs"])] == run["epochs"]


def test_a_stopped_run_is_listed_and_shown_with_what_it_really_spent(dpviz, store):
    run_id = keep(store.folder, made_run(status="stopped", count=2, written=Spending(27, 1.15, 1.25)))
    _, out, _ = dpviz("runs", "list")
    assert "1.2500" in out
    assert "1.0000" not in out  # its last epoch's
    _, out, _ = dpviz("runs", "list", "--json")
    (run,) = json.loads(out)["runs"]
    assert (run["epsilon"], run["at_most"]) == ({"claimed": 1.15, "sound": 1.25}, False)
    _, out, _ = dpviz("runs", "show", run_id, "--json")
    assert json.loads(out)["spent"] == Spending(27, 1.15, 1.25).to_json()


def test_a_stopped_run_of_the_old_format_is_listed_with_the_most_it_can_have_spent(dpviz, store):
    keep(store.folder, made_run(status="stopped", count=2))
    most = guarantee("dp-sgd", "none", epoch_phases([1.0] * 3, 0.1), 1e-5).sound.upper
    assert f"at most {epsilon_number(most, digits=4)}" in dpviz("runs", "list")[1]
    (run,) = json.loads(dpviz("runs", "list", "--json")[1])["runs"]
    assert (run["epsilon"]["sound"], run["at_most"]) == (most, True)


@pytest.fixture
def run_id(dpviz) -> str:
    _, out, _ = dpviz("train", *SMALL, "--epochs", "1", "--title", "mine", "--json")
    return json.loads(out)["runs"][0]["run_id"]


def test_runs_list_show_export_and_delete(dpviz, store, run_id, tmp_path):
    code, out, _ = dpviz("runs", "list")
    assert code == 0
    assert run_id in out
    assert "mine" in out
    code, out, _ = dpviz("runs", "show", run_id)
    assert code == 0
    assert "learning_rate" in out
    code, out, _ = dpviz("runs", "export", run_id)
    assert json.loads(out)["spec"]["model"] == "logistic"
    code, _, _ = dpviz("runs", "export", run_id, "--out", str(tmp_path / "run.json"))
    exported = json.loads((tmp_path / "run.json").read_text())
    assert exported == json.loads(out)
    assert "not covered by epsilon" in exported["not_covered"]
    assert exported["risk"]["tpr"][0]["fpr"] == 0.001
    assert str(ROOT) not in json.dumps(exported)
    code, _, _ = dpviz("runs", "delete", run_id)
    assert code == 0
    assert store.list().runs == ()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("show",), "needs a run's id"),
        (("list", "abc"), "takes no id"),
        (("show", "abc"), "there is no run 'abc'"),
        (("delete", "../x"), "is not a run id"),
        (("resume", "abc"), "there is no run"),
        (("show", "abc", "--out", "x"), "--out goes with"),
        (("burn", "abc"), "burn"),
    ],
)
def test_bad_runs_commands_give_one_line_and_exit_code_2(dpviz, arguments, words):
    code, out, err = dpviz("runs", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_a_finished_run_is_not_resumed(dpviz, run_id):
    code, _, err = dpviz("runs", "resume", run_id)
    assert code == 2
    assert "a finished run never changes" in err


def test_runs_list_names_what_it_skipped(dpviz, store):
    (store.folder / "not-a-run").mkdir(parents=True)
    code, out, _ = dpviz("runs", "list", "--json")
    assert code == 0
    assert "not-a-run" in json.loads(out)["warnings"][0]


def test_data_shows_what_is_there_and_where_the_rest_goes(dpviz, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, out, _ = dpviz("data", "--json")
    there = {row["dataset"]: row["there"] for row in json.loads(out)["datasets"]}
    assert code == 0
    assert there["mnist"] is True
    assert {"mnist", "fashion-mnist", "cifar10", "breast-cancer"} <= set(there)
    (tmp_path / "cifar-10-batches-py").mkdir()
    for name in ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"):
        (tmp_path / "cifar-10-batches-py" / name).write_bytes(b"")
    _, out, _ = dpviz("data", "--data-dir", str(tmp_path), "--json")
    rows = {row["dataset"]: row for row in json.loads(out)["datasets"]}
    assert rows["cifar10"]["folder"] == str(tmp_path)
