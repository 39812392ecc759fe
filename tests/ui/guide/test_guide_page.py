"""The Guide page in a browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

from dpviz.ui.common.navigation import PAGES
from dpviz.views.pitfalls import PITFALLS


def open_guide(new_page, dashboard, **options):
    expect.set_options(timeout=20_000)
    page = new_page(f"{dashboard}/guide", **options)
    expect(page.get_by_role("heading", name="Ways to read a number wrongly")).to_be_visible()
    return page


def test_a_fold_works_its_example_out_when_it_is_opened(new_page, dashboard):
    page = open_guide(new_page, dashboard)
    expect(page.get_by_test_id("stExpander")).to_have_count(len(PITFALLS))
    expect(page.get_by_text("costs 10.5 times as much")).to_have_count(0)
    page.get_by_text("Batches must be drawn at random").click()
    expect(page.get_by_text("costs 10.5 times as much")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_guide_fits_a_narrow_screen_in_light_and_dark(new_page, dashboard, scheme):
    page = open_guide(new_page, dashboard, viewport={"width": 420, "height": 800}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 420
    background = page.evaluate("getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    brightness = sum(int(part) for part in background.strip("rgb()").split(",")) / (3 * 255)
    assert brightness < 0.2 if scheme == "dark" else brightness > 0.9
    expect(page.get_by_test_id("stException")).to_have_count(0)


def test_the_slider_moves_epsilon_and_another_curve_can_be_chosen(tmp_path):
    script = tmp_path / "app.py"
    script.write_text(
        "import streamlit as st\n"
        "from dpviz.ui.common.navigation import PAGES\n"
        "from dpviz.ui.common.shell import ROUTED\n"
        "st.session_state[ROUTED] = True\n"
        "st.navigation([st.Page(p.path, title=p.title, default=p.title == 'Guide') for p in PAGES]).run()\n",
        encoding="utf-8",
    )
    at = AppTest.from_file(str(script), default_timeout=30).run()
    assert not at.exception
    assert at.markdown[0].value.startswith("**Epsilon (ε) limits how much")
    links = [link.proto.page for link in at.get("page_link")]
    assert links == [page.path.stem for page in PAGES if page.how_to_read]
    assert any("costs ε = 1.994" in text.value for text in at.markdown)
    at.slider(key="guide.sigma").set_value(5.0).run()
    assert not at.exception
    assert not any("costs ε = 1.994" in text.value for text in at.markdown)
    at.selectbox(key="guide.example").set_value("constant").run()
    assert not at.exception
