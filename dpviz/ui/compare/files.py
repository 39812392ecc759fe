"""What a person takes away from Compare: files and a link."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from dpviz.ui.common.downloads import FileFormat, download_buttons
from dpviz.ui.common.export_figures import FIGURE_FORMATS, printable
from dpviz.ui.common.image_buttons import image_buttons
from dpviz.ui.compare import state
from dpviz.ui.compare.data import Material
from dpviz.ui.compare.link import Comparison, to_link
from dpviz.ui.compare.page import CONTAINER, schedules_figure
from dpviz.views.comparison.answer import Answer
from dpviz.views.comparison.report import HTML, MARKDOWN, Format, Report, report_text
from dpviz.views.comparison.scene import Scene
from dpviz.views.comparison.views import VIEWS

REPORT_HELP = "One page for a co-author: answer, figures, table, guarantees, settings, origins."
MARKDOWN_HELP = "The report as text, without figures."


def files(
    scene: Scene, shown: Comparison, figure: Any, frame: pd.DataFrame, answers: Sequence[Answer], whole: Material
) -> None:
    """What a person takes away."""
    name = f"dpviz-{shown.view}"

    def report(form: Format) -> bytes:
        figures = [(VIEWS[shown.view].title, printable(figure)), ("Schedules", printable(schedules_figure(scene)))]
        link = urlencode(to_link(_linked(shown, scene)))
        page = Report(
            "Comparison of private training runs", answers, figures, whole.data.specs, whole.data.origins, link
        )
        return report_text(page, scene, form).encode()

    reports = (
        FileFormat("Report", "{name}-report.html", "text/html", partial(report, HTML), help=REPORT_HELP),
        FileFormat("Markdown", "{name}-report.md", "text/markdown", partial(report, MARKDOWN), help=MARKDOWN_HELP),
    )
    with st.container(horizontal=True):
        share_button(_linked(shown, scene))
        download_buttons(FIGURE_FORMATS, name, _csv_rows(frame), figure)
        download_buttons(reports, name)
        image_buttons(CONTAINER, name)


def _csv_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without what only the page needs."""
    rows = frame.reset_index(names="group") if frame.index.name == "group" else frame
    return rows.drop(columns=["values", "curve"], errors="ignore")


def _linked(shown: Comparison, scene: Scene) -> Comparison:
    """What the link says: the colours as they are now, also if nobody chose them."""
    return dataclasses.replace(shown, cells=scene.cells)


def share_button(shown: Comparison) -> None:
    """Write the page's choices into the address; only then, since each write is a step in the browser's history."""
    if st.button("Link to this view", help="Writes everything that is chosen here into the address, to copy."):
        st.query_params.from_dict(to_link(shown))
        st.session_state[state.OPENED] = to_link(shown)
        st.toast("The address now holds this view; copy it from the browser.")
