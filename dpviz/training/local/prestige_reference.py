"""Algorithm 1 of Han et al. (2018) row by row, as it is printed: slow, readable, and the measure of the lockstep.

It sees the same draws as `linear.train`, so both must give the same weights; the moving picture is made from it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpviz.privacy.local import METHODS, scale, toward_probability
from dpviz.training.local.linear import Draws
from dpviz.training.local.spec import TRUE, LocalSpec
from dpviz.training.local.tabular import Tabular

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Visit:
    """What happened when one person was visited; `sent` is None where nothing was sent, else of length B.

    `before` are the weights that the person saw, `weights` those after the visit.
    """

    epoch: int
    person: int
    answered: float
    z: float
    threshold: float
    inside: bool
    gradient: FloatArray
    sent: FloatArray | None
    before: FloatArray
    weights: FloatArray


def walk(data: Tabular, spec: LocalSpec, *, seed: int = 0, repeat: int = 0) -> Iterator[Visit]:
    """One repeat of PRESTIGE, DJW, masked or SGD with batches of one; `weights` are those after the visit."""
    if spec.batch_size != 1:
        raise ValueError("the walk visits one person at a time")
    draws, updates = Draws(seed, repeat), 0
    weights = spec.radius * draws.start(data.dimension)
    for epoch in range(1, spec.epochs + 1):
        threshold = spec.threshold_at(epoch)
        order, flips, coins = draws.epoch(np.arange(data.people))
        directions = draws.directions(data.people, data.dimension)
        for person, flip, coin, direction in zip(order, flips, coins, directions, strict=True):
            row, label = spec.length * data.train_rows[person], data.train_labels[person]
            answered = -label if flip < spec.flip else label
            score = float(weights @ row) + spec.intercept
            inside = score * answered >= threshold
            own = label if spec.gradient_label == TRUE else answered
            pull = float(spec.slope(np.asarray(score * own)))
            gradient = spec.regularization * weights + pull * own * row
            sent, before = _sent(spec, gradient, inside, coin, direction), weights
            if sent is not None:
                updates += 1
                weights = weights - step_size(spec, updates, data.dimension) * sent
                weights = weights * min(1.0, spec.radius / max(float(np.linalg.norm(weights)), 1e-300))
            z = score * answered
            yield Visit(epoch, int(person), answered, z, threshold, inside, gradient, sent, before, weights)


def _sent(spec: LocalSpec, gradient: FloatArray, inside: bool, coin: float, direction: FloatArray) -> FloatArray | None:
    """The gradient itself without privacy; else a vector of length B in the half-sphere that the coins chose.

    The answer for a zero gradient is a fair coin, whatever half-spheres it chooses from.
    """
    if not spec.private:
        return gradient
    if not inside and not METHODS[spec.method].covers_silence:
        return None
    length = min(float(np.linalg.norm(gradient)), spec.bound) if inside else 0.0
    toward = coin < toward_probability(np.asarray(length), spec.bound, spec.gradient_epsilon)
    ahead = direction @ gradient > 0
    return scale(len(gradient), spec.gradient_epsilon, spec.bound) * (direction if toward == ahead else -direction)


def step_size(spec: LocalSpec, updates: int, dimension: int) -> float:
    """eta = R / (lambda B sqrt(t)); without privacy gradients have length L, not B."""
    if not spec.private:
        return min(spec.radius / spec.bound / math.sqrt(updates), 1.0) / spec.regularization
    sent = scale(dimension, spec.gradient_epsilon, spec.bound)
    return spec.radius / (spec.regularization * sent * math.sqrt(updates))
