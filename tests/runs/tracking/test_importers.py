"""Runs from files: every format with its real writer where there is one; bad and malicious files are one sentence."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import dp_accounting
import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting.pld import PLDAccountant

import dpviz
from dpviz.cli import main
from dpviz.runs import Store
from tests.runs.tracking.opacus_loop import DELTA, opacus_loop

POISSON = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(1.1))
CSV = """epoch,sigma,q,steps,test_accuracy,eps,note
1,2.0,0.1,10,0.5,1.5,first
2,1.0,0.1,10,0.7,3.5,second
"""


def bring(path: Path, content: str | bytes | None = None, **about):
    """The run in a file; the store is beside it."""
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return dpviz.import_run(path, store=path.parent / "runs", **{"delta": DELTA} | about)


def tuples(run):
    return [(phase.noise_multiplier, phase.sample_rate, phase.steps) for phase in run.spec.phases]


# --- ledgers --------------------------------------------------------------------------------------------------------


def test_an_opacus_checkpoint_gives_its_history(tmp_path):
    loop = opacus_loop("prv")
    loop.train()
    path = tmp_path / "model.pt"
    loop.engine.save_checkpoint(path=path, module=loop.model, optimizer=loop.optimizer)
    run = bring(path, dataset="hospital", test_accuracy=0.8, epsilon=5.0, model="line")
    assert tuples(run) == [(1.0, 0.1, 10)]
    assert (run.title, run.kind, run.status, run.spec.model) == ("model", "imported", "done", "line")
    (record,) = run.epochs
    assert record.epsilon_sound == dpviz.epsilon(loop.history, DELTA).upper
    assert (record.test_accuracy, record.epsilon_claimed, record.step) == (0.8, 5.0, 10)
    torch.save(loop.engine.accountant.state_dict(), tmp_path / "accountant.pt")
    assert tuples(bring(tmp_path / "accountant.pt")) == [(1.0, 0.1, 10)]
    assert tuples(bring(tmp_path / "a.json", json.dumps(loop.engine.accountant.state_dict()))) == [(1.0, 0.1, 10)]


def test_a_dp_accounting_event_gives_its_ledger_and_its_price(tmp_path):
    event = dp_accounting.ComposedDpEvent(
        [
            dp_accounting.SelfComposedDpEvent(POISSON, 100),
            dp_accounting.NoOpDpEvent(),
            dp_accounting.SelfComposedDpEvent(
                dp_accounting.ComposedDpEvent([POISSON, dp_accounting.GaussianDpEvent(30.0)]), 2
            ),
        ]
    )
    run = bring(tmp_path / "event.json", json.dumps(event.to_named_tuple()))
    assert tuples(run) == [(1.1, 0.01, 102), (30.0, 1.0, 2)]
    other = PLDAccountant().compose(event).get_epsilon(DELTA)
    assert run.spent.epsilon_sound == pytest.approx(other, rel=0.01)


# --- curves ---------------------------------------------------------------------------------------------------------


def test_a_csv_gives_a_curve_with_its_ledger(tmp_path):
    run = bring(tmp_path / "curve.csv", CSV, name="Mine", dataset="mnist")
    assert tuples(run) == [(2.0, 0.1, 10), (1.0, 0.1, 10)]
    assert [record.test_accuracy for record in run.epochs] == [0.5, 0.7]
    assert [record.epsilon_claimed for record in run.epochs] == [1.5, 3.5]
    path = dpviz.epsilon_path(run.spec.phases, DELTA)
    assert [record.epsilon_sound for record in run.epochs] == [point.upper for point in path]
    assert run.spec.epochs == 2


FLAGS = {"noise_multiplier": 1.0, "sample_rate": 0.1, "steps": 10}
HISTORY = pd.DataFrame({"_step": [0, 1, 2], "epoch": [0, 0, 1], "val/acc": [0.5, np.nan, 0.7], "lr": [0.1, 0.1, 0.05]})
EXPORTS = {
    "wandb chart": '"Step","a run - val/acc","a run - val/acc__MIN","a run - val/acc__MAX"\n0,.5,.5,.5\n1,.7,.7,.7',
    "wandb history": HISTORY.to_csv(index=False),
    "wandb json": HISTORY.to_json(),
    "wandb records": HISTORY.to_json(orient="records"),
    "wandb lines": HISTORY.to_json(orient="records", lines=True),
    "tensorboard": "Wall time,Step,Value\n1731888000.1,0,0.5\n1731888009.2,1,0.7\n",
    "tensorboard json": "[[1731888000.1, 0, 0.5], [1731888009.2, 1, 0.7]]",
}


@pytest.mark.parametrize("content", EXPORTS.values(), ids=EXPORTS)
def test_an_export_of_a_tracker_is_a_curve_and_flags_are_its_ledger(content, tmp_path):
    run = bring(tmp_path / "export", content, **FLAGS)
    assert [record.test_accuracy for record in run.epochs] == [0.5, 0.7]
    assert tuples(run) == [(1.0, 0.1, 10)] * 2
    assert run.epochs[-1].metrics == ({"lr": 0.05} if "lr" in content else {})
    with pytest.raises(dpviz.InputError, match=r"no noise_multiplier; give it as a column, or .* by --sigma"):
        bring(tmp_path / "export")


def test_a_tensorboard_event_file_is_a_curve(tmp_path):
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path / "log")) as writer:
        for step, accuracy in enumerate((0.5, 0.75)):
            writer.add_scalar("val/acc", accuracy, step)
    (path,) = (tmp_path / "log").iterdir()
    assert [record.test_accuracy for record in bring(path, **FLAGS).epochs] == [0.5, 0.75]


# --- where imported runs stand --------------------------------------------------------------------------------------


def test_the_command_keeps_the_run_and_every_list_says_that_it_is_imported(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    (tmp_path / "curve.csv").write_text(CSV)
    assert main(["import", str(tmp_path / "curve.csv"), "--name", "Mine", "--dataset", "hospital", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kind"], data["status"], len(data["epochs"])) == ("imported", "done", 2)
    run_id = data["run_id"]
    for words in (["list"], ["show", run_id], ["export", run_id]):
        assert main(["runs", *words]) == 0
        assert "imported" in capsys.readouterr().out
    assert main(["runs", "resume", run_id]) == 2
    assert "neither resumed nor trained again" in capsys.readouterr().err
    exported = Store(tmp_path / "runs").export(run_id)
    assert exported["epochs"][0]["phases"] == [[2.0, 0.1, 10]]
    frame = dpviz.load_runs(tmp_path / "runs", cached=False)
    assert set(frame["source"]) == {"imported"}
    assert list(frame["test_accuracy"]) == [0.5, 0.7]
    assert frame["test_loss"].isna().all()
    assert "dpviz did not see it" in Store(tmp_path / "runs").get(run_id)._repr_html_()


# --- refusals -------------------------------------------------------------------------------------------------------


class Attack:
    """A pickle that would make a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def packed(content: bytes) -> bytes:
    """A checkpoint whose entries are packed: the way of a zip bomb."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            new.writestr(entry.filename, old.read(entry))
    return buffer.getvalue()


def saved(state) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


STATE = {"history": [(1.0, 0.1, 10)], "mechanism": "rdp"}
EVENT = ["dp_accounting.dp_event", "GaussianDpEvent", 1.0]
deep = EVENT
for _ in range(60):
    deep = ["dp_accounting.dp_event", "SelfComposedDpEvent", deep, 10]

REFUSED = {
    "nothing": (b"", "needs a heading"),
    "bytes": (b"\x80\x02\xff\xfe", "neither text nor a file of torch.save"),
    "a plain pickle": (pickle.dumps(STATE), "neither text|needs a heading"),
    "packed": (packed(saved(STATE)), "packed entries"),
    "cut off": (saved(STATE)[:200], "not a file of torch.save"),
    "no accountant": (saved({"weights": torch.zeros(3)}), "holds no accountant"),
    "a tensor": (saved(torch.zeros(3)), "holds no accountant"),
    "an empty history": (saved({"history": [], "mechanism": "rdp"}), "a ledger without steps"),
    "a bad history": (saved({"history": [("a", 0.1, 1)], "mechanism": "rdp"}), "a history is a list of"),
    "a rate above 1": (saved({"history": [(1.0, 3.0, 1)], "mechanism": "rdp"}), "sample_rate"),
    "a history in words": (json.dumps({"history": "all", "mechanism": "rdp"}), "a history is a list|history is a list"),
    "JSON that is none": ("{not json", "not valid JSON"),
    "JSON of something else": ('{"a": 1}', "no accountant's history, no dp_accounting event"),
    "deep JSON": ("[" * 100_000, "not valid JSON"),
    "NaN in JSON": ('[{"epoch": 1, "acc": NaN}]', "not valid JSON"),
    "a deep event": (json.dumps(deep), "at most 50 deep"),
    "a huge event": (
        json.dumps(["dp_accounting.dp_event", "SelfComposedDpEvent", EVENT, 10**12]),
        "steps can be accounted",
    ),
    "a Laplace event": (
        json.dumps(["dp_accounting.dp_event", "LaplaceDpEvent", 1.0]),
        "LaplaceDpEvent cannot be priced",
    ),
    "an event that repeats nothing": (
        json.dumps(["dp_accounting.dp_event", "SelfComposedDpEvent", EVENT, 0]),
        "SelfComposedDpEvent cannot be priced",
    ),
    "a heading only": ("epoch,sigma,q,steps\n", "needs a heading and one line per epoch"),
    "a short line": (CSV + "3,1.0\n", "line 4 of the CSV has 2 cells"),
    "one name twice": ("sigma,q,steps,acc,acc\n1,0.1,10,0.5,0.5\n", "two columns have one name: 'acc'"),
    "two accuracies": ("sigma,q,steps,acc,val_acc\n1,0.1,10,0.5,0.5\n", "two columns are test_accuracy"),
    "percent": (CSV.replace("0.7", "70"), "fractions from 0 to 1"),
    "a gap": (CSV.replace("\n2,", "\n4,"), "got epoch 4 where 2 was due"),
    "half an epoch": (CSV.replace("\n2,", "\n1.5,"), "row 2 needs its epoch, a whole number"),
    "no epoch": (CSV.replace("\n2,", "\n,"), "row 2 needs its epoch"),
    "steps of an epoch in two rows": (CSV.replace("\n2,", "\n1,"), "epoch 1 has noise_multiplier in two rows"),
    "an epoch twice": (CSV + "2,1.0,0.1,10,0.7,3.5,again\n", "epoch 2 has steps in two rows"),
    "a word for the noise": (CSV.replace(",1.0,", ",low,"), "noise_multiplier must be a number, got 'low'"),
    "half a step": (CSV.replace(",10,", ",9.5,"), "steps must be a whole number"),
    "endless noise": (
        CSV.replace(",2.0,", ",inf,").replace("1,2.0", "1,inf"),
        "noise_multiplier must be a finite number",
    ),
    "claims in one epoch only": (CSV.replace(",3.5,", ",,"), "in every epoch or in none"),
}


@pytest.mark.parametrize(("content", "words"), REFUSED.values(), ids=REFUSED)
def test_a_bad_file_is_one_sentence_and_leaves_nothing(content, words, tmp_path):
    with pytest.raises(dpviz.InputError, match=words) as refusal:
        bring(tmp_path / "bad", content)
    assert "\n" not in str(refusal.value)
    assert str(tmp_path) not in str(refusal.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("inside", [True, False], ids=["in a checkpoint", "a plain pickle"])
def test_a_file_that_wants_to_run_code_runs_nothing(inside, tmp_path):
    attack = Attack(tmp_path / "ran")
    content = saved(STATE | {"more": attack}) if inside else pickle.dumps(attack)
    with pytest.raises(dpviz.InputError, match="could run code" if inside else "neither text"):
        bring(tmp_path / "model.pt", content)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "runs").exists()
    torch.load(io.BytesIO(content), weights_only=False) if inside else pickle.loads(content)
    assert (tmp_path / "ran").exists()  # it would have


def test_sizes_are_limited(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_MAX_UPLOAD_MB", "1")
    with pytest.raises(dpviz.InputError, match="at most 1 MB per file"):
        bring(tmp_path / "big.csv", CSV + "1" * 1_100_000)
    monkeypatch.setenv("DPVIZ_MAX_EPOCHS", "1")
    with pytest.raises(dpviz.InputError, match="at most 1 epochs"):
        bring(tmp_path / "long.csv", CSV)
    monkeypatch.setattr("dpviz.training.checkpoint.MOST_PICKLED", 10)
    with pytest.raises(dpviz.InputError, match="beside its tensors"):
        bring(tmp_path / "model.pt", saved(STATE))


def test_a_full_disk_leaves_no_half_run(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "no space")

    monkeypatch.setattr("dpviz.runs.store.run_files.append_epoch", full)
    with pytest.raises(dpviz.InputError, match="the disk is full"):
        bring(tmp_path / "curve.csv", CSV)
    assert Store(tmp_path / "runs").list().runs == ()


@pytest.mark.parametrize(("path", "words"), [("none.csv", "no such file"), (".", "is a directory")])
def test_a_file_that_is_not_there(path, words, tmp_path):
    with pytest.raises(dpviz.InputError, match=words):
        bring(tmp_path / path)
