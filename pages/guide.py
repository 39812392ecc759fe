"""Guide: what epsilon means, how to read each page, and the ways to read a number wrongly."""

import streamlit as st

from dpviz.privacy import InputError
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.guide.page import EPSILON, choose_example, meaning, pages_table, pitfalls, spending

ensure_navigation()
st.title("Guide")
st.markdown(EPSILON)
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
