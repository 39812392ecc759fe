"""A toy of every kind, added as the README says, in one place: forms, flags and listings find it, and it works."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from dpviz.cli import main
from dpviz.privacy import ACCOUNTANTS, SCHEDULES, Ledger, Schedule, epsilon, epsilon_path
from dpviz.privacy.accountants import Accountant, Bounds
from dpviz.privacy.registry import Entry, Knob, Table
from dpviz.runs.store.store import Store
from dpviz.training.architectures import Activation, Dense, Flatten, Layers, Model, Shape
from dpviz.training.data.catalog import DATASETS, Dataset
from dpviz.training.engine import Trainer
from dpviz.training.limits import check_spec
from dpviz.training.spec import RunSpec
from dpviz.training.tables import LOSSES, MODELS
from dpviz.ui.schedule.export import opacus_script
from dpviz.ui.schedule.settings import Settings
from dpviz.views.schedules import what_if_frame
from tests.browser import ROOT

SIZE = 60
LEDGER = Ledger([(2.0, 0.01, 100), (1.0, 0.01, 100)])


# --- the toys, each with everything about it in one place -------------------------------------------------------------


def zigzag(epochs: int, sigma: float, jump: float) -> np.ndarray:
    """Up and down: sigma, sigma + jump, sigma, ..."""
    return sigma + jump * (np.arange(epochs) % 2)


def build_margin(margin: float) -> Callable:
    """How far the right logit falls short of the others' mean plus a margin."""
    return lambda logits, labels, epoch, hidden: torch.relu(
        margin + logits.mean(1) - logits.gather(1, labels[:, None])[:, 0]
    )


def build_small(shape: Shape, classes: int, units: int) -> Layers:
    return (Flatten(), Dense(units), Activation("tanh"), Dense(classes))


def read_stripes(dataset: Dataset, folder: Path) -> tuple:
    """Images of one bright row: the upper or the lower half says which class."""
    labels = np.arange(SIZE + 20) % 2
    pixels = np.zeros((len(labels), *dataset.shape), np.uint8)
    pixels[np.arange(len(labels)), 0, np.where(labels, 4, 1)] = 255
    return (pixels[:SIZE], labels[:SIZE]), (pixels[SIZE:], labels[SIZE:])


@dataclass(frozen=True, kw_only=True)
class Cautious(Accountant):
    """Twice the bound from moments: an upper bound too."""

    kind: str = "cautious upper bound"

    def sampled(self, ledger: Ledger, delta: float, adjacency: str) -> Bounds:
        return 0.0, 2 * ACCOUNTANTS["rdp"].sampled(ledger, delta, adjacency)[1], None

    def unsampled(self, mu: float, delta: float) -> Bounds:
        return 0.0, 2 * ACCOUNTANTS["rdp"].unsampled(mu, delta)[1], None

    def sampled_delta(self, ledger: Ledger, epsilon: float, adjacency: str) -> Bounds:
        return ACCOUNTANTS["rdp"].sampled_delta(ledger, epsilon / 2, adjacency)

    def unsampled_delta(self, mu: float, epsilon: float) -> Bounds:
        return ACCOUNTANTS["rdp"].unsampled_delta(mu, epsilon / 2)


TOYS: dict[str, tuple[Table, Entry]] = {
    "schedule": (
        SCHEDULES,
        Entry("toy-zigzag", "Up and down.", {"sigma": Knob(1.0), "jump": Knob(0.5)}, build=zigzag),
    ),
    "loss": (LOSSES, Entry("toy-margin", "Falls short.", {"margin": Knob(1.0, 0.0, 9.0)}, build=build_margin)),
    "model": (
        MODELS,
        Model(
            "toy-small",
            "One hidden layer.",
            {"units": Knob(4, 1, 64)},
            build=build_small,
        ),
    ),
    "dataset": (
        DATASETS,
        Dataset(
            "toy-stripes",
            "One bright row.",
            build=read_stripes,
            size=SIZE,
            shape=(1, 6, 6),
            class_names=("up", "down"),
            mean=(0.0,),
            std=(1.0,),
        ),
    ),
    "accountant": (ACCOUNTANTS, Cautious("toy-cautious", "Twice the bound from moments.")),
}


@pytest.fixture
def toys() -> Iterator[dict[str, Entry]]:
    for table, entry in TOYS.values():
        table.add(entry)
    yield {kind: entry for kind, (_, entry) in TOYS.items()}
    for table, entry in TOYS.values():
        del table[entry.name]


def trained(**changes) -> tuple[RunSpec, Trainer]:
    settings = {"epochs": 1, "dataset": "toy-stripes", "model": "logistic", "batch_size": 20, "clip_norm": 1.0}
    spec = check_spec(RunSpec(Schedule.of("constant", sigma=0.5), **(settings | changes)))
    return spec, Trainer(spec)


