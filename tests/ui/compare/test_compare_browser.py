"""Compare in a real browser with two hundred runs: from the question to the answer, and what a person takes away."""

from __future__ import annotations

import io
import itertools
import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Page, expect
from scipy import stats

from dpviz.runs import Store
from dpviz.views.comparison.experiments import group_of
from tests.browser import ROOT
from tests.views.made_runs import keep, made_run

WAIT = 120_000  # a busy machine is no reason to fail
SEEDS = 4


@pytest.fixture(scope="module")
def crowded(serve, tmp_path_factory) -> tuple[str, Path]:
    """A server with two hundred runs of twenty epochs on two datasets: constant noise and clipping by AUTO-S."""
    folder = tmp_path_factory.mktemp("crowded")
    random = np.random.default_rng(2)
    for k in range(25):
        for seed in range(SEEDS):
            changes = {"epochs": 20, "sigma": 1.0 + k / 20, "seed": seed}
            best = 0.8 + k / 1000 + random.normal(0, 0.002)
            keep(folder / "runs", made_run(best=best, dataset="fashion-mnist", **changes))
            keep(
                folder / "runs",
                made_run(best=best + 0.05 - k / 500, dataset="fashion-mnist", clipping="auto-s", **changes),
            )
    keep(folder / "runs", made_run(title="Digits"))  # the newest run decides on what the page opens
    env = {"DPVIZ_RUNS": str(folder / "runs"), "DPVIZ_CACHED_RUNS": str(folder / "cached")}
    return serve(ROOT / "app.py", env), folder / "runs"


def reached(folder: Path, epsilon: float) -> dict[str, dict[int, float]]:
    """Group -> seed -> accuracy at the last epoch within epsilon on Fashion-MNIST, from the files alone."""
    store, accuracies = Store(folder), {}
    for summary in store.list().runs:
        run = store.get(summary.id)
        inside = [record for record in run.epochs if record.epsilon_sound <= epsilon]
        if run.spec.dataset == "fashion-mnist" and inside:
            label = (run.spec.clipping, run.spec.schedule)
            accuracies.setdefault(label, {})[run.spec.seed] = 100 * inside[-1].test_accuracy
    return accuracies


def figure(page: Page):
    return page.locator(".st-key-compare_figure .js-plotly-plot .main-svg").first


def test_best_at_epsilon_2_on_fashion_mnist_and_by_how_much_over_constant_noise(crowded, new_page):
    """One click, on the dataset: the epsilon is 2 and the baseline plain DP-SGD with constant noise already."""
    url, folder = crowded
    accuracies = reached(folder, 2.0)
    means = {label: np.mean(list(values.values())) for label, values in accuracies.items()}
    best = max(means, key=means.get)
    baseline = max((label for label in means if label[0] == "flat"), key=means.get)
    ours, theirs = (np.array([accuracies[label][seed] for seed in range(SEEDS)]) for label in (best, baseline))
    interval = stats.ttest_rel(ours, theirs).confidence_interval(0.95)

    page = new_page(f"{url}/compare")
    page.get_by_role("radio", name="Fashion-MNIST").click(timeout=WAIT)
    answer = page.get_by_text(re.compile("At ε ≤ 2 on Fashion-MNIST the best is")).first
    expect(answer).to_be_visible(timeout=WAIT)
    words = answer.inner_text()
    assert f"{ours.mean():.2f} % ± {ours.std(ddof=1):.2f} ({SEEDS} seeds)" in words
    assert f"{(ours - theirs).mean():.2f} points above" in words
    assert f"95 % interval {interval.low:.2f} to {interval.high:.2f}, same seeds" in words
    expect(page.get_by_text(f"Allowing for its choice among {len(means)}")).to_be_visible()


def test_first_sight_draws_two_hundred_runs_with_at_most_eight_in_colour_and_named(crowded, new_page):
    url, _ = crowded
    page = new_page(f"{url}/compare?dataset=fashion-mnist")
    expect(figure(page)).to_be_visible(timeout=WAIT)
    names = page.locator(".js-plotly-plot .annotation")
    expect(names.first).to_be_visible(timeout=WAIT)
    assert 2 <= names.count() <= 8
    boxes = sorted(
        (box["y"], box["height"]) for box in (names.nth(k).locator("text").bounding_box() for k in range(names.count()))
    )
    assert all(low + height <= high + 3 for (low, height), (high, _) in itertools.pairwise(boxes))


@pytest.mark.speed
def test_two_hundred_runs_are_drawn_within_two_seconds(crowded, new_page):
    url, _ = crowded
    page = new_page(f"{url}/guide")
    seconds = []
    for _ in range(5):
        page.get_by_test_id("stTopNavLink").filter(has_text="Guide").click()
        expect(page.get_by_role("heading", name="Guide", exact=True)).to_be_visible(timeout=WAIT)
        expect(figure(page)).to_have_count(0, timeout=WAIT)
        began = time.monotonic()
        page.get_by_test_id("stTopNavLink").filter(has_text="Compare").click()
        figure(page).wait_for(timeout=WAIT)
        seconds.append(time.monotonic() - began)
        if seconds[-1] <= 2:
            break
    # Other work on the machine makes single visits slow; the page itself is as fast as the fastest.
    assert min(seconds) <= 2, seconds


