"""The Compare page's parts: its scene, the answer, the figure, and what differs."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
import streamlit as st

from dpviz.training.spec import RunSpec
from dpviz.ui.common.markdown import plain
from dpviz.ui.compare import state
from dpviz.ui.compare.data import Material, filtered
from dpviz.ui.compare.link import EXPERIMENT, Comparison
from dpviz.views.comparison.answer import Answer, answers
from dpviz.views.comparison.experiments import unplaced
from dpviz.views.comparison.figures import curves_figure
from dpviz.views.comparison.marks import Mark, coloured, marks_by, marks_of
from dpviz.views.comparison.scene import NAME_SIZE, Scene
from dpviz.views.comparison.settings import differing_frame
from dpviz.views.comparison.table import baselines, experiment_table, first_sight, with_differences
from dpviz.views.comparison.views import VIEWS

CONTAINER = "compare_figure"
# In a narrow window names at the ends of curves would cover them; the table below is the legend. Plotly gives names
# and panel titles the same class: they differ in size.
NARROW = f"""<style>@media (max-width: 640px) {{
.st-key-{CONTAINER} .annotation:has([style*="font-size: {NAME_SIZE}px"]) {{ display: none; }} }}</style>"""


def nothing() -> None:
    st.info("Nothing to compare yet: choose another dataset or paper, show reported results, or train a run.")
    st.page_link("pages/train.py", label="Train a run", icon=":material/play_arrow:")


def scene_of(whole: Material, shown: Comparison) -> Scene:
    """What passes the filters, at the cursor, with its marks."""
    chosen = filtered(whole, shown)
    rows = whole.rows[whole.rows["group"].isin(chosen.index)]
    folded = whole.folded[whole.folded["group"].isin(chosen.index)]
    table = experiment_table(chosen, rows, shown.at, shown.column)
    base = baselines(table, whole.settings, shown.baseline)
    table = with_differences(table, base)
    picked = [group for group in shown.highlight if group in table.index] or first_sight(table, base)
    slots = state.slots(picked)
    marks = marks_of(slots)
    legend: dict[str, Mark] = {}
    if shown.colour != EXPERIMENT and shown.colour in whole.settings:
        by_value, legend = marks_by(whole.settings[shown.colour], shown.colour)
        marks = coloured(by_value, slots)
        legend = {value: mark for value, mark in legend.items() if mark in marks.values()}
    return Scene(
        rows,
        folded,
        table,
        whole.settings,
        marks,
        base,
        legend,
        budget=shown.at,
        epsilon=shown.epsilon,
        log=shown.log,
        facet=shown.facet,
        rest=shown.rest,
        specs={group: spec for group, spec in whole.data.specs.items() if isinstance(spec, RunSpec)},
    )


def lost_note(whole: Material, shown: Comparison) -> None:
    """A link may name curves that this server does not have; it says so instead of showing nothing."""
    lost = [group for group in (*shown.highlight, shown.baseline) if group and group not in whole.experiments.index]
    if lost:
        st.warning(
            f"This link shows {len(lost)} {'curve' if len(lost) == 1 else 'curves'} that this server does not have, "
            "for example runs that were made elsewhere or deleted. The rest is shown."
        )


def audit_note(scene: Scene) -> None:
    """Runs whose audit contradicts their epsilon are named before anything is said of them."""
    refuted = scene.table[scene.table["refuted"]]
    if len(refuted):
        names = "; ".join(plain(label) for label in refuted["label"][:5])
        st.error(f"**The audit failed: the proven ε does not hold** for {names}. The Train page says what was found.")


def answer(scene: Scene) -> list[Answer]:
    """The answer to the question, per dataset, and beneath it how far it can be trusted."""
    per_dataset = answers(scene.table, scene.base, scene.budget, scene.epsilon)
    for one in per_dataset:
        st.markdown(_safe(one.headline))
        if one.details:
            st.caption(_safe(one.details))
    return per_dataset


def _safe(paragraph: str) -> str:
    """Bold as it is, everything else as it was typed."""
    return "**".join(plain(part) for part in paragraph.split("**"))


# --- figure


def figure_of(scene: Scene, shown: Comparison) -> tuple[Any, pd.DataFrame]:
    """Draw the chosen view; its figure and the rows behind it, for download."""
    view = VIEWS[shown.view]
    frame = view.frame(scene)
    figure = view.figure(frame, scene)
    st.html(NARROW)
    with st.container(key=CONTAINER):
        config = {"displayModeBar": "hover", "displaylogo": False}
        alt = f"{view.title}: {len(scene.table)} curves, {len(scene.marks)} in colour"
        if view.cursor:
            clicks: dict[str, Any] = {"on_select": state.take_click, "selection_mode": "points"}
        else:
            clicks = {}
        st.plotly_chart(figure, key=state.FIGURE, config=config, alt=alt, **clicks)
    note = view.note(frame, scene)
    if note:
        st.caption(plain(note))
    return figure, frame


def left_out_note(scene: Scene, shown: Comparison) -> None:
    """What has no place against epsilon, and why."""
    missing = unplaced(scene.folded, scene.column) if VIEWS[shown.view].needs_epsilon else []
    if missing:
        many = f"{len(missing)} curves are" if len(missing) > 1 else "1 curve is"
        with st.expander(f"{many} not in this view: no guarantee, an infinite ε, or none printed"):
            st.markdown("\n".join(f"- {plain(label)}" for label in missing[:200]))


# --- what differs


def what_differs(scene: Scene) -> None:
    """The settings in which the coloured curves differ, side by side, and their schedules laid over one another."""
    groups = [group for group in scene.marks if group in scene.table.index][:8]
    if len(groups) < 2:
        return
    with st.expander("What differs", key="compare.differs", on_change="rerun") as drawer:
        if not drawer.open:
            return
        frame = differing_frame(scene.settings, groups, list(scene.table["short"][groups]))
        if frame.empty:
            st.caption("The coloured curves have the same settings.")
        else:
            st.table(frame)
        st.plotly_chart(schedules_figure(scene), key="compare.schedules", alt="Schedules of the coloured curves")


def schedules_figure(scene: Scene) -> Any:
    rows = scene.folded[scene.folded["group"].isin(scene.marks)]
    return curves_figure(rows, dataclasses.replace(scene, rest=False), "epoch", "noise_multiplier")
