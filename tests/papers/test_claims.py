"""Claims: each check runs live, can come out either way, and says with figures what it found."""

from __future__ import annotations

import dataclasses
import functools
import math
import time

import pytest
from dp_accounting import pld

from dpviz.papers import LOCAL_RECIPES, PAPERS, RECIPES
from dpviz.papers.claims import CLAIMS, claims_of
from dpviz.papers.gains import correlation, signed
from dpviz.papers.gains import seeds as count_seeds
from dpviz.papers.measured_claims import verdict_of, within
from dpviz.papers.priced_claims import CENTRAL_LIMIT, _central_limit_noise
from dpviz.papers.records import VERDICTS, Finding
from dpviz.privacy.gaussian import gaussian_epsilon
from dpviz.runs import Run
from dpviz.runs.experiments import Measured, findings
from dpviz.training.spec import EpochRecord

MEASURED = {
    "falling-beats-rising",
    "falling-beats-constant-renyi",
    "falling-beats-constant-tight",
    "log-epsilon",
    "sorting-does-not-help",
    "first-epochs",
    "alignment",
    "adam",
    "other-optimizers",
    "prestige-beats-djw",
    "screening-claimed",
    "screening-sound",
}


@functools.cache
def found(name):
    return CLAIMS[name].check({})


def curve(*accuracies, epsilon=1.0, claimed=None, cosine=None):
    """A run that reaches these accuracies, one an epoch, and spends epsilon in all."""
    count = len(accuracies)
    return tuple(
        EpochRecord(
            epoch=epoch,
            step=epoch,
            noise_multiplier=1.0,
            epsilon_claimed=(claimed or epsilon) * epoch / count,
            epsilon_sound=epsilon * epoch / count,
            train_loss=1.0,
            train_accuracy=0.5,
            test_loss=1.0,
            test_accuracy=accuracy,
            seconds=1.0,
            diagnostics={} if cosine is None else {"cosine": cosine},
        )
        for epoch, accuracy in enumerate(accuracies, start=1)
    )


def seeds(*curves):
    return dict(enumerate(curves))


def curricula(**accuracies):
    return {f"curricula/{name.replace('_', '-')}": seeds(curve(value)) for name, value in accuracies.items()}


def verdict(name, curves):
    return CLAIMS[name].check(curves).verdict


def test_every_claim_has_its_paper_its_place_and_a_sentence():
    for claim in CLAIMS.values():
        assert claim.paper in PAPERS
        assert claim.place.startswith(("Table", "Tables", "Sec. ", "Theorem", "Lemma", "Alg. ", "Fig. ", "arXiv:"))
        assert claim.text.endswith(".")


def test_every_paper_has_claims():
    assert all(claims_of(paper) for paper in PAPERS)
    assert sum(len(claims_of(paper)) for paper in PAPERS) == len(CLAIMS)


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_a_check_answers_with_a_verdict_and_a_paragraph_also_without_runs(name):
    finding = found(name)
    assert finding.verdict in VERDICTS
    assert (finding.verdict == "not checked") == (name in MEASURED)
    assert len(finding.text) > 40
    assert "nan" not in finding.text.split()


@pytest.mark.parametrize("name", sorted(CLAIMS))
def test_a_check_is_fast_once_the_ledgers_are_priced(name):
    found(name)
    began = time.perf_counter()
    CLAIMS[name].check({})
    assert time.perf_counter() - began < 1.0


# --- epsilon: figures that were worked out with Opacus and dp_accounting


def test_the_schedules_epsilons_come_from_the_improved_conversion_not_from_theorem_3_1():
    finding = found("theorem-3.1")
    assert finding.verdict == "does not hold"
    assert finding.figures == {"rows": 8, "agree_theorem_3.1": 0, "agree_improved": 8}


def test_the_constant_that_costs_the_quadratic_is_1_604():
    figures = found("constant-1.32").figures
    assert figures["matching_constant"] == pytest.approx(1.604, abs=2e-3)
    assert figures["constant_1.32"] > figures["schedule"] + 0.3


def test_budgets_that_are_equal_under_renyi_are_not_equal_under_tight_accounting():
    finding = found("equal-budget")
    assert finding.verdict == "holds partly"
    assert finding.figures["linear-decreasing_tight"] == pytest.approx(1.004, abs=3e-3)
    assert finding.figures["constant-1.54_tight"] == pytest.approx(1.275, abs=5e-3)
    for constant in ("1.052", "1.5", "1.83", "2.03"):
        assert constant in finding.text


def test_a_fixed_order_costs_what_gaussians_without_amplification_cost():
    figures = found("sorting-is-free").figures
    assert figures["constant-1_fixed_order"] == pytest.approx(28.4, abs=0.05)
    assert figures["constant-5_fixed_order"] == pytest.approx(3.85, abs=0.005)
    assert figures["linear-decreasing_fixed_order"] == pytest.approx(10.5, abs=0.05)


@pytest.mark.parametrize("name", ["losing-less-epsilon-3", "baselines-epsilon-3"])
def test_epsilon_3_holds_with_room_and_comes_from_the_classic_conversion(name):
    finding = found(name)
    assert finding.verdict == "holds"
    classic = [value for key, value in finding.figures.items() if key.endswith("rdp-classic")]
    tight = [value for key, value in finding.figures.items() if key.endswith("pld")]
    assert classic == pytest.approx([2.995, 3.017, 3.027], abs=0.02)
    assert max(tight) < 2.62


def test_most_printed_pairs_of_epsilon_and_noise_cannot_both_hold():
    finding = found("epsilon-and-noise")
    assert finding.verdict == "does not hold"
    assert finding.figures["rows"] == 42
    assert "0.95, 1.35, 1.99" in finding.text


def test_the_printed_scale_of_private_sampling_is_twice_what_unbiasedness_needs():
    figures = found("unbiased").figures
    assert figures["mean_printed"] == pytest.approx(2, abs=0.05)
    assert figures["mean_half"] == pytest.approx(1, abs=0.03)


def test_a_total_budget_of_1_would_make_every_label_a_fair_coin():
    figures = found("total-budget").figures
    assert figures["visit_if_total"] == pytest.approx(5e-6, rel=0.01)
    assert figures["flip_probability"] == pytest.approx(0.5, abs=1e-6)


def test_charging_accepted_updates_only_has_a_counter_example():
    figures = found("accepted-only").figures
    assert figures["epsilon_of_one"] == pytest.approx(1.99, abs=0.01)
    assert figures["least_delta"] == pytest.approx(0.39, abs=0.01)


def test_a_central_limit_epsilon_lies_below_the_certified_lower_bound():
    """Epsilon 8 beside dp_accounting's own."""
    finding = found("central-limit")
    assert finding.verdict == "does not hold"
    lower = list(finding.figures.values())
    assert lower == pytest.approx([0.4027, 1.0189, 2.104, 4.617, 9.456], abs=2e-3)
    for claimed, least in zip(CENTRAL_LIMIT, lower, strict=True):
        sigma = _central_limit_noise(claimed)
        mu = 256 / 60_000 * math.sqrt(7_020 * math.expm1(sigma**-2))
        assert gaussian_epsilon(mu, 1e-5) == pytest.approx(claimed)
        assert least > claimed
    step = pld.privacy_loss_distribution.from_gaussian_mechanism(sigma, sampling_prob=256 / 60_000)
    assert step.self_compose(7_020).get_epsilon_for_delta(1e-5) == pytest.approx(least, abs=0.02)


# --- accuracy: made-up curves, so that each verdict comes out when it should


def test_verdicts_follow_from_the_cases():
    verdicts = [verdict_of(held) for held in ((True, True), (True, False), (False,), ())]
    assert verdicts == ["holds", "holds partly", "does not hold", "not checked"]


FALLING = ("exponential", "piecewise", "linear", "quadratic")
CONSTANTS = {"exponential": "1.05", "piecewise": "1.38", "linear": "1.54", "quadratic": "1.60"}


def pairs(other, *gains):
    """Falling schedules beside their partners, with these gains in points."""
    curves = {}
    for shape, gain in zip(FALLING, gains, strict=False):
        curves[f"curricula/{shape}-decreasing"] = seeds(curve(0.94 + gain / 100))
        curves[f"curricula/{other(shape)}"] = seeds(curve(0.94))
    return curves


@pytest.mark.parametrize(
    ("claim", "other"),
    [
        ("falling-beats-rising", lambda shape: f"{shape}-increasing"),
        ("falling-beats-constant-renyi", lambda shape: f"constant-{CONSTANTS[shape]}"),
        ("falling-beats-constant-tight", lambda shape: f"matched-pld-{shape}"),
    ],
)
def test_falling_noise_is_compared_with_its_partner_of_equal_epsilon(claim, other):
    assert verdict(claim, pairs(other, 1, 1, 1, 1)) == "holds"
    assert verdict(claim, pairs(other, 1, 1, 1, -1)) == "holds partly"
    assert verdict(claim, pairs(other, -1, -1)) == "does not hold"


def test_some_pairs_are_not_all_and_a_tenth_of_a_point_decides_nothing():
    def rising(shape):
        return f"{shape}-increasing"

    assert verdict("falling-beats-rising", pairs(rising, 1)) == "holds partly"
    close = CLAIMS["falling-beats-rising"].check(pairs(rising, 0.1))
    assert close.verdict == "undecided"
    assert "No pair differs by more than chance" in close.text
    mixed = CLAIMS["falling-beats-rising"].check(pairs(rising, 0.1, 1))
    assert "Too close to call: Exponential." in mixed.text


def test_a_gain_is_drawn_beside_the_papers():
    finding = CLAIMS["falling-beats-rising"].check(curricula(linear_decreasing=0.95, linear_increasing=0.93))
    assert finding.figures["linear-decreasing"] == pytest.approx(2.0)
    (pair,) = finding.pairs
    assert (pair.title, pair.chance, pair.seeds) == ("Linear", 0.3, 1)
    assert (pair.points, pair.reported) == pytest.approx((2.0, 2.27))


def test_sorting_does_not_help_means_that_it_never_wins():
    names = [*(f"constant-{sigma}" for sigma in range(6)), "linear-decreasing"]

    def curves(gain):
        plain = {f"curricula/{name}": seeds(curve(0.94)) for name in names}
        return plain | {f"curricula/sample-{name}": seeds(curve(0.94 + gain)) for name in names}

    assert verdict("sorting-does-not-help", curves(-0.01)) == "holds"
    assert verdict("sorting-does-not-help", curves(0.001)) == "undecided"
    assert verdict("sorting-does-not-help", curves(0.01)) == "does not hold"
    assert verdict("sorting-does-not-help", curricula(constant_1=0.95, sample_constant_1=0.94)) == "holds partly"


def test_seeds_are_averaged_and_what_may_be_chance_is_told():
    curves = {
        "curricula/linear-decreasing": seeds(curve(0.95), curve(0.93)),
        "curricula/linear-increasing": seeds(curve(0.91), curve(0.89)),
    }
    finding = CLAIMS["falling-beats-rising"].check(curves)
    assert finding.figures["linear-decreasing"] == pytest.approx(4.0)
    assert "pairs, 2 seeds each" in finding.text
    assert "0.00 points of the mean may be chance" in finding.text


def test_points_have_a_sign_unless_they_round_to_nothing():
    assert [signed(points) for points in (0.305, -0.3, -0.004, 0.0)] == ["+0.30", "-0.30", "0.00", "0.00"]
    assert signed(-24.44, 1) == "-24.4"


def test_seeds_are_counted_in_words():
    assert count_seeds([1, 1]) == "one seed each"
    assert count_seeds([3, 3]) == "3 seeds each"
    assert count_seeds([3, 1, 2]) == "1 to 3 seeds each"


def rising_pairs(*gains_by_seed):
    """Falling schedules beside their mirror images: a tuple of gains a pair, one a seed; seeds differ by a point."""
    curves = {}
    for shape, gains in zip(FALLING, gains_by_seed, strict=True):
        plain = [0.94 + 0.01 * seed for seed in range(len(gains))]
        falling = [base + gain / 100 for base, gain in zip(plain, gains, strict=True)]
        curves[f"curricula/{shape}-decreasing"] = seeds(*map(curve, falling))
        curves[f"curricula/{shape}-increasing"] = seeds(*map(curve, plain))
    return curves


def test_what_a_seed_changes_in_both_runs_does_not_hide_a_gain():
    assert verdict("falling-beats-rising", rising_pairs(*[(0.2, 0.3, 0.25)] * 4)) == "holds"


def test_gains_within_chance_decide_nothing():
    several = CLAIMS["falling-beats-rising"].check(rising_pairs(*[(0.2, -0.2, 0.0)] * 4))
    assert several.verdict == "undecided"
    assert "No pair differs by more than chance" in several.text
    assert verdict("falling-beats-rising", rising_pairs(*[(0.1,)] * 4)) == "undecided"


def test_one_pair_that_loses_denies_nothing_while_the_mean_may_be_chance():
    one_loses = [(0.03, 0.01, 0.05)] * 3
    assert verdict("falling-beats-rising", rising_pairs(*one_loses, (-0.2, -0.1, -0.2))) == "undecided"
    assert verdict("falling-beats-rising", rising_pairs(*one_loses, (-2.0, -1.9, -2.0))) == "does not hold"


def test_small_gains_in_every_pair_hold_partly():
    """Half a width of 95 % each: no pair decides, all four together do."""
    finding = CLAIMS["falling-beats-rising"].check(rising_pairs(*[(0.3, -0.05, 0.125)] * 4))
    assert "No pair differs by more than chance" in finding.text
    assert finding.verdict == "holds partly"


def test_only_runs_of_a_common_seed_are_compared():
    curves = {
        "curricula/linear-decreasing": {0: curve(0.95), 1: curve(0.99)},
        "curricula/linear-increasing": {0: curve(0.93), 2: curve(0.90)},
    }
    assert CLAIMS["falling-beats-rising"].check(curves).figures["linear-decreasing"] == pytest.approx(2.0)


def test_accuracy_against_log_epsilon_is_a_correlation():
    names = [f"curricula/constant-{sigma}" for sigma in (1, 2, 3, 4, 5)]
    rising = {name: seeds(curve(0.96 - 0.01 * k)) for k, name in enumerate(names)}
    assert verdict("log-epsilon", rising) == "holds"
    falling = {name: seeds(curve(0.90 + 0.01 * k)) for k, name in enumerate(names)}
    assert verdict("log-epsilon", falling) == "does not hold"
    assert verdict("log-epsilon", dict(list(rising.items())[:4])) == "not checked"


def test_the_p_value_of_the_papers_correlation_means_seven_points():
    """r = 0.848 and p = 0.016, Sec. 6.2."""
    logs = [math.log(k) for k in range(1, 8)]
    r, p = correlation(logs, [1.0, 3.0, 2.0, 5.0, 3.5, 4.0, 6.0])
    assert 0 < p < 0.05 < r
    t = 0.848 * math.sqrt(5 / (1 - 0.848**2))
    assert t == pytest.approx(3.578, abs=1e-3)


def test_the_tailored_loss_must_lead_more_at_first_than_at_the_end():
    def curves(*gains):
        plain = [0.9] * 10
        tailored = [0.9 + gains[0]] * 5 + [0.9 + gains[1]] * 5
        return {
            "losing-less/mnist-o-t-cnn": seeds(curve(*tailored)),
            "losing-less/mnist-ce-t-cnn": seeds(curve(*plain)),
        }

    assert verdict("first-epochs", curves(0.03, 0.01)) == "holds"
    assert verdict("first-epochs", curves(0.01, 0.03)) == "does not hold"
    assert verdict("first-epochs", curves(-0.01, -0.03)) == "does not hold"


