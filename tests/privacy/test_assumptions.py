"""The record of assumptions: checked when it is made, and the same price as by name."""

from dataclasses import FrozenInstanceError, replace

import pytest

from dpviz.privacy import (
    ACCOUNTANTS,
    SAMPLINGS,
    Assumptions,
    InputError,
    Schedule,
    calibrate,
    delta,
    epoch_phases,
    epsilon,
    epsilon_path,
    guarantee,
    matching_constant,
    most_epochs,
    price_tags,
)

SIGMAS, RATE, DELTA = (4.0, 2.0, 3.0), 0.02, 1e-5
PHASES = epoch_phases(SIGMAS, RATE)
EVERY = [
    {"accountant": accountant, "adjacency": adjacency, "sampling": sampling}
    for accountant in ACCOUNTANTS
    for sampling, entry in SAMPLINGS.items()
    for adjacency in entry.adjacencies
]
QUESTIONS = {
    "epsilon": lambda *a, **k: epsilon(PHASES, DELTA, *a, **k),
    "epsilon_path": lambda *a, **k: epsilon_path(PHASES, DELTA, *a, **k),
    "delta": lambda *a, **k: delta(PHASES, 1.0, *a, **k),
    "price_tags": lambda *a, **k: price_tags(PHASES, DELTA, *a, **k).tolist(),
    "guarantee": lambda *a, **k: guarantee("dp-sgd", "none", PHASES, DELTA, *a, **k),
    "calibrate": lambda *a, **k: calibrate(SIGMAS, RATE, 1.0, DELTA, *a, **k),
    "matching_constant": lambda *a, **k: matching_constant(SIGMAS, RATE, DELTA, *a, **k),
    "most_epochs": lambda *a, **k: most_epochs(Schedule.of("constant", sigma=9.0), RATE, 2.0, DELTA, *a, **k),
}


def test_without_an_adjacency_it_is_the_samplings_default():
    assert Assumptions() == Assumptions("pld", "add-remove", "poisson")
    assert Assumptions(sampling="fixed-order").adjacency == "zero-out"
    assert Assumptions(sampling="shuffled").adjacency == "zero-out"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"accountant": "rdq"}, "unknown accountant"),
        ({"adjacency": "remove"}, "unknown adjacency"),
        ({"sampling": "uniform"}, "unknown sampling"),
        ({"adjacency": "add-remove", "sampling": "shuffled"}, "choose zero-out or replace-one"),
    ],
)
def test_what_has_no_price_is_refused_on_construction(wrong, words):
    with pytest.raises(InputError, match=words):
        Assumptions(**wrong)


def test_the_record_is_frozen_and_a_changed_one_is_checked_again():
    with pytest.raises(FrozenInstanceError):
        Assumptions().sampling = "shuffled"
    with pytest.raises(InputError, match="no price"):
        replace(Assumptions(), sampling="shuffled")
    assert len({Assumptions(), Assumptions(), Assumptions("rdp")}) == 2


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_every_question_answers_a_record_as_it_answers_its_names(ask):
    for named in EVERY if ask is QUESTIONS["epsilon"] else EVERY[::4]:
        assert ask(Assumptions(**named)) == ask(**named), named


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_a_record_and_names_at_once_are_refused_and_so_is_a_bare_name(ask):
    with pytest.raises(InputError, match="got Assumptions, sampling"):
        ask(Assumptions(), sampling="shuffled")
    with pytest.raises(InputError, match="got str"):
        ask("rdp")


def test_every_assumption_counts():
    prices = {tuple(named.values()): epsilon(PHASES, DELTA, Assumptions(**named)).upper for named in EVERY}
    base = prices["pld", "add-remove", "poisson"]
    assert prices["rdp", "add-remove", "poisson"] > base
    assert prices["pld", "replace-one", "poisson"] > base
    assert prices["pld", "zero-out", "fixed-order"] > base
