"""Numbers as people read them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpviz.privacy import Epsilon
from dpviz.privacy.rounding import delta_number
from dpviz.ui.schedule.settings import parse_delta
from dpviz.views.numbers import (
    delta_text,
    epsilon_cell,
    epsilon_kind,
    epsilon_number,
    epsilon_remark,
    epsilon_text,
    sigma_text,
)


def band(lower: float, upper: float) -> Epsilon:
    return Epsilon(lower, upper, 1e-5, "pld")


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [
        (1.0035, "1.004"),
        (1.1, "1.100"),
        (28.381, "28.39"),
        (123.44, "123.5"),
        (20_345.0, "20,345"),
        (2.5e7, "2.50e7"),
        (2.501e7, "2.51e7"),
    ],
)
def test_large_epsilons_have_fewer_digits(epsilon, text):
    assert epsilon_number(epsilon) == text


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [
        (0.0, "0"),
        (0.0004, "0.0004"),
        (0.00042, "0.00042"),
        (0.0099, "0.0099"),
        (9.99e-5, "1.0e-4"),
        (1.23e-9, "1.3e-9"),
    ],
)
def test_tiny_epsilons_keep_two_digits_and_only_zero_is_zero(epsilon, text):
    assert epsilon_number(epsilon) == text


@given(st.floats(1e-12, 1e12), st.integers(3, 6))
def test_a_written_epsilon_is_an_upper_bound_and_a_lower_end_a_lower_one(epsilon, digits):
    upper, lower = (float(epsilon_number(epsilon, digits=digits, up=up).replace(",", "")) for up in (True, False))
    assert epsilon_number(np.float64(epsilon), digits=digits) == epsilon_number(epsilon, digits=digits)
    assert 0.9 * epsilon <= lower <= epsilon <= upper <= 1.1 * epsilon


def test_a_band_is_rounded_outwards_so_that_it_holds():
    assert epsilon_text(band(1.0039, 1.0051)) == "1.003–1.006"
    assert epsilon_text(band(1.0031, 1.0034)) == "1.003–1.004"


def test_a_closed_form_is_one_number_and_an_upper_bound_says_so():
    assert epsilon_text(band(28.3812, 28.3812)) == "28.39"
    assert epsilon_text(band(0.0, 1.3994)) == "≤ 1.400"


def test_only_a_band_of_the_tight_accountant_is_called_certified():
    assert epsilon_kind(band(1.0, 1.004)) == "certified"
    assert epsilon_kind(band(1.0, 1.2)) == "certified, wide"
    assert epsilon_kind(Epsilon(0.0, 1.4, 1e-5, "rdp")) == "RDP upper bound"
    instead = Epsilon(0.0, 1.4, 1e-5, "pld", "RDP upper bound, because its grid would be too large")
    assert epsilon_kind(instead) == "RDP upper bound"


def test_what_is_no_narrow_certified_band_has_a_remark():
    assert epsilon_remark(band(1.0, 1.004)) == epsilon_remark(Epsilon(2.0, 2.0, 0.0, "pure")) == ""
    assert epsilon_remark(band(1.0, 1.2)).startswith("certified, wide: the true value may lie well below")
    assert epsilon_remark(Epsilon(0.0, 1.4, 1e-5, "rdp-classic")) == "RDP upper bound"
    instead = Epsilon(0.0, 1.4, 1e-5, "pld", "RDP upper bound, because its grid would be too large")
    assert epsilon_remark(instead) == instead.fallback


def test_no_noise_and_no_guarantee_have_words():
    assert epsilon_text(band(math.inf, math.inf)) == "∞"
    assert epsilon_text(band(0.0, math.inf)) == "∞"
    assert epsilon_text(None) == "none"


def test_powers_of_ten_are_written_without_a_leading_zero():
    assert [delta_text(delta) for delta in (1e-5, 1e-10, 0.001, 1.7e-5)] == ["1e-5", "1e-10", "0.001", "1.7e-5"]


@pytest.mark.parametrize("delta", [1.23456789e-5, 1 / 60_000, 0.1 + 0.2, 3e-300, 1e-5])
def test_a_delta_reads_back_as_the_same_number(delta):
    assert parse_delta(delta_text(delta)) == delta
    assert len(delta_text(1 / 60_000)) == len("1/60000")
    assert sigma_text(4.789473) == "4.789"


@given(st.floats(1e-300, 1.0))
def test_a_written_delta_is_on_the_safe_side_of_the_number_by_less_than_a_thousandth(delta):
    assert delta <= float(delta_number(delta)) <= 1.001 * delta
    assert 0.999 * delta <= float(delta_number(delta, up=False)) <= delta


@pytest.mark.parametrize(
    ("epsilon", "cell"), [(2.36439, 2.365), (1.005, 1.005), (2e-5, 0.001), (34624.1, 34624.1), (math.inf, math.inf)]
)
def test_a_cell_that_shows_thousandths_is_rounded_up(epsilon, cell):
    assert epsilon_cell(epsilon) == cell
    assert math.isnan(epsilon_cell(math.nan))
