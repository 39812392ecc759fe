"""The Compare page's parts: its controls, what they choose, and each way to look at it."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from dpviz.papers import PAPERS, REPORTED
from dpviz.papers.records import TEST_ACCURACY
from dpviz.paths import runs_folder
from dpviz.privacy.registry import InputError
from dpviz.runs import CachedListing, Listing, Summary
from dpviz.training.tables import DATASETS
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.markdown import plain
from dpviz.ui.common.runs import cached, load_all, store
from dpviz.ui.compare.link import ALL, AT, EPSILONS, VIEWS, Comparison, parse_link, to_link
from dpviz.views.comparison import (
    comparison_frame,
    dataset_of,
    endpoints,
    equal_epsilon_frame,
    fold,
    frontier,
    log_fit,
    unplaced,
)
from dpviz.views.comparison_figures import (
    MOST_LIT,
    SOURCE_TITLES,
    comparison_figure,
    fit_figure,
    frontier_figure,
)
from dpviz.views.numbers import duration_words
from dpviz.views.runs import spent_words

OPENED = "compare.opened"
TABLE = "compare.table"
WITH_EPSILON = ("epsilon", "frontier", "fit", "equal")
WITH_LOG = ("epsilon", "frontier")


def key(field: str) -> str:
    return f"compare.{field}"


def open_link() -> None:
    """Take over what the address says, once for each address; a session's first visit starts from the defaults."""
    asked = dict(st.query_params)
    if st.session_state.get(OPENED) == asked:
        return
    first = OPENED not in st.session_state
    st.session_state[OPENED] = asked
    if not (asked or first):
        return
    try:
        shown = parse_link(asked)
    except InputError as error:
        input_error(error)
        shown = Comparison()
    for field in fields(Comparison):
        value = getattr(shown, field.name)
        st.session_state[key(field.name)] = list(value) if isinstance(value, tuple) else value


# --- controls


def filters() -> None:
    """What is shown at all."""
    left, middle, right = st.columns([5, 3, 3])
    left.segmented_control(
        "Show",
        list(SOURCE_TITLES),
        selection_mode="multi",
        format_func=lambda s: SOURCE_TITLES[s].capitalize(),
        **_at("show"),
    )
    middle.selectbox("Dataset", [*DATASETS, ALL], format_func=_dataset_title, **_at("dataset"))
    right.selectbox(
        "Paper",
        [ALL, *PAPERS],
        format_func=lambda name: "All papers and own settings" if name == ALL else name,
        **_at("paper"),
    )


def view_controls(folded: pd.DataFrame) -> Comparison:
    """How it is looked at; the page's choices as one record."""
    state = st.session_state
    st.segmented_control("View", list(VIEWS), format_func=lambda v: VIEWS[v].title, required=True, **_at("view"))
    labels = folded.drop_duplicates("group").set_index("group")["label"].to_dict()
    state[key("highlight")] = [group for group in state[key("highlight")] if group in labels]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        view = state[key("view")]
        if view != "equal":
            st.multiselect(
                "Highlight",
                list(labels),
                format_func=lambda group: labels.get(group, group),
                max_selections=MOST_LIT,
                placeholder="Type to find a curve; the others turn pale",
                **_at("highlight"),
            )
        if view in WITH_EPSILON:
            st.segmented_control(
                "Epsilon",
                list(EPSILONS),
                format_func=EPSILONS.__getitem__,
                required=True,
                width="content",
                **_at("epsilon"),
            )
        if view in WITH_LOG:
            st.toggle("Log axis", width="content", **_at("log"))
        if view == "equal":
            st.number_input("ε at most", AT.low, AT.high, step=0.1, format="%.4g", width=140, **_at("at"))
    chosen = {field.name: state[key(field.name)] for field in fields(Comparison)}
    values: dict[str, Any]
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in chosen.items()}
    return Comparison(**values)


def _at(field: str) -> dict[str, Any]:
    return {"key": key(field), "persist_state": "session"}


