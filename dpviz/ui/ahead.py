"""The code that draws figures, loaded while nobody is busy: it takes a browser a second, and most pages need it."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dpviz.ui.front import script

_mount = st.components.v2.component(
    "dpviz_ahead", js=Path(__file__).with_suffix(".js").read_text(encoding="utf-8"), isolate_styles=False
)


def load_figures_ahead() -> None:
    """Ask the browser for it; where the file is not found, it is loaded with the first figure as usual."""
    path = script("PlotlyChart")
    if path is not None:
        _mount(key="ahead", data=[f".{path}"])
