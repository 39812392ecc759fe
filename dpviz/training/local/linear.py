"""PRESTIGE, DJW and SGD for linear models under local privacy: many repeats and budgets in lockstep.

A *lane* is one spec in one repeat. All lanes take their visit number t at the same time, each with its own person, so
that one matrix operation serves them all while every lane keeps the exact order of its updates. Specs of one repeat
share the order of people and the random draws, so differences between methods are paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dpviz.privacy.local import METHODS
from dpviz.privacy.registry import InputError
from dpviz.training.local.spec import TRUE, LocalSpec
from dpviz.training.local.tabular import Tabular

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Parts = Sequence[tuple[IntArray, IntArray]]
"""For each repeat: which rows of the training set to train on, and which to test on."""
Progress = Callable[[float], None]
"""Called now and then with the share that is done; it may raise to stop."""

BLOCK_FLOATS = 1 << 19  # directions drawn at a time: 4 MB
MAX_REPEATS = 1000


# --- draws --------------------------------------------------------------------------------------------------------


class Draws:
    """The random numbers of one repeat; every spec of the repeat sees the same, however visits are cut into blocks."""

    def __init__(self, seed: int, repeat: int) -> None:
        self.people, self.sphere = (np.random.default_rng([seed, repeat, part]) for part in range(2))

    def start(self, dimension: int) -> FloatArray:
        """The first weights: a random direction, to be scaled to the radius."""
        direction = self.people.standard_normal(dimension)
        return direction / np.linalg.norm(direction)

    def epoch(self, rows: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """The order of an epoch's visits, and for each visit a uniform for the flip and one for the half-sphere."""
        flips, coins = self.people.random((2, len(rows)))
        return self.people.permutation(rows), flips, coins

    def directions(self, count: int, dimension: int) -> FloatArray:
        """Uniform directions for the next visits. Single precision is drawn twice as fast."""
        directions = self.sphere.standard_normal((count, dimension), dtype=np.float32).astype(float)
        directions /= np.sqrt(np.vecdot(directions, directions))[:, None]
        return directions


