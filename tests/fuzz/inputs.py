"""How many random inputs each kind of thing gets: 500 in the suite, always the same; `make fuzz` asks for 10,000."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings

from dpviz.privacy import InputError

SUITE = 500
TOTAL = int(os.environ.get("DPVIZ_FUZZ", SUITE))
SHARES = {
    "schedules": 0.10,
    "ledgers": 0.10,
    "links": 0.15,
    "views": 0.05,
    "csv": 0.10,
    "libsvm": 0.10,
    "curves": 0.05,
    "imports": 0.05,
    "own data": 0.05,
    "store": 0.10,
    "specs": 0.05,
    "flags": 0.10,
}
assert abs(sum(SHARES.values()) - 1) < 1e-9


def outcome(function: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """(what the function gives, "") or (None, the sentence with which it refuses); anything else is a failure."""
    try:
        return function(*arguments), ""
    except InputError as error:
        return None, str(error) or "an empty sentence"


def fuzzed(kind: str, part: float = 1.0):
    """Hypothesis' settings for one test; several tests of a kind share its inputs by `part`."""
    return settings(
        max_examples=round(TOTAL * SHARES[kind] * part),
        deadline=None,
        derandomize=TOTAL == SUITE,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