def test_alignment_is_the_cosine_of_clipped_and_true_gradient():
    def curves(one, other):
        return {
            "losing-less/mnist-o-t-cnn": seeds(curve(0.9, cosine=one)),
            "losing-less/mnist-ce-t-cnn": seeds(curve(0.9, cosine=other)),
        }

    assert verdict("alignment", curves(0.9, 0.8)) == "holds"
    assert verdict("alignment", curves(0.8, 0.9)) == "does not hold"
    assert verdict("alignment", curves(None, None)) == "not checked"


def optimizers(sgd, other, epochs=30, name="dp-adam-b256-lr0.001"):
    return {
        "optimizers/dp-sgd-b256": seeds(curve(*[sgd] * 30)),
        f"optimizers/{name}": seeds(curve(*[other] * epochs)),
    }


def test_adam_is_compared_with_sgd():
    assert verdict("adam", optimizers(0.4, 0.45)) == "holds"
    close = CLAIMS["adam"].check(optimizers(0.4, 0.395))
    assert close.verdict == "undecided"
    assert "No pair differs by more than chance" in close.text
    assert verdict("adam", optimizers(0.4, 0.38)) == "does not hold"


def test_any_optimizer_that_beats_sgd_speaks_against_the_paper():
    assert verdict("other-optimizers", optimizers(0.4, 0.38)) == "holds"
    assert verdict("other-optimizers", optimizers(0.4, 0.405)) == "undecided"
    assert verdict("other-optimizers", optimizers(0.4, 0.45, name="dp-lion-b256")) == "does not hold"
    both = optimizers(0.4, 0.45, name="dp-lion-b256") | optimizers(0.4, 0.38)
    assert verdict("other-optimizers", both) == "holds partly"
    assert verdict("adam", optimizers(0.4, 0.45, name="dp-lion-b256")) == "not checked"
    assert "DP-SGD, batch 256: 44 %; DP-Adam, batch 256: 45 %" in found("adam").text


def test_adam_that_stopped_early_is_told_after_the_same_epoch_and_decides_nothing():
    assert CLAIMS["adam"].evidence == "all runs"
    finding = CLAIMS["adam"].check(optimizers(0.4, 0.38, epochs=2))
    assert finding.verdict == "undecided"
    assert finding.figures["optimizers/dp-adam-b256-lr0.001"] == pytest.approx(-2.0)
    assert "(not in the paper) after 2." in finding.text


def test_claims_that_compare_ends_get_full_length_runs_only():
    specs = {name: RECIPES[f"curricula/{name}"].spec for name in ("linear-decreasing", "linear-increasing")}
    results = {
        spec.recipe: Measured.of_runs((Run(spec.recipe, spec, "stopped", curve(accuracy), "", None),))
        for spec, accuracy in zip(specs.values(), (0.95, 0.93), strict=True)
    }
    ((_, finding),) = findings([CLAIMS["falling-beats-rising"]], results)
    assert finding.verdict == "not checked"
    done = {name: dataclasses.replace(result.runs[0], status="done") for name, result in results.items()}
    whole = {name: Measured.of_runs((run,)) for name, run in done.items()}
    ((_, finding),) = findings([CLAIMS["falling-beats-rising"]], whole)
    assert finding.figures["linear-decreasing"] == pytest.approx(2.0)


def screened(*datasets, claimed_end=0.98):
    curves = {}
    for data in datasets:
        curves[f"screening/{data}"] = seeds(curve(0.80, 0.90, 0.95, claimed_end, epsilon=4.0, claimed=2.0))
        curves[f"screening/{data}-tanh"] = seeds(curve(0.93, 0.97, epsilon=2.0))
    return curves


def local(djw, prestige, *, losses=("hinge", "ramp")):
    """Errors of three repeats around these, on MNIST."""
    ends = {"djw": djw, "prestige": prestige}
    return {
        f"prestige/mnist38-{method}-{loss}": [end - 0.01, end, end + 0.011 * (method == "djw") + 0.009]
        for method, end in ends.items()
        for loss in losses
    }


