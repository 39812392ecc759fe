"""PRESTIGE, DJW and SGD for linear models under local privacy: many repeats and budgets in lockstep.

A *lane* is one spec in one repeat. All lanes take their visit number t at the same time, each with its own person, so
that one matrix operation serves them all while every lane keeps the exact order of its updates. Specs of one repeat
share the order of people and the random draws (differences between methods are paired).

Han et al. (2018), Algorithm 1. Rows of the data have length at most 1, so a loss of slope s has gradients within s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dpviz.privacy.local import METHOD_NAMES, LocalBudget, check_epsilon, flip_probability
from dpviz.privacy.tables import InputError, Knob, Table
from dpviz.training.tabular import Tabular

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Progress = Callable[[float], None]
"""Called now and then with the share that is done; it may raise to stop."""

BLOCK_FLOATS = 1 << 20  # directions drawn at a time: 8 MB

METHODS = Table("method")
METHODS.add("prestige", "Private curriculum on a flipped label, then private sampling of the gradient (Alg. 1).")
METHODS.add("djw", "Private sampling of every gradient, all of epsilon spent on it (Duchi, Jordan & Wainwright).")
METHODS.add("masked", "dpviz's own: the curriculum without flips; people outside it answer for a zero gradient.")
METHODS.add("sgd", "Plain stochastic gradient descent: no privacy.")
assert tuple(METHODS) == METHOD_NAMES

LOSSES = Table("loss")


@LOSSES.register("hinge")
def hinge(z: FloatArray) -> FloatArray:
    """max(0, 1 - z): convex, not smooth. Slope -1 below 1, else 0."""
    return -(z < 1).astype(float)


@LOSSES.register("logistic")
def logistic(z: FloatArray) -> FloatArray:
    """log(1 + e^-z): convex and smooth. Slope -1 / (1 + e^z)."""
    return -expit(-z)


@LOSSES.register("gompertz", c=Knob(2.0, 0.1, 10.0, "steepness"))
def gompertz(z: FloatArray, c: float) -> FloatArray:
    """exp(-e^(c z)): smooth, not convex, at most 1. Slope -c e^(c z - e^(c z)), steepest at z = 0 (Han et al. 2016)."""
    power = np.minimum(c * z, 50.0)
    return -c * np.exp(power - np.exp(power))


@LOSSES.register("ramp", s=Knob(-1.0, -2.0, 0.0, "where the loss stops growing"))
def ramp(z: FloatArray, s: float) -> FloatArray:
    """min(1 - s, max(0, 1 - z)): neither smooth nor convex. Slope -1 between s and 1, else 0."""
    return -((z < 1) & (z > s)).astype(float)


def steepest(loss: str, **knobs: float) -> float:
    """The largest slope of a loss: its Lipschitz constant for rows of length 1."""
    return knobs["c"] / math.e if loss == "gompertz" else 1.0


RANGES: dict[str, Knob] = {
    "batch_size": Knob(1, 1, 1000, "people an update; their private gradients are averaged"),
    "epochs": Knob(10, 1, 1000, "T_max: how often each person is visited"),
    "share": Knob(0.2, 0.01, 0.99, "part of epsilon for the curriculum's answer; 0.2 is the paper's r : s = 1 : 4"),
    "threshold": Knob(1.5, -100.0, 100.0, "D_th of the first epoch; people with z >= D_th are used"),
    "mu": Knob(1.0, 0.0, 100.0, "D_th falls by mu sqrt(T) after epoch T"),
    "regularization": Knob(1.0, 1e-6, 1e6, "lambda; steps are R / (lambda sqrt(t)) long"),
    "radius": Knob(1.0, 1e-6, 1e6, "R; weights are kept within this length"),
    "length": Knob(1.0, 1e-6, 1e6, "rows are scaled to this length, which with the loss gives the bound L"),
    "intercept": Knob(0.0, -1e6, 1e6, "b of <w, x> + b; fixed"),
}
ANSWERED, TRUE = "answered", "true"


@dataclass(frozen=True)
class LocalSpec:
    """One way to train: method, epsilon of a visit, and the inputs of Algorithm 1. SGD ignores epsilon."""

    method: str = "prestige"
    epsilon: float = 1.0
    loss: str = "hinge"
    loss_knob: float | None = None
    batch_size: int = 1
    epochs: int = 10
    share: float = 0.2
    threshold: float = 1.5
    mu: float = 1.0
    regularization: float = 1.0
    radius: float = 1.0
    length: float = 1.0
    intercept: float = 0.0
    gradient_label: str = ANSWERED
    """Algorithm 1 computes the gradient with the answered label; "true" takes the person's own (private sampling
    protects it all the same)."""

    def __post_init__(self) -> None:
        METHODS[self.method]
        check_epsilon(self.epsilon)
        for name, knob in RANGES.items():
            knob.check(name, getattr(self, name))
        if self.gradient_label not in (ANSWERED, TRUE):
            raise InputError(f"gradient_label must be {ANSWERED} or {TRUE}, got {self.gradient_label!r}")
        if self.loss_knob is not None and not LOSSES[self.loss].knobs:
            raise InputError(f"the {self.loss} loss has no knob, got {self.loss_knob}")
        self.knobs  # noqa: B018  a wrong knob stops here

    @property
    def knobs(self) -> dict[str, float]:
        """The loss's own parameter by its name: c of Gompertz, s of ramp."""
        given = {} if self.loss_knob is None else {next(iter(LOSSES[self.loss].knobs)): self.loss_knob}
        return {name: float(value) for name, value in LOSSES[self.loss].complete(given).items()}

    @property
    def bound(self) -> float:
        """L: gradients of the loss are within it; with the regulariser's pull they are clipped to it."""
        return self.length * steepest(self.loss, **self.knobs)

    def slope(self, z: FloatArray) -> FloatArray:
        """Derivative of the loss by z = y (<w, x> + b)."""
        function = LOSSES[self.loss].function
        assert function is not None
        return function(z, **self.knobs)

    def budget(self, people: int) -> LocalBudget:
        return LocalBudget(self.epsilon, self.share, self.epochs, people)

    @property
    def flip(self) -> float:
        """How often the answered label is wrong; only PRESTIGE asks for one."""
        return flip_probability(self.epsilon * self.share) if self.method == "prestige" else 0.0

    @property
    def coin(self) -> float:
        """pi of the half-sphere: only PRESTIGE has to share its epsilon."""
        return float(expit(self.epsilon * (1 - self.share) if self.method == "prestige" else self.epsilon))

    def threshold_at(self, epoch: int) -> float:
        """D_th in an epoch counted from 1: D - mu (sqrt(1) + ... + sqrt(epoch - 1)); none without a curriculum."""
        if self.method in ("djw", "sgd"):
            return -math.inf
        return self.threshold - self.mu * sum(math.sqrt(step) for step in range(1, epoch))


