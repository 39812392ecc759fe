"""Numbers as people read them: as many digits as mean something, and bands that are rounded outwards."""

from __future__ import annotations

from dpviz.privacy.rounding import epsilon_kind, epsilon_number, epsilon_remark, epsilon_text

__all__ = ["delta_text", "epsilon_kind", "epsilon_number", "epsilon_remark", "epsilon_text", "sigma_text"]


def delta_text(delta: float) -> str:
    """1e-5 rather than 1e-05; all digits, so that it reads back as the same number."""
    short = f"{delta:g}"
    mantissa, _, power = (short if float(short) == delta else repr(float(delta))).partition("e")
    return f"{mantissa}e{int(power)}" if power else mantissa


def sigma_text(sigma: float) -> str:
    """Four digits, as the editor draws them."""
    return f"{sigma:.4g}"
