"""Risk as data and as pictures."""

import pytest

from dpviz.privacy import risk
from dpviz.views import risk as views

FOUND = risk([(1.1, 0.01, 2000)])


def test_the_sentence_quotes_the_upper_bound_rounded_up():
    upper = 100 * FOUND.tpr(0.001).upper
    sentence = views.risk_sentence(FOUND, 0.001)
    quoted = float(sentence.split("at most ")[1].split(" %")[0])
    assert upper <= quoted <= 1.01 * upper
    assert sentence == (
        f"An attacker who accepts 1 false alarm in 1,000 finds at most {quoted:g} % of the members; "
        "without any model it would be 0.1 %."
    )


@pytest.mark.parametrize(
    ("fpr", "words"),
    [(0.0, "no false alarm finds"), (0.05, "1 false alarm in 20 finds"), (0.3, "false alarms for 30 % of the others")],
)
def test_any_rate_has_its_words(fpr, words):
    assert f"accepts {words}" in views.risk_sentence(FOUND, fpr)


def test_the_curve_is_a_band_from_guessing_upwards():
    frame = views.trade_off_frame(FOUND)
    assert ((frame["fpr"] <= frame["lower"]) & (frame["lower"] <= frame["upper"])).all()
    assert frame["fpr"].iloc[[0, -1]].tolist() == pytest.approx([1e-4, 1.0])


def test_the_table_has_a_row_per_schedule_with_bands_and_their_kind():
    table = views.risk_table({"mine": FOUND, "bound": risk([(1.1, 0.01, 2000)], accountant="rdp")}, 0.001)
    assert list(table["Schedule"]) == ["mine", "bound"]
    assert list(table["Kind"]) == ["certified", "RDP upper bound"]
    low, high = (float(end) for end in table["Members found"][0].removesuffix(" %").split("–"))
    assert low <= 100 * FOUND.tpr(0.001).lower < 100 * FOUND.tpr(0.001).upper <= high
    assert float(table["μ (regret)"][0].split()[0]) >= FOUND.gdp.mu


@pytest.mark.parametrize("fpr", [0.0, 0.001, 0.1, 1.0])
def test_of_a_thousand_people_as_many_are_found_as_the_bound_says_rounded_up(fpr):
    row = views.rates_frame(FOUND, [fpr]).iloc[0]
    assert (row["lower"], row["upper"]) == FOUND.tpr(fpr)
    assert row["found"] - 1 < 1000 * row["upper"] <= row["found"] + 1e-6
    assert row["guessed"] == round(1000 * fpr) <= row["found"] <= 1000


def test_a_rate_comes_with_the_words_of_the_page():
    row = views.rates_frame(FOUND, [0.01]).iloc[0]
    assert row["sentence"] == views.risk_sentence(FOUND, 0.01)
    assert row["alarms"] == "1 false alarm in 100"
    assert row["share"] == views.risk_table({"mine": FOUND}, 0.01)["Members found"][0]
