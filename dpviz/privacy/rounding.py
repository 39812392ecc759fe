"""Epsilons and deltas in writing. They are upper bounds, so they are rounded up: a little too large still holds."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from dpviz.privacy.accountants import ACCOUNTANTS
from dpviz.privacy.records import Epsilon

MILLI = Decimal("0.001")
NARROW = 1e-6  # a band as narrow as this, relative to its value, is an exact number


def epsilon_number(epsilon: float, *, digits: int = 3, up: bool = True) -> str:
    """`digits` after the point, fewer for large epsilons; tiny ones keep two significant digits; 0 is 0.

    `up=False` is for the lower end of a band. The schedule editor (readout.js) writes epsilons by the same rules.
    """
    epsilon = float(epsilon)  # frames hold NumPy's numbers
    if math.isinf(epsilon):
        return "∞"
    if epsilon == 0:
        return "0"
    exact, rounding = Decimal(repr(epsilon)), ROUND_CEILING if up else ROUND_FLOOR
    if not 1e-4 <= epsilon < 1e6:
        places = 2 if epsilon >= 1e6 else 1
        rounded = Context(prec=places + 1, rounding=rounding).create_decimal(exact)
        mantissa, _, power = f"{rounded:.{places}e}".partition("e")
        return f"{mantissa}e{int(power)}"
    usual = max(0, digits - sum(epsilon >= limit for limit in (10, 100, 1000)))
    places = max(usual, 1 - exact.adjusted())  # two significant digits, if they need more room
    text = f"{exact.quantize(Decimal(1).scaleb(-places), rounding=rounding):,.{places}f}"
    return text[:-1] if places > usual and text.endswith("0") else text


def epsilon_cell(epsilon: float) -> float:
    """Thousandths, rounded up: for columns of numbers that people sort, with three digits after the point."""
    if not math.isfinite(epsilon):
        return epsilon
    return float(Decimal(repr(float(epsilon))).quantize(MILLI, ROUND_CEILING))


def delta_number(delta: float, *, up: bool = True) -> str:
    """Four significant digits; `up=False` is for the lower end of a band."""
    context = Context(prec=4, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    mantissa, _, power = f"{float(context.create_decimal(repr(float(delta)))):g}".partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa


def percent_number(share: float, *, up: bool = True) -> str:
    """A share in percent, three significant digits, rounded up; `up=False` is for the lower end of a band."""
    context = Context(prec=3, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return f"{float(context.create_decimal(repr(100 * float(share)))):.10g}"


def percent_text(lower: float, upper: float) -> str:
    """A band of shares such as 2.05–2.07 %, rounded outwards."""
    low, high = percent_number(lower, up=False), percent_number(upper)
    return f"{high} %" if upper - lower <= NARROW * upper or low == high else f"{low}–{high} %"


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
    if epsilon.delta == 0:  # pure budgets only add up
        return "exact"
    entry = ACCOUNTANTS.get(epsilon.accountant)  # a record from elsewhere may name one that is not here
    kind = entry.kind if entry else epsilon.accountant
    return f"{kind}, wide" if epsilon.wide else kind


def epsilon_remark(epsilon: Epsilon) -> str:
    """What a person must know besides the number; empty for a narrow certified band."""
    kind = epsilon_kind(epsilon)
    if epsilon.wide:
        return f"{epsilon.fallback or kind}: the true value may lie well below the upper end"
    return epsilon.fallback or ("" if kind in ("certified", "exact") else kind)


def delta_text(delta: float) -> str:
    """1e-5 rather than 1e-05, 1/60000 rather than sixteen digits: it reads back as the same number."""
    short, whole = f"{delta:g}", round(1 / max(delta, 1e-12))
    if float(short) != delta == 1 / whole:
        return f"1/{whole}"
    mantissa, _, power = (short if float(short) == delta else repr(float(delta))).partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa


def rounded_up(sigma: float) -> float:
    """Four digits, as the editor draws and a link holds them; never less noise than asked for."""
    unit = 10.0 ** (math.floor(math.log10(sigma)) - 3)
    return float(f"{math.ceil(sigma / unit - 1e-9) * unit:.4g}")
