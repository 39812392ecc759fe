"""What people typed is shown as they typed it: in the source, and as Streamlit draws it in a real browser."""

from __future__ import annotations

import string

import pytest
from playwright.sync_api import expect

from dpviz.ui.common.markdown import plain, sentence

TYPED = (
    *(f"a{mark}b {mark}c{mark} {mark * 3}d{mark * 3}" for mark in string.punctuation if mark != "-"),
    *("![x](//elsewhere/y.png)", "[x](y)", "<b>x</b>", "&amp;", "$x$", "~~x~~", "`x`", "a | b", "_x_ x_y_z __z__"),
    *(":smile:", ":material/home:", ":red[x]", ":red-badge[x]", "- x", "+ x", "# x", "> x", "1. x", "12) x", "[^1]"),
    *("Linear — falling, 5 to 1", "ε ≤ 2 (δ = 1e-5) ± 0.3 %", "“Quotes” … and – dashes", "50,000 of 60,000; half-way"),
)
SCRIPT = f"""
import streamlit as st
from dpviz.ui.common.markdown import plain
for place, text in enumerate({TYPED!r}):
    with st.container(key=f"typed-{{place}}"):
        st.markdown(plain(text))
"""


@pytest.mark.parametrize("mark", ["`", "*", "[", "]", "<", ">", "$", "~", "|", "&", "\\"])
def test_what_means_something_in_markdown_is_escaped(mark):
    assert plain(f"a{mark}b") == f"a\\{mark}b"


@pytest.mark.parametrize("text", ["a — b", "5 to 1, falling", "(x) {y} 'z' \"q\"?", "noise_multiplier: 3.5 %; a/b"])
def test_what_means_nothing_is_left_alone(text):
    assert plain(text) == text


def test_an_error_is_a_sentence_that_starts_with_a_name_people_write():
    assert sentence("batch_size must be > 0, got -1") == "Batch size must be \\> 0, got -1."
    assert sentence("done.") == "Done."


def test_streamlit_draws_every_text_as_it_was_typed(serve, new_page, tmp_path):
    script = tmp_path / "typed.py"
    script.write_text(SCRIPT, encoding="utf-8")
    page = new_page(serve(script))
    expect(page.locator(f".st-key-typed-{len(TYPED) - 1} p")).to_be_visible()
    for place, text in enumerate(TYPED):
        shown = page.locator(f".st-key-typed-{place} p")
        assert shown.inner_text() == text
        assert shown.evaluate("node => node.children.length") == 0, f"{text} became markup"