def test_a_click_in_the_figure_moves_the_cursor(crowded, new_page):
    url, _ = crowded
    page = new_page(f"{url}/compare?dataset=fashion-mnist&at=0.5")
    expect(page.get_by_text(re.compile("At ε ≤ 0.5 on Fashion-MNIST")).first).to_be_visible(timeout=WAIT)
    ticks = page.locator(".js-plotly-plot .scatterlayer .trace").last.locator(".points path")
    expect(ticks.nth(10)).to_be_attached(timeout=WAIT)  # a line without a width is hidden to Playwright
    hover = page.locator(".hoverlayer .hovertext")
    for _ in range(40):  # the page may still be moving under the pointer
        box = ticks.nth(ticks.count() // 2).bounding_box()
        page.mouse.move(box["x"] - 3, box["y"] + box["height"] / 2 - 2)
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_timeout(500)
        if hover.count():
            break
    page.mouse.down()
    page.mouse.up()
    expect(page.get_by_text(re.compile(r"At ε ≤ (?!0\.5 )\S+ on Fashion-MNIST")).first).to_be_visible(timeout=WAIT)


def test_a_row_that_is_ticked_in_the_table_is_drawn_in_colour(crowded, new_page):
    url, _ = crowded
    group = group_of(made_run(epochs=20, sigma=1.5, dataset="fashion-mnist"))
    page = new_page(f"{url}/compare?dataset=fashion-mnist&highlight={group}", viewport={"width": 1100, "height": 1500})
    names = page.locator(".js-plotly-plot .annotation")
    expect(names).to_have_count(1, timeout=WAIT)
    expect(names.first).to_contain_text("1.5")
    canvas = page.get_by_test_id("stDataFrame").locator("canvas").first
    box = canvas.bounding_box()
    page.mouse.click(box["x"] + 16, box["y"] + 35 + 18)  # the first row's box: the best at this epsilon
    expect(names).to_have_count(2, timeout=WAIT)


def test_the_link_shows_the_same_in_a_new_session(crowded, new_page):
    url, _ = crowded
    page = new_page(f"{url}/compare?dataset=fashion-mnist&at=1.5&colour=clipping")
    page.get_by_role("radio", name="Frontier").click(timeout=WAIT)
    expect(page.get_by_text("from low to high epsilon")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Link to this view").click()
    page.wait_for_url("**view=frontier**", timeout=WAIT)
    assert "at=1.5" in page.url
    other = new_page(page.url)
    expect(other.get_by_text("from low to high epsilon")).to_be_visible(timeout=WAIT)
    expect(other.get_by_text(re.compile("At ε ≤ 1.5 on Fashion-MNIST")).first).to_be_visible(timeout=WAIT)


FILES = {"CSV": b"group,", "Report": b"<!doctype", "Markdown": b"# Comparison", "PNG": b"\x89PNG", "SVG": b"<svg"}


@pytest.mark.parametrize(("button", "first"), FILES.items())
def test_files_are_made_when_asked_for(crowded, new_page, button, first):
    url, _ = crowded
    page = new_page(f"{url}/compare?dataset=fashion-mnist", color_scheme="dark")
    expect(figure(page)).to_be_visible(timeout=WAIT)
    with page.expect_download(timeout=WAIT) as waiting:
        page.get_by_role("button", name=button, exact=True).click(timeout=WAIT)
    content = Path(waiting.value.path()).read_bytes()
    assert content.startswith(first)
    if button == "CSV":
        assert pd.read_csv(waiting.value.path())["group"].nunique() >= 50
    if button == "PNG":
        from PIL import Image

        assert Image.open(io.BytesIO(content)).convert("RGB").getpixel((3, 3)) == (255, 255, 255)


def test_in_a_narrow_window_the_table_is_the_legend(crowded, new_page):
    url, _ = crowded
    page = new_page(f"{url}/compare?dataset=fashion-mnist", viewport={"width": 390, "height": 900})
    names = page.locator(".js-plotly-plot .annotation")
    expect(names.first).to_be_attached(timeout=WAIT)
    expect(names.filter(visible=True)).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1100, "height": 900})
    expect(names.first).to_be_visible(timeout=WAIT)
    panels = new_page(f"{url}/compare?dataset=all", viewport={"width": 390, "height": 900})
    titles = panels.locator(".js-plotly-plot .annotation").filter(visible=True)
    expect(titles.filter(has_text="Fashion-MNIST")).to_have_count(1, timeout=WAIT)
    expect(titles.filter(has_text="constant")).to_have_count(0)
