"""Schedule, the home page: draw a noise schedule and watch epsilon follow."""

import streamlit as st

from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.schedule.page import schedule_page

ensure_navigation()
st.title("Draw a noise schedule")
st.caption(
    "One noise multiplier σ for each epoch. Epsilon follows the pen; when you let go, a certified number replaces it."
)
schedule_page()
