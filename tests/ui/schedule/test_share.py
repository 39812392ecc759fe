"""Share links: what comes back is what was shared, and nothing else gets in."""

import base64
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpviz.privacy.registry import InputError
from dpviz.ui.schedule.share import FIELDS, LEAST_SIGMA, MAX_EPOCHS, MAX_LENGTH, MOST_SIGMA, decode, encode

SETTINGS = {
    "dataset_size": 60_000,
    "batch_size": 600,
    "delta": 1e-5,
    "target": 3.0,
    "adjacency": "add-remove",
    "sampling": "poisson",
    "accountant": "pld",
    "preset": "linear",
    "dataset": "mnist",
    "measure": "tpr",
    "fpr": 0.01,
}

sigma = st.just(0.0) | st.floats(LEAST_SIGMA, MOST_SIGMA)
schedules = st.lists(sigma, min_size=1, max_size=60)
words = st.from_regex(r"[a-z0-9][a-z0-9_.-]{0,39}", fullmatch=True)
settings = st.fixed_dictionaries(
    {},
    optional={
        "dataset_size": st.integers(1, 10**9),
        "batch_size": st.integers(1, 10**9),
        "delta": st.floats(1e-100, 0.999999),
        "target": st.floats(1e-6, 1e6),
        "adjacency": words,
        "sampling": words,
        "accountant": words,
        "preset": words,
        "dataset": words,
        "measure": words,
        "fpr": st.floats(1e-9, 0.999999),
    },
)


def test_a_link_of_version_1_opens_as_it_did():
    sigmas, found = decode("1~EjQ~60000~600~1e-05~3.0~add-remove~poisson~pld~linear~mnist")
    assert sigmas == decode("2~EjQ" + "~" * 11)[0]
    assert found == {name: value for name, value in SETTINGS.items() if name not in ("measure", "fpr")}


def refusal(text: str) -> str | None:
    try:
        decode(text)
    except InputError as error:
        return str(error)
    return None


@given(schedules, settings)
def test_a_decoded_schedule_is_within_a_twentieth_of_a_percent_and_settings_are_exact(sigmas, chosen):
    back, found = decode(encode(sigmas, chosen))
    assert found == chosen
    assert all(math.isclose(a, b, rel_tol=5.001e-4) for a, b in zip(sigmas, back, strict=True))


@given(schedules, settings)
def test_sharing_a_shared_schedule_changes_nothing(sigmas, chosen):
    text = encode(sigmas, chosen)
    assert encode(*decode(text)) == text


@given(st.lists(st.integers(1000, 9999), min_size=1, max_size=300), st.integers(-7, -1))
def test_what_the_editor_draws_survives_exactly(digits, power):
    drawn = [float(f"{digit}e{power}") for digit in digits]
    assert decode(encode(drawn, {}))[0] == drawn


@given(schedules, settings)
def test_a_link_needs_no_escaping_in_a_url(sigmas, chosen):
    assert re.fullmatch(r"[A-Za-z0-9_.~-]+", encode(sigmas, chosen))


@given(st.text(max_size=300) | st.text("1~AZaz09_-", max_size=300))
def test_any_text_is_either_a_link_or_one_readable_sentence(text):
    assert encode(*decode(text)) == text if refusal(text) is None else 0 < len(refusal(text)) < 300


@given(schedules, settings, st.data())
def test_a_link_with_one_changed_character_is_another_link_or_refused(sigmas, chosen, data):
    text = encode(sigmas, chosen)
    place = data.draw(st.integers(0, len(text) - 1))
    changed = text[:place] + data.draw(st.characters()) + text[place + 1 :]
    assert encode(*decode(changed)) == changed if refusal(changed) is None else changed != text


def test_sixty_epochs_with_every_setting_make_a_short_link():
    assert len(encode([1.234] * 60, SETTINGS)) < 260


def link(packed: bytes = b"\x12\x34", **fields: str) -> str:
    values = [fields.get(name, "") for name in FIELDS]
    return "~".join(["2", base64.urlsafe_b64encode(packed).decode().rstrip("="), *values])


def test_the_hand_made_link_of_these_tests_is_a_good_one():
    assert decode(link(dataset_size="60000"))[1] == {"dataset_size": 60_000}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "version"),
        ("3~EjQ~~~~~~~~~~~", "version"),
        ("2~EjQ~~~~~~~~~", "incomplete"),
        ("1~EjQ", "incomplete"),
        ("2~!!~~~~~~~~~~~", "cannot be read"),
        (link(b""), "epochs"),
        (link(b"\x12"), "epochs"),
        (link(b"\x00\x00" * (MAX_EPOCHS + 1)), "epochs"),
        (link(b"\xff\xff"), "impossible sigma"),
        (link(delta="nan"), "delta"),
        (link(delta="2"), "delta"),
        (link(target="inf"), "target"),
        (link(dataset_size="0"), "dataset_size"),
        (link(dataset_size="1.5"), "dataset_size"),
        (link(dataset_size="60_000"), "changed"),
        (link(dataset_size="+60000"), "changed"),
        (link(preset="<script>"), "preset"),
        (link(preset="a" * 100), "damaged"),
        ("1~" + "A" * MAX_LENGTH, "characters"),
    ],
)
def test_a_bad_link_is_refused_in_words(text, words):
    with pytest.raises(InputError, match=words):
        decode(text)


@pytest.mark.parametrize("bad", [1e-5, 1001.0, math.nan, math.inf, -1.0])
def test_a_sigma_that_a_link_cannot_hold_is_refused_by_its_epoch(bad):
    with pytest.raises(InputError, match="epoch 2"):
        encode([1.0, bad], {})


def test_too_many_epochs_and_unknown_settings_are_refused():
    with pytest.raises(InputError, match="1,000 epochs"):
        encode([1.0] * (MAX_EPOCHS + 1), {})
    with pytest.raises(InputError, match="colour"):
        encode([1.0], {"colour": "red"})
