"""Every reported number has its place, and is the number that the paper prints."""

import csv
import math
from collections import Counter
from importlib import resources

import pytest

from dpviz.papers import LOCAL_RECIPES, PAPERS, RECIPES, REPORTED, Reported, reported_of
from dpviz.privacy.registry import InputError


def values(paper, experiment, quantity, place):
    return [
        number.value
        for number in REPORTED
        if (number.paper, number.experiment, number.quantity, number.place) == (paper, experiment, quantity, place)
    ]


SOURCE_OF = {"Table ": "table", "Fig. ": "table", "Sec. ": "text", "Abstract": "text", "arXiv:": "cited"}


def test_every_reported_number_has_its_place_and_says_what_it_was_typed_from():
    for number in REPORTED:
        source = next(source for start, source in SOURCE_OF.items() if number.place.startswith(start))
        assert number.source == source, number


def test_a_number_without_its_place_is_refused():
    with pytest.raises(ValueError, match="place"):
        Reported("curricula", "linear-decreasing", "test_accuracy", 0.9463, "", "table")


@pytest.mark.parametrize("value", [94.63, -0.1, math.nan])
def test_an_accuracy_that_is_no_fraction_is_refused(value):
    with pytest.raises(ValueError, match="test_accuracy"):
        Reported("curricula", "linear-decreasing", "test_accuracy", value, "Table 2", "table")


def test_accuracies_and_errors_are_fractions_and_epsilons_are_positive():
    fractions = [number for number in REPORTED if number.quantity.endswith(("_accuracy", "_error"))]
    assert len(fractions) > 200
    assert all(0 < number.value < 1 for number in fractions)
    assert all(number.spread < 0.05 for number in fractions if number.spread is not None)
    assert all(number.epsilon > 0 for number in REPORTED if number.epsilon is not None)


def test_no_cell_of_a_table_file_is_lost():
    for paper in PAPERS:
        for file in (resources.files("dpviz.papers") / paper).iterdir():
            if file.name.endswith(".csv"):
                rows = list(csv.reader(file.read_text(encoding="utf-8").splitlines()))
                assert all(len(row) == len(rows[0]) for row in rows), f"{paper}/{file.name} is not rectangular"


@pytest.mark.parametrize(
    ("paper", "place", "quantity", "count"),
    [
        ("curricula", "Table 1", "first_noise_multiplier", 8),
        ("curricula", "Table 2", "test_accuracy", 8),
        ("curricula", "Table 3", "test_accuracy", 8),
        ("curricula", "Table 4", "test_accuracy", 18),
        ("losing-less", "Sec. 4.1", "test_accuracy", 11),
        ("losing-less", "Table 5", "noise_multiplier", 6),
        ("losing-less", "Table 6", "loss.gamma", 6),
        ("optimizers", "Fig. 3", "test_accuracy", 9),
        ("prestige", "Table 2", "features", 6),
        ("prestige", "Table 3", "test_error", 48),
        ("screening", "Table 1", "test_accuracy", 18),
        ("screening", "Table 2", "noise_multiplier", 3),
        ("screening", "Table 3", "test_accuracy", 35),
    ],
)
def test_a_table_has_as_many_numbers_as_in_the_paper(paper, place, quantity, count):
    assert sum(number.place == place and number.quantity == quantity for number in reported_of(paper)) == count


def test_table_2_of_optimizers_has_its_44_rows_numbered_to_47_without_29_to_31():
    rows = [
        int(number.place.removeprefix("Table 2, row "))
        for number in reported_of("optimizers")
        if number.place.startswith("Table 2") and number.quantity == "test_accuracy"
    ]
    assert rows == [*range(1, 29), *range(32, 48)]


@pytest.mark.parametrize(
    ("paper", "experiment", "quantity", "place", "value"),
    [
        ("curricula", "exponential-increasing", "test_accuracy", "Table 2", 0.9442),
        ("curricula", "constant-1.38", "test_accuracy", "Table 3", 0.9565),
        ("curricula", "constant-0", "test_accuracy", "Table 4", 0.9577),
        ("curricula", "sample-constant-3", "test_accuracy", "Table 4", 0.9260),
        ("curricula", "accuracy-against-log-epsilon", "pearson_r", "Sec. 6.2 (Fig. 4)", 0.848),
        ("curricula", "accuracy-against-log-epsilon", "p_value", "Sec. 6.2 (Fig. 4)", 0.016),
        ("losing-less", "mnist-ce-t-cnn", "test_accuracy", "Sec. 4.1", 0.982),
        ("losing-less", "cifar10-ce-t-cnn", "truck_train_accuracy", "Sec. 4.2", 0.37),
        ("losing-less", "cifar10-o-t-cnn", "cat_train_accuracy", "Sec. 4.2", 0.49),
        ("losing-less", "cifar10-ce-t-pfe-cnn", "noise_multiplier", "Table 5", 5.67),
        ("losing-less", "fashion-o-t-pfe-cnn", "loss.beta", "Table 6", 51),
        ("losing-less", "search-beta", "end", "Table 7", 200),
        ("optimizers", "dp-adam-b64", "test_accuracy", "Table 2, row 17", 0.3555),
        ("optimizers", "dp-rmsprop-b64-lr0.001-eps8", "training_seconds", "Table 2, row 45", 1283.99),
        ("optimizers", "sgd-200", "test_accuracy", "Table 2, row 2", 0.94),
        ("prestige", "susy", "training_examples", "Table 2", 4_000_000),
        ("prestige", "diabetes-prestige-gompertz", "test_error", "Table 3", 0.3125),
        ("prestige", "real-sim-djw-logistic", "test_error", "Table 3", 0.5819),
        ("screening", "cifar10-auto-s", "test_accuracy", "Table 1", 0.5934),
        ("screening", "fashion", "method.rejections", "Table 2", 5),
        ("screening", "mnist-lr1.5", "test_accuracy", "Sec. 4.4", 0.9881),
        ("screening", "fashion-free", "test_accuracy", "Abstract", 0.8850),
        ("state-of-the-art", "cifar10-randp", "test_accuracy", "arXiv:2306.06076, as reported", 0.723),
    ],
)
def test_a_number_is_the_one_in_the_paper(paper, experiment, quantity, place, value):
    assert values(paper, experiment, quantity, place) == [value]


