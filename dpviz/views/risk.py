"""Risk as data for pictures and tables: the trade-off curve with its band, and what is found at a chosen rate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dpviz.privacy.risk import Risk
from dpviz.privacy.rounding import epsilon_number, percent_text
from dpviz.views.numbers import alarms_text, risk_sentence

__all__ = ["rates_frame", "risk_sentence", "risk_table", "trade_off_frame"]

LEAST_FPR = 1e-4
PEOPLE = 1000


def trade_off_frame(risk: Risk, points: int = 120) -> pd.DataFrame:
    """The share of members found (lower, upper) at false-positive rates from 0.01 % to 1."""
    fprs = np.geomspace(LEAST_FPR, 1.0, points)
    lower, upper = risk.curve(fprs)
    return pd.DataFrame({"fpr": fprs, "lower": lower, "upper": upper})


def rates_frame(risk: Risk, fprs: Sequence[float]) -> pd.DataFrame:
    """A row per false-positive rate to choose from: what is found there in numbers, words and a thousand people.

    `guessed` and `found` count people; who is found is rounded up, and those found by guessing are among them.
    """
    return pd.DataFrame(_rate_row(risk, fpr) for fpr in fprs)


def _rate_row(risk: Risk, fpr: float) -> dict[str, Any]:
    lower, upper = risk.tpr(fpr)
    found = min(PEOPLE, math.ceil(PEOPLE * upper - 1e-9))
    return {
        "fpr": fpr,
        "lower": lower,
        "upper": upper,
        "alarms": alarms_text(fpr),
        "share": percent_text(lower, upper),
        "sentence": risk_sentence(risk, fpr),
        "guessed": min(found, round(PEOPLE * fpr)),
        "found": found,
    }


def risk_table(risks: Mapping[str, Risk], fpr: float = 0.001) -> pd.DataFrame:
    """A row per schedule, as a person reads it: bands, rounded outwards, and what kind of numbers they are."""
    return pd.DataFrame(_table_row(name, risk, fpr) for name, risk in risks.items())


def _table_row(name: str, risk: Risk, fpr: float) -> dict[str, str]:
    mu, regret = risk.gdp
    return {
        "Schedule": name,
        "Members found": percent_text(*risk.tpr(fpr)),
        "Advantage": percent_text(*risk.advantage),
        "μ (regret)": f"{epsilon_number(mu)} ({regret:.2g})",
        "Kind": risk.kind.partition(", because")[0],
    }
