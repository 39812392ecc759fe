"""Limits: each has a default, a variable and a sentence; weights are counted as the builders count them."""

import dataclasses

import pytest
import torch

from dpviz.privacy import Schedule
from dpviz.privacy.registry import InputError
from dpviz.training.limits import LIMITS, check_spec, limits_words, read_only, refuse_if_read_only
from dpviz.training.local.parsing import check_size
from dpviz.training.models import build_model
from dpviz.training.spec import RunSpec
from dpviz.training.tables import DATASETS, MODELS


def spec(**changes) -> RunSpec:
    return RunSpec(Schedule.of("constant", sigma=1.0), **({"epochs": 3, "model": "logistic"} | changes))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("knobs", [{}, {"hidden": 7}, {"width": 12}, {"layers": 3}, {"blocks": 4}], ids=str)
def test_weights_are_counted_without_torch_as_the_builders_count_them(name, knobs):
    entry = MODELS[name]
    if not set(knobs) <= set(entry.knobs):
        return
    for shape in ((1, 28, 28), (3, 32, 32), (1, 20, 24), (4, 41, 33), (105,)):
        for classes in (2, 10):
            data = dataclasses.replace(DATASETS["mnist"], shape=shape, class_names=tuple("0123456789"[:classes]))
            if not entry.takes(data):
                assert shape == (105,)
                continue
            model = build_model(name, knobs, entry.inputs(shape), classes, torch.Generator())
            assert entry.weights(data, entry.complete(knobs)) == sum(weights.numel() for weights in model.parameters())


@pytest.mark.parametrize(
    ("variable", "changes", "words"),
    [
        ("DPVIZ_MAX_EPOCHS", {"epochs": 41}, "at most 40 epochs per run are allowed here, got 41; take fewer epochs"),
        ("DPVIZ_MAX_BATCH", {"batch_size": 50}, "at most 40 examples per batch are allowed here, got 50"),
        ("DPVIZ_MAX_WEIGHTS", {}, "at most 40 weights per model are allowed here, got 7,850"),
    ],
)
def test_each_limit_of_a_run_is_set_by_its_variable_and_refuses_in_a_sentence(monkeypatch, variable, changes, words):
    assert check_spec(spec(**changes)) == spec(**changes)
    monkeypatch.setenv(variable, "40")
    with pytest.raises(InputError, match=words) as caught:
        check_spec(spec(**changes))
    assert variable in str(caught.value)


def test_a_run_at_the_limit_is_taken(monkeypatch):
    monkeypatch.setenv("DPVIZ_MAX_EPOCHS", "3")
    assert check_spec(spec()).epochs == 3
    assert "3 epochs per run" in limits_words()


@pytest.mark.parametrize("text", ["0", "-5", "many", "1.5", "1e3", "nan", "9" * 30, "²"])
def test_a_limit_that_is_no_whole_number_is_an_error_and_not_ignored(monkeypatch, text):
    monkeypatch.setenv("DPVIZ_MAX_EPOCHS", text)
    with pytest.raises(InputError, match="DPVIZ_MAX_EPOCHS must be a whole number >= 1"):
        check_spec(spec())


def test_the_largest_upload_is_set_by_its_variable(monkeypatch):
    check_size(20_000_000)
    monkeypatch.setenv("DPVIZ_MAX_UPLOAD_MB", "2")
    check_size(2_000_000)
    with pytest.raises(InputError, match=r"no larger than 2 MB, got 2\.1 MB"):
        check_size(2_100_000)


def test_every_limit_has_a_variable_of_its_own():
    variables = [limit.variable for limit in LIMITS.values()]
    assert len(set(variables)) == len(variables)
    assert all(variable.startswith("DPVIZ_MAX_") for variable in variables)


@pytest.mark.parametrize(("text", "locked"), [("", 0), ("0", 0), ("no", 0), ("1", 1), ("yes", 1), ("on", 1)])
def test_read_only_is_on_for_every_word_but_no(monkeypatch, text, locked):
    monkeypatch.setenv("DPVIZ_READ_ONLY", text)
    assert bool(read_only()) == bool(locked)
    if locked:
        with pytest.raises(InputError, match=r"this dashboard is read-only \(DPVIZ_READ_ONLY is set\)"):
            refuse_if_read_only()
    else:
        refuse_if_read_only()
