"""Records as a notebook shows them: the right numbers, valid HTML, and nothing that a person typed as a tag."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

import dpviz
from dpviz.privacy import SCHEDULES
from dpviz.privacy.notebook import curve_svg
from dpviz.runs.store.spending import Spending
from tests.views.made_runs import made_run

EVIL = "<script>alert('x')</script>"


class Balance(HTMLParser):
    """Fails on a tag that is closed by another; keeps the tags and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += f" {data}"


def shown(record) -> Balance:
    return Balance(record._repr_html_())


def test_an_epsilon_shows_its_band_rounded_outwards_and_its_kind():
    text = shown(dpviz.Epsilon(1.00312, 1.00481, 1e-5, "pld")).text
    assert "1.003–1.005" in text
    assert "1e-5" in text
    assert "certified" in text
    assert "RDP upper bound" in shown(dpviz.Epsilon(0.0, 1.4, 1e-5, "rdp")).text
    assert "∞" in shown(dpviz.Epsilon(np.inf, np.inf, 1e-5, "pld")).text


def test_a_risk_shows_what_is_found_and_what_it_rests_on():
    text = shown(dpviz.risk([(1.1, 0.01, 2000)])).text
    for words in ("at 0.1 % false alarms", "0.515–0.516 %", "advantage", "μ = 0.5615", "certified", "removing one"):
        assert words in text


def test_a_guarantee_shows_both_epsilons_and_what_they_rest_on():
    phases = dpviz.epoch_phases([2.0, 1.0], 0.01)
    found = dpviz.guarantee("screening", "none", phases, 1e-5, accepted=[10, 10])
    text = shown(found).text
    assert text.count("certified") == text.count("a claim; what holds is the sound ε") == 1
    assert all(sentence in text for sentence in (*found.assumptions, *found.not_covered))
    none = shown(dpviz.guarantee("dp-sgd", "dynamic", phases, 1e-5)).text
    assert "No guarantee" in none
    assert "certified" not in none


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "custom"])
def test_every_schedule_draws_its_curve(name):
    found = shown(dpviz.Schedule.of(name))
    assert {"svg", "polyline"} <= found.tags
    assert "drawn over 20" in found.text


def test_a_curve_is_drawn_to_scale_and_stays_small():
    points = re.search(r'points="([^"]+)"', curve_svg(np.array([4.0, 2.0, 0.0]))).group(1)
    assert points == "6.0,6.0 130.0,40.0 254.0,74.0"
    assert len(curve_svg(np.linspace(5, 1, 100_000))) < 5000
    for sigmas in ([0.0, 0.0], [1.0]):
        assert "nan" not in curve_svg(np.array(sigmas))


def test_a_schedule_that_cannot_be_drawn_says_why():
    broken = shown(dpviz.Schedule("cosin"))
    assert "unknown schedule" in broken.text
    assert "svg" not in broken.tags


def test_a_run_shows_accuracy_and_all_that_it_has_spent():
    run = made_run(title="Mine", status="stopped", count=2, written=Spending(25, 1.1, 1.30001, at_most=True))
    text = shown(run).text
    assert all(words in text for words in ("Mine", "stopped, 2 of 4 epochs", "65.00%", "at most 1.301", "1e-5"))
    assert "each example enters each batch independently" in text
    assert "at most 1.100 (a claim; what holds is the sound ε)" in text
    assert "whoever knows it" in text
    assert "whoever knows it" not in shown(made_run(secure=True)).text


def test_a_run_without_a_guarantee_shows_no_number():
    text = shown(made_run(method="sgd")).text
    assert "sound ε none claimed ε none" in " ".join(text.split())
    assert "Why there is no guarantee" in text
    assert "no clipping and no noise: no guarantee" in text
    assert "upper bound" not in text


@pytest.mark.parametrize(
    "record",
    [
        made_run(title=EVIL),
        dpviz.Schedule(EVIL, knobs=((EVIL, EVIL),)),
        dpviz.Epsilon(0.0, 1.0, 1e-5, EVIL, fallback=EVIL),
        dpviz.Epsilon(0.0, 1.0, 1e-5, EVIL),
        dpviz.Guarantee(None, dpviz.Epsilon(0.0, 1.0, 1e-5, EVIL), EVIL, EVIL, (EVIL,), (EVIL,)),
    ],
)
def test_whatever_a_person_typed_is_escaped(record):
    found = shown(record)
    assert "script" not in found.tags
    assert EVIL in found.text
