"""Every page under axe-core, light and dark: nothing that it calls moderate, serious or critical.

axe-core is the copy that Chromium's own DevTools carry (Lighthouse uses it), or the file that DPVIZ_AXE names.
"""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from dpviz.ui.common.navigation import PAGES
from tests.browser import CHROMIUM_ARGUMENTS, ROOT, chromium_path, free_port
from tests.views.made_runs import keep, made_run

BUNDLE = "devtools/third_party/lighthouse/lighthouse-dt-bundle.js"
LITERAL = re.compile(r"`/\*! axe v(?:[^`\\]|\\.)*`", re.DOTALL)
# What fades in has its full colour once its animations have ended; a spinner's never do.
FADED_IN = """async () => {
  const ending = document.getAnimations().filter(({ effect }) => effect.getComputedTiming().endTime < Infinity);
  await Promise.allSettled(ending.map(({ finished }) => finished));
}"""
FAILING = ("moderate", "serious", "critical")


@pytest.fixture(scope="module")
def axe(browser: Browser) -> str:
    """The script that defines `window.axe`."""
    if os.environ.get("DPVIZ_AXE"):
        return Path(os.environ["DPVIZ_AXE"]).read_text(encoding="utf-8")
    port = free_port()
    arguments = [*CHROMIUM_ARGUMENTS, f"--remote-debugging-port={port}"]
    with browser.browser_type.launch(executable_path=chromium_path(), args=arguments) as other:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{BUNDLE}", timeout=20) as reply:
                literal = LITERAL.search(reply.read().decode())
        except urllib.error.URLError:
            literal = None
        if literal is None:
            pytest.skip("this Chromium has no DevTools with axe-core; name the file axe.min.js by DPVIZ_AXE")
        return str(other.new_page().evaluate(literal[0]))


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("runs")
    for run_id, status in (("a", "done"), ("b", "failed")):
        keep(folder, made_run(run_id, status=status, title=f"Run {run_id}", diagnostics=True))
    return serve(ROOT / "app.py", {"DPVIZ_RUNS": str(folder)})


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", PAGES, ids=lambda place: place.title)
def test_axe_finds_nothing_moderate_or_worse(
    address: str, new_page: Callable[..., Page], axe: str, place, scheme: str
) -> None:
    page = new_page(f"{address}/{place.url_path}", color_scheme=scheme)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.get_by_test_id("stStatusWidget")).to_have_count(0)
    page.evaluate(FADED_IN)
    page.evaluate(axe)
    violations = page.evaluate("async () => (await axe.run()).violations")
    assert [
        (violation["id"], violation["impact"], node["target"], node["any"] and node["any"][0]["message"])
        for violation in violations
        if violation["impact"] in FAILING
        for node in violation["nodes"]
    ] == []


def test_the_buttons_of_a_figure_cover_no_legend_on_a_phone(address: str, new_page: Callable[..., Page]) -> None:
    page = new_page(f"{address}/local", viewport={"width": 390, "height": 1600})
    figure = page.locator(".js-plotly-plot:has(g.legend):has(.modebar-btn)").first
    expect(figure).to_be_visible()
    figure.hover()
    buttons, legend = (figure.locator(part).bounding_box() for part in (".modebar", "g.legend"))
    assert buttons["y"] + buttons["height"] <= legend["y"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