# --- draws --------------------------------------------------------------------------------------------------------


class Draws:
    """The random numbers of one repeat, in the order in which they are used; every spec of the repeat sees the same."""

    def __init__(self, seed: int, repeat: int) -> None:
        self.generator = np.random.default_rng([seed, repeat])

    def start(self, dimension: int) -> FloatArray:
        """The first weights: a random direction, to be scaled to the radius."""
        direction = self.generator.standard_normal(dimension)
        return direction / np.linalg.norm(direction)

    def order(self, rows: IntArray) -> IntArray:
        return self.generator.permutation(rows)

    def visits(self, count: int, dimension: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """For so many visits: uniforms for the flip, uniforms for the half-sphere, uniform directions."""
        flips, coins = self.generator.random((2, count))
        directions = self.generator.standard_normal((count, dimension), dtype=np.float32).astype(float)
        directions /= np.sqrt(np.vecdot(directions, directions))[:, None]
        return flips, coins, directions


def block_sizes(rows: int, batch_size: int, lane_floats: int) -> Iterator[tuple[int, int]]:
    """(first visit, visits) of the blocks of an epoch: whole batches, as many as fit; a short last batch on its own."""
    steps = max(1, BLOCK_FLOATS // (lane_floats * batch_size))
    whole = rows - rows % batch_size
    for first in range(0, whole, steps * batch_size):
        yield first, min(steps * batch_size, whole - first)
    if whole < rows:
        yield whole, rows - whole


# --- lockstep -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """Weights after the last epoch and averaged over updates (specs x repeats x features), and how each epoch went.

    `last_errors`, `average_errors` and `used` (share of visits with an update) are specs x repeats x epochs.
    """

    last: FloatArray
    average: FloatArray
    last_errors: FloatArray
    average_errors: FloatArray
    used: FloatArray


class Lanes:
    """Repeats x specs of one loss, batch size and kind (private or not), moved one update at a time."""

    def __init__(self, specs: Sequence[LocalSpec], starts: FloatArray) -> None:
        def column(of: Callable[[LocalSpec], float]) -> FloatArray:
            return np.array([of(spec) for spec in specs], dtype=float)[:, None]

        self.specs, self.slope = specs, specs[0].slope
        self.bound, self.length = column(lambda spec: spec.bound), column(lambda spec: spec.length)
        self.private = specs[0].method != "sgd"
        self.flip, self.coin = column(lambda spec: spec.flip), column(lambda spec: spec.coin)
        self.lam = column(lambda spec: spec.regularization)
        self.radius = column(lambda spec: spec.radius)[:, 0]
        self.intercept = column(lambda spec: spec.intercept)
        self.stride = self.radius / self.lam[:, 0]
        self.cover = column(lambda spec: spec.method == "masked").astype(bool)
        self.own_label = column(lambda spec: spec.gradient_label == TRUE).astype(bool)
        self.weights = starts[:, None, :] * self.radius[:, None]
        self.squares = np.vecdot(self.weights, self.weights)
        self.sums = np.zeros_like(self.weights)
        self.updates = np.zeros(self.weights.shape[:2])
        self.buffer = np.empty_like(self.weights)
        self.threshold = np.zeros((len(specs), 1))

    def begin(self, epoch: int) -> None:
        self.threshold = np.array([spec.threshold_at(epoch) for spec in self.specs])[:, None]

    def block(self, rows: FloatArray, labels: FloatArray, flips: FloatArray, coins: FloatArray, towards: FloatArray):
        """All updates of a block. Arrays are steps x repeats x batch (x features)."""
        answered = np.where(flips[:, :, None] < self.flip, -1.0, 1.0) * labels[:, :, None]
        own = np.broadcast_to(labels[:, :, None], answered.shape)
        true = np.where(self.own_label, own, answered) if self.own_label.any() else answered
        if not self.private:
            for step in range(len(rows)):
                self.plain(rows[step], answered[step])
            return
        lengths = np.vecdot(rows, rows)[:, :, None] * self.length**2
        aligned = np.vecdot(rows, towards)[:, :, None] * self.length
        both = np.concatenate([rows, towards], axis=2)
        for step in range(len(rows)):
            self.update(
                both[step], towards[step], answered[step], true[step], lengths[step], aligned[step], coins[step]
            )

    def update(
        self,
        both: FloatArray,
        towards: FloatArray,
        answered: FloatArray,
        true: FloatArray,
        lengths: FloatArray,
        aligned: FloatArray,
        coins: FloatArray,
    ) -> None:
        """One visit of a batch in every lane: w <- w - R / (lambda sqrt(t)) mean(+-v), v a uniform direction.

        The gradient g = lambda w + c x is never formed: all that is needed of it is |g| and the sign of <v, g>. The
        scale B cancels, since the step is R / (lambda B sqrt(t)) and what is sent has length B.
        """
        batch = towards.shape[1]
        dots = np.matmul(self.weights, both.transpose(0, 2, 1))
        scores, drift = dots[..., :batch], dots[..., batch:]
        scores *= self.length
        z = scores + self.intercept
        inside = z * answered >= self.threshold
        z *= true
        pull = self.slope(z)
        pull *= true
        square = self.lam * self.lam * self.squares[..., None] + pull * (2 * self.lam * scores + pull * lengths)
        length = np.sqrt(np.maximum(square, 0.0)) / self.bound
        if self.cover.any():
            length = np.where(inside | ~self.cover, length, 0.0)
            inside = inside | self.cover
        chance = 0.5 + np.minimum(length, 1.0) * (self.coin - 0.5)
        ahead = self.lam * drift + pull * aligned > 0
        turn = np.where((coins[:, None] < chance) == ahead, -1.0, 1.0) * inside
        count = inside.sum(axis=2)
        active = count > 0
        self.updates += active
        size = self.stride / np.sqrt(np.maximum(self.updates, 1.0)) / np.maximum(count, 1)
        self.move(turn * size[..., None], towards, active)

    def plain(self, rows: FloatArray, labels: FloatArray) -> None:
        """One SGD update: w <- w - eta (lambda w + mean(c x)), eta = R / (lambda L sqrt(t))."""
        z = (self.length * np.matmul(self.weights, rows.transpose(0, 2, 1)) + self.intercept) * labels
        self.updates += 1
        eta = (self.stride / np.sqrt(self.updates))[..., None] / self.bound
        self.weights *= 1 - np.minimum(eta * self.lam, 1.0)
        self.move(-eta * self.length / rows.shape[1] * self.slope(z) * labels, rows, np.ones(eta.shape[:2], dtype=bool))

    def move(self, steps: FloatArray, along: FloatArray, active: npt.NDArray[np.bool_]) -> None:
        """Add the steps, go back into the ball of radius R, and keep the sum for the average."""
        if along.shape[1] == 1:
            np.multiply(steps, along, out=self.buffer)
        else:
            np.matmul(steps, along, out=self.buffer)
        self.weights += self.buffer
        self.squares = np.vecdot(self.weights, self.weights)
        outside = self.squares > self.radius * self.radius
        if outside.any():
            self.weights *= np.where(outside, self.radius / np.sqrt(np.maximum(self.squares, 1e-300)), 1.0)[..., None]
            self.squares = np.minimum(self.squares, self.radius * self.radius)
        if active.all():
            self.sums += self.weights
        else:
            np.multiply(self.weights, active[..., None], out=self.buffer)
            self.sums += self.buffer

    @property
    def average(self) -> FloatArray:
        """Mean of the weights after each update; before the first one, the weights themselves."""
        counts = self.updates[..., None]
        return np.where(counts > 0, self.sums / np.maximum(counts, 1), self.weights)


def train(
    data: Tabular,
    specs: Sequence[LocalSpec],
    *,
    repeats: int = 1,
    seed: int = 0,
    parts: Sequence[tuple[IntArray, IntArray]] | None = None,
    progress: Progress = lambda share: None,
) -> Trained:
    """Train every spec `repeats` times. `parts` gives each repeat its own (training, test) rows of the training set,
    for cross-validation; without them all train on the training set and are tested on the test set.
    """
    if not specs:
        raise InputError("give at least one method to train")
    if not 1 <= repeats <= 1000:
        raise InputError(f"repeats must be a whole number from 1 to 1000, got {repeats}")
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, spec in enumerate(specs):
        kind = (spec.method == "sgd", spec.loss, spec.loss_knob, spec.batch_size, spec.epochs)
        groups.setdefault(kind, []).append(index)
    done: list[Trained | None] = [None] * len(specs)
    for number, members in enumerate(groups.values()):

        def share(part: float, number: int = number) -> None:
            progress((number + part) / len(groups))

        result = _lockstep(data, [specs[index] for index in members], repeats, seed, parts, share)
        for lane, index in enumerate(members):
            done[index] = Trained(*(np.asarray(value)[:, lane] for value in vars(result).values()))
    found = [result for result in done if result is not None]
    return Trained(*(np.stack([getattr(result, name) for result in found]) for name in vars(found[0])))


def _lockstep(
    data: Tabular,
    specs: Sequence[LocalSpec],
    repeats: int,
    seed: int,
    parts: Sequence[tuple[IntArray, IntArray]] | None,
    progress: Progress,
) -> Trained:
    """The specs of one group, every lane's visit number t at the same time; repeats come first in what is returned."""
    draws = [Draws(seed, repeat) for repeat in range(repeats)]
    people = [part[0] for part in parts] if parts else [np.arange(len(data.train_labels))] * repeats
    visits, dimension = min(len(rows) for rows in people), data.dimension
    lanes = Lanes(specs, np.stack([draw.start(dimension) for draw in draws]))
    epochs, batch = specs[0].epochs, specs[0].batch_size
    history: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    for epoch in range(1, epochs + 1):
        lanes.begin(epoch)
        before = lanes.updates.copy()
        orders = np.stack([draw.order(rows)[:visits] for draw, rows in zip(draws, people, strict=True)])
        for first, count in block_sizes(visits, batch, repeats * dimension):
            progress((epoch - 1 + first / visits) / epochs)
            size = min(batch, count)
            drawn = [draw.visits(count, dimension) for draw in draws]
            flips, coins, towards = (
                np.stack(
                    [values.reshape(-1, size, *values.shape[1:]) for values in column],
                    axis=1,
                )
                for column in zip(*drawn, strict=True)
            )
            rows = orders[:, first : first + count].reshape(repeats, -1, size).transpose(1, 0, 2)
            lanes.block(data.train_rows[rows], data.train_labels[rows], flips, coins, towards)
        used = (lanes.updates - before) / math.ceil(visits / batch)
        models = (lanes.weights * lanes.length, lanes.average * lanes.length)
        errors = (_errors(data, parts, weights, lanes.intercept) for weights in models)
        history.append((*errors, used))
    last_errors, average_errors, used = (np.stack(column, axis=2) for column in zip(*history, strict=True))
    return Trained(lanes.weights, lanes.average, last_errors, average_errors, used)


def _errors(data: Tabular, parts: Sequence[tuple[IntArray, IntArray]] | None, weights: FloatArray, b: FloatArray):
    """Share of test rows on the wrong side, repeats x specs. A score of 0 counts as +1."""
    if parts is None:
        scores = np.matmul(weights, data.test_rows.T) + b
        return np.mean((scores >= 0) != (data.test_labels > 0), axis=2)
    found = []
    for lane, (_, rows) in zip(weights, parts, strict=True):
        scores = lane @ data.train_rows[rows].T + b
        found.append(np.mean((scores >= 0) != (data.train_labels[rows] > 0), axis=1))
    return np.stack(found)
