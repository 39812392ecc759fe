"""Kinds of files: each says why it cannot be made, and its button is off then."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from dpviz.ui.common.export_figures import FIGURE_FORMATS

ROWS, NO_ROWS = pd.DataFrame({"epsilon": [1.0]}), pd.DataFrame({"epsilon": []})


@pytest.mark.parametrize(
    ("rows", "figure", "possible"),
    [
        (ROWS, go.Figure(), ["CSV", "HTML"]),
        (ROWS, None, ["CSV"]),
        (NO_ROWS, go.Figure(), []),
        (NO_ROWS, None, []),
    ],
    ids=["both", "a table without a picture", "a picture without rows", "neither"],
)
def test_a_figure_is_kept_in_every_format_that_it_has_enough_for(rows, figure, possible):
    assert [it.title for it in FIGURE_FORMATS if not it.why_not(rows, figure)] == possible


def page() -> None:
    from dpviz.ui.common.downloads import FileFormat, download_buttons

    formats = (
        FileFormat("Whole", "{name}.txt", "text/plain", str.encode),
        FileFormat("Short", "{name}.min", "text/plain", str.encode, lambda text: "It is too long."),
    )
    download_buttons(formats, "story", "Once upon a time")


def test_a_button_is_off_and_says_why_where_its_file_cannot_be_made():
    at = AppTest.from_function(page).run()
    assert not at.exception
    buttons = [element.proto for element in at.get("download_button")]
    assert [(it.label, it.disabled, it.help) for it in buttons] == [
        ("Whole", False, ""),
        ("Short", True, "It is too long."),
    ]
