"""What was seen of a run moves the forecast of the rest, and helps."""

from __future__ import annotations

import numpy as np
import pytest

from dpviz.forecast.evidence import curves
from dpviz.forecast.library import shelf
from dpviz.forecast.seen import shifts, updated
from dpviz.papers import recipe
from dpviz.runs.store.cached import cached_runs

RESPONSE = shelf().of(recipe("curricula/constant-1.54").spec)


def test_without_an_epoch_seen_nothing_moves_and_what_was_seen_is_what_it_was():
    sigmas = [1.5] * 20
    first = RESPONSE.forecast(sigmas)
    assert updated(RESPONSE, sigmas, []) == first
    seen = [0.8, 0.9]
    now = updated(RESPONSE, sigmas, seen)
    assert now.accuracy[:2] == now.lower[:2] == now.upper[:2] == (0.8, 0.9)
    moved = shifts(RESPONSE, sigmas, seen)
    assert np.array(now.accuracy[2:]) - first.accuracy[2:] == pytest.approx(moved[2:])
    assert np.array(now.upper[2:]) - now.lower[2:] == pytest.approx(np.array(first.upper[2:]) - first.lower[2:])
    better = shifts(RESPONSE, sigmas, [first.accuracy[0] + 0.01])
    worse = shifts(RESPONSE, sigmas, [first.accuracy[0] - 0.01])
    assert (better > 0).all()
    assert worse == pytest.approx(-better)


def test_epochs_that_were_seen_bring_the_end_nearer_in_the_cached_runs():
    runs = [item.run for item in cached_runs().runs if item.run.kind == "measured"]
    alike = curves(run for run in runs if run.own_spec.key in RESPONSE.runs)
    for count in (5, 10):
        ends = [abs(RESPONSE.forecast(curve.sigmas).accuracy[-1] - curve.accuracies[-1]) for curve in alike]
        moved = [
            abs(updated(RESPONSE, curve.sigmas, curve.accuracies[:count]).accuracy[-1] - curve.accuracies[-1])
            for curve in alike
        ]
        assert np.mean(moved) < 0.8 * np.mean(ends)
