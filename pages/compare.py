"""Compare: own runs, full-length runs and reported results, against epsilon, epochs and time."""

from __future__ import annotations

import streamlit as st

from dpviz.ui.common.downloads import download_buttons
from dpviz.ui.common.export_figures import FIGURE_FORMATS
from dpviz.ui.common.runs import show_warnings
from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.compare.page import (
    chosen_rows,
    filters,
    left_out_note,
    open_link,
    share_button,
    show_view,
    table_of_ends,
    view_controls,
)

ensure_navigation()
st.title("Compare")
open_link()
filters()
folded, warnings = chosen_rows()
shown = view_controls(folded)
if folded.empty:
    st.info("Nothing to compare yet: choose another dataset or paper above, show reported results, or train a run.")
    st.page_link("pages/train.py", label="Train a run", icon=":material/play_arrow:")
figure, rows = show_view(shown, folded)
left_out_note(shown, folded)
with st.container(horizontal=True):
    share_button(shown)
    download_buttons(FIGURE_FORMATS, f"dpviz-{shown.view}", rows, figure)
table_of_ends(folded)
show_warnings(warnings)
