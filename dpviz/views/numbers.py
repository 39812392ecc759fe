"""Numbers as people read them: as many digits as mean something, and bands that are rounded outwards."""

from __future__ import annotations

from dpviz.privacy.risk import Risk
from dpviz.privacy.rounding import (
    delta_text,
    epsilon_kind,
    epsilon_number,
    epsilon_remark,
    epsilon_text,
    percent_number,
)

__all__ = [
    "delta_text",
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


def risk_sentence(risk: Risk, fpr: float) -> str:
    """What a risk means, for one false-positive rate: an upper bound, rounded up."""
    often = round(1 / fpr) if fpr > 0 else 0
    if fpr == 0:
        alarms = "no false alarm"
    elif abs(often * fpr - 1) < 1e-9 and often > 1:
        alarms = f"1 false alarm in {often:,}"
    else:
        alarms = f"false alarms for {100 * fpr:g} % of the others"
    return (
        f"An attacker who accepts {alarms} finds at most {percent_number(risk.tpr(fpr).upper)} % of the members; "
        f"without any model it would be {percent_number(fpr)} %."
    )
