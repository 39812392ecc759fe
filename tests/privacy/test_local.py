"""Mechanisms of local privacy: by sampling, by exact probabilities, and as budgets."""

import math

import numpy as np
import pytest

from dpviz.privacy.local import (
    LocalBudget,
    flip_probability,
    local_guarantee,
    private_sample,
    scale,
    toward_probability,
)
from dpviz.privacy.registry import InputError
from tests.privacy.local_densities import design_matrix, sample_log_densities, visit_log_densities, worst_log_ratio

EPSILONS = (0.1, 1.0, 4.0)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_design_matrix_rows_are_laws_and_its_worst_ratio_is_epsilon():
    for epsilon in EPSILONS:
        matrix = design_matrix(epsilon)
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0)
        assert matrix[0, 1] == flip_probability(epsilon) == pytest.approx(1 / (math.exp(epsilon) + 1))
        assert worst_log_ratio(np.log(matrix)) == pytest.approx(epsilon, abs=1e-9)


@pytest.mark.parametrize(("dimension", "samples"), [(2, 400_000), (10, 400_000), (784, 20_000)])
@pytest.mark.parametrize("length", [0.3, 1.0])
def test_the_mean_answer_is_the_vector_and_twice_it_with_the_printed_scale(dimension, samples, length):
    bound, epsilon = 2.0, 1.0
    generator = np.random.default_rng(dimension)
    vector = unit(generator.standard_normal((1, dimension)))[0] * length * bound
    total, chunk = np.zeros((2, dimension)), 20_000
    for _ in range(samples // chunk):
        for kind in range(2):
            rows = np.broadcast_to(vector, (chunk, dimension))
            total[kind] += private_sample(rows, bound, epsilon, generator, printed=bool(kind)).sum(axis=0)
    # Along the vector and across it: the coordinates of an answer have variance B^2 / d.
    for kind in range(2):
        mean = total[kind] / samples
        deviation = scale(dimension, epsilon, bound, printed=bool(kind)) / math.sqrt(samples * dimension)
        assert abs(mean @ vector / (length * bound) - (1 + kind) * length * bound) < 5 * deviation
        assert np.linalg.norm(mean - (1 + kind) * vector) < deviation * (math.sqrt(dimension) + 5)


def test_answers_have_the_length_that_the_scale_says():
    answers = private_sample(np.full((50, 3), 0.1), 1.0, 0.5, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(answers, axis=1), scale(3, 0.5))


def test_scale_agrees_with_lemma_2_of_the_paper_when_printed():
    for dimension, epsilon, bound in ((2, 0.5, 1.0), (7, 1.0, 3.0), (20, 2.0, 0.1)):
        ratio = (math.exp(epsilon) + 1) / (math.exp(epsilon) - 1)
        gammas = dimension * math.gamma((dimension - 1) / 2 + 1) / math.gamma(dimension / 2 + 1)
        lemma = bound * math.sqrt(math.pi) * ratio * gammas
        assert scale(dimension, epsilon, bound, printed=True) == pytest.approx(lemma)
        assert scale(dimension, epsilon, bound) == pytest.approx(lemma / 2)
    assert math.isfinite(scale(100_000, 1e-6))


def test_the_worst_ratio_of_private_sampling_over_a_grid_is_epsilon_and_is_reached():
    generator = np.random.default_rng(3)
    directions = unit(generator.standard_normal((40, 5)))
    vectors = np.concatenate([share * directions for share in (0.0, 0.01, 0.5, 1.0)])
    outputs = unit(generator.standard_normal((500, 5)))
    for epsilon in EPSILONS:
        worst = worst_log_ratio(sample_log_densities(vectors, outputs, 1.0, epsilon))
        assert worst <= epsilon + 1e-12
        assert worst == pytest.approx(epsilon)
        shorter = worst_log_ratio(sample_log_densities(0.5 * directions, outputs, 1.0, epsilon))
        assert shorter < epsilon


def test_exact_densities_are_those_of_the_sampler():
    vector = np.array([[0.3, -0.4]])
    outputs = private_sample(np.repeat(vector, 200_000, axis=0), 1.0, 1.5, np.random.default_rng(8))
    toward = np.mean(outputs @ vector[0] > 0)
    expected = toward_probability(np.array([0.5]), 1.0, 1.5)[0]
    assert abs(toward - expected) < 5 * math.sqrt(0.25 / 200_000)
    densities = np.exp(sample_log_densities(vector, unit(outputs), 1.0, 1.5))
    # The reciprocal of a density has mean 1 under it, over the uniform law.
    assert np.mean(1 / densities) == pytest.approx(1.0, abs=0.01)


# --- a whole visit ------------------------------------------------------------------------------------------------


def people(count=60, dimension=3, seed=0):
    """Labels, scores and the hinge-like gradients of random people of length 1."""
    generator = np.random.default_rng(seed)
    rows = unit(generator.standard_normal((count, dimension)))
    labels = np.where(generator.random(count) < 0.5, -1.0, 1.0)
    scores = rows @ np.array([2.0, 0.0, 0.0])
    gradients = np.stack([rows, -rows], axis=1)
    outputs = unit(generator.standard_normal((300, dimension)))
    return labels, scores, gradients, outputs


@pytest.mark.parametrize("threshold", [1.0, -0.5])
def test_who_speaks_shows_a_persons_features_at_any_epsilon(threshold):
    labels, scores, gradients, outputs = people()
    for epsilon in (0.01, 1.0):
        budget = LocalBudget(epsilon, 0.2, 10, 60)
        found = visit_log_densities(labels, scores, gradients, outputs, budget, threshold=threshold, bound=1.0)
        assert worst_log_ratio(found) == math.inf


def test_a_threshold_of_zero_alone_keeps_a_record_within_both_epsilons():
    labels, scores, gradients, outputs = people()
    budget = LocalBudget(1.0, 0.2, 10, 60)
    found = visit_log_densities(labels, scores, gradients, outputs, budget, threshold=0.0, bound=1.0)
    assert worst_log_ratio(found[:, :1]) == pytest.approx(budget.curriculum)
    assert worst_log_ratio(found) == pytest.approx(budget.epsilon)


@pytest.mark.parametrize("threshold", [1.0, 0.0, -0.5])
def test_a_visit_keeps_the_label_within_the_curriculums_epsilon(threshold):
    labels, scores, gradients, outputs = people()
    budget = LocalBudget(1.0, 0.2, 10, 60)
    worst = 0.0
    for person in range(len(labels)):
        both = [np.repeat(part[person : person + 1], 2, axis=0) for part in (scores, gradients)]
        found = visit_log_densities(np.array([-1.0, 1.0]), *both, outputs, budget, threshold=threshold, bound=1.0)
        worst = max(worst, worst_log_ratio(found))
    assert worst <= budget.curriculum + 1e-9
    assert worst == pytest.approx(budget.curriculum)


@pytest.mark.parametrize("threshold", [1.0, 0.0, -0.5])
def test_with_cover_a_visit_keeps_the_whole_record_within_the_gradients_epsilon(threshold):
    labels, scores, gradients, outputs = people()
    budget = LocalBudget(1.0, 0.2, 10, 60)
    found = visit_log_densities(labels, scores, gradients, outputs, budget, threshold=threshold, bound=1.0, cover=True)
    assert np.all(found[:, 0] == -np.inf)
    assert 0 < worst_log_ratio(found) <= budget.gradient


# --- budgets ------------------------------------------------------------------------------------------------------


def test_a_budget_is_split_and_composed_per_person_and_in_total():
    budget = LocalBudget(1.0, 0.2, 10, 16_100)
    assert (budget.curriculum, budget.gradient) == pytest.approx((0.2, 0.8))
    assert budget.per_person == 10.0
    assert budget.total == pytest.approx(161_000)
    assert budget.visit_if_total == pytest.approx(1 / 161_000)


def test_cards_show_a_visit_beside_what_a_person_pays():
    budget = LocalBudget(1.4, 0.2, 10, 455)
    for method in ("prestige", "djw"):
        guarantee = local_guarantee(method, budget)
        assert guarantee.claimed.upper == pytest.approx(1.4)
        assert guarantee.sound.upper == pytest.approx(14.0)
        assert guarantee.sound.delta == 0
    assert "label" in local_guarantee("prestige", budget).adjacency
    assert "record" in local_guarantee("djw", budget).adjacency
    assert any("no guarantee" in line for line in local_guarantee("prestige", budget).assumptions)
    assert local_guarantee("masked", budget).claimed is None
    assert local_guarantee("masked", budget).sound.upper == pytest.approx(14.0)
    assert local_guarantee("sgd", budget).sound is None


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, 51.0])
def test_a_wrong_epsilon_is_refused(epsilon):
    with pytest.raises(InputError, match="epsilon"):
        flip_probability(epsilon)
    with pytest.raises(InputError, match="epsilon"):
        LocalBudget(epsilon, 0.2, 10, 5)


def test_wrong_inputs_are_refused_with_a_sentence():
    generator = np.random.default_rng(0)
    with pytest.raises(InputError, match="no longer than the bound"):
        private_sample(np.array([[2.0, 0.0]]), 1.0, 1.0, generator)
    with pytest.raises(InputError, match="no longer than the bound"):
        private_sample(np.array([[math.nan, 0.0]]), 1.0, 1.0, generator)
    with pytest.raises(InputError, match="dimension"):
        scale(0, 1.0)
    with pytest.raises(InputError, match="bound"):
        scale(2, 1.0, math.nan)
    for share in (0.0, 1.0, math.nan):
        with pytest.raises(InputError, match="share"):
            LocalBudget(1.0, share, 10, 5)
    with pytest.raises(InputError, match="at least 1"):
        LocalBudget(1.0, 0.2, 0, 5)
    with pytest.raises(InputError, match="unknown method"):
        local_guarantee("dpsgd", LocalBudget(1.0, 0.2, 1, 1))
