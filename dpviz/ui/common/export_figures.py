"""FIGURE_FORMATS: figures and their data as files. Pictures are made in the browser: image_buttons.py."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dpviz.runs.tracking.exporters import no_formula
from dpviz.ui.common.downloads import FileFormat

NOT_COVERED = {name: f"{name} (not covered by epsilon)" for name in ("train_accuracy", "train_loss")}


def printable(figure: Any) -> Any:
    """The figure on white with dark text: Streamlit's own template leaves colours for its browser code to fill in."""
    copy = type(figure)(figure)
    grid = {"gridcolor": "#e3e7ee", "zerolinecolor": "#e3e7ee", "linecolor": "#8a94a3"}
    copy.update_layout(template="plotly_white", paper_bgcolor="white", plot_bgcolor="white", font={"color": "#1c2430"})
    return copy.update_xaxes(**grid).update_yaxes(**grid)


def as_csv(frame: pd.DataFrame) -> bytes:
    """The rows behind the figure; what epsilon does not cover says so in its heading.

    A title that begins like a formula gets an apostrophe, so that a spreadsheet shows it and does not compute it.
    """
    words = frame.select_dtypes(["object", "string"]).columns
    safe = {name: frame[name].map(no_formula) for name in words}
    return frame.assign(**safe).rename(columns=NOT_COVERED).to_csv(index=False).encode()


def as_html(figure: Any) -> bytes:
    """The figure as one page with everything in it, so that it opens without a network."""
    page: str = printable(figure).to_html(include_plotlyjs=True, full_html=True)
    return page.encode()


def _no_rows(frame: pd.DataFrame, figure: Any | None) -> str:
    return "There are no rows to keep." if frame.empty else ""


def _no_figure(frame: pd.DataFrame, figure: Any | None) -> str:
    return "There is no picture here." if figure is None else _no_rows(frame, figure)


FIGURE_FORMATS: tuple[FileFormat[[pd.DataFrame, Any | None]], ...] = (
    FileFormat(
        "CSV", "{name}.csv", "text/csv", lambda frame, figure: as_csv(frame), _no_rows, "The rows behind the figure."
    ),
    FileFormat(
        "HTML",
        "{name}.html",
        "text/html",
        lambda frame, figure: as_html(figure),
        _no_figure,
        "The figure, to zoom and hover; it opens without a network.",
    ),
)
