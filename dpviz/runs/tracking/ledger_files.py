"""Files that hold a ledger and no curve: an Opacus checkpoint, an accountant's state, a dp_accounting event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpviz.privacy import InputError, Phase
from dpviz.runs.tracking.epochs import as_ledger

MODULE = "dp_accounting.dp_event"
DEEPEST = 50  # events within events, and mappings within a checkpoint's
MOST_PHASES = 10_000


def history_in(state: Any, depth: int = 3) -> tuple[Phase, ...] | None:
    """The ledger in an accountant's state_dict, or in a checkpoint that holds one; None if there is none."""
    if not isinstance(state, Mapping):
        return None
    if "history" in state and "mechanism" in state:
        if not isinstance(state["history"], list | tuple) or len(state["history"]) > MOST_PHASES:
            raise InputError(f"an accountant's history is a list of at most {MOST_PHASES:,} (sigma, q, steps)")
        return as_ledger(state["history"])
    inner = (history_in(value, depth - 1) for value in state.values()) if depth else ()
    return next((phases for phases in inner if phases is not None), None)


def is_event(data: Any) -> bool:
    return isinstance(data, list) and data[:1] == [MODULE]


def event_ledger(event: Any, depth: int = DEEPEST) -> tuple[Phase, ...]:
    """The ledger of a dp_accounting event, as json.dumps(event.to_named_tuple()) writes it: [module, class, *fields].

    Gaussian steps, alone (every example in every step) or Poisson-sampled, composed in any way. What a composition
    repeats, it repeats phase by phase: the order does not change the price.
    """
    if not (is_event(event) and len(event) > 1 and depth):
        raise InputError(
            f"a dp_accounting event is a list [{MODULE!r}, class, fields ...], at most {DEEPEST} deep; write it with "
            "json.dumps(event.to_named_tuple())"
        )
    match event[1:]:
        case ["NoOpDpEvent"]:
            return ()
        case ["GaussianDpEvent", sigma]:
            return as_ledger([(sigma, 1.0, 1)])
        case ["PoissonSampledDpEvent", rate, [_, "GaussianDpEvent", sigma]]:
            return as_ledger([(sigma, rate, 1)])
        case ["SelfComposedDpEvent", inner, int(count)] if count >= 1:
            phases = event_ledger(inner, depth - 1)
            return as_ledger((p.noise_multiplier, p.sample_rate, count * p.steps) for p in phases)
        case ["ComposedDpEvent", [*inner]]:
            parts = (phase for part in inner for phase in event_ledger(part, depth - 1))
            return as_ledger((p.noise_multiplier, p.sample_rate, p.steps) for p in parts)
    raise InputError(
        f"{str(event[1])[:40]} cannot be priced here; known are Gaussian steps, Poisson-sampled or not, composed and "
        "self-composed"
    )
