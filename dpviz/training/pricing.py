"""What a run costs: the one place that prices a method's steps. Imports no torch, so that every page may ask."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from dpviz.privacy import Assumptions, Guarantee, Phase, guarantee, guarantee_path
from dpviz.privacy.guarantees import rule_of
from dpviz.training.spec import RunSpec

# Every run draws Poisson batches and is about one example more or less; its records hold the tight accountant's figure.
AS_TRAINED = Assumptions("pld", "add-remove", "poisson")


@functools.lru_cache(maxsize=4096)
def planned_guarantee(spec: RunSpec, assumptions: Assumptions = AS_TRAINED) -> Guarantee:
    """The claimed and the sound epsilon of a whole run, before it starts; remembered, since pages ask again and again.

    Under other assumptions than a run's own it is the price of the same steps, had they been taken so.
    """
    return steps_guarantee(spec.method, spec.curriculum, spec.phases, spec.delta, assumptions)


@functools.lru_cache(maxsize=4096)
def steps_guarantee(
    method: str,
    curriculum: str,
    phases: tuple[Phase, ...],
    delta: float,
    assumptions: Assumptions = AS_TRAINED,
    accepted: tuple[int, ...] | None = None,
) -> Guarantee:
    """The same for any steps: those that a run took, or a curve for data that no run here knows.

    `accepted` are the updates that screening kept, per epoch; None: all of them.
    """
    return guarantee(method, curriculum, phases, delta, assumptions, accepted=accepted)


def planned_path(spec: RunSpec, accepted: Sequence[int] | None = None) -> tuple[tuple[float | None, float | None], ...]:
    """(claimed, sound) epsilon after each epoch of a run, as its records will have them."""
    return guarantee_path(spec.method, spec.curriculum, spec.phases, spec.delta, accepted)


def audit_refusal(spec: RunSpec) -> str:
    """Why a run has no audit: there is no finite epsilon that it could refute. Empty where it has one."""
    rule = rule_of(spec.method, spec.curriculum)
    if rule.sound is None:
        return rule.assumptions[-1]
    return "" if min(spec.schedule.sigmas(spec.epochs)) > 0 else "a step without noise has no finite epsilon"