def test_an_accuracy_carries_the_claimed_epsilon_of_its_row():
    number = next(number for number in reported_of("screening") if number.place == "Table 3" and number.value == 0.98)
    assert (number.experiment, number.epsilon, number.delta) == ("mnist-tanh", 2.92, 1e-5)


def test_the_state_of_the_art_has_its_datasets_and_says_which_epsilons_are_only_claimed():
    numbers = reported_of("state-of-the-art")
    assert Counter(number.dataset for number in numbers) == {"mnist": 7, "fashion-mnist": 5, "cifar10": 10}
    sound = {number.name for number in numbers if number.epsilon_sound is not None}
    assert {number.name for number in numbers} - sound == {
        f"state-of-the-art/{data}-dpsur" for data in ("mnist", "fashion", "cifar10")
    }
    assert all(number.epsilon_sound in (None, number.epsilon) for number in numbers)
    de = [(number.epsilon, number.value) for number in numbers if number.experiment == "cifar10-de"]
    assert de == [(1, 0.568), (2, 0.659), (4, 0.735), (8, 0.814)]


def test_what_the_abstract_of_screening_repeats_agrees_with_its_table():
    table = {number.experiment: number.value for number in reported_of("screening") if number.place == "Table 1"}
    abstract = {number.experiment: number.value for number in reported_of("screening") if number.place == "Abstract"}
    assert len(abstract) == 9
    assert abstract.items() <= table.items()


def test_the_gains_that_curricula_states_in_words_are_in_its_tables():
    accuracy = {number.experiment: number.value for number in reported_of("curricula") if number.place == "Table 4"}
    plain = [name for name in accuracy if not name.startswith("sample-")]
    assert len(plain) == 9
    assert all(accuracy[name] > accuracy[f"sample-{name}"] for name in plain)


def test_pearsons_r_and_p_of_curricula_fit_seven_points():
    from scipy import stats

    r, p = 0.848, 0.016
    fitting = [n for n in range(3, 30) if round(2 * stats.t.sf(r * math.sqrt((n - 2) / (1 - r * r)), n - 2), 3) == p]
    assert fitting == [7]


def test_only_numbers_that_no_run_can_give_lack_a_recipe():
    known, elsewhere = {*RECIPES, *LOCAL_RECIPES}, ("susy", "real-sim", "cyberbully", "diabetes")
    lone = Counter(
        number.name
        for number in REPORTED
        if number.name not in known and number.place != "Table 2" and number.source != "cited"
    )
    unhad = {name for name in lone if name.removeprefix("prestige/").startswith(elsewhere)}
    assert len(unhad) == 32
    lone = set(lone) - unhad
    assert set(lone) == {
        "curricula/accuracy-against-log-epsilon",
        "curricula/logistic-regression",
        "curricula/sample-unnamed-decreasing-1",
        "curricula/sample-unnamed-decreasing-2",
        "curricula/unnamed-decreasing-1",
        "curricula/unnamed-decreasing-2",
        "losing-less/search-beta",
        "losing-less/search-threshold",
        "optimizers/grid",
        "optimizers/tang-dp-adam",
        "optimizers/tang-dp-adam-bc",
        "optimizers/tang-dp-sgd",
        "screening/cifar10-free",
        "screening/fashion-free",
        "screening/mnist-any-learning-rate",
    }


def test_every_paper_is_told_in_four_sentences_with_its_methods():
    assert list(PAPERS) == ["curricula", "losing-less", "optimizers", "prestige", "screening", "state-of-the-art"]
    for paper in PAPERS.values():
        assert len(paper.summary) == 4
        assert all(sentence.endswith(".") for sentence in (*paper.summary, *paper.doubts))
        assert paper.title
        assert paper.authors
        assert 2015 < paper.year < 2026
        assert paper.methods


def test_an_unknown_paper_is_answered_with_the_nearest():
    with pytest.raises(InputError, match="unknown paper 'curriculum'; the nearest are curricula"):
        reported_of("curriculum")
