"""Guide: what epsilon means, how to read each page, and the ways to read a number wrongly."""

import streamlit as st

from dpviz.privacy import InputError
from dpviz.ui.cards import input_error
from dpviz.ui.guide_page import choose_example, meaning, pages_table, pitfalls, spending
from dpviz.ui.shell import ensure_navigation

ensure_navigation()
st.title("Guide")
st.header("What epsilon means")
meaning()
spending()
st.header("How to read the pages")
pages_table()
st.header("Ways to read a number wrongly")
try:
    pitfalls(choose_example())
except InputError as error:
    input_error(error)
