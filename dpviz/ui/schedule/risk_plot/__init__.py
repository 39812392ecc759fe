"""The trade-off curve with a line to drag, and a thousand people: how many an attacker finds at the chosen rate.

An inline Streamlit component, like the schedule editor. The rate lives in the session with the other settings; the
component's own state is only ever read. Everything that the line can point at is sent ahead, so sentence and people
follow the pointer without a word to Python, which hears of the rate when the hand lets go.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import streamlit as st

from dpviz.privacy.risk import Risk
from dpviz.ui.common.svg_component import svg_component
from dpviz.ui.schedule.settings import FPRS, session_key

if TYPE_CHECKING:
    from pandas import DataFrame

KEY = "schedule.risk"

_PARTS = ("risk_plot.html", "risk_plot.css", "axes.js", "risk_plot.js")

_mount = svg_component("dpviz_risk_plot", Path(__file__).parent, _PARTS)


def risk_plot(risks: Mapping[str, Risk], fpr: float) -> None:
    """One band per schedule on the same axes; sentence and people are of the first. `fpr` is one of `FPRS`."""
    from dpviz.views.risk import rates_frame

    rates = {name: rates_frame(risk, FPRS) for name, risk in risks.items()}
    first = next(iter(rates.values()))
    data = {
        "curves": [_curve_data(name, risk, rates[name]) for name, risk in risks.items()],
        "rates": first[["fpr", "alarms", "sentence", "guessed", "found"]].to_dict("records"),
        "chosen": FPRS.index(fpr),
        "seq": _heard().get("seq", 0),
    }
    # In a list: Streamlit searches a mapping for data frames.
    _mount(key=KEY, data=[data], on_choice_change=_take_rate, width="stretch", height="content")


def _heard() -> dict[str, int]:
    """The browser's last message: its own number, and that of a rate."""
    choice = st.session_state[KEY].get("choice") if KEY in st.session_state else None
    match choice:
        case {"seq": int(seq), "chosen": int(chosen)} if 0 <= chosen < len(FPRS):
            return {"seq": seq, "chosen": chosen}
    return {}


def _take_rate() -> None:
    heard = _heard()
    if heard:
        st.session_state[session_key("fpr")] = FPRS[heard["chosen"]]


def _curve_data(name: str, risk: Risk, rates: DataFrame) -> dict[str, Any]:
    """The band as it is drawn; its upper end and its numbers at each rate."""
    from dpviz.views.risk import trade_off_frame

    curve = trade_off_frame(risk)
    drawn = {column: curve[column].tolist() for column in ("fpr", "lower", "upper")}
    return {"name": name, **drawn, "found": rates["upper"].tolist(), "shares": rates["share"].tolist()}
