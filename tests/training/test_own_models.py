"""A person's own model: named, priced and shown without its code, checked before it trains, refused by pages."""

import dataclasses
import json
import math
import sys

import pytest
import torch

import dpviz
from dpviz.cli import main
from dpviz.privacy import Schedule, epsilon
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import Assignment, RunOptions
from dpviz.runs.execution.pace import StepTimings
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.execution.work import work
from dpviz.runs.notebook import rests_on
from dpviz.runs.store.records import Provenance
from dpviz.runs.store.store import Store
from dpviz.training.data.readers import Data
from dpviz.training.engine import Trainer
from dpviz.training.models import build_model
from dpviz.training.pricing import planned_guarantee
from dpviz.training.spec import RunSpec
from dpviz.training.tables import MODELS
from tests.browser import ROOT
from tests.training import own_nets

OWN = "tests.training.own_nets:"
SIZE, TEST = 400, 100


def spec_of(function: str, **changes) -> RunSpec:
    settings = {"epochs": 4, "subset": SIZE, "batch_size": 50, "learning_rate": 2.0, "clip_norm": 1.0, "delta": 1e-4}
    schedule = Schedule.of("constant", sigma=changes.pop("sigma", 0.8))
    return RunSpec(schedule, model=OWN + function, **(settings | changes))


