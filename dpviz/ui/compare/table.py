"""The table of Compare, which is also the legend of its figure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd
import streamlit as st

from dpviz.privacy.audit import CANNOT_SHOW
from dpviz.runs.differences import points
from dpviz.ui.compare import state
from dpviz.ui.compare.state import key
from dpviz.views.comparison.experiments import SOURCES
from dpviz.views.comparison.marks import swatch
from dpviz.views.comparison.scene import Scene
from dpviz.views.comparison.settings import TITLES, paper_title, setting_text, setting_title, varying
from dpviz.views.comparison.table import MEASURED, dataset_title
from dpviz.views.numbers import epsilon_cell
from dpviz.views.runs import audited_of_proven

MOST_ROWS = 1000  # of the table in the browser


def table_of(scene: Scene) -> None:
    """The table is the legend: selected rows are in colour."""
    table = scene.table.head(MOST_ROWS)
    state.show_selection(list(table.index), list(scene.marks))
    several = table["dataset"].nunique() > 1
    st.dataframe(
        _cells(table, scene),
        key=state.TABLE,
        hide_index=True,
        placeholder="",
        height=min(420, 38 + 35 * max(1, len(table))),
        on_select=state.take_selection,
        selection_mode="multi-row",
        column_order=["mark", "name", *(["dataset"] if several else []), *SHOWN],
        column_config=_columns(scene),
        alt="A row per experiment; selected rows are in colour in the figure",
    )
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.session_state[key("highlight")]:
            st.button("Choose colours automatically", on_click=state.automatic)
        more = (
            f" The best {MOST_ROWS:,} of {len(scene.table):,} rows; search to see others."
            if len(scene.table) > MOST_ROWS
            else ""
        )
        st.caption(
            "Tick rows to draw them in colour. Settings are further columns, in the menu above the table. Differences "
            f"are to the baseline, at this epsilon.{more}"
        )


SHOWN = ("curve", "accuracy", "deviation", "seeds", "difference", "interval", "sound", "audited", "claimed", "source")


def _cells(table: pd.DataFrame, scene: Scene) -> pd.DataFrame:
    """The table's cells as they are shown."""
    groups = list(table.index)
    origin = table["paper"].map(lambda paper: f"{paper_title(paper)}, " if paper else "")
    origin += table["source"].map({name: source.title for name, source in SOURCES.items()})
    origin += table["place"].where(table["place"] == "", ", " + table["place"])
    settings = scene.settings.reindex(groups)
    audits = table[["audited", "whole_run", "refuted"]].itertuples(index=False, name=None)
    cells = {
        "mark": [
            swatch(scene.marks.get(group), source in MEASURED)
            for group, source in zip(groups, table["source"], strict=True)
        ],
        "name": table["short"],
        "dataset": table["dataset"].map(dataset_title),
        "curve": table["curve"],
        **{name: table[name] for name in ("accuracy", "deviation", "seeds", "difference")},
        "interval": _intervals(table, scene.base.values()),
        "sound": table["sound"].map(epsilon_cell),
        "audited": [audited_of_proven(*audit) for audit in audits],
        "claimed": table["claimed"].map(epsilon_cell),
        "source": origin,
        "whole_run": table["whole_run"],
        "epoch": table["epoch"],
    }
    taken = {"dataset", "source", "run", "paper", "epochs"}
    more = {name: settings[name] for name in varying(settings) if name not in taken}
    return pd.DataFrame(
        cells | {name: values.map(lambda value, name=name: setting_text(name, value)) for name, values in more.items()},
        index=table.index,
    )


def _intervals(table: pd.DataFrame, base: Iterable[str]) -> list[str]:
    pinned = set(base)
    return [
        "baseline"
        if group in pinned
        else f"{points(low)} to {points(high)}"
        if low == low
        else "one seed"
        if difference == difference
        else ""
        for group, low, high, difference in zip(
            table.index, table["low"], table["high"], table["difference"], strict=True
        )
    ]


def _columns(scene: Scene) -> dict[str, Any]:
    config = st.column_config
    accuracies = scene.table["accuracy"].dropna()
    low = float(accuracies.quantile(0.1)) - 5 if len(accuracies) else 0.0
    at = f"ε ≤ {scene.budget:g}"
    titles = {name: setting_title(name) for name in (*TITLES, *scene.settings.columns)}
    return titles | {
        "mark": config.ImageColumn("", width=60, help="colour, line and symbol in the figure"),
        "name": config.TextColumn("Experiment", width=270),
        "dataset": config.TextColumn("Dataset", width="small"),
        "curve": config.LineChartColumn("Curve", width="small", y_min=max(0.0, low), help="test accuracy by epoch"),
        "accuracy": config.NumberColumn("Accuracy", format="%.2f", help=f"test accuracy in percent at {at}"),
        "deviation": config.NumberColumn("±", format="%.2f", help="standard deviation over seeds"),
        "seeds": config.NumberColumn("Seeds", format="%d", width=60),
        "difference": config.NumberColumn("Difference", format="%+.2f", help="points above the baseline, by seed"),
        "interval": config.TextColumn("95 % interval", help="of the difference; one seed bounds nothing"),
        "sound": config.NumberColumn("Sound ε", format="%.3f", help="spent there; of the whole run where none fits"),
        "audited": config.TextColumn(
            "Audited of proven ε", help=f"of the whole run: audited at least, proven at most. {CANNOT_SHOW}"
        ),
        "claimed": config.NumberColumn("Claimed ε", format="%.3f", help="as the authors would quote it"),
        "source": config.TextColumn("From"),
        "whole_run": config.TextColumn("Sound ε, whole run"),
        "epoch": config.NumberColumn("Epoch there", format="%d"),
    }
