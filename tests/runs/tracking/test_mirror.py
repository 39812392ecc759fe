"""Live mirroring: the tracker has each epoch while the run trains, and its failures cost the run nothing."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import pytest

from dpviz.cli import main
from dpviz.privacy import InputError
from dpviz.runs.execution.process_wide import process_wide
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.execution.runners import server_runner
from dpviz.runs.store.store import Store
from dpviz.runs.tracking import mirror as mirror_module
from dpviz.runs.tracking.exporters import finite, numbers_of
from dpviz.runs.tracking.mirror import Mirror, mirror_words, server_destination
from dpviz.runs.tracking.trackers import TRACKERS, Destination, Tracker
from tests.page_words import page_words
from tests.runs.conftest import small_spec
from tests.runs.tracking.tracker_readers import read_tensorboard
from tests.ui.train.test_train_page import open_page

SMALL = ("--set", "model=logistic", "--set", "subset=2000", "--set", "batch_size=200")


class Notebook:
    """A tracker that keeps what it is given; it may fail, or hang, at an epoch."""

    opened: list[Notebook]

    def __init__(self, client, place, run) -> None:
        self.place, self.run, self.epochs, self.status = place, run, {}, ""
        Notebook.opened.append(self)

    def epoch(self, epoch, numbers) -> None:
        if self.place == "broken" and epoch == 2:
            raise ConnectionError("the server /home/ann/tracker is gone")
        if self.place == "stuck":
            STUCK.wait(60)
        self.epochs[epoch] = self.epochs.get(epoch, {}) | dict(numbers)

    def close(self, status) -> None:
        self.status = status


STUCK = threading.Event()


@pytest.fixture(autouse=True)
def notebook(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(Notebook, "opened", [], raising=False)
    entry = {"help": "a page", "title": "Notebook", "client": "json", "build": Notebook}
    monkeypatch.setitem(TRACKERS, "notebook", Tracker(name="notebook", package="json", **entry))
    monkeypatch.setitem(TRACKERS, "absent", Tracker(name="absent", package="no_such_package", **entry))
    STUCK.clear()
    yield Notebook.opened
    STUCK.set()


def mirrored(store: Store, place: str, **options) -> QueueRunner:
    return QueueRunner(store, threads=1, mirror=Mirror(store, Destination.parse(f"notebook:{place}"), **options))


def test_every_epoch_arrives_while_the_run_trains_and_a_resumed_run_arrives_whole(store, notebook):
    with contextlib.closing(mirrored(store, "logs")) as runner:
        run_id = runner.start(small_spec(epochs=15), title="Live")
        until = time.monotonic() + 60
        while not (notebook and len(notebook[0].epochs) > 1):
            assert time.monotonic() < until
            time.sleep(0.01)
        assert runner.live() == (run_id,)
        runner.stop(run_id)
        assert runner.wait(run_id, 30)
    stopped = store.get(run_id)
    (first,) = notebook
    assert (first.run.name, first.run.parameters["run_id"], first.status) == ("Live", run_id, "stopped")
    assert first.epochs[len(stopped.epochs)]["spent_sound"] == stopped.spent.epsilon_sound
    with contextlib.closing(mirrored(store, "logs", private_metrics=True)) as runner:
        runner.resume(run_id)
        assert runner.wait(run_id, 90)
    run = store.get(run_id)
    assert (run.status, notebook[1].status) == ("done", "done")
    for record in stopped.epochs:
        assert first.epochs[record.epoch].items() >= finite(numbers_of(record, private=False)).items()
        assert "not_covered/train_loss" not in first.epochs[record.epoch]
    assert list(notebook[1].epochs) == list(range(1, 16))
    for record in run.epochs:
        assert notebook[1].epochs[record.epoch].items() >= finite(numbers_of(record, private=True)).items()


def test_a_tracker_that_fails_is_one_warning_and_the_runs_go_on(store, notebook, caplog):
    with contextlib.closing(mirrored(store, "broken")) as runner:
        for _ in range(2):
            run_id = runner.start(small_spec())
            assert runner.wait(run_id, 60)
            assert store.get(run_id).status == "done"
    assert len(notebook) == 1
    (warning,) = caplog.messages
    assert warning.startswith("Notebook did not take run ")
    assert "is gone; runs go on, but are no longer mirrored" in warning
    assert "/home" not in warning


def test_a_tracker_that_hangs_delays_no_run(store, monkeypatch, caplog):
    monkeypatch.setattr(mirror_module, "PATIENCE", 0.2)
    runner = mirrored(store, "stuck")
    run_id = runner.start(small_spec())
    assert runner.wait(run_id, 60)
    assert store.get(run_id).status == "done"
    runner.close()
    assert caplog.messages == ["Notebook did not take everything within 0.2 seconds"]


def test_a_run_that_never_began_or_is_gone_leaves_nothing(store, notebook, running, record, caplog):
    mirror = Mirror(store, Destination.parse("notebook:x"))
    mirror.end(running)
    mirror.epoch("20260102-000000-gone", record(1))
    mirror.close()
    assert notebook == []
    (warning,) = caplog.messages
    assert warning.startswith("not mirrored: there is no run")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("notebook", "a mirror is written as TRACKER:PLACE, for example tensorboard:logs; got 'notebook'"),
        ("notebook: ", "Notebook needs a page; none is given"),
        ("neptune:x", "unknown tracker 'neptune'; choose one of tensorboard, mlflow, wandb, trackio"),
        ("absent:x", r"Notebook needs no_such_package, which is not installed; pip install 'dpviz\[absent\]'"),
    ],
)
def test_a_mirror_that_cannot_be_is_refused_before_anything_starts(text, sentence, monkeypatch, capsys, tmp_path):
    with pytest.raises(InputError, match=sentence):
        Destination.parse(text)
    assert main(("train", *SMALL, "--epochs", "1", "--mirror", text)) == 2
    assert not Store().list().runs
    monkeypatch.setenv("DPVIZ_MIRROR", text)
    assert main(("app",)) == 2  # the dashboard does not start either
    assert "DPVIZ_MIRROR: " in capsys.readouterr().err
    server = server_runner(Store(tmp_path / text.strip(": ")))  # started another way, it serves without a mirror
    assert (server._mirror, mirror_words()) == (None, "")


def test_a_servers_mirror_is_its_operators_and_pages_do_not_name_the_place(monkeypatch, tmp_path, notebook):
    assert (server_destination(), mirror_words()) == (None, "")
    monkeypatch.setenv("DPVIZ_MIRROR", "notebook:/srv/secret")
    page = open_page()
    assert mirror_words() in [caption.value for caption in page.caption]
    assert "Notebook" in mirror_words()
    assert "secret" not in page_words(page)
    with contextlib.closing(server_runner(Store(tmp_path / "served"))) as runner:
        run_id = runner.start(small_spec(epochs=1))
        assert runner.wait(run_id, 60)
    assert [(page.place, list(page.epochs), page.status) for page in notebook] == [("/srv/secret", [1], "done")]
    assert "not_covered/train_loss" not in notebook[0].epochs[1]
    assert process_wide(f"runner {(tmp_path / 'served').resolve()} ", lambda: None) is runner


def test_train_sweep_and_resume_mirror_and_say_what_goes_with_what(capsys, tmp_path, notebook):
    assert main(("train", *SMALL, "--epochs", "1", "--mirror", "notebook:a", "--with-private-metrics", "--json")) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert notebook[0].epochs[1]["not_covered/train_loss"] == run["epochs"][0]["train_loss"]
    sweep = tmp_path / "noise.toml"
    sweep.write_text(
        'title = "S"\nseeds = [0, 1]\n[settings]\nepochs = 1\nmodel = "logistic"\nsubset = 2000\nbatch_size = 200\n'
        "[grid]\nlearning_rate = [0.4]\n"
    )
    assert main(("sweep", str(sweep), "--mirror", "notebook:b", "--json")) == 0
    assert [page.place for page in notebook] == ["a", "b", "b"]
    assert {page.status for page in notebook} == {"done"}
    assert main(("train", *SMALL, "--with-private-metrics")) == 2
    assert main(("runs", "list", "--mirror", "notebook:a")) == 2
    complaints = capsys.readouterr().err
    assert "--with-private-metrics goes with --mirror, or with dpviz export" in complaints
    assert "go with runs resume only" in complaints


def test_train_mirrors_to_tensorboard(capsys, tmp_path):
    pytest.importorskip("tensorboard")
    logs = tmp_path / "logs"
    assert main(("train", *SMALL, "--epochs", "2", "--mirror", f"tensorboard:{logs}", "--json")) == 0
    (run,) = Store().list().runs
    _, curves = read_tensorboard(str(logs), Store().get(run.id))
    epochs = json.loads(capsys.readouterr().out)["runs"][0]["epochs"]
    assert curves["test_accuracy"] == pytest.approx({epoch["epoch"]: epoch["test_accuracy"] for epoch in epochs})
    assert curves["epsilon_sound"] == pytest.approx({epoch["epoch"]: epoch["epsilon"]["sound"] for epoch in epochs})
    assert not any("not_covered" in name for name in curves)
