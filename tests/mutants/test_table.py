"""The table of mutants fits the code as it is; `make mutants` runs them."""

import pytest

from tests.mutants import ROOT, Mutant, mutants


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_fits_in_one_place_and_is_still_a_program(mutant: Mutant) -> None:
    path = ROOT / mutant.file
    changed = mutant.applied(path.read_text())
    if path.suffix == ".py":
        compile(changed, mutant.file, "exec")
    for test in mutant.tests:
        assert (ROOT / test.partition("::")[0]).exists(), test


def test_there_are_enough_of_them() -> None:
    assert len(mutants()) >= 120
