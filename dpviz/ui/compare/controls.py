"""The controls of Compare: the question, filters, colours, and the way to look."""

from __future__ import annotations

import streamlit as st

from dpviz.papers import PAPERS
from dpviz.training.tables import DATASETS
from dpviz.ui.compare import state
from dpviz.ui.compare.data import Material, filtered
from dpviz.ui.compare.link import ALL, EPSILONS, EXPERIMENT, MOST_LETTERS
from dpviz.ui.compare.state import bound, key
from dpviz.views.comparison.experiments import SOURCES
from dpviz.views.comparison.scene import CURSORS, Scene
from dpviz.views.comparison.settings import paper_title, setting_title, varying
from dpviz.views.comparison.table import MEASURED, dataset_title
from dpviz.views.comparison.views import VIEWS, cell_settings

NOT_TUNED = ("dataset", "paper", "source", "noise", "sweep")  # seldom what a heat map is about
AUTOMATIC = "Automatic: plain DP-SGD, constant noise"


def question(whole: Material) -> None:
    """The question in three controls: where, at which epsilon, against what."""
    left, middle, right = st.columns([5, 4, 4], vertical_alignment="bottom")
    compared = {name for name in whole.experiments["dataset"] if name}
    names = sorted(compared, key=[*DATASETS, *sorted(compared)].index) or list(DATASETS)  # own data may be gone
    at, held = st.session_state[key("at")], st.session_state[key("dataset")]
    options = [*names, ALL] if held in (*names, ALL) else [*names, held, ALL]
    left.segmented_control(
        "Dataset",
        options,
        format_func=lambda name: "All" if name == ALL else dataset_title(name),
        required=True,
        **bound("dataset"),
    )
    spent = whole.experiments.loc[whole.experiments["dataset"].isin([held] if held != ALL else names), "spent_sound"]
    lowest, highest = (spent.min(), spent.max()) if spent.notna().any() else (0.1, 10.0)
    cursors = [value for value in CURSORS if lowest / 5 <= value <= min(highest, 50) * 1.2]
    middle.select_slider(
        "At an epsilon of at most",
        sorted({*cursors, at}),
        format_func=lambda value: f"{value:g}",
        help="Table, answer and the dotted line follow it. A click on a curve or on a tick below it sets it.",
        **bound("at"),
    )
    shown = filtered(whole, state.current())
    choices = list(shown.index[shown["source"].isin(MEASURED)])
    if st.session_state[key("baseline")] not in choices:
        st.session_state[key("baseline")] = ""
    labels = shown["label"].to_dict()
    right.selectbox(
        "Baseline",
        ["", *choices],
        format_func=lambda group: labels.get(group, AUTOMATIC),
        help="What all others are compared with, on its dataset.",
        **bound("baseline"),
    )


def filters(whole: Material) -> None:
    """What is shown at all, and what colours, groups and panels stand for."""
    with st.expander("Filter, colour, group"):
        left, middle, right = st.columns([5, 3, 3])
        left.segmented_control(
            "Show",
            list(SOURCES),
            selection_mode="multi",
            format_func=lambda source: SOURCES[source].many,
            **bound("show"),
        )
        middle.selectbox(
            "Paper",
            [ALL, *PAPERS],
            format_func=lambda name: "All and own settings" if name == ALL else paper_title(name),
            **bound("paper"),
        )
        right.text_input("Search", max_chars=MOST_LETTERS, placeholder="words in names and settings", **bound("search"))
        offered = [name for name in varying(whole.data.settings) if name != "noise"]
        for column, field, title, first in zip(
            st.columns(4),
            ("colour", "group", "facet"),
            ("Colour by", "Group by", "Panels by"),
            (EXPERIMENT, EXPERIMENT, "dataset"),
            strict=False,
        ):
            held = st.session_state[key(field)]
            options = list(dict.fromkeys([first, *offered, held]))
            column.selectbox(title, options, format_func=_setting_title, **bound(field))
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.segmented_control(
                "Epsilon",
                list(EPSILONS),
                format_func=EPSILONS.__getitem__,
                required=True,
                width="content",
                **bound("epsilon"),
            )
            st.toggle("Log axis", width="content", **bound("log"))
            st.toggle("Other curves in grey", width="content", **bound("rest"))


def _setting_title(name: str) -> str:
    return "Experiment" if name == EXPERIMENT else setting_title(name)


def view_choice() -> None:
    st.segmented_control(
        "View",
        list(VIEWS),
        format_func=lambda name: VIEWS[name].title,
        required=True,
        label_visibility="collapsed",
        **bound("view"),
    )


def cell_choice(scene: Scene) -> tuple[str, ...]:
    """The two settings of a heat map; without a choice the first two that vary."""
    offered = cell_settings(scene)
    chosen = [name for name in st.session_state[key("cells")] if name in offered]
    telling = [name for name in offered if name not in NOT_TUNED] + offered
    chosen += [name for name in dict.fromkeys(telling) if name not in chosen][: 2 - len(chosen)]
    if len(chosen) < 2:
        return ()
    columns = st.columns(4)
    down = columns[0].selectbox(
        "Down", offered, offered.index(chosen[0]), format_func=setting_title, key="compare.down"
    )
    across = columns[1].selectbox(
        "Across", offered, offered.index(chosen[1]), format_func=setting_title, key="compare.across"
    )
    st.session_state[key("cells")] = [down, across]
    return (down, across) if down != across else ()
