"""dpviz as a library: its names, what they load, what they do, and that docs and examples run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import dpviz
from dpviz.runs import Store
from dpviz.runs.settings import DEFAULT
from dpviz.runs.store.spending import Spending
from tests.views.made_runs import keep, made_run

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TINY = {"model": "logistic", "subset": 500, "batch_size": 100, "learning_rate": 2.0}


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess:
    """Python in a process of its own, in a folder of its own, with a store of its own."""
    env = os.environ | {"PYTHONPATH": str(ROOT), "DPVIZ_RUNS": str(folder / "runs"), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=env, capture_output=True, text=True)


# --- names ----------------------------------------------------------------------------------------------------------


def test_every_public_name_is_there_and_dir_lists_it():
    wanted = """epsilon epsilon_path delta risk Risk Target calibrate matching_constant Schedule Ledger Phase Epsilon
        guarantee train load_runs Sweep sweep track import_run export_runs register_with_opacus InputError
        __version__"""
    assert set(wanted.split()) <= set(dpviz.__all__) <= set(dir(dpviz))
    assert all(getattr(dpviz, name) is not None for name in dpviz.__all__)


def test_type_checkers_see_every_name():
    block = (ROOT / "dpviz/__init__.py").read_text().split("if TYPE_CHECKING:")[1].split("__version__")[0]
    assert set(re.findall(r"\b[A-Za-z_]+(?=,|\n)", block)) >= set(dpviz.__all__) - {"__version__"}


def test_an_unknown_name_is_an_attribute_error_and_a_room_still_imports():
    with pytest.raises(AttributeError, match="no attribute 'epsilom'"):
        _ = dpviz.epsilom
    from dpviz import papers

    assert papers.__name__ == "dpviz.papers"


@pytest.mark.parametrize(
    ("code", "loaded"),
    [
        ("", set()),
        ("dpviz.epsilon; dpviz.Schedule; dpviz.guarantee; dpviz.risk", {"numpy", "scipy"}),
        ("dpviz.train; dpviz.sweep; dpviz.Run; dpviz.track; dpviz.import_run", {"numpy", "scipy"}),
        ("dpviz.load_runs", {"numpy", "scipy", "pandas"}),
    ],
)
def test_a_name_loads_what_it_needs_and_no_more(code, loaded, tmp_path):
    watched = ("numpy", "scipy", "pandas", "torch", "plotly", "streamlit", "opacus", "optuna", "ray")
    script = f"import sys, dpviz; {code}\nprint(*(name for name in {watched} if name in sys.modules))"
    done = python("-c", script, folder=tmp_path)
    assert done.stderr == ""
    assert set(done.stdout.split()) == loaded


@pytest.mark.parametrize(
    ("code", "missing", "words"),
    [
        ("dpviz.load_runs()", "pandas", "dpviz.load_runs needs pandas; install it with pip install 'dpviz[train]'"),
        ("dpviz.train()", "torch", "training needs torch; install it with pip install 'dpviz[train]'"),
    ],
)
def test_a_missing_package_is_named_with_what_to_install(code, missing, words, tmp_path):
    done = python("-c", f"import sys; sys.modules['{missing}'] = None; import dpviz; {code}", folder=tmp_path)
    assert words in done.stderr.splitlines()[-1]
    assert not (tmp_path / "runs").exists()


# --- train, sweep, load_runs ----------------------------------------------------------------------------------------


def test_train_returns_the_finished_run_and_tells_of_each_epoch(tmp_path):
    heard = []
    run = dpviz.train(
        {"optimizer.momentum": 0.5}, title="Two", schedule=[2, 1.5], store=tmp_path, on_epoch=heard.append, **TINY
    )
    assert (run.status, run.title, run.spec.epochs) == ("done", "Two", 2)
    assert tuple(heard) == run.epochs == Store(tmp_path).get(run.id).epochs
    assert run.spec.schedule == dpviz.Schedule.custom([2, 1.5])
    assert run.spec.knobs_of("optimizer")["momentum"] == 0.5
    phases = dpviz.epoch_phases([2, 1.5], 100 / 500)
    assert run.epochs[-1].epsilon_sound == dpviz.epsilon(phases, 1e-5).upper


def test_train_starts_from_a_recipe_or_a_spec():
    from dpviz.papers import recipe
    from dpviz.runs.api import planned_spec

    name = "losing-less/mnist-ce-t-cnn"
    assert planned_spec(None, name, {"epochs": 2}) == planned_spec(recipe(name).spec, None, {"epochs": 2})
    assert planned_spec(None, name, {"epochs": 2}).recipe == name
    line = dpviz.Schedule.of("linear", start=3)
    assert planned_spec(DEFAULT, None, {"schedule": line}).schedule == line
    assert planned_spec(None, None, {"schedule": np.array([3.0, 2.0])}).epochs == 2
    assert planned_spec({"schedule": line}, None, {"schedule.end": 2}).schedule == dpviz.Schedule.of(
        "linear", start=3, end=2
    )


@pytest.mark.parametrize(
    ("arguments", "settings", "words"),
    [
        ((), {"epoch": 3}, "unknown setting 'epoch'"),
        ((), {"schedule": 1.1}, "schedule must be a name, a list of sigmas or a Schedule, got 1.1"),
        ((), {"schedule": [1.0, float("nan")]}, r"finite number >= 0, got nan \(epoch 2\)"),
        (({"epochs": 2},), {"epochs": 3}, "epochs is set twice"),
        ((DEFAULT,), {"recipe": "losing-less/mnist-ce-t-cnn"}, "either a RunSpec or a recipe"),
        ((), {"recipe": "no/such"}, "unknown recipe 'no/such'"),
        ((), {"device": "abacus"}, "device must be one of"),
        ((), {"data_dir": "/no/such/folder"}, "data_dir must be a folder"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(arguments, settings, words, tmp_path):
    with pytest.raises(dpviz.InputError, match=words):
        dpviz.train(*arguments, store=tmp_path / "runs", **settings)
    assert not (tmp_path / "runs").exists()


def test_a_run_that_fails_raises_its_reason(tmp_path):
    diverging = TINY | {"loss": "sse", "learning_rate": 1000.0, "method": "sgd", "schedule.sigma": 0, "epochs": 1}
    with pytest.raises(dpviz.InputError, match=r"run .* failed: .*step"):
        dpviz.train(diverging, store=tmp_path, schedule="constant")
    assert [run.status for run in Store(tmp_path).list().runs] == ["failed"]


def test_ctrl_c_stops_the_run_with_a_checkpoint_and_lets_go_of_it(tmp_path):
    def press(record):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)  # the main thread, which waits, gets it

    before = signal.getsignal(signal.SIGINT)
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        dpviz.train(store=store, epochs=50, on_epoch=press, **TINY)
    assert signal.getsignal(signal.SIGINT) is before
    (run,) = store.list().runs
    assert (run.status, run.epochs_done) == ("stopped", 1)
    assert store.claim(run.id).status == "queued"  # nobody holds it
    store.release(run.id)


def test_train_works_in_a_thread_too(tmp_path):
    runs = []
    thread = threading.Thread(target=lambda: runs.append(dpviz.train(store=tmp_path, epochs=1, **TINY)))
    thread.start()
    thread.join()
    assert runs[0].status == "done"


def test_a_sweep_goes_on_where_it_stopped(tmp_path):
    heard = []
    description = {"settings": {**TINY, "epochs": 1}, "grid": {"learning_rate": [0.5, 2.0]}}
    description["settings"].pop("learning_rate")
    first = dpviz.sweep(store=tmp_path, on_run=heard.append, **description)
    again = dpviz.sweep(first.sweep, store=tmp_path, on_run=heard.append)
    assert (first.done, len(heard)) == (2, 2)
    assert [row.runs for row in again.rows] == [row.runs for row in first.rows]
    assert again.selection.composed.upper > again.selection.single.upper


@pytest.mark.parametrize("description", [{}, {"grid": {"epoch": [1, 2]}}, {"grids": {}}])
def test_a_sweep_without_a_meaning_is_refused(description, tmp_path):
    with pytest.raises(dpviz.InputError):
        dpviz.sweep(store=tmp_path / "runs", **description)
    assert not (tmp_path / "runs").exists()


def test_the_frame_has_a_row_per_epoch_of_every_run(tmp_path):
    done = keep(tmp_path, made_run(title="Mine", count=4))
    spent = Spending(25, 1.1, 1.3, at_most=True)
    part = keep(tmp_path, made_run(status="stopped", count=2, written=spent))
    keep(tmp_path, made_run(method="sgd", count=1))
    frame = dpviz.load_runs(tmp_path, cached=False)
    assert list(frame.groupby("run", sort=False).size()) == [4, 2, 1]
    mine = frame[frame["run"] == done]
    assert list(mine["epoch"]) == [1, 2, 3, 4]
    assert list(mine["epsilon_sound"]) == [0.5, 1.0, 1.5, 2.0]
    assert mine["test_accuracy"].iloc[-1] == pytest.approx(0.775)
    assert set(mine["title"]) == {"Mine"}
    assert set(mine["source"]) == {"own"}
    stopped = frame[frame["run"] == part].iloc[-1]
    assert (stopped["status"], stopped["epsilon_sound"], stopped["spent_sound"]) == ("stopped", 1.0, 1.3)
    assert bool(stopped["at_most"])
    plain = frame[frame["method"] == "sgd"]
    assert plain[["epsilon_claimed", "epsilon_sound", "spent_claimed", "spent_sound"]].isna().all(axis=None)


def test_the_frame_has_the_papers_runs_and_an_empty_one_its_columns(tmp_path):
    cached, empty = dpviz.load_runs(tmp_path), dpviz.load_runs(tmp_path, cached=False)
    assert len(empty) == 0
    assert list(empty.columns) == list(cached.columns)
    assert set(cached["source"]) == {"cached"}
    assert {"losing-less", "curricula"} <= set(cached["paper"])
    assert (cached.groupby("run")["epsilon_sound"].diff().dropna() >= 0).all()
    row = cached[cached["experiment"] == "mnist-ce-t-cnn"].iloc[0]
    assert (row["paper"], row["dataset"], row["epoch"]) == ("losing-less", "mnist", 1)
    assert row["title"]


def test_a_damaged_run_is_skipped_with_a_warning(tmp_path):
    good, bad = keep(tmp_path, made_run()), keep(tmp_path, made_run())
    (tmp_path / bad / "epochs.jsonl").write_text("{}\n{}\n")
    with pytest.warns(UserWarning, match="skipped"):
        frame = dpviz.load_runs(tmp_path, cached=False)
    assert set(frame["run"]) == {good}


# --- docs and examples ----------------------------------------------------------------------------------------------


def test_the_documented_examples_run(tmp_path):
    text = (ROOT / "docs/api.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == text.count("```") // 2 >= 6
    (tmp_path / "docs.py").write_text("\n".join(blocks))
    done = python("docs.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "winner" in done.stdout


def test_the_documents_name_every_public_name():
    text = (ROOT / "docs/api.md").read_text()
    assert [name for name in dpviz.__all__ if f"`{name}`" not in text] == ["__version__"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("price_and_calibrate", "within the budget of 2.0"),
        ("train", "is done"),
        ("compare_in_pandas", "mnist-ce-t-cnn"),
        ("sweep", "The winner is schedule="),
        ("track_opacus", "history [(1.0, 0.1, 30)]"),
    ],
)
def test_an_example_runs(name, words, tmp_path):
    done = python(str(ROOT / "examples" / f"{name}.py"), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout


def test_every_example_is_tested():
    (tested,) = (mark.args[1] for mark in test_an_example_runs.pytestmark)
    assert {path.stem for path in EXAMPLES} == {name for name, _ in tested}
