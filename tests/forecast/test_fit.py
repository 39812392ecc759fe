"""Fitting: made-up runs whose law is known, and the cached runs of `curricula`, each schedule left out once."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from dpviz.forecast.designs import EPOCHS, HELD_OUT_SEED, held_out_pilots, pilots
from dpviz.forecast.evidence import curves, fitted, looked_at, runs_like
from dpviz.forecast.fit import Curve, fit, held_out, left_out
from dpviz.forecast.library import settings_key, shelf, write
from dpviz.forecast.pilots import Price, composition
from dpviz.forecast.response import expected
from dpviz.papers import RECIPES, recipe
from dpviz.privacy import epoch_phases, epsilon
from dpviz.privacy.registry import InputError
from dpviz.runs.store.cached import FORECASTS, CachedListing, cached_runs
from dpviz.runs.store.store import Store
from dpviz.training.data.catalog import OwnData

CURRICULA = recipe("curricula/constant-1.54").spec
LAW = (1.0, 0.0, -4.0, 0.0, -6.0, 1.0, -2.0, 0.1)
ABOUT = {"recipe": "made up", "settings": "0" * 16, "dataset": "mnist", "batch_size": 600}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return runs_like(CURRICULA, Store(tmp_path_factory.mktemp("none")))


def made_up(count: int, scatter: float, *, away: bool = False) -> list[Curve]:
    chance = np.random.default_rng(count + away)
    made = []
    for spec in pilots(CURRICULA, count, held_out=away):
        sigmas = spec.schedule.sigmas(spec.epochs)
        accuracy = expected(LAW, sigmas)[0] + chance.normal(0, scatter, len(sigmas))
        made.append(Curve(spec.key, tuple(sigmas.tolist()), tuple(accuracy.tolist())))
    return made


# --- a known law ----------------------------------------------------------------------------------------------------


def test_a_law_is_found_again_and_held_out_schedules_lie_in_the_band():
    response = fit(made_up(48, 0.002), **ABOUT)
    result = held_out(response, made_up(24, 0.002, away=True))
    assert result.error < 0.0025
    assert 0.83 <= result.coverage <= 0.97
    assert result.rank_correlation > 0.8
    assert response.schedules == 48
    assert 20 <= response.epochs <= EPOCHS[1]
    assert 0.7 <= response.least_sigma <= 0.9 < 5 < response.most_sigma <= 6.2


def test_seeds_that_differ_much_widen_the_band():
    quiet = made_up(12, 0.0)
    twins = [dataclasses.replace(c, key=c.key[::-1], accuracies=tuple(a - 0.02 for a in c.accuracies)) for c in quiet]
    response = fit([*quiet, *twins], **ABOUT)
    assert response.seed_scatter == pytest.approx([0.02 / 2**0.5] * response.epochs, abs=1e-6)
    assert min(response.half_widths) >= 1.645 * 0.02 / 2**0.5
    assert held_out(response, quiet).seeds_error == pytest.approx((2 / np.pi) ** 0.5 * 0.02 / 2**0.5, abs=1e-6)
    assert np.isnan(held_out(fit(quiet, **ABOUT), quiet).seeds_error)


def test_several_seeds_of_a_schedule_count_by_their_mean():
    quiet = made_up(12, 0.0)
    response = fit(quiet, **ABOUT)
    response = dataclasses.replace(response, seed_scatter=(0.01,) * response.epochs)
    apart = [(0.02, "a"), (-0.02, "b")]
    seeds = [
        dataclasses.replace(curve, key=key, accuracies=tuple(a + lead for a in curve.accuracies))
        for curve in made_up(12, 0.0, away=True)
        for lead, key in apart
    ]
    alone, both = held_out(response, seeds[::2]), held_out(response, seeds)
    assert (alone.runs, both.runs, alone.schedules, both.schedules) == (12, 24, 12, 12)
    assert alone.error == pytest.approx(0.02, abs=0.002)
    assert both.error < 0.002
    assert alone.seeds_error / both.seeds_error == pytest.approx(2**0.5)


def test_too_few_schedules_are_refused():
    with pytest.raises(InputError, match="runs of 8 schedules or more, got 7"):
        fit(made_up(7, 0.0), **ABOUT)


# --- designs --------------------------------------------------------------------------------------------------------


def test_pilots_fill_their_range_and_held_out_ones_share_no_seed_and_no_schedule():
    fitted_to, away = pilots(CURRICULA, 48), held_out_pilots(CURRICULA, 12)
    assert away == pilots(CURRICULA, 12, held_out=True)
    several = held_out_pilots(CURRICULA, 12, 3)
    assert several[:12] == away
    assert len({spec.seed for spec in several}) == 36
    assert len({spec.schedule for spec in several}) == 12
    with pytest.raises(InputError, match="1 to 100 schedules over 1 to 10 seeds each, got 12 over 11"):
        held_out_pilots(CURRICULA, 12, 11)
    assert pilots(CURRICULA, 24) == fitted_to[:24]
    sigmas = np.concatenate([spec.schedule.sigmas(spec.epochs) for spec in fitted_to]) / 1.539
    assert 0.5 <= sigmas.min() < 0.6 < 3.8 < sigmas.max() <= 4.001
    lengths = [spec.epochs for spec in fitted_to]
    assert (min(lengths), max(lengths)) >= (EPOCHS[0], 25)
    assert {settings_key(spec) for spec in (*fitted_to, *away)} == {settings_key(CURRICULA)}
    assert not {spec.seed for spec in fitted_to} & {spec.seed for spec in away}
    assert not {spec.schedule for spec in fitted_to} & {spec.schedule for spec in away}


# --- curricula ------------------------------------------------------------------------------------------------------


def test_the_papers_runs_of_curricula_are_forecast_to_less_than_a_seeds_scatter(runs):
    """0.07 points on average against the mean of three seeds, whose standard error is 0.11."""
    result = left_out(curves(run for run in runs if run.id.startswith("curricula/")), 3)
    assert (result.runs, result.schedules) == (69, 23)
    assert result.error < 0.0011
    assert result.rank_correlation > 0.9
    assert 0.88 <= result.coverage <= 0.995  # three seeds for all schedules seldom leave 1.645 standard deviations


def test_the_committed_forecast_is_what_the_cached_runs_give(runs):
    kept, again = shelf().of(CURRICULA), fitted(CURRICULA, runs)
    assert kept.runs == again.runs
    assert kept.held_out_error == pytest.approx(again.held_out_error, abs=2e-5)
    for sigmas in ([1.5] * 20, np.linspace(5, 1, 20), [0.0] * 20):
        assert kept.forecast(sigmas).accuracy == pytest.approx(again.forecast(sigmas).accuracy, abs=1e-4)
    assert kept.half_widths == pytest.approx(again.half_widths, abs=2e-4)


def test_only_runs_of_the_same_settings_count(runs):
    names = {run.id.split("/")[1] for run in runs}
    assert {"linear-decreasing", "constant-0"} <= names
    assert not any(name.startswith(("sample", "dynamic", "masked")) or name.endswith("-c3") for name in names)
    assert settings_key(dataclasses.replace(CURRICULA, seed=5, epochs=3)) == settings_key(CURRICULA)
    assert settings_key(dataclasses.replace(CURRICULA, batch_size=512)) != settings_key(CURRICULA)


def test_what_has_no_response_is_refused():
    plain = next(each.spec for each in RECIPES.values() if not each.spec.private)
    with pytest.raises(InputError, match="has no noise"):
        settings_key(plain)
    with pytest.raises(InputError, match="constant learning rate"):
        settings_key(dataclasses.replace(CURRICULA, learning_rate_schedule="cosine"))


def test_runs_that_are_kept_away_are_in_no_fit(runs):
    kept_away = dataclasses.replace(runs[0], spec=dataclasses.replace(runs[0].own_spec, seed=HELD_OUT_SEED))
    assert curves([*runs, kept_away]) == curves(runs)
    assert curves([*runs, kept_away], held_out=True)[-1].key == kept_away.own_spec.key


def test_a_run_counts_with_the_noise_that_it_really_had(runs):
    first = dataclasses.replace(runs[0].epochs[0], noise_multiplier=7.5)
    (curve,) = curves([dataclasses.replace(runs[0], epochs=(first, *runs[0].epochs[1:]))])
    assert curve.sigmas == (7.5, *curves(runs[:1])[0].sigmas[1:])
    assert curves(runs[:1])[0].sigmas == tuple(runs[0].own_spec.schedule.sigmas(20).tolist())


def test_the_folder_of_forecasts_is_no_paper(tmp_path):
    write(shelf().of(CURRICULA), tmp_path / FORECASTS)
    assert cached_runs(tmp_path) == CachedListing((), ())


# --- the price ------------------------------------------------------------------------------------------------------


def test_pilots_on_own_data_cost_their_composition():
    own = OwnData("clinic", "0" * 64, 60_000, (1, 28, 28), tuple("0123456789"))
    spec = dataclasses.replace(CURRICULA, dataset="clinic", own=own, epochs=2)
    price = Price.of(spec, [dataclasses.replace(spec, seed=seed) for seed in range(3)])
    assert price.pilots == pytest.approx(epsilon(epoch_phases([1.539] * 6, 0.01), spec.delta).upper, abs=1e-3)
    assert price.with_final == pytest.approx(epsilon(epoch_phases([1.539] * 8, 0.01), spec.delta).upper, abs=1e-3)
    assert "all 3 runs are looked at" in price.words


def test_public_data_cost_nobody_and_a_run_without_a_guarantee_has_no_price(runs, tmp_path):
    assert Price.of(CURRICULA, looked_at(CURRICULA, runs, Store(tmp_path))).pilots == 0.0
    assert composition((dataclasses.replace(CURRICULA, curriculum="sample"),), 1e-5) is None
