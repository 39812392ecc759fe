"""Papers: what the papers propose and report, what was measured here, and what holds."""

import streamlit as st

from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.papers.page import choose_paper, place_of, proposal, tables, warnings, what_holds

ensure_navigation()
st.title("Papers")
paper = choose_paper()
with place_of(paper):
    proposal(paper)
    st.header("What holds")
    what_holds(paper)
    st.header("Reported and measured")
    tables(paper)
    warnings()
