"""RATES: factors by which a learning rate or a clipping norm changes over the epochs, t = 0 ... T-1. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dpviz.privacy.records import MAX_EPOCHS
from dpviz.privacy.registry import Entry, InputError, Knob, Table, Value

RATES: Table[Entry] = Table("rate schedule")
FINAL = Knob(0.1, 0.0, 10.0, "share of the start that is left in the last epoch")


@RATES.register("constant")
def constant(_epoch: int, _epochs: int) -> float:
    """The same in every epoch."""
    return 1.0


@RATES.register("linear", final=FINAL)
def linear(epoch: int, epochs: int, final: float) -> float:
    """Straight down to a share of the start.

    1 + (final - 1) t / (T - 1).
    """
    return 1 + (final - 1) * _progress(epoch, epochs)


@RATES.register("cosine", final=FINAL)
def cosine(epoch: int, epochs: int, final: float) -> float:
    """Half a cosine wave down to a share of the start.

    final + (1 - final) (1 + cos(pi t / (T - 1))) / 2.
    """
    return final + (1 - final) * (1 + math.cos(math.pi * _progress(epoch, epochs))) / 2


@RATES.register("step", factor=Knob(0.5, 0.01, 10.0, "factor"), every=Knob(10, 1, MAX_EPOCHS, "epochs between steps"))
def step(epoch: int, _epochs: int, factor: float, every: int) -> float:
    """Multiplied by a factor every few epochs.

    factor^floor(t / every).
    """
    try:
        return factor ** (epoch // every)
    except OverflowError:
        return math.inf


def _progress(epoch: int, epochs: int) -> float:
    return epoch / (epochs - 1) if epochs > 1 else 0.0


def rate(start: float, epoch: int, epochs: int, name: str, knobs: Mapping[str, Value]) -> float:
    """A learning rate or clipping norm in one epoch: start times the schedule's factor."""
    value: float = start * RATES[name].make(knobs, epoch, epochs)
    if not 0 <= value < math.inf:
        raise InputError(f"the {name} schedule leaves the range of numbers in epoch {epoch + 1}; take a milder one")
    return value
