"""Every recipe builds its settings, and they are those that the paper prints."""

import json
import subprocess
import sys

import dp_accounting
import numpy as np
import pytest
from dp_accounting import pld, rdp

from dpviz.papers import LOCAL_RECIPES, PAPERS, RECIPES, local_recipes_of, recipe, recipes_of, reported_of
from dpviz.privacy.records import steps_per_epoch
from dpviz.privacy.registry import InputError
from dpviz.training.spec import RunSpec

DELTA = 1e-5


def sigmas(name):
    spec = recipe(name).spec
    return spec.schedule.sigmas(spec.epochs)


def phases(name):
    """(sigma, sample rate, steps) of each epoch, neighbours merged."""
    spec = recipe(name).spec
    values, counts = np.unique(sigmas(name), return_counts=True)
    steps = steps_per_epoch(spec.sample_rate)
    return [(float(s), spec.sample_rate, int(n) * steps) for s, n in zip(values, counts, strict=True)]


def rdp_epsilon(name):
    accountant = rdp.RdpAccountant()
    for sigma, rate, steps in phases(name):
        event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(sigma))
        accountant.compose(event, steps)
    return accountant.get_epsilon(DELTA)


def tight_epsilon(name, interval):
    total = None
    for sigma, rate, steps in phases(name):
        part = pld.privacy_loss_distribution.from_gaussian_mechanism(
            sigma, sampling_prob=rate, value_discretization_interval=interval
        ).self_compose(steps)
        total = part if total is None else total.compose(part)
    return total.get_epsilon_for_delta(DELTA)


def setting(spec, quantity):
    """The value in a spec that a reported setting names: a field, a knob, or the constant noise."""
    if quantity == "noise_multiplier":
        (sigma,) = set(spec.schedule.sigmas(spec.epochs).tolist())
        return sigma
    return dict(spec.knobs)[quantity] if "." in quantity else getattr(spec, quantity)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_survives_json_and_names_itself(name):
    entry = recipe(name)
    assert RunSpec.from_json(json.loads(json.dumps(entry.spec.to_json(), allow_nan=False))) == entry.spec
    assert entry.name == entry.spec.recipe == name == f"{entry.paper}/{name.partition('/')[2]}"
    assert entry.title
    assert entry.open_values or entry.paper == "losing-less"


def test_each_paper_has_the_recipes_that_its_tables_need():
    counts = {name: len(recipes_of(name)) for name in PAPERS if name != "state-of-the-art"}
    assert counts == {"curricula": 40, "losing-less": 35, "optimizers": 43, "prestige": 0, "screening": 17}
    assert {name: len(local_recipes_of(name)) for name in PAPERS if local_recipes_of(name)} == {"prestige": 16}
    assert not recipes_of("state-of-the-art")


def test_recipes_under_local_privacy_are_the_rows_of_table_3_whose_data_can_be_had():
    for name, entry in LOCAL_RECIPES.items():
        assert name == f"prestige/{entry.data}-{entry.spec.method}-{entry.spec.loss}"
        (number,) = entry.reported
        assert (number.place, number.quantity) == ("Table 3", "test_error")
        assert entry.headline == number
        assert number.epsilon == entry.spec.epsilon
        assert entry.open_values


def test_titles_are_unique_within_a_paper():
    for paper in PAPERS:
        titles = [entry.title for entry in recipes_of(paper)]
        assert len(titles) == len(set(titles))


def test_recipes_of_different_experiments_differ_in_their_settings():
    for paper in PAPERS:
        keys = [entry.spec.key for entry in recipes_of(paper)]
        assert len(keys) == len(set(keys))


def test_an_unknown_recipe_is_answered_with_the_nearest():
    with pytest.raises(InputError, match=r"unknown recipe 'curricula/linear-decresing'; .*curricula/linear-decreasing"):
        recipe("curricula/linear-decresing")


def test_recipes_come_without_torch_and_pandas():
    code = "import sys, dpviz.papers; print({'torch', 'pandas', 'opacus'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("paper", ["losing-less", "screening"])
def test_the_settings_of_a_recipe_are_those_of_the_papers_table(paper):
    places = {"losing-less": ("Table 5", "Table 6"), "screening": ("Table 2",)}[paper]
    checked = 0
    for number in reported_of(paper):
        if number.place in places and number.quantity not in ("target_epsilon", "target_delta"):
            assert setting(recipe(number.name).spec, number.quantity) == number.value, number
            checked += 1
    assert checked == {"losing-less": 54, "screening": 18}[paper]


def test_the_settings_of_optimizers_are_those_of_its_table_except_the_noise():
    for number in reported_of("optimizers"):
        if number.place.startswith("Table 2") and number.quantity in ("epochs", "learning_rate", "batch_size"):
            assert setting(recipe(number.name).spec, number.quantity) == number.value, number


def test_the_sigmas_of_curricula_start_and_end_where_its_table_1_says():
    for number in reported_of("curricula"):
        if number.place == "Table 1":
            end = sigmas(number.name)[0 if number.quantity == "first_noise_multiplier" else -1]
            assert end == pytest.approx(number.value, abs=0.07 if "logarithmic" in number.name else 1e-12)


