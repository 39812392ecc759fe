"""Compare: own runs, full-length runs and reported results at one epsilon, with an answer and its uncertainty."""

from __future__ import annotations

import dataclasses

import streamlit as st

from dpviz.ui.common.runs import show_warnings
from dpviz.ui.common.shell import ensure_navigation
from dpviz.ui.compare import controls, page
from dpviz.ui.compare.data import material, newest_dataset
from dpviz.ui.compare.files import files
from dpviz.ui.compare.state import current, key, open_link
from dpviz.ui.compare.table import table_of
from dpviz.views.comparison.views import VIEWS

ensure_navigation()
st.title("Compare")
open_link(newest_dataset)
whole, warnings = material(st.session_state[key("group")])
page.lost_note(whole, current())
controls.question(whole)
above, figure_place = st.container(), st.container()
controls.filters(whole)
shown = current()
scene = page.scene_of(whole, shown)
if scene.table.empty:
    page.nothing()
with above:
    page.audit_note(scene)
    answers = page.answer(scene)
with figure_place:
    controls.view_choice()
    if VIEWS[shown.view].cells:
        scene = dataclasses.replace(scene, cells=controls.cell_choice(scene))
    figure, frame = page.figure_of(scene, shown)
table_of(scene)
page.what_differs(scene)
page.left_out_note(scene, shown)
files(scene, shown, figure, frame, answers, whole)
show_warnings(warnings)
