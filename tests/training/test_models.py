"""Shapes, parameter counts, and initial weights that only the generator decides."""

import hashlib
import math

import pytest
import torch
from torch import nn

from dpviz.privacy.registry import InputError
from dpviz.training.models import build_model
from dpviz.training.tables import MODELS

# Parameters of Tables 1 and 2 of losing-less; the others counted by hand from their layers.
CASES = {
    "cnn-mnist": ((1, 28, 28), 26_010),
    "cnn-cifar10": ((3, 32, 32), 550_570),
    "scatter-mnist": ((81, 7, 7), 81 * 9 * 16 + 16 + 16 * 9 * 32 + 32 + 128 * 32 + 32 + 330),
    "scatter-cifar10": ((243, 8, 8), 243 * 9 * 64 + 64 + 3 * (64 * 9 * 64 + 64) + 2570),
    "cnn-curricula": ((1, 28, 28), 64 * 16 + 16 + 256 * 32 + 32 + 5130),
    "resnet20": ((3, 32, 32), 269_722),
    "cnn": ((1, 20, 24), 10 * 16 + 32 + (16 * 9 + 1) * 32 + 64 + (32 * 5 * 6 + 1) * 10),
    "mlp": ((105,), 106 * 128 + 129 * 128 + 1290),
    "logistic": ((1, 28, 28), 7850),
}
# Of names and weights at seed 0, before models took other shapes: cached runs start from these weights.
WEIGHTS = {
    "cnn-mnist": "226a6903974a954f",
    "cnn-cifar10": "6fbf4dc6305eb332",
    "scatter-mnist": "04092ff1daeef90c",
    "scatter-cifar10": "d184a30e23b5b36b",
    "cnn-curricula": "f906af3d7a226400",
    "resnet20": "689d4bbff17df084",
    "logistic": "86fd84b70ce0ad47",
}


def build(name, seed=0, **knobs):
    return build_model(name, knobs, CASES[name][0], 10, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_its_parameters_and_gives_logits(name):
    model = build(name)
    assert sum(p.numel() for p in model.parameters()) == CASES[name][1]
    assert model(torch.zeros(2, *CASES[name][0])).shape == (2, 10)
    assert model(torch.zeros(0, *CASES[name][0])).shape == (0, 10)


@pytest.mark.parametrize("name", WEIGHTS)
def test_the_papers_models_start_from_the_weights_they_always_had(name):
    state = build(name).state_dict()
    data = "".join(state).encode() + b"".join(weights.numpy().tobytes() for weights in state.values())
    assert hashlib.sha256(data).hexdigest()[:16] == WEIGHTS[name]


@pytest.mark.parametrize("name", [name for name in MODELS if not MODELS[name].scattered])
@pytest.mark.parametrize("shape", [(1, 20, 24), (3, 33, 25), (2, 19, 64)], ids=str)
def test_image_models_take_other_sizes_colours_and_classes(name, shape):
    model = build_model(name, {}, shape, 3, torch.Generator().manual_seed(0))
    assert model(torch.zeros(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize("name", ["scatter-mnist", "scatter-cifar10"])
def test_scatter_models_take_the_features_of_other_images(name):
    shape = MODELS[name].inputs((3, 30, 49))
    assert shape == (243, 7, 12)
    assert build_model(name, {}, shape, 3, torch.Generator())(torch.zeros(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize("name", MODELS)
def test_the_generator_alone_decides_the_weights(name):
    state = torch.get_rng_state()
    one, same, other = build(name, 1), build(name, 1), build(name, 2)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not torch.equal(next(one.parameters()), next(other.parameters()))


@pytest.mark.parametrize("layer", [nn.Conv2d(16, 32, 4), nn.Linear(512, 32)])
def test_initial_weights_follow_pytorch_s_default(layer):
    ours = next(
        m for m in build("cnn-mnist").modules() if type(m) is type(layer) and m.weight.shape == layer.weight.shape
    )
    bound = 1 / math.sqrt(layer.weight[0].numel())
    for weights in (ours.weight, layer.weight):
        assert weights.abs().max() <= bound
        assert weights.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert ours.bias.abs().max() <= bound
    assert ours.bias.any()


@pytest.mark.parametrize("name", ["cnn-mnist", "cnn-cifar10", "scatter-mnist", "scatter-cifar10", "cnn-curricula"])
@pytest.mark.parametrize(("activation", "kind"), [("tanh", nn.Tanh), ("relu", nn.ReLU)])
def test_the_activation_is_a_choice(name, activation, kind):
    kinds = {type(layer) for layer in build(name, activation=activation).modules()}
    assert kind in kinds
    assert not {nn.Tanh, nn.ReLU} - {kind} & kinds


@pytest.mark.parametrize("kind", [nn.Tanh, nn.ReLU])
def test_pooling_first_gives_what_pooling_last_gives(kind):
    x = torch.randn(4, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    pool, act = nn.MaxPool2d(2, stride=1), kind()
    assert torch.equal(act(pool(x)), pool(act(x)))


def test_the_curricula_cnn_may_have_a_second_fully_connected_layer():
    layers = [m for m in build("cnn-curricula", hidden=32).modules() if isinstance(m, nn.Linear)]
    assert [layer.out_features for layer in layers] == [32, 10]


def test_no_model_mixes_examples():
    for name in MODELS:
        model, x = build(name), torch.randn(3, *CASES[name][0], generator=torch.Generator().manual_seed(0))
        assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-4)


@pytest.mark.parametrize("name", ["cnn-mnist", "cnn-cifar10", "cnn-curricula"])
def test_images_that_are_too_small_are_refused_with_their_shape(name):
    with pytest.raises(InputError, match=rf"{name} leaves nothing of inputs as small as \(5, 5, 5\)"):
        build_model(name, {}, (5, 5, 5), 10, torch.Generator())


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("mlp", "logistic")])
def test_tables_are_refused_by_models_of_images(name):
    with pytest.raises(InputError, match=rf"{name} takes images \(colours, height, width\), got shape \(105,\)"):
        build_model(name, {}, (105,), 10, torch.Generator())


def test_features_of_other_channels_are_refused_by_a_scatter_model():
    with pytest.raises(InputError, match="1 channels do not form 27 groups"):
        build_model("scatter-mnist", {}, (1, 28, 28), 10, torch.Generator())


def test_tokens_are_refused_by_a_model_that_looks_nothing_up():
    with pytest.raises(InputError, match="mlp takes numbers and cannot look up tokens"):
        build_model("mlp", {}, (9,), 2, torch.Generator(), tokens=True)


def test_layers_width_and_blocks_are_knobs():
    wide = build_model("mlp", {"layers": 3, "width": 5}, (4,), 2, torch.Generator())
    assert [layer.out_features for layer in wide if isinstance(layer, nn.Linear)] == [5, 5, 5, 2]
    deep = build_model("cnn", {"blocks": 3, "width": 6}, (3, 20, 24), 2, torch.Generator())
    assert [layer.out_channels for layer in deep if isinstance(layer, nn.Conv2d)] == [6, 12, 24]
    with pytest.raises(InputError, match="leaves nothing"):
        build_model("cnn", {"blocks": 5}, (1, 20, 24), 2, torch.Generator())


def test_an_unknown_model_lists_the_known_ones():
    with pytest.raises(InputError, match="cnn-mnist"):
        build_model("lenet", {}, (1, 28, 28), 10, torch.Generator())
