"""The Guide's pictures and pitfalls: each live example shows what its lesson says."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpviz.privacy import InputError
from dpviz.views import guide, pitfalls
from dpviz.views.pitfalls import PITFALLS, Example, accepted_delta, case_figure, case_frame

EXAMPLE = Example(tuple(np.linspace(5.0, 1.0, 8)))


def cases(function, example=EXAMPLE):
    return dict(function(example).cases)


@pytest.mark.parametrize("pitfall", PITFALLS, ids=lambda pitfall: pitfall.title)
def test_every_pitfall_has_a_sentence_and_at_least_two_cases(pitfall):
    finding = pitfall.example(EXAMPLE)
    frame = case_frame(finding)
    assert len(frame) >= 2
    assert finding.sentence.endswith(".")
    assert "nan" not in finding.sentence
    figure = case_figure(frame)
    assert np.isfinite(np.array(figure.data[0].x, dtype=float)).all()
    assert len(figure.data[0].y) == len(frame)


def test_the_examples_show_what_their_lessons_say():
    uppers = {name: cost.upper for name, cost in cases(pitfalls.accountants).items()}
    assert uppers["PLD (tight)"] < uppers["RDP, improved"] < uppers["RDP, classic"]
    by_order = cases(pitfalls.order)
    assert by_order["As drawn"].upper == pytest.approx(by_order["Mirrored"].upper, rel=1e-9)
    by_batches = cases(pitfalls.batches)
    assert by_batches["Fixed order (zero out one)"].upper > 2 * by_batches["Poisson (add or remove one)"].upper
    by_sorting = cases(pitfalls.sorted_examples)
    assert by_sorting["Sorted, what holds"] is None
    assert by_sorting["Masked, what holds"].upper == by_batches["Poisson (add or remove one)"].upper
    claimed, sound = pitfalls.screening(EXAMPLE).cases
    assert claimed[1].upper < sound[1].upper
    curve, by_rdp, by_pld = (cost.upper for _, cost in pitfalls.equal_budgets(EXAMPLE).cases)
    assert by_pld == pytest.approx(curve, rel=2e-3)
    assert by_rdp > 1.05 * curve
    assert math.isinf(pitfalls.quiet_epoch(EXAMPLE).cases[-1][1].upper)


def test_the_accepted_release_needs_the_delta_that_integration_gives():
    epsilon, shift, threshold = 1.99, 0.5, 4.0

    def law(centre):
        mass = norm.sf(threshold, centre) + norm.cdf(-threshold, centre)
        return lambda x: norm.pdf(x, centre) / mass

    p, q = law(0.0), law(shift)
    excess = [quad(lambda x: max(0.0, p(x) - math.exp(epsilon) * q(x)), *ends)[0] for ends in ((-12, -4), (4, 12))]
    assert accepted_delta(epsilon, shift, threshold) == pytest.approx(sum(excess), rel=1e-4)
    assert accepted_delta(epsilon, shift, threshold) == pytest.approx(0.39, abs=0.01)


def test_a_curve_with_a_silent_epoch_is_refused_in_one_sentence():
    with pytest.raises(InputError, match="noise in every epoch"):
        Example((1.0, 0.0))


def test_belief_follows_bayes_rule():
    assert guide.belief(0.0, 0.3) == pytest.approx(0.3)
    assert guide.belief(math.log(3), 0.5) == pytest.approx(0.75)
    frame = guide.belief_frame()
    assert frame["belief"].between(0, 100).all()
    assert all(rows["belief"].is_monotonic_increasing for _, rows in frame.groupby("prior"))
    assert len(guide.belief_figure(frame, 1.0).layout.shapes) == 1


def test_the_two_worlds_lie_one_clipping_norm_apart():
    frame = guide.worlds_frame(2.0)
    peaks = {world: rows.loc[rows["density"].idxmax(), "output"] for world, rows in frame.groupby("world")}
    assert peaks["with you"] - peaks["without you"] == pytest.approx(1.0, abs=0.05)
    assert [trace.name for trace in guide.worlds_figure(frame).data] == list(guide.WORLDS)
