"""Every schedule: known ahead, as printed in the paper, and refusing what cannot be."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpviz.privacy import SCHEDULES, InputError, Schedule
from dpviz.privacy.schedules import CUSTOM, parse_csv, read_csv

NAMED = [name for name in SCHEDULES if name != CUSTOM]
T = 20
t = np.arange(T)


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("epochs", [1, 2, 7, 20, 300])
def test_every_schedule_gives_one_good_sigma_an_epoch(name: str, epochs: int) -> None:
    sigmas = Schedule.of(name).sigmas(epochs)
    assert sigmas.shape == (epochs,)
    assert np.all(np.isfinite(sigmas) & (sigmas >= 0))


@pytest.mark.parametrize("name", NAMED)
def test_every_schedule_survives_json(name: str) -> None:
    schedule = Schedule.of(name)
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json()))) == schedule


@pytest.mark.parametrize("name", NAMED)
def test_every_knob_has_a_range_and_a_help_text(name: str) -> None:
    for knob in SCHEDULES[name].knobs.values():
        assert knob.help
        assert knob.low <= float(knob.default) <= knob.high


# An & Shi (2021), Table 1, with T = 20 and noise between 5 and 1; each formula as printed.
FLOOR = (1 - 5 * np.exp(-(T - 1.0))) / (1 - np.exp(-(T - 1.0)))
PRINTED = {
    ("exponential", 5, 1): (5 - FLOOR) * np.exp(-t) + FLOOR,
    ("piecewise", 5, 1): -np.floor(t / (T / 5)) + 5,
    ("linear", 5, 1): -4 / (T - 1) * t + 5,
    ("quadratic", 5, 1): -4 / (T - 1) ** 2 * t**2 + 5,
    ("logarithmic", 1, 5): 4 / np.log(T + 1) * np.log(t + 1) + 1,
    ("piecewise", 1, 5): np.floor(t / (T / 5)) + 1,
    ("linear", 1, 5): 4 / (T - 1) * t + 1,
    ("quadratic", 1, 5): 4 / (T - 1) ** 2 * t**2 + 1,
    # Sec. 4.2: the increasing exponential.
    ("exponential", 1, 5): (1 - (np.exp(T - 1.0) - 5) / (np.exp(T - 1.0) - 1)) * np.exp(t)
    + (np.exp(T - 1.0) - 5) / (np.exp(T - 1.0) - 1),
}


@pytest.mark.parametrize("case", PRINTED, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}")
def test_the_papers_families_are_as_printed(case: tuple[str, int, int]) -> None:
    name, start, end = case
    np.testing.assert_allclose(Schedule.of(name, start=start, end=end).sigmas(T), PRINTED[case], rtol=1e-8)


@pytest.mark.parametrize("epochs", range(1, 120))
def test_piecewise_levels_are_never_off_by_one(epochs: int) -> None:
    levels = Schedule.of("piecewise", start=5, end=1).sigmas(epochs)
    assert list(levels) == [5 - (5 * k) // epochs for k in range(epochs)]


def test_the_others_follow_their_formulas() -> None:
    np.testing.assert_allclose(Schedule.of("step-decay", start=4, factor=0.5, every=2).sigmas(5), [4, 4, 2, 2, 1])
    np.testing.assert_allclose(
        Schedule.of("exponential-decay", start=2, rate=0.1).sigmas(3), 2 * np.exp([0, -0.1, -0.2])
    )
    np.testing.assert_allclose(Schedule.of("warm-up", start=4, end=2, warmup=2).sigmas(5), [4, 3, 2, 2, 2])
    np.testing.assert_allclose(Schedule.of("cosine", start=3, end=1).sigmas(3), [3, 2, 1])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Schedule.of("cosin"), "unknown schedule 'cosin'; choose one of constant"),
        (lambda: Schedule.of("linear", start=-1), "start must be a number from 0 to 1e+09, got -1"),
        (lambda: Schedule.of("linear", start=float("nan")), "start must be a number from 0"),
        (lambda: Schedule.of("linear", middle=2), "linear has no knob 'middle'; it has start, end"),
        (lambda: Schedule.of("piecewise", levels=2.5), "levels must be a whole number"),
        (lambda: Schedule.of("linear").sigmas(0), "epochs must be a whole number from 1"),
        (lambda: Schedule.of("linear").sigmas(10**9), "got 1000000000"),
        (lambda: Schedule.custom([]), "the schedule is empty"),
        (lambda: Schedule.custom([5, -0.2, 3]), "got -0.2 (epoch 2)"),
        (lambda: Schedule.custom([5, float("inf")]), "got inf (epoch 2)"),
        (lambda: Schedule.custom([5, "x"]), "got x (epoch 2)"),
        (lambda: Schedule.custom([1, 2]).sigmas(3), "has 2 epochs, but 3 were asked for"),
        (lambda: Schedule.from_json({"name": "custom"}), "list named 'sigmas'"),
        (lambda: Schedule.from_json({"sigmas": [1]}), "needs a name"),
        (lambda: parse_csv(""), "the CSV is empty"),
        (lambda: parse_csv("a,b\n1,2\n"), "several columns"),
        (lambda: parse_csv("sigma\n1\ntwo\n"), "got two (epoch 2)"),
        (lambda: read_csv("no/such/file.csv"), "cannot read 'no/such/file.csv': No such file"),
    ],
)
def test_bad_schedules_are_refused_with_the_value_and_the_fix(make, says: str) -> None:
    with pytest.raises(InputError) as refusal:
        make()
    assert says in str(refusal.value)


def test_csv_files_come_in_several_shapes(tmp_path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text("epoch,sigma\n1,5\n2,4.5\n")
    assert read_csv(path).values == (5.0, 4.5)
    assert parse_csv("5\n4\n\n3\n").values == (5.0, 4.0, 3.0)
    assert parse_csv("5,4,3").values == (5.0, 4.0, 3.0)


@given(st.text(max_size=200))
def test_any_text_is_a_schedule_or_one_sentence(text: str) -> None:
    try:
        values = parse_csv(text).values
    except InputError:
        return
    assert all(0 <= value < np.inf for value in values)


@pytest.mark.parametrize("start", [0.0, 5.0])
def test_a_curve_that_leaves_the_numbers_is_refused_by_its_epoch(start: float) -> None:
    with pytest.raises(InputError, match=r"epoch 7\d\d"):
        Schedule.of("exponential-decay", start=start, rate=-1.0).sigmas(800)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_curve_keeps_its_ends_however_far_apart_they_are(name: str) -> None:
    for far in (67108866.0, 1e9):
        assert Schedule.of(name, start=1.02, end=far).sigmas(3)[[0, -1]].tolist() == [1.02, far]
        assert Schedule.of(name, start=far, end=1.02).sigmas(3)[[0, -1]].tolist() == [far, 1.02]
