"""Pictures of every page, light and dark, for docs/images: `python -m benchmarks.screenshots`."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from dpviz.ui.shell import places
from tests.ui.conftest import CHROMIUM_ARGUMENTS, ROOT, chromium_path, start_server, stop_server

IMAGES = ROOT / "docs" / "images"


def main() -> None:
    expect.set_options(timeout=60_000)
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        env = {"DPVIZ_RUNS": os.environ.get("DPVIZ_RUNS", folder)}
        process, url = start_server(ROOT / "app.py", env, Path(folder) / "server.log")
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(CHROMIUM_ARGUMENTS))
        for scheme in ("light", "dark"):
            context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
            for place in places():
                page = context.new_page()
                page.goto(f"{url}/{place.url_path}")
                expect(page.get_by_role("heading").first).to_be_visible()
                page.wait_for_timeout(2000)
                expect(page.locator("[data-testid=stStatusWidget], [data-testid=stSkeleton]")).to_have_count(0)
                page.wait_for_timeout(2000)
                page.screenshot(path=IMAGES / f"{place.url_path or 'schedule'}-{scheme}.png")
                page.close()
            context.close()
        browser.close()
        stop_server(process)


if __name__ == "__main__":
    main()
