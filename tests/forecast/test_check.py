"""Checks of suggestions: the right runs, the paired difference beside what was expected, and what looking costs."""

from __future__ import annotations

import dataclasses

import pytest

from dpviz.forecast.check import CHECK_SEEDS, Check, check_price, check_specs, difference_of, last_check, spec_behind
from dpviz.forecast.designs import pilots
from dpviz.forecast.library import begin, settings_key, shelf
from dpviz.forecast.pilots import composition
from dpviz.forecast.suggest import Plan, Suggestion
from dpviz.papers import recipe
from dpviz.privacy.registry import InputError
from dpviz.runs.differences import paired_difference
from dpviz.runs.store.store import Store
from dpviz.training.data.catalog import OwnData
from tests.views.made_runs import keep, made_run, made_spec

CURRICULA = recipe("curricula/constant-1.54").spec
RESPONSE = shelf().of(CURRICULA)
SUGGESTION = Suggestion(
    "r", 9, Plan((3.0, 2.0, 1.0), 1.0, 0.951, 0.948, 0.954), Plan((1.9, 1.9), 1.0, 0.95, 0.947, 0.953)
)
IDS = tuple(f"run-{number}" for number in range(6))
CHECK = Check(0.001, 0.0042, "mnist", IDS)


def test_both_schedules_are_trained_over_the_same_seeds_that_no_fit_has_seen():
    specs = check_specs(CURRICULA, SUGGESTION)
    assert [spec.seed for spec in specs] == [*CHECK_SEEDS, *CHECK_SEEDS]
    assert {tuple(spec.schedule.sigmas(spec.epochs)) for spec in specs[:3]} == {(3.0, 2.0, 1.0)}
    assert {tuple(spec.schedule.sigmas(spec.epochs)) for spec in specs[3:]} == {(1.9, 1.9)}
    assert {spec.recipe for spec in specs} == {""}  # neither is the recipe's own schedule


@pytest.mark.parametrize(
    ("leads", "side"),
    [((0.001, 0.002, 0.003), "inside"), ((0.010, 0.011, 0.012), "outside")],
)
def test_one_sentence_says_what_came_out_beside_what_was_expected(leads, side):
    runs = [made_run(run_id, best=0.9 + lead) for run_id, lead in zip(IDS, (*leads, 0.0, 0.0, 0.0), strict=True)]
    difference = difference_of(runs)
    assert difference == paired_difference(
        {seed: 100 * runs[place].epochs[-1].accuracy for place, seed in enumerate(CHECK_SEEDS)},
        {seed: 100 * runs[3 + place].epochs[-1].accuracy for place, seed in enumerate(CHECK_SEEDS)},
    )
    words = CHECK.words(difference)
    assert difference.words in words
    assert words.endswith(f"expected 0.10 points (give or take 0.42), which lies {side} of that interval.")
    runs[4] = dataclasses.replace(runs[4], status="failed", error="no data")
    with pytest.raises(InputError, match="the check did not end: run run-4 failed no data"):
        difference_of(runs)


def test_the_newest_check_on_a_dataset_is_found_again_by_its_owner_alone(tmp_path):
    store, theirs = Store(tmp_path), Store(tmp_path, owner="b")
    assert last_check(store, "mnist") is None
    newer = dataclasses.replace(CHECK, runs=tuple(f"s{run}" for run in IDS), price="much")
    for check in (CHECK, newer, dataclasses.replace(CHECK, dataset="cifar10", runs=tuple(f"t{run}" for run in IDS))):
        check.save(store)
    assert last_check(store, "mnist") == newer
    assert last_check(theirs, "mnist") is None
    newer.forget(store)
    assert last_check(store, "mnist") == CHECK
    for text in ("[]", '{"version": 2}', '{"version": 1, "gain": "x"}', '{"version": 1}', "{"):
        (tmp_path / ".checks" / "z.json").write_text(text)
        assert last_check(store, "mnist") == CHECK


def test_settings_come_from_a_recipe_or_from_a_run_behind_the_forecast(tmp_path):
    assert spec_behind(RESPONSE, Store(tmp_path)).model == CURRICULA.model
    table = next(response for response in shelf().responses if response.dataset == "a7a")
    assert settings_key(spec_behind(table, Store(tmp_path))) == table.settings
    other = dataclasses.replace(RESPONSE, settings="0" * 16, runs=(made_spec().key,))
    with pytest.raises(InputError, match="are gone"):
        spec_behind(other, Store(tmp_path))
    keep(tmp_path, made_run())
    assert spec_behind(other, Store(tmp_path)) == made_spec()
    gone = dataclasses.replace(other, settings=settings_key(made_spec(subset=500)), runs=("0" * 16,))
    begin([made_spec(subset=500)], Store(tmp_path))
    assert spec_behind(gone, Store(tmp_path)) == made_spec(subset=500)


def test_looking_at_ones_own_data_has_a_price_with_and_without_the_pilots(tmp_path):
    store = Store(tmp_path)
    specs = check_specs(CURRICULA, SUGGESTION)
    assert check_price(CURRICULA, specs, RESPONSE, store) == ""
    own = OwnData("clinic", "0" * 64, 60_000, (1, 28, 28), tuple("0123456789"))
    spec = dataclasses.replace(CURRICULA, dataset="clinic", own=own, epochs=2)
    pilot = dataclasses.replace(made_run(), spec=pilots(spec, 1)[0])
    begin([pilot.own_spec], store)
    pilot_id = keep(tmp_path, pilot)
    response = dataclasses.replace(RESPONSE, runs=(pilot.own_spec.key, "0" * 16))
    specs = check_specs(spec, SUGGESTION)
    words = check_price(spec, specs, response, store)
    alone, whole = (composition(runs, spec.delta) for runs in (tuple(specs), (pilot.own_spec, *specs)))
    assert alone < whole
    assert f"these 6 runs costs epsilon {alone:.2f}"[:-2] in words
    assert f"with the 1 runs behind the forecast {whole:.2f}"[:-2] in words
    assert "1 more are gone" in words
    store.delete(pilot_id)
    assert check_price(spec, specs, response, store) == words  # what was seen is not unseen
    other = dataclasses.replace(spec, batch_size=spec.batch_size // 2)  # the pilots keep theirs
    assert "with the 1 runs behind the forecast" in check_price(other, check_specs(other, SUGGESTION), response, store)
    begin(specs, store)
    assert f"with the 7 runs behind the forecast {whole:.2f}"[:-2] in check_price(spec, specs, response, store)
