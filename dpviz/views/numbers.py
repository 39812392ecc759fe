"""Numbers as people read them: as many digits as mean something, and bands that are rounded outwards."""

from __future__ import annotations

import math
from collections.abc import Callable

from dpviz.privacy.records import Epsilon

NARROW = 1e-6  # a band as narrow as this, relative to its value, is an exact number


def epsilon_number(epsilon: float) -> str:
    """Three digits after the point for small epsilons, fewer for large ones; the editor writes them the same way."""
    return _written(epsilon, round)


def epsilon_text(epsilon: Epsilon | None) -> str:
    """A band such as 1.003–1.006, rounded outwards so that it holds; `≤ 1.400` if one-sided; `none` without one."""
    if epsilon is None:
        return "none"
    if epsilon.upper - epsilon.lower <= NARROW * epsilon.upper or math.isinf(epsilon.lower):
        return epsilon_number(epsilon.upper)
    upper = _written(epsilon.upper, math.ceil)
    if epsilon.lower == 0:
        return f"≤ {upper}"
    lower = _written(epsilon.lower, math.floor)
    return upper if lower == upper else f"{lower}–{upper}"


def delta_text(delta: float) -> str:
    """1e-5 rather than 1e-05."""
    mantissa, _, power = f"{delta:g}".partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa


def sigma_text(sigma: float) -> str:
    """Four digits, as the editor draws them."""
    return f"{sigma:.4g}"


def _written(epsilon: float, rounding: Callable[[float], int]) -> str:
    if math.isinf(epsilon):
        return "∞"
    if epsilon >= 1e6:
        return f"{epsilon:.2e}".replace("e+0", "e").replace("e+", "e")
    digits = 3 if epsilon < 10 else 2 if epsilon < 100 else 1 if epsilon < 1000 else 0
    return f"{rounding(epsilon * 10**digits) / 10**digits:,.{digits}f}"
