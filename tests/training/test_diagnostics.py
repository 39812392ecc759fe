"""Diagnostics are right, plain JSON, and leave the run as it is."""

import json

import numpy as np
import pytest
import torch

from dpviz.training.diagnostics import _histogram, confusion, largest_eigenvalue
from dpviz.training.evaluation import Evaluation, evaluate, forward
from dpviz.training.losses import build_loss
from tests.training.small import curve, quiet, small_spec, trainer


def last(spec):
    return list(trainer(spec).epochs())[-1].diagnostics


@pytest.mark.parametrize("changes", [{}, {"method": "screening"}, {"curriculum": "masked"}, {"loss": "tailored"}])
def test_a_run_is_the_same_with_and_without_diagnostics(changes):
    spec = {"model": "cnn-mnist", "epochs": 2, **changes}
    looked, blind = (trainer(small_spec(diagnostics=on, **spec)) for on in (True, False))
    assert curve(looked.epochs()) == curve(blind.epochs())


def test_diagnostics_are_off_by_default_and_plain_json_when_on():
    assert last(small_spec(epochs=1)) == {}
    found = last(small_spec(epochs=1, diagnostics=True, method="screening"))
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["screening"]["generated"] == 5
    assert found["screening"]["accepted"] <= 5


def test_plain_sgd_is_all_signal():
    found = last(quiet(epochs=1, diagnostics=True, learning_rate=0.1))
    assert found["cosine"] == pytest.approx(1.0, abs=1e-5)
    assert found["clipped_fraction"] == 0
    assert found["clip_norm"] is None
    assert found["update"]["clipping_bias"] == pytest.approx(0, abs=1e-6)
    assert found["update"]["noise"] == 0


def test_a_tiny_clipping_norm_clips_everything_and_the_bias_is_the_signal():
    found = last(small_spec(epochs=1, diagnostics=True, clip_norm=1e-4))
    assert found["clipped_fraction"] == 1
    assert found["update"]["clipping_bias"] == pytest.approx(found["update"]["signal"], rel=1e-2)
    assert found["update"]["noise"] == pytest.approx(2.0 * 1e-4 / 80 * 7850**0.5)


def test_the_histogram_counts_every_example_and_covers_every_norm():
    made = trainer(small_spec(epochs=1, diagnostics=True))
    found = next(made.epochs()).diagnostics
    norms = found["gradient_norms"]
    assert sum(norms["counts"]) == found["examples"] == 256
    assert len(norms["edges"]) == len(norms["counts"]) + 1
    edges = np.array(norms["edges"])
    assert edges[1:] / edges[:-1] == pytest.approx(edges[1] / edges[0])


@pytest.mark.parametrize("norms", [[0.0, 0.0], [2.0, 2.0], [0.0, 1e-9, 3.0], [0.5, 1.0, 4.0]])
def test_the_histogram_counts_norms_that_are_zero_or_alike(norms):
    counts, edges = _histogram(np.array(norms))
    assert counts.sum() == len(norms)
    assert len(edges) == len(counts) + 1
    assert (np.diff(edges) > 0).all()


def test_layer_sizes_are_those_of_the_model():
    made = trainer(small_spec(epochs=1, diagnostics=True, model="cnn-mnist"))
    found = next(made.epochs()).diagnostics
    layers = [m for m in made.model.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
    assert [entry["weight_norm"] for entry in found["layers"]] == pytest.approx(
        [float(layer.weight.detach().norm()) for layer in layers]
    )
    assert found["logit_norm"] == found["layers"][-1]["pre_activation_norm"] > 0


def test_confusion_rows_are_true_classes():
    seen = Evaluation(torch.zeros(4), torch.tensor([0, 1, 1, 2]), torch.tensor([0, 0, 1, 2]))
    assert confusion(seen, 3) == [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert seen.accuracy == 0.75


def test_the_confusion_matrix_agrees_with_the_test_accuracy():
    record = next(trainer(small_spec(epochs=1, diagnostics=True)).epochs())
    matrix = torch.tensor(record.diagnostics["confusion"]["test"])
    assert int(matrix.sum()) == 300
    assert float(matrix.diag().sum() / matrix.sum()) == pytest.approx(record.test_accuracy)


def test_the_largest_eigenvalue_agrees_with_the_whole_hessian():
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    for weights in model.parameters():
        weights.data.normal_(generator=generator)
    images, labels = torch.randn(20, 4, generator=generator), torch.arange(20) % 3
    loss = build_loss("sse", {})
    names, values = zip(*model.named_parameters(), strict=True)
    sizes = [weights.numel() for weights in values]

    def mean_loss(flat):
        parts = {n: p.view(w.shape) for n, p, w in zip(names, flat.split(sizes), values, strict=True)}
        return loss(torch.func.functional_call(model, parts, images), labels, 0, []).mean()

    flat = torch.cat([weights.detach().flatten() for weights in values])
    eigenvalues = torch.linalg.eigvalsh(torch.autograd.functional.hessian(mean_loss, flat))
    expected = float(eigenvalues[eigenvalues.abs().argmax()])
    assert largest_eigenvalue(model, loss, images, labels, 0, generator) == pytest.approx(expected, rel=0.02)


def test_evaluation_in_chunks_equals_one_pass():
    made = trainer(small_spec(model="cnn-mnist"))
    images = made.data.inputs(made.data.train_images).repeat(3, 1, 1, 1)
    labels = made.data.train_labels.repeat(3)
    seen = evaluate(made.model, build_loss("tailored", {}), images, labels, 0)
    with torch.no_grad():
        logits, hidden = forward(made.model, images)
        torch.testing.assert_close(seen.losses, build_loss("tailored", {})(logits, labels, 0, hidden))
    assert len(hidden) == 3
    assert torch.equal(seen.predictions, logits.argmax(1))
