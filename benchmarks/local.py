"""bench local: the lockstep beside a plain NumPy row loop and scikit-learn's SGDClassifier, all in one run.

Every case is the same work for all three: so many repeats of one epoch over 16,000 people with 123 features, each
with its own order. The row loop is Algorithm 1 with one NumPy call after the other; SGDClassifier (compiled, hinge,
no privacy, no draws) has only the plain-SGD half of the work. Seconds are medians over rounds that take turns, so that
a busy moment of the machine hits all three.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from dpviz.training.local.experiments import BUDGETS, specs_for
from dpviz.training.local.linear import Draws, train
from dpviz.training.local.spec import LocalSpec
from dpviz.training.local.tabular import Tabular, unit_rows

PEOPLE, FEATURES, FILLED = 16_000, 123, 14
ROUNDS = 3
ROW_LOOP_PEOPLE = 2_000  # the row loop is timed on so many and scaled up: it is the slow one


def adult_like(people: int = PEOPLE, seed: int = 0) -> Tabular:
    """Rows as a7a has them: 14 of 123 features are set; labels from a random plane."""
    generator = np.random.default_rng(seed)
    rows = np.zeros((people, FEATURES))
    filled = np.argsort(generator.random(rows.shape), axis=1)[:, :FILLED]
    np.put_along_axis(rows, filled, 1.0, axis=1)
    labels = np.where(rows @ generator.standard_normal(FEATURES) + 0.1 > 0, 1.0, -1.0)
    rows = unit_rows(rows)
    return Tabular("adult-like", rows, labels, rows[:500], labels[:500])


def row_loop(data: Tabular, spec: LocalSpec, repeat: int) -> np.ndarray:
    """One epoch of PRESTIGE, DJW or SGD, one person after the other, in plain NumPy."""
    draws = Draws(0, repeat)
    weights = spec.radius * draws.start(data.dimension)
    order, flips, coins = draws.epoch(np.arange(data.people))
    directions = draws.directions(data.people, data.dimension)
    lean, updates = 1 / (1 + np.exp(-spec.gradient_epsilon)) - 0.5, 0
    for k, person in enumerate(order):
        row = spec.length * data.train_rows[person]
        label = data.train_labels[person] * (-1.0 if flips[k] < spec.flip else 1.0)
        z = label * (weights @ row)
        if z < spec.threshold_at(1):
            continue
        updates += 1
        gradient = spec.regularization * weights - (z < 1) * label * row
        if spec.private:
            share = min(np.linalg.norm(gradient) / spec.bound, 1.0)
            toward = coins[k] < 0.5 + share * lean
            sent = directions[k] if toward == (directions[k] @ gradient > 0) else -directions[k]
            weights = weights - spec.radius / (spec.regularization * np.sqrt(updates)) * sent
        else:
            weights = weights - min(spec.radius / spec.bound / np.sqrt(updates), 1.0) / spec.regularization * gradient
        weights *= min(1.0, spec.radius / np.linalg.norm(weights))
    return weights


def sklearn_epochs(data: Tabular, repeats: int) -> None:
    from sklearn.linear_model import SGDClassifier

    rows = 20.0 * data.train_rows
    for repeat in range(repeats):
        order = np.random.default_rng(repeat).permutation(data.people)
        model = SGDClassifier(loss="hinge", alpha=1.0, fit_intercept=False, shuffle=False, max_iter=1, tol=None)
        model.partial_fit(rows[order], data.train_labels[order], classes=[-1.0, 1.0])


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rows(repeats: int = 20) -> list[dict[str, Any]]:
    """One dict a case: seconds of each, and how many times faster or slower dpviz is."""
    data, part = adult_like(), adult_like(ROW_LOOP_PEOPLE)
    base = LocalSpec(epochs=1, threshold=0.0)
    cases = {
        f"DJW, {repeats} repeats": [base_of(base, "djw")],
        f"PRESTIGE, {repeats} repeats": [base_of(base, "prestige")],
        f"PRESTIGE and DJW, 5 budgets, {repeats} repeats": specs_for(base, ("prestige", "djw"), BUDGETS),
        f"SGD without privacy, {repeats} repeats": [base_of(base, "sgd")],
    }
    return [_row(name, specs, data, part, repeats) for name, specs in cases.items()]


def base_of(base: LocalSpec, method: str) -> LocalSpec:
    return specs_for(base, (method,), (1.0,))[0]


def _row(name: str, specs: list[LocalSpec], data: Tabular, part: Tabular, repeats: int) -> dict[str, Any]:
    found: dict[str, list[float]] = {"dpviz": [], "row_loop": [], "sklearn_sgd": []}
    loops = len(specs) * repeats * PEOPLE / ROW_LOOP_PEOPLE
    for turn in range(ROUNDS):
        found["dpviz"].append(seconds(lambda: train(data, specs, repeats=repeats)))
        found["row_loop"].append(loops * seconds(lambda turn=turn: row_loop(part, specs[0], turn)))
        found["sklearn_sgd"].append(len(specs) * seconds(lambda: sklearn_epochs(data, repeats)))
    row: dict[str, Any] = {key: round(statistics.median(values), 3) for key, values in found.items()}
    return {
        "case": f"{name}, 1 epoch, {PEOPLE:,} x {FEATURES}",
        **row,
        "row_loop_over_dpviz": round(row["row_loop"] / row["dpviz"], 1),
        "dpviz_over_sklearn_sgd": round(row["dpviz"] / row["sklearn_sgd"], 1),
    }
