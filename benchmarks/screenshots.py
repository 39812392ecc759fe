"""Pictures of every page, light and dark, for docs/images: `python -m benchmarks.screenshots`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from dpviz.ui.common.navigation import PAGES
from tests.browser import CHROMIUM_ARGUMENTS, ROOT, chromium_path, start_server, stop_server

IMAGES = ROOT / "docs" / "images"
UNFINISHED = "[data-testid=stStatusWidget], [data-testid=stSkeleton], [data-stale=true]"
RECIPE = "losing-less/mnist-o-t-cnn"  # what the Train page shows
CALM = 6  # half seconds in a row without a sign of work


def _settle(page: Page) -> None:
    """Until the page has been whole for a while: one part's end may be the next one's beginning."""
    calm = 0
    while calm < CALM:
        page.wait_for_timeout(500)
        calm = 0 if page.locator(UNFINISHED).count() else calm + 1


def main() -> None:
    expect.set_options(timeout=60_000)
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        env = {"DPVIZ_RUNS": folder}
        train = [sys.executable, "-m", "dpviz", "train", "--recipe", RECIPE, "--epochs", "5"]
        subprocess.run(train, cwd=ROOT, env=os.environ | env, check=True)
        process, url = start_server(ROOT / "app.py", env, Path(folder) / "server.log")
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(CHROMIUM_ARGUMENTS))
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
            for entry in PAGES:
                page = context.new_page()
                page.goto(f"{url}/{entry.url_path}")
                expect(page.get_by_role("heading").first).to_be_visible()
                expect(page.locator("svg.plot, .js-plotly-plot").first).to_be_visible()
                _settle(page)
                page.screenshot(path=IMAGES / f"{entry.url_path or 'schedule'}-{scheme}.png")
                page.close()
            context.close()
        browser.close()
        stop_server(process)


if __name__ == "__main__":
    main()
