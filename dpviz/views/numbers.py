"""Numbers as people read them: as many digits as mean something, and bands that are rounded outwards."""

from __future__ import annotations

from dpviz.privacy.risk import Risk
from dpviz.privacy.rounding import (
    delta_text,
    epsilon_cell,
    epsilon_kind,
    epsilon_number,
    epsilon_remark,
    epsilon_text,
    percent_number,
)

__all__ = [
    "alarms_text",
    "delta_text",
    "epsilon_cell",
    "epsilon_kind",
    "epsilon_number",
    "epsilon_remark",
    "epsilon_text",
    "risk_sentence",
    "sigma_text",
]


def sigma_text(sigma: float) -> str:
    """Four digits, as the editor draws them."""
    return f"{sigma:.4g}"


def alarms_text(fpr: float) -> str:
    """A false-positive rate in words: 1 false alarm in 1,000."""
    often = round(1 / fpr) if fpr > 0 else 0
    if fpr == 0:
        return "no false alarm"
    if abs(often * fpr - 1) < 1e-9 and often > 1:
        return f"1 false alarm in {often:,}"
    return f"false alarms for {100 * fpr:g} % of the others"


def risk_sentence(risk: Risk, fpr: float) -> str:
    """What a risk means, for one false-positive rate: an upper bound, rounded up."""
    return (
        f"An attacker who accepts {alarms_text(fpr)} finds at most {percent_number(risk.tpr(fpr).upper)} % of the "
        f"members; without any model it would be {percent_number(fpr)} %."
    )
