"""Epsilons and deltas in writing. They are upper bounds, so they are rounded up: a little too large still holds."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


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


def delta_number(delta: float, *, up: bool = True) -> str:
    """Four significant digits; `up=False` is for the lower end of a band."""
    context = Context(prec=4, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    mantissa, _, power = f"{float(context.create_decimal(repr(float(delta)))):g}".partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa
