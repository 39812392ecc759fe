"""Schedules and ledgers: whatever is asked, a right number or one sentence."""

from __future__ import annotations

import json
import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dpviz.privacy import SCHEDULES, Ledger, Phase, Schedule, epsilon
from dpviz.privacy.schedules import CUSTOM
from tests.fuzz.inputs import fuzzed, outcome

ODD = st.sampled_from([math.nan, math.inf, -1.0, "x", None, "", 1e300, True, [1]])


@st.composite
def schedules(draw, odd: bool = False):
    """A named schedule with knobs in their ranges; if `odd`, some of them anything at all."""
    entry = SCHEDULES[draw(st.sampled_from([name for name in SCHEDULES if name != CUSTOM]))]
    knobs = {}
    for name, knob in entry.knobs.items():
        whole = isinstance(knob.default, int)
        within = st.integers(int(knob.low), int(knob.high)) if whole else st.floats(knob.low, knob.high)
        knobs[name] = draw(within | ODD if odd else within)
    return entry.name, knobs


@fuzzed("schedules", 0.5)
@given(schedules(), st.integers(1, 2000))
def test_a_schedule_gives_one_finite_sigma_an_epoch_or_names_the_epoch(made, epochs):
    name, knobs = made
    schedule = Schedule.of(name, **knobs)
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json()))) == schedule
    sigmas, refusal = outcome(schedule.sigmas, epochs)
    if refusal:
        assert "epoch" in refusal
        return
    assert sigmas.shape == (epochs,)
    assert np.all(np.isfinite(sigmas))
    assert np.all(sigmas >= 0)
    ends = {knobs.get("start"), knobs.get("end"), knobs.get("sigma")} - {None}
    if name in ("constant", "linear", "quadratic", "exponential", "piecewise", "cosine", "warm-up"):
        assert min(ends) * (1 - 1e-9) - 1e-9 <= sigmas.min()
        assert sigmas.max() <= max(ends) * (1 + 1e-9) + 1e-9


@fuzzed("schedules", 0.5)
@given(schedules(odd=True) | st.tuples(st.text(max_size=12), st.dictionaries(st.text(max_size=8), ODD, max_size=2)))
def test_odd_knobs_and_names_are_refused_in_a_sentence(made):
    name, knobs = made
    schedule, refusal = outcome(Schedule.from_json, {**knobs, "name": name})
    assert refusal or outcome(schedule.sigmas, 7)[0] is not None or name in ("step-decay", "exponential-decay")


phases = st.builds(
    Phase,
    noise_multiplier=st.floats(0.4, 40.0),
    sample_rate=st.floats(1e-4, 1.0),
    steps=st.integers(1, 3000),
)


@fuzzed("ledgers")
@given(st.lists(phases, min_size=1, max_size=5), st.floats(-10, -1).map(lambda power: 10**power), st.floats(1.0, 2.0))
def test_the_band_holds_is_below_rdp_and_more_noise_never_costs_more(made, delta, factor):
    found = epsilon(Ledger(made), delta)
    rdp = epsilon(Ledger(made), delta, accountant="rdp").upper
    assert 0 <= found.lower <= found.upper <= rdp * (1 + 1e-9)
    assert rdp <= epsilon(Ledger(made), delta, accountant="rdp-classic").upper * (1 + 1e-9)
    louder = Ledger(Phase(factor * phase.noise_multiplier, phase.sample_rate, phase.steps) for phase in made)
    assert epsilon(louder, delta).lower <= found.upper
    assert epsilon(louder, delta, accountant="rdp").upper <= rdp * (1 + 1e-9)
