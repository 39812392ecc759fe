"""The list of runs on the Train page: a table in which rows are selected, and what can be done to several at once."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from dpviz.forecast.pilots import is_pilot
from dpviz.privacy.registry import InputError
from dpviz.runs import Run, Summary
from dpviz.runs.store.records import LIVE
from dpviz.ui.common.actions import Action, action_buttons
from dpviz.ui.common.runs import load, load_all, resume, runner_of, stop, store, summary_name
from dpviz.ui.compare.link import link_to
from dpviz.ui.train.state import SELECTED, TRAIN
from dpviz.views.runs import list_frame

MOST_ROWS, ROWS_IN_SIGHT, ROW_HEIGHT = 200, 6, 35
COLUMNS: dict[str, Any] = {
    "name": st.column_config.TextColumn("Run", width="medium"),
    "status": "Status",
    "accuracy": st.column_config.NumberColumn("Accuracy", format="%.2f %%", help="On test data, so far."),
    "epsilon": st.column_config.NumberColumn("Sound ε", format="%.3f", help="What was spent, at most; – without one."),
    "minutes": st.column_config.NumberColumn("Minutes", format="%.2f", help="Training time, from the first epoch on."),
    "seed": "Seed",
    "started": "Started (UTC)",
}


@dataclass(frozen=True)
class RunAction:
    """What can be done to runs: to which of them it applies, and what it does to one."""

    label: str
    applies: Callable[[Summary], bool]
    act: Callable[[str], object]
    help: str = ""
    confirm: str = ""
    primary: bool = False


RUN_ACTIONS = (
    RunAction(
        "Stop", lambda run: run.id in runner_of(run.id).live(), stop, "Ends it within a step; it can be resumed."
    ),
    RunAction("Resume", lambda run: run.resumable, resume, "Goes on from its last checkpoint.", primary=True),
    RunAction(
        "Delete",
        lambda run: run.status not in LIVE,
        lambda run_id: store().delete(run_id),
        confirm="Curve and checkpoint are removed for good.",
    ),
)


def runs_table(summaries: Sequence[Summary]) -> tuple[Summary, ...]:
    """The table, newest first; the runs that are selected in it, or without any the newest."""
    rows = summaries[::-1][:MOST_ROWS]
    ids = [run.id for run in rows]
    runs, _ = load_all([run for run in rows if run.epochs_done])
    minutes = {run.id: sum(record.seconds for record in run.epochs) / 60 for run in runs}
    table = st.dataframe(
        list_frame(rows, [summary_name(run) for run in rows], minutes),
        # Rows are selected by their place, so that another list of runs is another table.
        key=TRAIN("runs", zlib.crc32(",".join(ids).encode())),
        on_select="rerun",
        selection_mode="multi-row",
        selection_default={"selection": {"rows": selected_places(ids, SELECTED.get(), st.query_params.get("run"))}},
        column_config=COLUMNS,
        hide_index=True,
        height=ROW_HEIGHT * (1 + min(len(rows), ROWS_IN_SIGHT)) + 3,
        placeholder="–",
        alt="Runs with their status, accuracy, epsilon and time",
    )
    if len(summaries) > len(rows):
        st.caption(f"The newest {len(rows):,} of {len(summaries):,} runs; `dpviz runs list` shows them all.")
    chosen = tuple(rows[place] for place in table["selection"]["rows"] if place < len(rows))
    SELECTED.set(tuple(run.id for run in chosen))
    return chosen or tuple(rows[:1])


def folded(summaries: Sequence[Summary]) -> tuple[Summary, ...]:
    """The runs without pilots, which have a box of their own, unless somebody wants to see them."""
    pilots = {run.id for run in summaries if is_pilot(run)}
    if not pilots:
        return tuple(summaries)
    st.session_state.setdefault(TRAIN("pilots"), st.query_params.get("run") in pilots)
    help = "Runs that were made to learn a response from; Forecasts above holds them together."
    shown = st.toggle(f"Show {len(pilots)} pilot runs", key=TRAIN("pilots"), persist_state="session", help=help)
    return tuple(run for run in summaries if shown or run.id not in pilots)


def selected_places(ids: Sequence[str], selected: Sequence[str] | None, linked: str | None) -> list[int]:
    """Rows that are selected at first: those that were before, or when a page is opened the run in its address."""
    wanted = [linked] if selected is None else selected
    return [place for place, run_id in enumerate(ids) if run_id in wanted]


def select(run_id: str) -> None:
    """Show this run, whatever was selected before."""
    SELECTED.set((run_id,))


def several_actions(chosen: Sequence[Summary]) -> None:
    """What can be done to several runs at once; nothing for one, whose own panel has its buttons."""
    if len(chosen) > 1:
        with st.container(horizontal=True, vertical_alignment="center"):
            action_buttons(TRAIN, "several", run_actions(chosen))
            compare_button([run for run in map(_readable, chosen) if run], f"Compare {len(chosen)} runs")


def run_actions(runs: Sequence[Summary]) -> list[Action]:
    """Each action with the runs that it applies to; left out where there are none."""
    actions = []
    for action in RUN_ACTIONS:
        ids = [run.id for run in runs if action.applies(run)]
        if ids:
            label = action.label if len(runs) == 1 else f"{action.label} {len(ids)} run{'s' if len(ids) > 1 else ''}"
            act = _for_each(action.act, ids)
            actions.append(Action(label, act, action.help, action.confirm, primary=action.primary))
    return actions


def _for_each(act: Callable[[str], object], ids: Sequence[str]) -> Callable[[], None]:
    def act_on_all() -> None:
        for run_id in ids:
            act(run_id)

    return act_on_all


def _readable(summary: Summary) -> Run | None:
    try:
        return load(summary)
    except InputError:
        return None


def compare_button(runs: Sequence[Run], label: str = "Compare") -> None:
    """The way to Compare, on these runs' dataset and with their curves in colour."""
    query = link_to(runs) if runs else {}
    st.page_link("pages/compare.py", label=label, icon=":material/balance:", query_params=query)