def test_linear_decreasing_falls_from_5_to_1_over_20_epochs():
    np.testing.assert_allclose(sigmas("curricula/linear-decreasing"), 5 - 4 * np.arange(20) / 19)


@pytest.mark.parametrize("family", ["exponential", "piecewise", "linear"])
def test_rising_schedules_mirror_the_falling_ones(family):
    falling, rising = sigmas(f"curricula/{family}-decreasing"), sigmas(f"curricula/{family}-increasing")
    np.testing.assert_allclose(falling, rising[::-1])


def test_curricula_is_trained_as_its_section_3_3_says():
    for entry in recipes_of("curricula"):
        spec = entry.spec
        assert (spec.epochs, spec.batch_size, spec.learning_rate, spec.delta) == (20, 600, 0.15, 1e-5)
        clip_norm = 3 if entry.name.endswith("-c3") else 1.5  # pinned by the no-noise row; 3 to see what it does
        knobs = (spec.knobs_of("model")["hidden"], spec.knobs_of("optimizer")["momentum"])
        assert (spec.clip_norm, *knobs) == (clip_norm, 0, 0)


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        ("exponential-decreasing", 2.61),
        ("piecewise-increasing", 1.64),
        ("linear-decreasing", 1.40),
        ("quadratic-decreasing", 1.32),
        ("quadratic-increasing", 1.69),
    ],
)
def test_a_schedule_of_curricula_costs_the_epsilon_of_its_table_2(name, epsilon):
    assert rdp_epsilon(f"curricula/{name}") == pytest.approx(epsilon, abs=0.006)


@pytest.mark.parametrize(
    ("constant", "family"), [("1.05", "exponential"), ("1.38", "piecewise"), ("1.54", "linear"), ("1.60", "quadratic")]
)
def test_the_constants_of_table_3_cost_what_their_schedules_cost_under_rdp(constant, family):
    matched = rdp_epsilon(f"curricula/{family}-decreasing")
    assert rdp_epsilon(f"curricula/constant-{constant}") == pytest.approx(matched, abs=2e-3)


@pytest.mark.parametrize("family", ["exponential", "piecewise", "linear", "quadratic"])
def test_the_pld_matched_constants_cost_what_their_schedules_cost_under_tight_accounting(family):
    schedule = tight_epsilon(f"curricula/{family}-decreasing", 1e-3)
    assert tight_epsilon(f"curricula/matched-pld-{family}", 1e-3) == pytest.approx(schedule, abs=2e-3)


@pytest.mark.parametrize(
    "name",
    [
        "dp-sgd-b64",
        "dp-adam-b128",
        "dp-rmsprop-b256",
        "dp-sgd-b512",
        "dp-rmsprop-b1024",
        "dp-adam-b256-100",
        "dp-rmsprop-b64-lr0.001-eps8",
        "dp-sgd-b128-eps8",
        "dp-rmsprop-b256-eps8",
        "dp-sgd-b128-eps10",
        "dp-adam-b256-eps10",
        "dp-sgd-b128-eps50",
        "dp-sgd-b256-eps50",
    ],
)
def test_the_noise_of_optimizers_costs_the_epsilon_that_its_row_prints(name):
    entry = recipe(f"optimizers/{name}")
    epsilon = entry.headline.epsilon
    assert tight_epsilon(entry.name, 1e-3 if epsilon < 20 else 1e-2) == pytest.approx(epsilon, rel=0.01)


def test_optimizers_recipes_alike_in_batch_epochs_and_budget_share_their_noise():
    noise = {}
    for entry in recipes_of("optimizers"):
        if entry.headline and entry.headline.epsilon:
            group = (entry.spec.batch_size, entry.spec.epochs, round(entry.headline.epsilon))
            assert noise.setdefault(group, entry.spec.schedule) == entry.spec.schedule, entry.name
    assert len(noise) == 13


def test_a_recipe_has_its_own_settings_over_those_of_the_recipe_it_is_like():
    assert recipe("screening/mnist-auto-s").spec.knobs_of("clipping") == {"gamma": 0.01}
    assert recipe("screening/mnist").spec.knobs_of("method")["rejections"] == 10
    assert recipe("screening/mnist-lr1.5").spec.knobs_of("method") == recipe("screening/mnist").spec.knobs_of("method")
    assert recipe("screening/mnist-nonprivate").spec.knobs_of("model") == {"activation": "relu"}


def test_non_private_recipes_add_no_noise():
    plain = [entry for entry in RECIPES.values() if "nonprivate" in entry.name or "/sgd-" in entry.name]
    assert len(plain) == 8
    assert all(entry.spec.method == "sgd" and not any(sigmas(entry.name)) for entry in plain)


def test_the_headline_is_the_final_accuracy_that_the_paper_prints():
    assert recipe("screening/mnist").headline.value == 0.9835
    assert recipe("losing-less/cifar10-o-t-cnn").headline.value == 0.632
    assert recipe("curricula/constant-1.54").headline.place == "Table 3"
    assert recipe("optimizers/dp-lion-b256").headline is None
