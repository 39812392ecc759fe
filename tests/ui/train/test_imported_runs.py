"""Imported runs on the pages: on Train with their mark and their guarantee, on Compare beside the others, and live."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

import dpviz
from dpviz.privacy import InputError
from dpviz.runs import Store
from dpviz.ui.compare.link import link_to, parse_link
from dpviz.views.comparison.experiments import comparison_data, fold
from dpviz.views.comparison.report import _about
from dpviz.views.runs import run_name
from tests.browser import ROOT
from tests.page_words import page_words
from tests.views.made_runs import keep, made_run

WAIT = 120_000


def tracked(folder, *, dataset="hospital", name="My CNN", **facts):
    """An imported run of two epochs: noise 2, then 1."""
    steps = []
    with dpviz.track(ledger=steps, delta=1e-5, store=folder, dataset=dataset, name=name, **facts) as run:
        for sigma in (2.0, 1.0):
            steps.append((sigma, 0.1, 10))
            run.log(test_accuracy=0.8 / sigma, epsilon=9.0)
    return Store(folder).get(run.id)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return tmp_path / "runs"


def open_page(name: str) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    at.switch_page(f"pages/{name}.py").run()
    assert not at.exception
    return at


def test_train_shows_an_imported_run_with_its_mark_its_guarantee_and_no_way_to_train_it_again(folder):
    keep(folder, made_run(title="Trained here"))
    run = tracked(folder, model="<b>net", learning_rate=0.25)
    at = open_page("train")
    words = "\n".join(element.value for element in (*at.markdown, *at.caption))
    assert "violet-badge[imported]" in words
    assert "learning_rate 0.25" in words.replace("\\", "")
    assert "<b>net" not in words
    assert "dpviz did not see it" in words
    labels = {button.label for button in at.button}
    assert not labels & {"Resume", "Duplicate", "Repeat with diagnostics", "Stop"}
    shown = {metric.label: metric.value for metric in at.metric}
    assert shown["Epochs"] == "2"
    assert shown["Claimed ε spent"] == "9.000"
    assert shown["Test accuracy"] == "80.00 %"
    (table,) = (frame.value for frame in at.dataframe if "status" in frame.value)
    assert list(table["name"]) == [f"{run.title} (imported)", "Trained here"]


@pytest.mark.parametrize("dataset", ["mnist", "hospital", ""])
def test_compare_has_an_imported_run_beside_the_others(dataset, folder):
    keep(folder, made_run(title="Trained here"))
    run = tracked(folder, dataset=dataset, name="", batch_size=64, ward="B")
    link = link_to([run])
    assert parse_link(link).dataset == (dataset if dataset == "mnist" else "all")
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    at.switch_page("pages/compare.py")
    for name, value in link.items():
        at.query_params[name] = value
    at.run()
    assert not at.exception
    assert f"{run_name(run)} — imported run" in page_words(at) + str([frame.value for frame in at.dataframe])


def test_an_imported_run_is_a_group_of_its_own_with_the_settings_that_it_names(folder):
    runs = [tracked(folder, batch_size=64, ward="B"), tracked(folder, batch_size=64), made_run()]
    data = comparison_data(runs)
    groups = [f"imported/{run.id}" for run in runs[:2]]
    assert list(data.settings.loc[groups[0], ["batch_size", "noise", "source"]]) == [64, "2 to 1", "Imported runs"]
    assert "ward" not in data.settings
    folded = fold(data.rows)
    assert list(folded[folded["group"] == groups[0]]["test_accuracy"]) == [40.0, 80.0]
    assert folded["label"].nunique() == 3
    texts = " ".join(text for text, _ in _about({}, data.specs[groups[0]], data.origins[groups[0]]))
    assert "as logged: claimed ε ≤ 9" in texts
    assert "imported, own ledger" in texts


def test_an_imported_run_has_no_settings_to_train_with(folder):
    with pytest.raises(InputError, match="neither resumed nor trained again"):
        _ = tracked(folder).own_spec


def test_an_opacus_script_is_seen_live_on_train_and_compare_and_interrupted_when_it_is_killed(
    serve, new_page, tmp_path
):
    env = {"DPVIZ_RUNS": str(tmp_path / "runs"), "DPVIZ_CACHED_RUNS": str(tmp_path / "cached"), "OMP_NUM_THREADS": "1"}
    page = new_page(f"{serve(ROOT / 'app.py', env)}/train")
    expect(page.get_by_text("No runs yet.")).to_be_visible(timeout=WAIT)
    script = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "track_opacus.py"), "--epochs", "500"],
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdout=subprocess.DEVNULL,
    )
    try:
        expect(page.get_by_text(re.compile(r"running in another process, epoch \d+ of 500"))).to_be_visible(
            timeout=WAIT
        )
        card = page.get_by_text("Guarantee of the logged steps")
        expect(card).to_be_visible(timeout=WAIT)  # after the first epoch, without a reload
        expect(page.get_by_text("imported", exact=True).first).to_be_visible()
        page.get_by_role("link", name="Compare", exact=True).last.click()
        name = page.locator(".js-plotly-plot").get_by_text(re.compile("Opacus, digits")).first
        expect(name).to_be_visible(timeout=WAIT)
        page.go_back()
        expect(card).to_be_visible(timeout=WAIT)
        script.send_signal(signal.SIGKILL)
        script.wait()
        expect(page.get_by_text("what it did after its last log is unknown")).to_be_visible(timeout=WAIT)
        run = Store(tmp_path / "runs").get(Store(tmp_path / "runs").list().runs[0].id)
        assert (run.status, run.kind) == ("interrupted", "imported")
        assert run.epochs
    finally:
        script.kill()
        script.wait()
