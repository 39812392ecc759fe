"""A toy view of Compare, added by the README's recipe alone: it is in the page, in links and in its files."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
from streamlit.testing.v1 import AppTest

from dpviz.ui.compare.link import Comparison, parse_link, to_link
from dpviz.views.comparison import views
from dpviz.views.comparison.scene import Scene
from dpviz.views.comparison.views import VIEWS, View
from tests.browser import ROOT
from tests.views.made_runs import keep, made_run


def toy_frame(scene: Scene) -> pd.DataFrame:
    return scene.table[["short", "accuracy"]]


def toy_figure(frame: pd.DataFrame, scene: Scene) -> go.Figure:
    return go.Figure(go.Bar(x=frame["short"], y=frame["accuracy"]))


def toy_note(frame: pd.DataFrame, scene: Scene) -> str:
    return f"{len(frame)} bars"


def test_a_view_is_one_entry(tmp_path, monkeypatch):
    assert views.__file__.removeprefix(f"{ROOT}/") in (ROOT / "README.md").read_text()
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    monkeypatch.setitem(VIEWS, "toy", View("toy", "Toy bars", toy_frame, toy_figure, note=toy_note))
    keep(tmp_path / "runs", made_run())
    shown = Comparison(view="toy", show=("own",))
    assert parse_link(to_link(shown)) == shown

    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=120)
    at.query_params.update(to_link(shown))
    at.switch_page("pages/compare.py").run()
    assert not at.exception
    assert "Toy bars" in at.segmented_control(key="compare.view").options
    assert any(caption.value == "1 bars" for caption in at.caption)
    assert next(chart.proto.alt for chart in at.get("plotly_chart")).startswith("Toy bars")
