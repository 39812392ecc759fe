"""Numbers as people read them: as many digits as mean something, and bands that are rounded outwards."""

from __future__ import annotations

import math

from dpviz.privacy.records import Epsilon
from dpviz.privacy.rounding import epsilon_number
from dpviz.views.titles import ACCOUNTANT_KINDS

__all__ = ["delta_text", "epsilon_kind", "epsilon_number", "epsilon_remark", "epsilon_text", "sigma_text"]

NARROW = 1e-6  # a band as narrow as this, relative to its value, is an exact number


def epsilon_text(epsilon: Epsilon | None) -> str:
    """A band such as 1.003–1.006, rounded outwards so that it holds; `≤ 1.400` if one-sided; `none` without one."""
    if epsilon is None:
        return "none"
    if epsilon.upper - epsilon.lower <= NARROW * epsilon.upper or math.isinf(epsilon.lower):
        return epsilon_number(epsilon.upper)
    upper = epsilon_number(epsilon.upper)
    if epsilon.lower == 0:
        return f"≤ {upper}"
    lower = epsilon_number(epsilon.lower, up=False)
    return upper if lower == upper else f"{lower}–{upper}"


def epsilon_kind(epsilon: Epsilon) -> str:
    """What kind of number it is: `certified`, `certified, wide`, or what stands in for a certified band."""
    if epsilon.fallback:
        return epsilon.fallback.partition(", because")[0]
    kind = ACCOUNTANT_KINDS[epsilon.accountant]
    return f"{kind}, wide" if epsilon.wide else kind


def epsilon_remark(epsilon: Epsilon) -> str:
    """What a person must know besides the number; empty for a narrow certified band."""
    kind = epsilon_kind(epsilon)
    if epsilon.wide:
        return f"{epsilon.fallback or kind}: the true value may lie well below the upper end"
    return epsilon.fallback or ("" if kind in ("certified", "exact") else kind)


def delta_text(delta: float) -> str:
    """1e-5 rather than 1e-05; all digits, so that it reads back as the same number."""
    short = f"{delta:g}"
    mantissa, _, power = (short if float(short) == delta else repr(float(delta))).partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa


def sigma_text(sigma: float) -> str:
    """Four digits, as the editor draws them."""
    return f"{sigma:.4g}"
