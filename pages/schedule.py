"""Schedule, the home page: draw a noise schedule and watch epsilon follow."""

import streamlit as st

from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.schedule.page import schedule_page

ensure_navigation()
with st.container(horizontal=True, vertical_alignment="center"):
    st.title("Draw a noise schedule")
    st.page_link("pages/guide.py", label=":primary[What ε means]", width="content")
st.markdown(
    "**dpviz** shows what private training costs and what it gains. *Epsilon* (ε) bounds how much a trained model can "
    "reveal about any one person in its data: draw more noise σ, and ε falls."
)
schedule_page()
