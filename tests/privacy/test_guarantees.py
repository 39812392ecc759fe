"""Claimed and sound, for every row of the design's table."""

import pytest

from dpviz.privacy import (
    InputError,
    Ledger,
    Phase,
    epoch_phases,
    epsilon,
    guarantee,
    guarantee_path,
    prestige_guarantee,
    selection_cost,
)
from dpviz.privacy.guarantees import RULES

PHASES = epoch_phases([2.0, 1.5, 1.0], 0.01)
FULL = epsilon(Ledger(PHASES), 1e-5).upper


@pytest.mark.parametrize(
    ("method", "curriculum", "claimed", "sound"),
    [
        ("dp-sgd", "none", FULL, FULL),
        ("dp-sgd", "sample", FULL, None),
        ("dp-sgd", "dynamic", None, None),
        ("dp-sgd", "masked", None, FULL),
        ("sgd", "none", None, None),
        ("sgd", "sample", None, None),
        ("sgd", "dynamic", None, None),
        ("sgd", "masked", None, None),
        ("screening", "none", FULL, FULL),
        ("screening", "masked", FULL, FULL),
    ],
)
def test_what_each_method_claims_and_what_holds(method, curriculum, claimed, sound) -> None:
    found = guarantee(method, curriculum, PHASES, 1e-5)
    assert (found.claimed and found.claimed.upper) == claimed
    assert (found.sound and found.sound.upper) == sound
    assert guarantee_path(method, curriculum, PHASES, 1e-5)[-1] == (claimed, sound)


@pytest.mark.parametrize(("method", "curriculum"), RULES)
def test_every_rule_says_what_it_rests_on_in_words(method: str, curriculum: str) -> None:
    found = guarantee(method, curriculum, PHASES, 1e-5)
    assert found.assumptions
    assert found.not_covered
    if found.sound is None:
        assert any("no guarantee" in text for text in found.assumptions)


def test_screening_is_claimed_by_accepted_updates_and_sound_by_all() -> None:
    accepted = [40, 0, 70]
    path = guarantee_path("screening", "none", PHASES, 1e-5, accepted)
    kept = Ledger([Phase(2.0, 0.01, 40), Phase(1.0, 0.01, 70)])
    assert path[-1][0] == epsilon(kept, 1e-5).upper
    assert path[-1][1] == FULL
    assert path[1][0] == path[0][0], "an epoch in which nothing was accepted is claimed to be free"
    for curriculum in ("none", "masked"):
        found = guarantee("screening", curriculum, PHASES, 1e-5, accepted=accepted)
        assert found.claimed.upper < FULL
        assert found.sound.upper == FULL, "rejected candidates are charged too"


def test_a_public_order_would_cost_gaussian_composition() -> None:
    found = guarantee("dp-sgd", "sample", epoch_phases([1.0] * 20, 0.01), 1e-5)
    (words,) = [text for text in found.assumptions if "had the order been public" in text]
    assert "28.3" in words
    assert "zero-out: neighbours differ by one example that counts nothing" in words


def test_shuffled_batches_are_sound_without_amplification_only() -> None:
    found = guarantee("dp-sgd", "none", PHASES, 1e-5, sampling="shuffled")
    assert found.claimed.upper == FULL
    assert found.sound == epsilon(Ledger(PHASES), 1e-5, sampling="shuffled")
    assert any("not a guarantee" in text for text in found.assumptions)
    assert found.adjacency == "zero-out"
    assert any("counts nothing" in text for text in found.assumptions)
    assert not any("adding or removing" in text for text in found.assumptions)
    with pytest.raises(InputError, match="choose zero-out or replace-one"):
        guarantee("dp-sgd", "none", PHASES, 1e-5, adjacency="add-remove", sampling="shuffled")


def test_prestige_is_priced_per_person() -> None:
    found = prestige_guarantee(0.2, 0.8, visits=10, people=1000)
    assert found.sound.upper == pytest.approx(10)
    assert found.claimed.upper == pytest.approx(10_000)


def test_the_best_of_several_runs_costs_them_all() -> None:
    assert selection_cost(PHASES, 1e-5, 1).upper == pytest.approx(FULL)
    assert selection_cost(PHASES, 1e-5, 5) == epsilon(Ledger(PHASES * 5), 1e-5)


def test_an_unknown_pair_is_refused() -> None:
    with pytest.raises(InputError, match="no rule for method 'sgdx'"):
        guarantee("sgdx", "none", PHASES, 1e-5)
