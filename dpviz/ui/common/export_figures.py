"""Figures and their data as files: CSV, a page that needs no network, and PNG where kaleido is installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

NOT_COVERED = {name: f"{name} (not covered by epsilon)" for name in ("train_accuracy", "train_loss")}
FORMULA = ("=", "+", "-", "@", "\t", "\r")
NO_KALEIDO = "PNG needs the package kaleido and a Chrome or Chromium; the camera above the plot works without."


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
    safe = {name: frame[name].map(_no_formula) for name in words}
    return frame.assign(**safe).rename(columns=NOT_COVERED).to_csv(index=False).encode()


def _no_formula(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in FORMULA else value


def as_html(figure: Any) -> bytes:
    """The figure as one page with everything in it, so that it opens without a network."""
    page: str = printable(figure).to_html(include_plotlyjs=True, full_html=True)
    return page.encode()


def as_png(figure: Any) -> bytes:
    image: bytes = printable(figure).to_image(format="png", width=1100, height=600, scale=2)
    return image


def has_kaleido() -> bool:
    return importlib.util.find_spec("kaleido") is not None


def download_row(name: str, frame: pd.DataFrame, figure: Any | None) -> None:
    """Buttons for each kind of file; the file is made when its button is pressed."""
    _download("CSV", lambda: as_csv(frame), f"{name}.csv", "text/csv", disabled=frame.empty)
    if figure is not None:
        _download("HTML", lambda: as_html(figure), f"{name}.html", "text/html", disabled=frame.empty)
        why = "" if has_kaleido() else NO_KALEIDO
        _download(
            "PNG", lambda: as_png(figure), f"{name}.png", "image/png", disabled=frame.empty or bool(why), help=why
        )


def _download(label: str, make: Callable[[], bytes], name: str, mime: str, *, disabled: bool, help: str = "") -> None:
    st.download_button(
        label, make, name, mime, key=f"download.{name}", on_click="ignore", disabled=disabled, help=help or None
    )