# --- found ------------------------------------------------------------------------------------------------------------


def page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120).switch_page(f"pages/{name}.py").run()
    assert not at.exception
    return at


def test_the_train_form_offers_every_toy_of_a_run(toys, tmp_path, monkeypatch):
    at = page("train", tmp_path, monkeypatch)
    for kind in ("schedule", "loss", "model", "dataset"):
        assert toys[kind].title in at.selectbox(key=f"train.{kind}").options
    at.selectbox(key="train.dataset").select("toy-stripes").run()
    at.selectbox(key="train.model").select("toy-small").run()
    assert not at.exception
    assert at.number_input(key="train.model.toy-small.units").value == 4
    assert toys["model"].help in at.selectbox(key="train.model").help


def test_the_schedule_page_prices_by_the_toy_accountant(toys, tmp_path, monkeypatch):
    at = page("schedule", tmp_path, monkeypatch)
    at.selectbox(key="schedule.accountant").select("toy-cautious").run()
    assert not at.exception
    assert any("cautious upper bound" in str(text.value) for text in (*at.caption, *at.markdown, *at.metric))


def test_flags_and_listings_name_the_toys(toys, capsys):
    assert main(["schedules", "--json"]) == 0
    assert "toy-zigzag" in {entry["name"] for entry in json.loads(capsys.readouterr().out)["schedules"]}
    assert main(["data", "--json"]) == 0
    assert {"dataset": "toy-stripes", "there": True} in [
        {name: row[name] for name in ("dataset", "there")} for row in json.loads(capsys.readouterr().out)["datasets"]
    ]
    assert main(["epsilon", "--schedule", "toy-zigzag", "--jump", "2", "--epochs", "3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["sigmas"] == [1.0, 3.0, 1.0]
    assert answer["toy-cautious"]["upper"] == 2 * answer["rdp"]["improved"]
    assert main(["calibrate", "--accountant", "toy-cautious", "--target-epsilon", "3", "--json"]) == 0
    for kind in ("loss", "model", "dataset"):
        assert main(["train", "--set", f"{kind}=unheard-of"]) == 2
        assert toys[kind].name in capsys.readouterr().err


# --- used -------------------------------------------------------------------------------------------------------------


def test_a_run_is_trained_with_all_toys_from_the_command_line(toys, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path))
    chosen = {kind: toys[kind].name for kind in ("schedule", "loss", "model", "dataset")}
    settings = {**chosen, "schedule.jump": 0, "model.units": 5, "loss.margin": 2, "batch_size": 20}
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    assert main(["train", "--epochs", "1", "--device", "cpu", *flags, "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["status"] == "done"
    (kept,) = Store(tmp_path).list().runs
    spec = Store(tmp_path).get(kept.id).spec
    assert spec.knobs_of("model") == {"units": 5}
    assert (spec.schedule.name, spec.loss, spec.model, spec.dataset) == tuple(chosen.values())


@pytest.mark.parametrize("choice", [{}, {"loss": "toy-margin"}, {"model": "toy-small"}])
def test_an_epoch_of_a_toy_moves_the_weights(toys, choice):
    spec, trainer = trained(**choice)
    before = [weights.clone() for weights in trainer.parameters]
    (record,) = trainer.epochs()
    assert record.epsilon_sound == epsilon(spec.phases, spec.delta).upper
    assert any(not torch.equal(old, new) for old, new in zip(before, trainer.parameters, strict=True))
    assert sum(weights.numel() for weights in trainer.parameters) == MODELS[spec.model].weights(
        DATASETS["toy-stripes"], spec.knobs_of("model")
    )


def test_the_toy_accountant_prices_ledgers_paths_and_tables(toys):
    whole = epsilon(LEDGER, 1e-5, accountant="toy-cautious")
    assert whole.upper == 2 * epsilon(LEDGER, 1e-5, accountant="rdp").upper
    path = epsilon_path(LEDGER.phases, 1e-5, accountant="toy-cautious")
    assert path[-1] == whole
    assert path[0].upper == 2 * epsilon(LEDGER.phases[:1], 1e-5, accountant="rdp").upper
    assert "toy-cautious" in set(what_if_frame((2.0, 1.0), 0.01, 1e-5)["accountant"])


def test_a_dataset_that_torchvision_does_not_know_gets_a_script_for_own_data(toys):
    text = opacus_script((2.0, 1.0), Settings(dataset="toy-stripes", dataset_size=SIZE, batch_size=20, epochs=2))
    assert "torchvision.datasets" not in text
    assert "torch.rand(size, 1, 6, 6), torch.randint(2, (size,))" in text


def test_the_toys_are_gone_afterwards():
    assert not [entry.name for table, entry in TOYS.values() if entry.name in table]
