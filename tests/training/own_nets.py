"""Models of a person's own, good and bad, as they would lie in a file beside a script."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 12


class Bag(nn.Module):
    """The mean of the words' vectors, then one fully connected layer."""

    def __init__(self, classes):
        super().__init__()
        self.words, self.last = nn.Embedding(VOCABULARY, 8, padding_idx=0), nn.Linear(8, classes)

    def forward(self, x):
        return self.last(self.words(x).mean(1))


def text(input_shape, classes):
    return Bag(classes)


def signal(input_shape, classes):
    channels, _ = input_shape
    return nn.Sequential(
        *(nn.Conv1d(channels, 8, 5, padding=2), nn.ReLU(inplace=True), nn.AdaptiveAvgPool1d(4)),
        *(nn.Flatten(), nn.LayerNorm(32), nn.LazyLinear(classes)),
    )


class Recurrent(nn.Module):
    def __init__(self, classes, kind):
        super().__init__()
        self.words, self.memory, self.last = (
            nn.Embedding(VOCABULARY, 6),
            kind(6, 7, batch_first=True),
            nn.Linear(7, classes),
        )

    def forward(self, x):
        return self.last(self.memory(self.words(x))[0][:, -1])


def dp_lstm(input_shape, classes):
    from opacus.layers import DPLSTM

    return Recurrent(classes, DPLSTM)


def lstm(input_shape, classes):
    return Recurrent(classes, nn.LSTM)


class Twice(nn.Module):
    """One layer that is called twice."""

    def __init__(self, classes):
        super().__init__()
        self.inner, self.last = nn.Linear(10, 10), nn.Linear(10, classes)

    def forward(self, x):
        return self.last(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


def twice(input_shape, classes):
    return Twice(classes)


def frozen(input_shape, classes):
    """Only the last layer is trained."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(10, 6), nn.Tanh(), nn.Linear(6, classes))
    model[1].requires_grad_(False)
    return model


# --- bad ones -----------------------------------------------------------------------------------------------------


def batch_norm(input_shape, classes):
    return nn.Sequential(nn.Linear(10, 6), nn.BatchNorm1d(6, affine=False), nn.Linear(6, classes))


def dropout(input_shape, classes):
    return nn.Sequential(nn.Linear(10, 6), nn.Dropout(), nn.Linear(6, classes))


def half_frozen(input_shape, classes):
    layer = nn.Linear(10, classes)
    layer.bias.requires_grad_(False)
    return layer


def all_frozen(input_shape, classes):
    return nn.Linear(10, classes).requires_grad_(False)


def too_many_classes(input_shape, classes):
    return nn.Linear(10, classes + 1)


def max_norm(input_shape, classes):
    return nn.Sequential(nn.Embedding(4, 3, max_norm=1.0), nn.Flatten(), nn.Linear(30, classes))


class Own(nn.Linear):
    def __init__(self, ins, outs, act):
        super().__init__(ins, outs)
        self.act = act

    def forward(self, x):
        return self.act(self, x)


def centred(input_shape, classes):
    """Batch normalisation in disguise."""
    return nn.Sequential(Own(10, classes, lambda layer, x: F.linear(x - x.mean(0), layer.weight, layer.bias)))


class Borrowed(nn.Module):
    """The first layer's weight is used once more, behind its back."""

    def __init__(self, classes):
        super().__init__()
        self.first, self.last = nn.Linear(10, 10), nn.Linear(10, classes)
        nn.init.zeros_(self.last.weight)

    def forward(self, x):
        return self.last(torch.tanh(F.linear(torch.tanh(self.first(x)), self.first.weight)))


def borrowed(input_shape, classes):
    return Borrowed(classes)


class Remembers(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.last = nn.Linear(10, classes)
        self.register_buffer("seen", torch.zeros(10))

    def forward(self, x):
        self.seen += x.detach().sum(0)
        return self.last(x)


def remembers(input_shape, classes):
    return Remembers(classes)


def huge(input_shape, classes):
    return nn.Sequential(nn.Linear(10, 600_000), nn.Linear(600_000, classes))


def breaks(input_shape, classes):
    raise KeyError("no such layer")


def no_module(input_shape, classes):
    return "a network"


no_function = 3