def _dataset_title(name: str) -> str:
    return "All datasets" if name == ALL else DATASETS[name].title


# --- data


def prepare() -> None:
    """Price what the papers report, and read their cached runs, before anybody asks."""
    _folded(runs_folder(), (), tuple(item.run.id for item in cached().runs), True, ALL, ALL)


def chosen_rows() -> tuple[pd.DataFrame, list[str]]:
    """The folded rows that pass the filters, and what could not be read."""
    show, dataset, paper = (st.session_state[key(name)] for name in ("show", "dataset", "paper"))
    listing = store().list() if "own" in show else Listing((), ())
    full_length = cached() if "cached" in show else CachedListing((), ())
    own = tuple(
        summary
        for summary in listing.runs
        if summary.epochs_done
        and dataset in (ALL, summary.dataset)
        and paper in (ALL, summary.recipe.partition("/")[0])
    )
    items = tuple(
        item.run.id
        for item in full_length.runs
        if dataset in (ALL, item.run.spec.dataset) and paper in (ALL, item.paper)
    )
    folded, problems = _folded(store().folder, own, items, "reported" in show, dataset, paper)
    return folded, [*listing.warnings, *full_length.warnings, *problems]


@lru_cache(maxsize=16)
def _folded(
    folder: Path, own: tuple[Summary, ...], items: tuple[str, ...], reported: bool, dataset: str, paper: str
) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Remembered, since a page asks again on every rerun; a run that goes on has another summary."""
    runs, problems = load_all(own)
    full_length = [item for item in cached().runs if item.run.id in items]
    numbers = [
        number
        for number in REPORTED
        if reported
        and number.quantity == TEST_ACCURACY
        and paper in (ALL, number.paper)
        and dataset in (ALL, dataset_of(number))
    ]
    return fold(comparison_frame(runs, full_length, numbers)), tuple(problems)


# --- ways to look


def show_view(shown: Comparison, folded: pd.DataFrame) -> tuple[Any | None, pd.DataFrame]:
    """Draw the chosen view; its figure (None for a table) and the rows behind it, for download."""
    ends = endpoints(folded)
    if shown.view == "equal":
        return None, _equal_table(shown, folded)
    rows = folded
    if shown.view == "frontier":
        figure, rows = frontier_figure(ends, shown.column, shown.highlight, log_x=shown.log), ends
    elif shown.view == "fit":
        fit = log_fit(ends, shown.column)
        figure, rows = fit_figure(ends, fit, shown.column, shown.highlight), ends
    else:
        view = VIEWS[shown.view]
        log_x = shown.log and shown.view in WITH_LOG
        figure = comparison_figure(folded, view.x or shown.column, view.y, shown.highlight, log_x=log_x)
    st.plotly_chart(figure, key=f"compare.figure.{shown.view}", alt=f"{VIEWS[shown.view].title}: {len(ends)} curves")
    if shown.view in NOTES:
        NOTES[shown.view](shown, ends)
    return figure, rows


def _fit_note(shown: Comparison, ends: pd.DataFrame) -> None:
    fit = log_fit(ends, shown.column)
    if fit is None:
        st.caption("A line needs three points or more that differ in epsilon and in accuracy; show more curves.")
        return
    st.caption(
        f"Accuracy = {fit.intercept:.2f} % + {fit.slope:.2f} points × ln ε over {fit.points} points; "
        f"Pearson r = {fit.r:.3f}, p = {fit.p:.2g}. Doubling ε goes with {fit.doubling:+.2f} points. "
        "A correlation over the curves that are shown, not a law: filter out what should not be mixed."
    )


def _frontier_note(shown: Comparison, ends: pd.DataFrame) -> None:
    best = frontier(ends, shown.column)
    if len(best):
        st.caption(
            "On the frontier, from cheap to dear: " + "; ".join(plain(label) for label in best["label"].head(8)) + "."
        )


def _time_note(shown: Comparison, ends: pd.DataFrame) -> None:
    st.caption(
        "Time on the clock of the machine that trained. Full-length runs shared theirs with other work, and some "
        "were held up in the middle of an epoch; compare times only between runs that were made side by side."
    )


NOTES = {"fit": _fit_note, "frontier": _frontier_note, "time": _time_note}


def _equal_table(shown: Comparison, folded: pd.DataFrame) -> pd.DataFrame:
    table = equal_epsilon_frame(folded, shown.at, shown.column)
    if table.empty:
        st.info(
            f"Nothing that is shown has a {shown.epsilon} ε of at most {shown.at:g}; raise it, or show more curves."
        )
        return table
    st.dataframe(
        table.drop(columns="group"),
        hide_index=True,
        placeholder="",
        column_config={
            "label": st.column_config.TextColumn("Curve", width="large"),
            "test_accuracy": st.column_config.NumberColumn("Test accuracy", format="%.2f %%"),
            "accuracy_spread": st.column_config.NumberColumn(
                "± sd", format="%.2f", help="standard deviation over seeds"
            ),
            "seeds": "Seeds",
            shown.column: st.column_config.NumberColumn("ε spent", format="%.3f"),
            "epoch": st.column_config.NumberColumn("Epoch", format="%d"),
            "noise_multiplier": st.column_config.NumberColumn("σ there", format="%.3g"),
        },
    )
    st.caption(
        f"Each curve at its last epoch with a {shown.epsilon} ε of at most {shown.at:g}: what it had reached when that "
        "budget was spent. Reported results count where their whole run fits."
    )
    return table


def left_out_note(shown: Comparison, folded: pd.DataFrame) -> None:
    """What has no place in the view, and why."""
    view = VIEWS[shown.view]
    missing = unplaced(folded, view.x or shown.column, view.y)
    if not missing:
        return
    why = (
        "no guarantee, an infinite ε, or none printed"
        if shown.view in WITH_EPSILON
        else "no such number (reported results)"
    )
    many = f"{len(missing)} curves are" if len(missing) > 1 else "1 curve is"
    with st.expander(f"{many} not in this view: {why}"):
        st.markdown("\n".join(f"- {plain(label)}" for label in missing[:200]))


def table_of_ends(folded: pd.DataFrame) -> None:
    """Where every curve ends, in numbers. Made once it is opened: a browser needs as long for it as for the figure."""
    ends = endpoints(folded)
    drawer = st.expander(f"All {len(ends)} results as a table", key=TABLE, on_change="rerun")
    if drawer.open:
        drawer.dataframe(_ends_table(ends), hide_index=True, placeholder="")


def _ends_table(ends: pd.DataFrame) -> pd.DataFrame:
    ends = ends.sort_values("test_accuracy", ascending=False)
    known = ends["source"].ne("reported")
    return pd.DataFrame(
        {
            "Curve": ends["label"],
            "Dataset": ends["dataset"].map(_dataset_title),
            "Test accuracy (%)": ends["test_accuracy"].round(2),
            "± sd": ends["accuracy_spread"].round(2),
            "Seeds": ends["seeds"].where(known),
            "Sound ε": [spent_words(*spent) for spent in zip(ends["spent_sound"], ends["at_most"], strict=True)],
            "Claimed ε": [
                spent_words(value, at_most, "none" if own else "not printed")
                for value, at_most, own in zip(ends["spent_claimed"], ends["at_most"], known, strict=True)
            ],
            "Epochs": ends["epoch"],
            "Training time": ends["minutes"].map(lambda m: duration_words(60 * m), na_action="ignore"),
        }
    )


def share_button(shown: Comparison) -> None:
    """Write the page's choices into the address; only then, since each write is a step in the browser's history."""
    if st.button("Link to this view", help="Writes the filters and the view into the address, to copy."):
        st.query_params.from_dict(to_link(shown))
        st.session_state[OPENED] = to_link(shown)
        st.toast("The address now holds this view; copy it from the browser.")