def block_sizes(rows: int, batch_size: int, lane_floats: int) -> Iterator[tuple[int, int]]:
    """(first visit, visits) of the blocks of an epoch: whole batches, as many as fit; a short last batch on its own."""
    steps = max(1, BLOCK_FLOATS // (lane_floats * batch_size))
    whole = rows - rows % batch_size
    for first in range(0, whole, steps * batch_size):
        yield first, min(steps * batch_size, whole - first)
    if whole < rows:
        yield whole, rows - whole


def drawn_ahead(draws: Sequence[Draws], counts: Iterable[int], batch_size: int, dimension: int) -> Iterator[FloatArray]:
    """Directions of each block, steps x repeats x batch x features. A second thread draws the next block meanwhile.

    NumPy lets go of the interpreter while it draws, and drawing is half of the work when there are few specs.
    """

    def block(count: int) -> FloatArray:
        size = min(batch_size, count)
        found = np.empty((count // size, len(draws), size, dimension))
        for repeat, draw in enumerate(draws):
            found[:, repeat] = draw.directions(count, dimension).reshape(-1, size, dimension)
        return found

    with ThreadPoolExecutor(1) as second:
        waiting: Future[FloatArray] | None = None
        for count in counts:
            started = second.submit(block, count)
            if waiting is not None:
                yield waiting.result()
            waiting = started
        if waiting is not None:
            yield waiting.result()


# --- lockstep -----------------------------------------------------------------------------------------------------


class Lanes:
    """Repeats x specs of one kind, moved one update at a time.

    What depends on the spec only has the shape specs x 1, what a visit brings repeats x specs x batch. Code in here
    runs once for each visit of each person, so it counts NumPy calls.
    """

    def __init__(self, specs: Sequence[LocalSpec], starts: FloatArray) -> None:
        def column(of: Callable[[LocalSpec], float]) -> FloatArray:
            return np.array([of(spec) for spec in specs], dtype=float)[:, None]

        first = specs[0]
        self.specs, self.private, self.slope = specs, first.private, first.slope
        self.bound, self.length, self.intercept = first.bound, first.length, first.intercept
        self.flip = column(lambda spec: spec.flip)
        self.lean = column(lambda spec: float(expit(spec.gradient_epsilon)) - 0.5)
        self.lam, self.radius = column(lambda spec: spec.regularization), column(lambda spec: spec.radius)[:, 0]
        self.twice, self.lam_square, self.stride = 2 * self.lam, self.lam**2, self.radius / self.lam[:, 0]
        self.limit = self.radius**2
        self.masked = column(lambda spec: METHODS[spec.method].covers_silence).astype(bool)
        self.own_label = column(lambda spec: spec.gradient_label == TRUE).astype(bool)
        self.any_masked, self.any_own = bool(self.masked.any()), bool(self.own_label.any())
        self.threshold = np.zeros((len(specs), 1))
        self.weights = starts[:, None, :] * self.radius[:, None]
        self.squares = np.vecdot(self.weights, self.weights)
        self.sums, self.buffer = np.zeros_like(self.weights), np.empty_like(self.weights)
        self.updates = np.zeros(self.weights.shape[:2])

    def begin(self, epoch: int) -> None:
        self.threshold = np.array([spec.threshold_at(epoch) for spec in self.specs])[:, None]

    def plain_block(self, rows: FloatArray, labels: FloatArray) -> None:
        """SGD: w <- w - eta (lambda w + mean(c x)), eta = R / (lambda L sqrt(t)), at most 1 / lambda."""
        for row, label in zip(rows * self.length, labels[:, :, None], strict=True):
            z = (np.matmul(self.weights, row.transpose(0, 2, 1)) + self.intercept) * label
            self.updates += 1
            pace = np.minimum(self.radius[:, None] / (self.bound * np.sqrt(self.updates[..., None])), 1.0)
            self.weights *= 1 - pace
            steps = self.slope(z) * label * (-pace / (self.lam * row.shape[1]))
            self.move(steps, row, None)

    def private_block(
        self, rows: FloatArray, labels: FloatArray, flips: FloatArray, coins: FloatArray, towards: FloatArray
    ) -> None:
        """All private updates of a block; arrays are steps x repeats x batch (x features).

        All that does not depend on the weights is computed here at once. A coin u lands in the half-sphere of g if
        u < 1/2 + (|g| / L) lean, which is `limit < |g|^2` for limit = +-((u - 1/2) L / lean)^2.
        """
        rows, labels, coins = rows * self.length, labels[:, :, None], coins[:, :, None]
        answered = np.where(flips[:, :, None] < self.flip, -labels, labels)
        own = np.where(self.own_label, labels, answered) if self.any_own else answered
        aligned, lengths = np.vecdot(rows, towards)[:, :, None], np.vecdot(rows, rows)[:, :, None]
        needed = (coins - 0.5) / self.lean * self.bound
        limits = np.where(needed < self.bound, needed * np.abs(needed), np.inf)
        both = np.concatenate([rows, towards], axis=2).swapaxes(2, 3)
        for visit in zip(both, towards, answered, own, aligned, lengths, limits, strict=True):
            self.private_update(*visit)

    def private_update(
        self,
        both: FloatArray,
        towards: FloatArray,
        answered: FloatArray,
        own: FloatArray,
        aligned: FloatArray,
        lengths: FloatArray,
        limits: FloatArray,
    ) -> None:
        """One visit in every lane: w <- w - R / (lambda sqrt(t)) mean(+-v), v the uniform direction `towards`.

        The gradient g = lambda w + c x is never formed: all that counts is |g| and the sign of <v, g>. The scale B
        cancels, as the step is R / (lambda B sqrt(t)) and what is sent has length B.
        """
        batch = towards.shape[1]
        dots = np.matmul(self.weights, both)
        scores = dots[..., :batch]
        score = scores + self.intercept if self.intercept else scores
        z = score * answered
        inside = z >= self.threshold
        pull = self.slope(score * own if self.any_own else z) * own
        squares = pull * (self.twice * scores + pull * lengths) + self.lam_square * self.squares[..., None]
        if self.any_masked:
            squares = np.where(inside | ~self.masked, squares, 0.0)
            inside = inside | self.masked
        ahead = self.lam * dots[..., batch:] + pull * aligned > 0
        active = inside[..., 0] if batch == 1 else inside.any(axis=2)
        self.updates += active
        size = (self.stride / np.sqrt(np.maximum(self.updates, 1.0)))[..., None]
        if batch > 1:
            size = size / np.maximum(inside.sum(axis=2, keepdims=True), 1)
        self.move(np.where((limits < squares) == ahead, -size, size) * inside, towards, active)

    def move(self, steps: FloatArray, along: FloatArray, active: npt.NDArray[np.bool_] | None) -> None:
        """Add the steps, go back into the ball of radius R, and add to the sum for the average where active."""
        if along.shape[1] == 1:
            np.multiply(steps, along, out=self.buffer)
        else:
            np.matmul(steps, along, out=self.buffer)
        self.weights += self.buffer
        np.vecdot(self.weights, self.weights, out=self.squares)
        if (self.squares > self.limit).any():
            self.weights *= (self.radius / np.sqrt(np.maximum(self.squares, self.limit)))[..., None]
            np.minimum(self.squares, self.limit, out=self.squares)
        if active is None or active.all():
            self.sums += self.weights
        else:
            np.multiply(self.weights, active[..., None], out=self.buffer)
            self.sums += self.buffer

    @property
    def average(self) -> FloatArray:
        """Mean of the weights after each update; before the first one, the weights themselves."""
        counts = self.updates[..., None]
        return np.where(counts > 0, self.sums / np.maximum(counts, 1), self.weights)


# --- training -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """Weights after the last epoch and averaged over updates (specs x repeats x features), and how each epoch went.

    `last_errors`, `average_errors` and `used` (share of batches with an update) are specs x repeats x epochs.
    """

    last: FloatArray
    average: FloatArray
    last_errors: FloatArray
    average_errors: FloatArray
    used: FloatArray


def train(
    data: Tabular,
    specs: Sequence[LocalSpec],
    *,
    repeats: int = 1,
    seed: int = 0,
    parts: Parts | None = None,
    progress: Progress = lambda share: None,
) -> Trained:
    """Train every spec `repeats` times and test it after each epoch, on the test set or on each repeat's own part."""
    if not specs:
        raise InputError("give at least one method to train")
    if not (1 <= repeats <= MAX_REPEATS and repeats == int(repeats)):
        raise InputError(f"repeats must be a whole number from 1 to {MAX_REPEATS}, got {repeats}")
    groups: dict[tuple[object, ...], list[int]] = {}
    for index, spec in enumerate(specs):
        kind = (spec.private, spec.loss, spec.loss_knob, spec.batch_size, spec.epochs, spec.length, spec.intercept)
        groups.setdefault(kind, []).append(index)
    found: list[tuple[int, Trained]] = []
    for number, members in enumerate(groups.values()):

        def share(part: float, number: int = number) -> None:
            progress((number + part) / len(groups))

        result = _lockstep(data, [specs[index] for index in members], repeats, seed, parts, share)
        for lane, index in enumerate(members):
            found.append((index, Trained(*(values[:, lane] for values in vars(result).values()))))
    progress(1.0)
    in_order = [result for _, result in sorted(found, key=lambda pair: pair[0])]
    if len({spec.epochs for spec in specs}) > 1:
        raise InputError("specs that are trained together must have the same number of epochs")
    return Trained(*(np.stack(values) for values in zip(*(vars(result).values() for result in in_order), strict=True)))


def _lockstep(
    data: Tabular, specs: Sequence[LocalSpec], repeats: int, seed: int, parts: Parts | None, progress: Progress
) -> Trained:
    """The specs of one group; what is returned has repeats first, then specs."""
    draws = [Draws(seed, repeat) for repeat in range(repeats)]
    people = [train for train, _ in parts] if parts else [np.arange(data.people)] * repeats
    visits = min(len(rows) for rows in people)
    lanes = Lanes(specs, np.stack([draw.start(data.dimension) for draw in draws]))
    epochs, batch = specs[0].epochs, specs[0].batch_size
    history: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    for epoch in range(1, epochs + 1):
        lanes.begin(epoch)
        before = lanes.updates.copy()
        drawn = [draw.epoch(rows) for draw, rows in zip(draws, people, strict=True)]
        order, flips, coins = (np.stack([values[:visits] for values in column]) for column in zip(*drawn, strict=True))
        blocks = list(block_sizes(visits, batch, repeats * data.dimension))
        directions = drawn_ahead(draws, (count for _, count in blocks), batch, data.dimension)
        for first, count in blocks:
            progress((epoch - 1 + first / visits) / epochs)
            part, shape = slice(first, first + count), (repeats, -1, min(batch, count))
            rows, flip, coin = (values[:, part].reshape(shape).swapaxes(0, 1) for values in (order, flips, coins))
            if lanes.private:
                lanes.private_block(data.train_rows[rows], data.train_labels[rows], flip, coin, next(directions))
            else:
                lanes.plain_block(data.train_rows[rows], data.train_labels[rows])
        models = (lanes.weights, lanes.average)
        final, averaged = (_errors(data, parts, weights * lanes.length, lanes.intercept) for weights in models)
        history.append((final, averaged, (lanes.updates - before) / math.ceil(visits / batch)))
    columns = (np.stack(values, axis=2) for values in zip(*history, strict=True))
    return Trained(lanes.weights, lanes.average, *columns)


def _errors(data: Tabular, parts: Parts | None, weights: FloatArray, intercept: float) -> FloatArray:
    """Share of test rows on the wrong side, repeats x specs. A score of 0 counts as +1."""
    if parts is None:
        tests = [(data.test_rows, data.test_labels)] * len(weights)
    else:
        tests = [(data.train_rows[rows], data.train_labels[rows]) for _, rows in parts]
    return np.stack(
        [
            np.mean((lanes @ rows.T + intercept >= 0) != (labels > 0), axis=1)
            for lanes, (rows, labels) in zip(weights, tests, strict=True)
        ]
    )
