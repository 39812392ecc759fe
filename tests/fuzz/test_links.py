"""Share links: what is printed reads back as it was; anything else is refused in a sentence."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from dpviz.papers import PAPERS
from dpviz.privacy import epoch_phases
from dpviz.training.tables import DATASETS
from dpviz.ui.compare.link import ALL, EPSILONS, Comparison, parse_link, to_link
from dpviz.ui.schedule.settings import Settings
from dpviz.ui.schedule.share import LEAST_SIGMA, MOST_SIGMA, decode, encode
from dpviz.views.comparison.experiments import SOURCES
from dpviz.views.comparison.views import VIEWS
from tests.fuzz.inputs import fuzzed, outcome

curves = st.lists(st.just(0.0) | st.floats(LEAST_SIGMA, MOST_SIGMA), min_size=1, max_size=120)
words = st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,39}", fullmatch=True)
numbers = {
    "dataset_size": st.integers(1, 10**9),
    "batch_size": st.integers(1, 10**9),
    "delta": st.floats(1e-100, 0.999999),
    "target": st.floats(1e-6, 1e6),
}
fields = st.fixed_dictionaries(
    {}, optional=numbers | dict.fromkeys(("adjacency", "preset", "dataset", "measure"), words)
)


@fuzzed("links", 0.4)
@given(curves, fields)
def test_a_link_reads_back_as_it_was_and_its_curve_can_be_priced(sigmas, chosen):
    text = encode(sigmas, chosen)
    back, found = decode(text)
    assert found == chosen
    assert encode(back, found) == text
    assert all(math.isclose(one, other, rel_tol=5.001e-4) for one, other in zip(sigmas, back, strict=True))
    assert len(epoch_phases(back, 0.01)) == len(sigmas)


@fuzzed("links", 0.4)
@given(curves, fields, st.data())
def test_a_link_that_was_changed_on_its_way_is_another_whole_link_or_a_sentence(sigmas, chosen, data):
    text = encode(sigmas, chosen)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text(max_size=2)) + text[at + data.draw(st.integers(0, 3)) :]
    opened(text)


@fuzzed("links", 0.2)
@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin1")))
def test_any_text_is_a_link_or_a_sentence(text):
    opened(text)


def opened(text: str) -> None:
    """What the Schedule page does with a link."""
    found, refusal = outcome(decode, text)
    assert len(refusal) < 400
    if found:
        assert encode(*found) == text
        assert len(outcome(Settings.from_link, len(found[0]), found[1])[1]) < 400


views = st.builds(
    Comparison,
    show=st.lists(st.sampled_from(list(SOURCES)), unique=True).map(tuple),
    dataset=st.sampled_from([*DATASETS, ALL]),
    paper=st.sampled_from([*PAPERS, ALL]),
    view=st.sampled_from(list(VIEWS)),
    epsilon=st.sampled_from(list(EPSILONS)),
    log=st.booleans(),
    at=st.integers(1, 10_000).map(lambda number: number / 100),
    search=st.text(st.characters(categories=["L", "Nd"]), max_size=20),
    highlight=st.lists(st.sampled_from(["own/a", "cached/b/c", ""]), max_size=9).map(lambda slots: (*slots, "own/z")),
    baseline=st.sampled_from(["", "own/0123456789abcdef"]),
    colour=st.sampled_from(["experiment", "optimizer", "optimizer.momentum"]),
    group=st.sampled_from(["experiment", "loss"]),
    facet=st.sampled_from(["dataset", "batch_size"]),
    rest=st.booleans(),
    cells=st.sampled_from([(), ("loss", "learning_rate")]),
)


@fuzzed("views", 0.5)
@given(views)
def test_a_link_to_a_comparison_reads_back_as_it_was(shown):
    assert parse_link(to_link(shown)) == shown


@fuzzed("views", 0.5)
@given(
    st.dictionaries(
        st.sampled_from(
            ["show", "dataset", "view", "at", "log", "highlight", "baseline", "colour", "cells", "search", "x"]
        ),
        st.text(max_size=30),
    )
)
def test_other_fields_are_refused_in_a_sentence_or_mean_what_they_say(params):
    shown, refusal = outcome(parse_link, params)
    assert refusal or parse_link(to_link(shown)) == shown
