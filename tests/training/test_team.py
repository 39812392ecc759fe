"""Several workers take the steps of one: the same batches, sums and noise, and so the same curve and epsilon."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dpviz.privacy.registry import InputError
from dpviz.training.engine import Trainer
from dpviz.training.team import ALONE, Team
from tests.training.small import small_data, small_spec
from tests.training.team_script import CASES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> dict[str, dict]:
    """What one worker, and each of two, saw of every case: real processes that speak through gloo."""
    folder = tmp_path_factory.mktemp("team")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    places = [(0, 1), (0, 2), (1, 2)]
    command = [sys.executable, "-m", "tests.training.team_script", str(folder)]
    started = [subprocess.Popen([*command, *map(str, place)], env=environment, cwd=ROOT) for place in places]
    try:
        assert [process.wait(240) for process in started] == [0, 0, 0]
    finally:
        for process in started:
            process.kill()
    return {f"{rank} of {workers}": torch.load(folder / f"{workers}-{rank}.pt") for rank, workers in places}


REPEATED = [case for case in CASES if case != "secure"]  # two secure runs are never alike


@pytest.mark.parametrize("case", REPEATED)
def test_two_workers_add_up_to_the_sums_of_one(seen, case):
    one, first = seen["0 of 1"][case], seen["0 of 2"][case]
    steps = slice(10)
    scale = one["sums"].norm(dim=1, keepdim=True)
    assert ((one["sums"] - first["sums"])[steps] / scale[steps]).abs().max() < 1e-5


@pytest.mark.parametrize("case", REPEATED)
def test_the_curve_is_that_of_one_within_rounding_and_epsilon_is_the_same(seen, case):
    one, first = seen["0 of 1"][case], seen["0 of 2"][case]
    torch.testing.assert_close(first["curve"], one["curve"], rtol=1e-4, atol=1e-6)
    assert first["epsilon"] == one["epsilon"]


@pytest.mark.parametrize("case", CASES)
def test_all_workers_keep_the_same_weights_and_each_has_its_share_of_the_examples(seen, case):
    first, second = seen["0 of 2"][case], seen["1 of 2"][case]
    assert torch.equal(first["weights"], second["weights"])
    assert torch.equal(first["curve"], second["curve"])
    assert first["examples"] + second["examples"] == seen["0 of 1"][case]["examples"]
    assert abs(first["examples"] - second["examples"]) <= 1


def test_what_an_audit_sees_of_the_noise_does_not_depend_on_the_workers(seen):
    assert seen["0 of 2"]["plain"]["audit"] == seen["0 of 1"]["plain"]["audit"]


def test_every_worker_learns_whether_all_say_the_same(seen):
    assert (seen["0 of 1"]["alike"], seen["0 of 2"]["alike"], seen["1 of 2"]["alike"]) == (
        (True, True),
        (True, False),
        (True, False),
    )


def test_workers_whose_devices_draw_different_noise_are_refused(monkeypatch):
    monkeypatch.setattr(Team, "alike", lambda team, words: words != "cpu")
    with pytest.raises(InputError, match="GPUs of several models, which draw different noise"):
        Trainer(small_spec(), data=small_data())


def test_shares_are_alike_and_leave_nobody_out():
    for workers in (1, 2, 3, 7):
        parts = [Team(rank, workers).part(1000) for rank in range(workers)]
        assert [number for part in parts for number in range(1000)[part]] == list(range(1000))
        assert {part.stop - part.start for part in parts} <= {1000 // workers, 1000 // workers + 1}


def test_one_worker_needs_no_group():
    numbers = torch.arange(3.0)
    ALONE.add([numbers])
    assert ALONE.first(numbers) is numbers
    assert ALONE.whole(numbers, 3) is numbers
    assert ALONE.first_number(lambda: 5) == 5