def sentences() -> Data:
    """Nine words each; the odd ones lean to one class. Shorter texts end in zeros."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(SIZE + TEST) % 2
    words = 2 * torch.randint(1, own_nets.VOCABULARY // 2, (len(labels), 9), generator=generator)
    words -= labels[:, None] * (torch.rand(words.shape, generator=generator) < 0.8)
    words[::3, 6:] = 0
    return Data(words[:SIZE], labels[:SIZE], words[SIZE:], labels[SIZE:], classes=2)


def waves() -> Data:
    """Slow or fast waves of two channels."""
    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(SIZE + TEST) % 2
    phase = 2 * math.pi * torch.rand(len(labels), 2, 1, generator=generator)
    values = torch.sin(phase + torch.arange(32) * (0.3 + 0.9 * labels[:, None, None]))
    return Data(values[:SIZE], labels[:SIZE], values[SIZE:], labels[SIZE:], classes=2)


def table() -> Data:
    x, labels = torch.randn(SIZE + TEST, 10, generator=torch.Generator().manual_seed(3)), torch.arange(SIZE + TEST) % 2
    return Data(x[:SIZE], labels[:SIZE], x[SIZE:], labels[SIZE:], classes=2)


CASES = {"text": sentences, "signal": waves}
OPACUS_WARNINGS = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.mark.parametrize("name", CASES)
def test_a_text_classifier_and_a_1d_convolution_learn_and_cost_what_was_planned(name):
    spec = spec_of(name)
    trainer = Trainer(spec, data=CASES[name]())
    records = list(trainer.epochs())
    assert records[-1].test_accuracy > 0.8
    assert records[-1].epsilon_sound == epsilon(spec.phases, spec.delta).upper
    assert trainer.perexample.fallback is None


def test_a_run_of_an_own_model_is_a_function_of_its_settings_and_leaves_torchs_random_state_alone():
    spec, data = spec_of("signal", epochs=1), waves()
    state = torch.get_rng_state()
    one = Trainer(spec, data=data)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    same, other = Trainer(spec, data=data), Trainer(dataclasses.replace(spec, seed=1), data=data)
    for trainer in (one, same, other):
        list(trainer.epochs())
    assert all(torch.equal(a, b) for a, b in zip(one.parameters, same.parameters, strict=True))
    assert not torch.equal(one.parameters[0], other.parameters[0])


def test_padding_is_never_trained_and_tokens_of_half_a_word_size_are_looked_up_too():
    data = sentences()
    small = Data(data.train_images.int(), data.train_labels, data.test_images.int(), data.test_labels, 2)
    trainer = Trainer(spec_of("text", method="sgd", epochs=1, sigma=0.0), data=small)
    list(trainer.epochs())
    assert not trainer.model.words.weight[0].any()
    assert trainer.model.words.weight[1].any()


def test_layers_that_a_person_froze_stay_as_they_are():
    trainer = Trainer(spec_of("frozen", epochs=1), data=table())
    before = [weights.clone() for weights in trainer.model.parameters()]
    list(trainer.epochs())
    changed = [not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True)]
    assert changed == [False, False, True, True]


@OPACUS_WARNINGS
@pytest.mark.parametrize("name", ["dp_lstm", "twice", "frozen"])
def test_diagnostics_look_into_any_model(name):
    data = sentences() if name == "dp_lstm" else table()
    (record,) = Trainer(spec_of(name, epochs=1, diagnostics=True), data=data).epochs()
    assert record.diagnostics["layers"][-1]["name"] in ("last", "3")
    assert record.diagnostics["layers"][-1]["pre_activation_norm"] == record.diagnostics["logit_norm"]
    assert math.isfinite(record.diagnostics["hessian_eigenvalue"])


@OPACUS_WARNINGS
def test_layers_that_the_fast_path_does_not_know_are_left_to_opacus_and_the_run_says_so(tmp_path):
    store = Store(tmp_path)
    run = store.get(store.create(spec_of("dp_lstm", epochs=1)))
    options = RunOptions(device="cpu", own_code=True)
    reports = []
    ended = work(Assignment(run, None, options, 1, ""), reports.append, lambda: False, sentences())
    assert ended.status == "done", ended.error
    assert "LSTM layers are not known to the fast path" in ended.provenance.gradients
    assert len(ended.provenance.versions[run.spec.model]) == 16
    assert Provenance.from_json(ended.provenance.to_json()) == ended.provenance


# --- refused, each in a sentence ----------------------------------------------------------------------------------

REFUSED = {
    "batch_norm": r"layer 1 \(BatchNorm1d\) of model .* mixes the examples .*ModuleValidator\.fix\(model\)",
    "lstm": r"layer memory \(LSTM\) of model .* hides their gradients",
    "dropout": "gives another answer each time",
    "half_frozen": "is frozen in part",
    "all_frozen": "has no weights to train",
    "too_many_classes": r"must give a row of 2 numbers per example, got \(3, 3\) for 3",
    "max_norm": "leave out max_norm",
    "centred": "mixes the examples of a batch: an example's answer changes with the others",
    "borrowed": "use each weight only in the layer that holds it",
    "remembers": "keeps something of the examples it sees",
    "huge": "at most 5,000,000 weights per model",
    "breaks": "failed on 3 examples of shape .*KeyError: 'no such layer'",
    "no_module": "must return a torch module, got str",
    "no_function": "must be a function of input shape and classes, got int",
    "nothing_here": "cannot be imported",
}


@OPACUS_WARNINGS
@pytest.mark.parametrize("function", REFUSED)
def test_a_model_for_which_epsilon_would_not_hold_is_refused_before_it_sees_data(function):
    tokens = function in ("lstm", "max_norm")
    with pytest.raises(InputError, match=REFUSED[function]):
        build_model(OWN + function, {}, (10,), 2, torch.Generator().manual_seed(0), tokens=tokens)


def test_a_module_that_is_not_there_is_refused_with_what_to_do():
    with pytest.raises(InputError, match=r"model no\.such:net cannot be imported .* start where no\.such lies"):
        build_model("no.such:net", {}, (10,), 2, torch.Generator())


@pytest.mark.parametrize("name", ["a:b:c", "a b:c", "../a:b", ":f", "a:", "a.:f", "x" * 200 + ":f", "é:f", "a:f()", 5])
def test_what_is_no_name_of_a_function_is_an_unknown_model(name):
    with pytest.raises(InputError, match=r"unknown model .* choose one of cnn-mnist"):
        MODELS[name]


# --- code runs only where a person asks for it --------------------------------------------------------------------

TRAP = "tests.training.own_trap:net"


@pytest.fixture
def trapped():
    """Settings whose model does harm as soon as it is imported."""
    sys.modules.pop("tests.training.own_trap", None)
    yield dataclasses.replace(spec_of("text", epochs=1, dataset="mnist"), model=TRAP)
    assert "tests.training.own_trap" not in sys.modules


def test_settings_with_code_are_read_shown_and_priced_without_running_it(trapped, tmp_path):
    spec = RunSpec.from_json(json.loads(json.dumps(trapped.to_json())))
    assert spec == trapped
    price = planned_guarantee(spec)
    assert price.sound == planned_guarantee(dataclasses.replace(spec, model="logistic")).sound
    for words in (price.assumptions, rests_on(spec)):
        assert any("is code that dpviz does not hold" in text for text in words)
    store = Store(tmp_path)
    run_id = store.create(spec)
    assert TRAP in store.get(run_id)._repr_html_()
    assert store.list().runs[0].model == TRAP


def test_pages_show_a_run_with_code_and_its_resume_is_refused_in_a_sentence(trapped, tmp_path, monkeypatch):
    from streamlit.testing.v1 import AppTest

    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "none"))
    store = Store(tmp_path)
    run_id = store.create(trapped)
    store.set_status(run_id, "stopped")
    store.release(run_id)
    app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    for name in ("compare", "train"):
        page = app.switch_page(f"pages/{name}.py").run()
        assert not page.exception
    assert any("own_trap" in str(text.value) for text in (*page.caption, *page.markdown))
    next(button for button in page.button if button.label == "Resume").click().run()
    assert not page.exception
    assert any("which pages do not run" in str(text.value) for text in (*page.error, *page.markdown))
    assert store.get(run_id).status == "stopped"


def test_what_pages_use_neither_starts_resumes_nor_times_code(trapped, tmp_path):
    store = Store(tmp_path)
    run_id = store.create(trapped)
    store.set_status(run_id, "stopped")
    store.release(run_id)
    runner = QueueRunner(store)
    for act in (
        lambda: runner.start(trapped),
        lambda: runner.start_all((trapped,)),
        lambda: runner.resume(run_id),
        lambda: StepTimings().start(trapped),
    ):
        with pytest.raises(InputError, match="is code of your own, which pages do not run; use the command line"):
            act()
    runner.close()
    assert store.get(run_id).status == "stopped"
    assert len(store.list().runs) == 1


def test_a_worker_that_was_not_allowed_to_run_code_fails_the_run(trapped, tmp_path):
    store = Store(tmp_path)
    run = store.get(store.create(trapped))
    ended = work(Assignment(run, None, RunOptions(), 1, ""), lambda report: None, lambda: False, sentences())
    assert (ended.status, ended.provenance) == ("failed", None)
    assert "which pages do not run" in ended.error


SOURCE = """
from torch import nn

def net(input_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(input_shape[1] * input_shape[2], classes))
"""


def test_the_command_line_and_python_train_a_model_from_a_file_beside_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mynets.py").write_text(SOURCE)
    flags = ["--epochs", "1", "--set", "subset=300", "--set", "batch_size=100", "--device", "cpu", "--json"]
    assert main(["train", "--model", "mynets:net", *flags]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["runs"]
    run = Store().get(shown["run_id"])
    assert (run.status, run.spec.model) == ("done", "mynets:net")
    again = dpviz.train(run.spec, device="cpu")
    assert again.provenance.versions["mynets:net"] == run.provenance.versions["mynets:net"]
    assert again.epochs[-1].test_loss == run.epochs[-1].test_loss
    assert main(["train", "--model", "mynets:net", "--set", "model=mlp"]) == 2
    assert "model is given twice, by --model and by --set" in capsys.readouterr().err
    assert main(["train", "--model", "mynets:other", *flags]) == 1
    assert "cannot be imported" in json.loads(capsys.readouterr().out)["runs"][0]["error"]
