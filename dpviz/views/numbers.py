"""Numbers as people read them: as many digits as mean something, and bands that are rounded outwards."""

from __future__ import annotations

from dpviz.privacy.rounding import delta_text, epsilon_kind, epsilon_number, epsilon_remark, epsilon_text

__all__ = [
    "delta_text",
    "duration_words",
    "epsilon_kind",
    "epsilon_number",
    "epsilon_remark",
    "epsilon_text",
    "sigma_text",
]


def sigma_text(sigma: float) -> str:
    """Four digits, as the editor draws them."""
    return f"{sigma:.4g}"


def duration_words(seconds: float) -> str:
    """A time as a person says it: "0.4 s", "3 min 20 s", "2 h 5 min"."""
    whole = max(0, round(seconds))
    if 0 < seconds < 9.95:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
