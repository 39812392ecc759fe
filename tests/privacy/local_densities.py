"""Exact probabilities of what the mechanisms of local privacy show: an oracle for the epsilon that they spend."""

from __future__ import annotations

import numpy as np

from dpviz.privacy.local import FloatArray, LocalBudget, flip_probability, toward_probability


def design_matrix(epsilon: float) -> FloatArray:
    """P[true, answered] = e^eps / (e^eps + 1) on the diagonal, 1 / (e^eps + 1) off it (Prop. 2)."""
    flip = flip_probability(epsilon)
    return np.array([[1 - flip, flip], [flip, 1 - flip]])


def sample_log_densities(vectors: FloatArray, outputs: FloatArray, bound: float, epsilon: float) -> FloatArray:
    """Exact log-density of each output (column) given each vector (row), over the uniform law on the sphere.

    2p on the half-sphere around the vector, 2 (1 - p) on the other, with p = toward_probability. A zero vector has no
    half-sphere: density 1 everywhere.
    """
    p = toward_probability(np.linalg.norm(vectors, axis=1), bound, epsilon)[:, None]
    return np.log(2 * np.where(vectors @ outputs.T > 0, p, 1 - p))


def visit_log_densities(
    labels: FloatArray,
    scores: FloatArray,
    gradients: FloatArray,
    outputs: FloatArray,
    budget: LocalBudget,
    *,
    threshold: float,
    bound: float,
    cover: bool = False,
) -> FloatArray:
    """Exact log-probability of all that a visit shows: column 0 is silence, the others the outputs sent.

    Each row is a person: label, score <w, x> + b, and the gradient for an answered label of -1 and of +1
    (people x 2 x dimension). Silence is seen by everyone, and whether a person falls silent depends on the features
    without noise. With `cover` a person outside the curriculum sends the private answer for a zero gradient instead.
    """
    answered = np.array([-1.0, 1.0])
    chance = design_matrix(budget.curriculum)[(labels > 0).astype(int)]
    inside = scores[:, None] * answered >= threshold
    density = np.zeros((len(labels), len(outputs)))
    for answer in range(2):
        sent = np.where(inside[:, answer, None], gradients[:, answer], 0.0)
        speaks = chance[:, answer] * (inside[:, answer] | cover)
        density += speaks[:, None] * np.exp(sample_log_densities(sent, outputs, bound, budget.gradient))
    silence = np.sum(chance * ~(inside | cover), axis=1)
    with np.errstate(divide="ignore"):  # log 0 is what an impossible outcome has
        return np.log(np.column_stack([silence, density]))


def worst_log_ratio(log_densities: FloatArray) -> float:
    """The largest |log p(z | x) - log p(z | x')| over inputs (rows) and outputs (columns): the epsilon spent."""
    possible = log_densities[:, np.any(log_densities > -np.inf, axis=0)]
    return float(np.max(possible.max(axis=0) - possible.min(axis=0)))
