"""Linear models under local privacy: the lockstep against Algorithm 1 row by row, losses, and trials."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from dpviz.privacy.local import METHODS, scale
from dpviz.privacy.registry import InputError
from dpviz.training.local import linear
from dpviz.training.local.experiments import choose_lambda, differences, run_trials, specs_for
from dpviz.training.local.linear import Draws, train
from dpviz.training.local.prestige_reference import walk
from dpviz.training.local.spec import ANSWERED, LOSSES, TRUE, LocalSpec
from dpviz.training.local.tabular import Tabular, load_tabular, unit_rows

VALUES = {
    "hinge": lambda z: np.maximum(0, 1 - z),
    "logistic": lambda z: np.log1p(np.exp(-z)),
    "gompertz": lambda z: np.exp(-np.exp(2 * z)),
    "ramp": lambda z: np.minimum(2.0, np.maximum(0, 1 - z)),
}


def small(people=60, dimension=4, seed=0):
    """Two clouds that a plane separates but for a few rows."""
    generator = np.random.default_rng(seed)
    labels = np.where(generator.random(2 * people) < 0.5, -1.0, 1.0)
    rows = generator.standard_normal((2 * people, dimension)) + labels[:, None] * np.linspace(1.0, 0.0, dimension)
    rows = unit_rows(rows)
    return Tabular("small", rows[:people], labels[:people], rows[people:], labels[people:])


SHORT = LocalSpec(epochs=4, regularization=0.7, radius=3.0, length=2.0)


# --- losses -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_slopes_are_derivatives_and_stay_within_the_bound(loss):
    spec = LocalSpec(loss=loss, length=1.0)
    z = np.linspace(-4, 4, 801) + 0.0007
    step = 1e-6
    numeric = (VALUES[loss](z + step) - VALUES[loss](z - step)) / (2 * step)
    np.testing.assert_allclose(spec.slope(z), numeric, atol=1e-5)
    assert np.max(np.abs(spec.slope(z))) <= spec.bound + 1e-12
    assert np.max(np.abs(spec.slope(np.linspace(-4, 4, 100_001)))) > 0.98 * spec.bound


def test_losses_take_their_knob_and_refuse_a_wrong_one():
    assert LocalSpec(loss="gompertz", loss_knob=4.0).bound == pytest.approx(20.0 * 4 / math.e)
    assert LocalSpec(loss="ramp", loss_knob=-2.0).slope(np.array([-1.5])) == -1
    assert LocalSpec(loss="ramp", loss_knob=-1.0).slope(np.array([-1.5])) == 0
    assert LOSSES["hinge"].steepest() == 1.0
    with pytest.raises(InputError, match="from -2 to 0"):
        LocalSpec(loss="ramp", loss_knob=0.5)
    with pytest.raises(InputError, match="no knob"):
        LocalSpec(loss="hinge", loss_knob=1.0)


def test_slopes_stay_finite_far_out():
    for loss in LOSSES:
        assert np.all(np.isfinite(LocalSpec(loss=loss).slope(np.array([-1e6, 1e6]))))


# --- settings -----------------------------------------------------------------------------------------------------


def test_the_threshold_falls_by_mu_times_the_root_of_the_epoch():
    spec = LocalSpec("prestige", threshold=1.5, mu=1.0)
    thresholds = [spec.threshold_at(epoch) for epoch in (1, 2, 3, 4)]
    assert thresholds == pytest.approx([1.5, 0.5, 0.5 - math.sqrt(2), 0.5 - math.sqrt(2) - math.sqrt(3)])
    assert LocalSpec("djw").threshold_at(1) == -math.inf


def test_only_prestige_shares_its_epsilon_and_flips():
    prestige, djw = LocalSpec("prestige", 1.0), LocalSpec("djw", 1.0)
    assert (prestige.gradient_epsilon, djw.gradient_epsilon) == (0.8, 1.0)
    assert prestige.flip == pytest.approx(1 / (math.exp(0.2) + 1))
    assert djw.flip == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"method": "adam"}, "unknown method"),
        ({"loss": "square"}, "unknown loss"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"share": 1.0}, "share"),
        ({"batch_size": 2.5}, "batch_size"),
        ({"epochs": 0}, "epochs"),
        ({"regularization": 0.0}, "regularization"),
        ({"mu": math.nan}, "mu"),
        ({"gradient_label": "noisy"}, "gradient_label"),
    ],
)
def test_wrong_settings_are_refused_with_a_sentence(setting, message):
    with pytest.raises(InputError, match=message):
        LocalSpec(**setting)


# --- the lockstep -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_lockstep_gives_the_weights_of_the_row_by_row_algorithm(method, loss):
    data = small()
    specs = [
        dataclasses.replace(SHORT, method=method, loss=loss, epsilon=epsilon, gradient_label=label, intercept=0.1)
        for epsilon, label in ((0.5, ANSWERED), (2.0, TRUE))
    ]
    result = train(data, specs, repeats=2, seed=3)
    for lane, spec in enumerate(specs):
        for repeat in range(2):
            visits = list(walk(data, spec, seed=3, repeat=repeat))
            sent = [visit.weights for visit in visits if visit.sent is not None]
            np.testing.assert_allclose(result.last[lane, repeat], visits[-1].weights, atol=1e-10)
            np.testing.assert_allclose(result.average[lane, repeat], np.mean(sent, axis=0), atol=1e-10)
            scores = data.test_rows @ visits[-1].weights * spec.length + spec.intercept
            error = np.mean(np.where(scores >= 0, 1, -1) != data.test_labels)
            assert result.last_errors[lane, repeat, -1] == pytest.approx(error)
            assert result.used[lane, repeat].sum() == pytest.approx(len(sent) / data.people)


@pytest.mark.parametrize("batch", [5, 7])
def test_batches_average_private_gradients_in_order(batch):
    """An own loop over batches: 60 people, so batches of 7 leave a short one at the end."""
    data = small()
    spec = dataclasses.replace(SHORT, batch_size=batch, epochs=5, threshold=0.3, mu=0.2)
    result = train(data, [spec], repeats=1, seed=5)
    draws, updates = Draws(5, 0), 0
    weights = spec.radius * draws.start(4)
    for epoch in range(1, 6):
        order, flips, coins = draws.epoch(np.arange(60))
        directions = draws.directions(60, 4)
        for first in range(0, 60, batch):
            moves = []
            for k in range(first, min(first + batch, 60)):
                row = spec.length * data.train_rows[order[k]]
                label = data.train_labels[order[k]] * (-1 if flips[k] < spec.flip else 1)
                if (weights @ row) * label < spec.threshold_at(epoch):
                    continue
                gradient = spec.regularization * weights - label * row * ((weights @ row) * label < 1)
                share = min(1.0, np.linalg.norm(gradient) / spec.bound)
                lean = 1 / (1 + math.exp(-spec.gradient_epsilon)) - 0.5
                toward = coins[k] < 0.5 + share * lean
                moves.append(directions[k] if toward == (directions[k] @ gradient > 0) else -directions[k])
            if moves:
                updates += 1
                weights = weights - spec.radius / (spec.regularization * math.sqrt(updates)) * np.mean(moves, axis=0)
                weights *= min(1.0, spec.radius / np.linalg.norm(weights))
    np.testing.assert_allclose(result.last[0, 0], weights, atol=1e-10)


def test_results_do_not_depend_on_blocks_or_on_company(monkeypatch):
    data = small()
    specs = [dataclasses.replace(SHORT, method=method) for method in ("prestige", "djw")]
    together = train(data, specs, repeats=3)
    monkeypatch.setattr(linear, "BLOCK_FLOATS", 50)
    alone = train(data, specs[1:], repeats=2)
    np.testing.assert_allclose(together.last[1, :2], alone.last[0], atol=1e-12)


def test_weights_stay_in_the_ball_and_every_number_is_finite():
    data = small()
    for method in METHODS:
        spec = LocalSpec(method, 1e-3, regularization=1e-3, radius=2.0, epochs=2)
        result = train(data, [spec], repeats=2)
        assert np.all(np.linalg.norm(result.last, axis=-1) <= 2.0 + 1e-9)
        assert all(np.all(np.isfinite(values)) for values in vars(result).values())


def test_what_the_walk_sends_has_the_unbiased_scale_and_silence_sends_nothing():
    data, spec = small(), dataclasses.replace(SHORT, threshold=0.5, mu=0.0)
    visits = list(walk(data, spec))
    spoken = [visit for visit in visits if visit.sent is not None]
    assert 0 < len(spoken) < len(visits)
    for visit in visits:
        assert (visit.sent is not None) == visit.inside == (visit.z >= 0.5)
    expected = scale(4, spec.gradient_epsilon, spec.bound)
    np.testing.assert_allclose([np.linalg.norm(visit.sent) for visit in spoken], expected)
    masked = dataclasses.replace(spec, method="masked")
    assert all(visit.sent is not None for visit in walk(data, masked))


def test_much_epsilon_learns_as_plain_sgd_does_on_real_records():
    data = load_tabular("breast-cancer")
    trials = run_trials(data, specs_for(LocalSpec(), ("djw", "sgd"), (0.1, 20.0)), repeats=5)
    private_little, private_much, plain, _ = (trial.mean_error for trial in trials)
    assert plain < 0.05
    assert private_much < 0.12
    assert private_little > private_much + 0.05


def test_progress_rises_to_one_and_may_stop_the_training():
    shares = []
    train(small(), [SHORT], progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0

    def stop(share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(small(), [SHORT], progress=stop)


def test_wrong_calls_are_refused():
    with pytest.raises(InputError, match="at least one"):
        train(small(), [])
    for repeats in (0, 1001, math.nan):
        with pytest.raises(InputError, match="repeats"):
            train(small(), [SHORT], repeats=repeats)
    with pytest.raises(InputError, match="same number of epochs"):
        train(small(), [SHORT, dataclasses.replace(SHORT, epochs=2)])


# --- trials -------------------------------------------------------------------------------------------------------


def test_trials_report_mean_and_deviation_over_repeats_and_what_a_person_pays():
    trials = run_trials(small(), specs_for(SHORT, ("prestige", "djw", "sgd"), (0.5, 2.0)), repeats=6)
    assert [(trial.spec.method, trial.spec.epsilon) for trial in trials] == [
        (method, epsilon) for method in ("prestige", "djw", "sgd") for epsilon in (0.5, 2.0)
    ]
    for trial in trials:
        row = trial.to_json()
        assert row["mean_error"] == pytest.approx(np.mean(row["errors"]), abs=1e-6)
        assert row["std_error"] == pytest.approx(np.std(row["errors"], ddof=1), abs=1e-6)
        expected = None if trial.spec.method == "sgd" else 4 * trial.spec.epsilon
        assert row["epsilon_per_person"] == expected
    np.testing.assert_array_equal(trials[4].errors, trials[5].errors)


def test_differences_are_paired_by_repeat():
    trials = run_trials(small(), specs_for(SHORT, ("djw", "prestige"), (1.0, 3.0)), repeats=8)
    for found, (first, second) in zip(
        differences(trials), ((trials[2], trials[0]), (trials[3], trials[1])), strict=True
    ):
        gap = first.errors - second.errors
        assert found.mean == pytest.approx(gap.mean())
        expected = stats.ttest_rel(first.errors, second.errors)
        assert found.p_value == pytest.approx(expected.pvalue)
        assert (found.low, found.high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
        assert found.first_better == np.sum(gap < 0)
    same = differences(trials, "djw", "djw")
    assert [(found.mean, found.p_value) for found in same] == [(0.0, 1.0)] * 2


def test_cross_validation_finds_a_lambda_that_works():
    data = small(200)
    specs = specs_for(dataclasses.replace(SHORT, epochs=3), ("djw", "sgd"), (8.0,))
    chosen = choose_lambda(data, specs, lambdas=(1e-3, 1.0, 1e3), folds=4)
    assert [spec.method for spec in chosen] == ["djw", "sgd"]
    assert chosen[0].regularization == 1.0  # far too long steps at one end, none to speak of at the other
    with pytest.raises(InputError, match="folds"):
        choose_lambda(data, specs, folds=1)