def test_prestige_is_compared_with_djw_repeat_by_repeat():
    ahead, behind = (CLAIMS["prestige-beats-djw"].check(local(0.2, end)) for end in (0.1, 0.4))
    assert ahead.verdict == "holds partly"  # four of six datasets cannot be had
    assert ahead.figures["prestige/mnist38-prestige-hinge"] == pytest.approx(10.0, abs=0.5)
    assert behind.verdict == "does not hold"
    assert "2 of 24 pairs, 3 repeats each" in behind.text
    assert behind.pairs[0].reported == pytest.approx(1.9)
    assert CLAIMS["prestige-beats-djw"].check({"prestige/mnist38-djw-hinge": [0.1]}).verdict == "not checked"


def test_local_results_reach_the_claims_that_ask_for_errors():
    results = {name: Measured(tuple(errors), 10, 10) for name, errors in local(0.2, 0.4).items()}
    ((_, finding),) = findings([CLAIMS["prestige-beats-djw"]], results)
    assert finding.verdict == "does not hold"
    (_, alone), (_, epsilon) = findings([CLAIMS["adam"], CLAIMS["unbiased"]], results)
    assert (alone.verdict, epsilon.verdict) == ("not checked", "does not hold")


def test_a_claim_says_what_evidence_it_asks_for():
    with pytest.raises(ValueError, match="evidence is one of"):
        dataclasses.replace(CLAIMS["adam"], evidence="hearsay")


def test_screening_can_win_at_claimed_epsilon_and_lose_at_sound_epsilon():
    curves = screened("mnist", "fashion", "cifar10")
    assert verdict("screening-claimed", curves) == "holds"
    assert verdict("screening-sound", curves) == "does not hold"


def test_screening_that_wins_on_one_dataset_or_by_a_tenth_of_a_point_is_not_a_claim_that_holds():
    assert verdict("screening-claimed", screened("mnist")) == "holds partly"
    assert "Without runs yet: Fashion-MNIST, CIFAR-10." in CLAIMS["screening-claimed"].check(screened("mnist")).text
    close = CLAIMS["screening-claimed"].check(screened("mnist", "fashion", claimed_end=0.971))
    assert close.verdict == "undecided"
    assert "No pair differs by more than chance" in close.text


def test_losses_and_screening_are_averaged_over_seeds():
    losses = {
        "losing-less/mnist-o-t-cnn": seeds(curve(*[0.95] * 10), curve(*[0.85] * 5, *[0.9] * 5)),
        "losing-less/mnist-ce-t-cnn": seeds(curve(*[0.9] * 10), curve(*[0.9] * 10)),
    }
    figures = CLAIMS["first-epochs"].check(losses).figures
    assert figures == pytest.approx({"mnist_first": 0.0, "mnist_last": 2.5})
    both = {
        "screening/mnist": seeds(curve(0.8, 0.9), curve(0.9, 1.0)),
        "screening/mnist-tanh": seeds(curve(0.8, 0.9), curve(0.8, 0.9)),
    }
    assert CLAIMS["screening-sound"].check(both).figures["mnist_gain"] == pytest.approx(5.0)


def test_within_a_budget_the_last_epoch_that_fits_counts():
    run = curve(0.1, 0.2, 0.3, 0.4, epsilon=4.0)
    assert within(run, "sound", 2.5).epoch == 2
    assert within(run, "sound", 0.5) is None
    free = tuple(dataclasses.replace(record, epsilon_claimed=None, epsilon_sound=None) for record in run)
    assert within(free, "sound", 1e9) is None


def test_a_verdict_is_one_of_the_known_words():
    with pytest.raises(ValueError, match="holds partly"):
        Finding("maybe", "who knows")


def test_claims_name_recipes_that_exist():
    for name in MEASURED:
        for word in found(name).text.replace(",", " ").replace(". ", " ").split():
            if word.startswith(tuple(f"{paper}/" for paper in PAPERS)):
                assert word.rstrip(".") in {*RECIPES, *LOCAL_RECIPES}
