"""“Check it” on the Schedule page: six real runs in the background, and the sentence at their end, in a Chromium."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from dpviz.forecast.check import difference_of, last_check
from dpviz.forecast.library import OWN, settings_key, shelf, write
from dpviz.papers import recipe
from dpviz.runs import Store
from dpviz.ui.schedule.settings import Settings
from dpviz.ui.schedule.share import encode
from tests.browser import ROOT
from tests.views.made_runs import keep, made_run

WAIT = 240_000  # milliseconds, for torch and six short runs on a busy machine
SMALL = {"dataset": "breast-cancer", "subset": 0, "batch_size": 91, "sigma": 2.0}


def test_a_suggestion_is_checked_in_the_background_and_outlives_a_reload(
    serve: Callable[..., str], new_page: Callable[..., Page], tmp_path
) -> None:
    folder = tmp_path / "runs"
    pilot = made_run(**SMALL)
    keep(folder, pilot)
    spec = pilot.own_spec
    curricula = shelf().of(recipe("curricula/constant-1.54").spec)
    known = {"recipe": "small", "settings": settings_key(spec), "dataset": spec.dataset, "batch_size": spec.batch_size}
    short = {name: getattr(curricula, name)[:5] for name in ("half_widths", "seed_scatter")}  # five epochs at most
    write(dataclasses.replace(curricula, **known, **short, runs=(spec.key,)), folder / OWN)

    settings = Settings(dataset=spec.dataset, dataset_size=spec.size, batch_size=spec.batch_size, epochs=5, delta=1e-4)
    url = serve(ROOT / "app.py", {"DPVIZ_RUNS": str(folder), "OMP_NUM_THREADS": "1"})
    page = new_page(f"{url}/?s={encode([2.0] * 5, settings.to_link())}", viewport={"width": 1500, "height": 1400})
    page.get_by_role("button", name="Suggest", exact=True).click()
    expect(page.get_by_text("Pinned as “suggested” after")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Check it").click()
    expect(page.get_by_text("Check of a suggestion")).to_be_visible(timeout=WAIT)
    page.reload()
    sentence = page.get_by_text(re.compile("^Suggested against constant noise over 3 new seeds"))
    expect(sentence).to_be_visible(timeout=WAIT)
    expect(page.locator(".legend")).to_contain_text("suggested")  # the pin outlives the reload too

    store = Store(folder)
    check = last_check(store, spec.dataset)
    runs = [store.get(run_id) for run_id in check.runs]
    assert {run.status for run in runs} == {"done"}
    assert all(0 < run.epochs[-1].epsilon_sound <= 2.0 for run in runs)
    expect(sentence).to_have_text(check.words(difference_of(runs)))
    page.get_by_role("link", name="Compare these runs").click()
    expect(page.get_by_role("heading", name="Compare", exact=True)).to_be_visible(timeout=WAIT)
    page.go_back()
    page.get_by_role("button", name="Dismiss").click(timeout=WAIT)
    expect(sentence).to_have_count(0, timeout=WAIT)
    assert last_check(store, spec.dataset) is None
    assert len(store.list().runs) == 7
