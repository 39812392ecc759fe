"""MODELS: each network as a list of layers. No torch in here: shapes are checked and weights counted without building.

MODELS["cnn"].steps((1, 20, 24), 3, {"blocks": 2, "width": 16, "activation": "tanh"})
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dpviz.privacy.registry import Entry, InputError, Knob, Table, Value
from dpviz.training.data.catalog import Dataset

Shape = tuple[int, ...]  # of one example, without the batch; images: colours, height, width

# --- layers: the shape that each makes of its input's, and how many weights it has --------------------------------


@dataclass(frozen=True)
class Layer:
    """One that changes no shape and has no weights, unless its kind says otherwise."""

    of_images: ClassVar[bool] = False

    def output(self, shape: Shape) -> Shape:
        return shape

    def weights(self, shape: Shape) -> int:
        return 0


@dataclass(frozen=True)
class Conv(Layer):
    of_images = True
    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0
    bias: bool = True

    def output(self, shape: Shape) -> Shape:
        sizes = ((size + 2 * self.padding - self.kernel) // self.stride + 1 for size in shape[1:])
        return (self.channels, *sizes)

    def weights(self, shape: Shape) -> int:
        return self.channels * (shape[0] * self.kernel**2 + self.bias)


@dataclass(frozen=True)
class MaxPool(Layer):
    of_images = True
    kernel: int = 2
    stride: int = 2

    def output(self, shape: Shape) -> Shape:
        return Conv(shape[0], self.kernel, self.stride).output(shape)


@dataclass(frozen=True)
class Norm(Layer):
    """Group normalisation: it looks at one example only. Batch normalisation would mix examples."""

    of_images = True
    groups: int
    affine: bool = True

    def output(self, shape: Shape) -> Shape:
        if shape[0] % self.groups:
            raise InputError(f"{shape[0]} channels do not form {self.groups} groups; choose another model")
        return shape

    def weights(self, shape: Shape) -> int:
        return 2 * shape[0] * self.affine


@dataclass(frozen=True)
class Residual(Layer):
    """Two convolutions with normalisation around a shortcut without weights."""

    of_images = True
    channels: int
    stride: int = 1

    def output(self, shape: Shape) -> Shape:
        return Conv(self.channels, 3, self.stride, 1).output(shape)

    def weights(self, shape: Shape) -> int:
        return 9 * self.channels * (shape[0] + self.channels) + 4 * self.channels


@dataclass(frozen=True)
class AveragePool(Layer):
    """The mean over all pixels."""

    of_images = True

    def output(self, shape: Shape) -> Shape:
        return (shape[0], 1, 1)


@dataclass(frozen=True)
class Activation(Layer):
    name: str


@dataclass(frozen=True)
class Flatten(Layer):
    def output(self, shape: Shape) -> Shape:
        return (math.prod(shape),)


@dataclass(frozen=True)
class Dense(Layer):
    units: int

    def output(self, shape: Shape) -> Shape:
        return (self.units,)

    def weights(self, shape: Shape) -> int:
        return self.units * (shape[0] + 1)


Layers = tuple[Layer, ...]

# --- models -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Model(Entry):
    """A network. `build(input shape, classes, **knobs)` gives its layers; a person's own gives a torch module."""

    home: Shape | None = None  # the images that it was designed for; it takes others, too
    scattered: bool = False  # it starts from ScatterNet features of the images

    @property
    def own(self) -> bool:
        """Whether it is a person's own function, which nothing here runs."""
        return ":" in self.name

    def inputs(self, shape: Shape) -> Shape:
        """What the network itself gets for these examples: 81 channels per colour at a quarter of the size, or them."""
        if not (self.scattered and len(shape) == 3):
            return shape
        colours, height, width = shape
        return (81 * colours, height // 4, width // 4)

    def steps(self, shape: Shape, classes: int, knobs: Mapping[str, Value]) -> tuple[tuple[Layer, Shape], ...]:
        """Each layer with the shape of its inputs; inputs that the network cannot take are refused in a sentence."""
        steps, given = [], shape
        for layer in self.make(knobs, shape, classes):
            if layer.of_images and len(given) != 3:
                raise InputError(f"{self.name} takes images (colours, height, width), got shape {shape}; choose mlp")
            steps.append((layer, given))
            given = layer.output(given)
            if min(given) < 1:
                raise InputError(f"{self.name} leaves nothing of inputs as small as {shape}; choose another model")
        return tuple(steps)

    def check(self, dataset: Dataset, knobs: Mapping[str, Value]) -> None:
        """Refuse a dataset that the model cannot take."""
        self.weights(dataset, knobs)

    def weights(self, dataset: Dataset, knobs: Mapping[str, Value]) -> int:
        """How many there are. Those of a person's own model are counted when it is built, so here they are 0."""
        steps = () if self.own else self.steps(self.inputs(dataset.shape), dataset.classes, knobs)
        return sum(layer.weights(shape) for layer, shape in steps)

    def takes(self, dataset: Dataset) -> bool:
        """Whether it fits the dataset, its knobs at their defaults."""
        try:
            self.check(dataset, {})
        except InputError:
            return False
        return True


OWN = re.compile(r"([A-Za-z_]\w{0,99}\.){0,9}[A-Za-z_]\w{0,99}:[A-Za-z_]\w{0,99}", re.ASCII)


class ModelTable(Table[Model]):
    """The models by name. "package.module:function" is a person's own: named here, imported only where it is built."""

    def __missing__(self, name: object) -> Model:
        if isinstance(name, str) and OWN.fullmatch(name):
            return Model(name, "A function of your own that builds a torch module.", title=name, build=name)
        return super().__missing__(name)


# In every convolutional block the pooling comes before the non-linearity. Both non-linearities rise, so the order does
# not change the function, and the non-linearity then runs on the pooled values only.


def cnn_mnist(shape: Shape, classes: int, activation: str) -> Layers:
    act = Activation(activation)
    return (
        *(Conv(16, 8, stride=2, padding=2), MaxPool(2, stride=1), act),
        *(Conv(32, 4, stride=2), MaxPool(2, stride=1), act),
        *(Flatten(), Dense(32), act, Dense(classes)),
    )


def cnn_cifar10(shape: Shape, classes: int, activation: str) -> Layers:
    act = Activation(activation)
    blocks: list[Layer] = []
    for channels in (32, 64, 128):
        blocks += [Conv(channels, 3, padding=1), act, Conv(channels, 3, padding=1), MaxPool(), act]
    return (*blocks, Flatten(), Dense(128), act, Dense(classes))


# Without weights: Tramer & Boneh (2021), arXiv:2011.11660, Sec. 3, normalise either so or with noisy statistics.
SCATTER_NORM = Norm(27, affine=False)


def scatter_mnist(shape: Shape, classes: int, activation: str) -> Layers:
    act = Activation(activation)
    return (
        SCATTER_NORM,
        *(Conv(16, 3, stride=2, padding=1), MaxPool(2, stride=1), act),
        *(Conv(32, 3, padding=1), MaxPool(2, stride=1), act),
        *(Flatten(), Dense(32), act, Dense(classes)),
    )


def scatter_cifar10(shape: Shape, classes: int, activation: str) -> Layers:
    act = Activation(activation)
    block = (Conv(64, 3, padding=1), act, Conv(64, 3, padding=1), MaxPool(), act)
    return (SCATTER_NORM, *block, *block, Flatten(), Dense(classes))


def cnn_curricula(shape: Shape, classes: int, activation: str, hidden: int) -> Layers:
    """The paper gives no kernel sizes; these are of the Keras model that DP-SGD on MNIST is usually shown with."""
    act = Activation(activation)
    return (
        *(Conv(16, 8, stride=2, padding=3), MaxPool(2, stride=1), act),
        *(Conv(32, 4, stride=2), MaxPool(2, stride=1), act),
        *(Flatten(), *((Dense(hidden), act) if hidden else ()), Dense(classes)),
    )


def resnet20(shape: Shape, classes: int) -> Layers:
    """Three stages of three blocks with 16, 32 and 64 channels."""
    stages = [Residual(channels, stride) for channels, first in ((16, 1), (32, 2), (64, 2)) for stride in (first, 1, 1)]
    stem = (Conv(16, 3, padding=1, bias=False), Norm(2), Activation("relu"))
    return (*stem, *stages, AveragePool(), Flatten(), Dense(classes))


def cnn(shape: Shape, classes: int, blocks: int, width: int, activation: str) -> Layers:
    """Each block halves the image; the channels double."""
    layers: list[Layer] = []
    for channels in (width * 2**block for block in range(blocks)):
        layers += [Conv(channels, 3, padding=1), Norm(math.gcd(channels, 8)), MaxPool(), Activation(activation)]
    return (*layers, Flatten(), Dense(classes))


def mlp(shape: Shape, classes: int, layers: int, width: int, activation: str) -> Layers:
    return (Flatten(), *(Dense(width), Activation(activation)) * layers, Dense(classes))


def logistic(shape: Shape, classes: int) -> Layers:
    return (Flatten(), Dense(classes))


GREY, COLOUR = (1, 28, 28), (3, 32, 32)
ACTIVATION = Knob("tanh", help="non-linearity after each layer", choices=("tanh", "relu"))

MODELS = ModelTable(
    "model",
    Model(
        "cnn-mnist",
        "Two convolutions, 26,010 weights (losing-less, Table 1).",
        {"activation": ACTIVATION},
        title="CNN, 28 x 28",
        build=cnn_mnist,
        home=GREY,
    ),
    Model(
        "cnn-cifar10",
        "Six convolutions, 550,570 weights (losing-less, Table 2).",
        {"activation": ACTIVATION},
        title="CNN, 32 x 32",
        build=cnn_cifar10,
        home=COLOUR,
    ),
    Model(
        "scatter-mnist",
        "Two convolutions on fixed ScatterNet features (losing-less, Table 3).",
        {"activation": ACTIVATION},
        title="ScatterNet and CNN, 28 x 28",
        build=scatter_mnist,
        home=GREY,
        scattered=True,
    ),
    Model(
        "scatter-cifar10",
        "Four convolutions on fixed ScatterNet features (losing-less, Table 4).",
        {"activation": ACTIVATION},
        title="ScatterNet and CNN, 32 x 32",
        build=scatter_cifar10,
        home=COLOUR,
        scattered=True,
    ),
    Model(
        "cnn-curricula",
        "Two convolutions of 16 and 32 filters with max pooling (curricula, Sec. 3.3).",
        {
            "activation": Knob("relu", help=ACTIVATION.help, choices=ACTIVATION.choices),
            "hidden": Knob(0, 0, 1024, "units of a second fully connected layer; 0: none"),
        },
        title="Small CNN, 28 x 28",
        build=cnn_curricula,
        home=GREY,
    ),
    Model(
        "resnet20",
        "ResNet-20 with group normalisation (optimizers).",
        title="ResNet-20",
        build=resnet20,
        home=COLOUR,
    ),
    Model(
        "cnn",
        "Convolutions with group normalisation and pooling, for images of any size.",
        {
            "blocks": Knob(2, 1, 6, "convolutions; each halves the image and doubles the channels"),
            "width": Knob(16, 1, 256, "channels of the first convolution"),
            "activation": ACTIVATION,
        },
        title="CNN, any size",
        build=cnn,
    ),
    Model(
        "mlp",
        "Fully connected layers, for tables and anything else.",
        {
            "layers": Knob(2, 1, 8, "hidden layers"),
            "width": Knob(128, 1, 4096, "units of each hidden layer"),
            "activation": ACTIVATION,
        },
        title="MLP",
        build=mlp,
    ),
    Model(
        "logistic",
        "Multinomial logistic regression on the features.",
        title="Logistic regression",
        build=logistic,
    ),
)
