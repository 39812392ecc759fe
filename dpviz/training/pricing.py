"""What a run costs: the one place that prices a method's steps. Imports no torch, so that every page may ask."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Protocol

from dpviz.privacy import Assumptions, Guarantee, Phase, Risk, guarantee, guarantee_path, sound_risk
from dpviz.privacy.filters import filter_guarantee
from dpviz.privacy.guarantees import rule_of
from dpviz.training.spec import RunSpec
from dpviz.training.tables import MODELS

# Every run draws Poisson batches and is about one example more or less; its records hold the tight accountant's figure.
AS_TRAINED = Assumptions("pld", "add-remove", "poisson")


class HasSteps(Protocol):
    """What a price needs of a run's settings, or of what is known of an imported run."""

    @property
    def method(self) -> str: ...
    @property
    def curriculum(self) -> str: ...
    @property
    def phases(self) -> tuple[Phase, ...]: ...
    @property
    def delta(self) -> float: ...


@functools.lru_cache(maxsize=4096)
def planned_guarantee(spec: RunSpec, assumptions: Assumptions = AS_TRAINED) -> Guarantee:
    """The claimed and the sound epsilon of a whole run, before it starts; remembered, since pages ask again and again.

    Under other assumptions than a run's own it is the price of the same steps, had they been taken so and fixed ahead.
    """
    return course_guarantee(spec, spec.phases, assumptions)


@functools.lru_cache(maxsize=256)
def course_guarantee(spec: RunSpec, phases: tuple[Phase, ...], assumptions: Assumptions = AS_TRAINED) -> Guarantee:
    """The same for a run whose noise was changed on the way: `phases` as they were taken and are planned now."""
    if spec.filter and assumptions == AS_TRAINED:
        steps = filter_guarantee(spec.method, spec.curriculum, phases, spec.filter)
    else:
        steps = steps_guarantee(spec.method, spec.curriculum, phases, spec.delta, assumptions)
    more = rests_on_model(spec)
    return dataclasses.replace(steps, assumptions=(*steps.assumptions, *more)) if more else steps


def rests_on_model(spec: RunSpec) -> tuple[str, ...]:
    """What the epsilon of a person's own model rests on besides."""
    words = f"{spec.model} is code that dpviz does not hold; on made-up examples each example's gradient was its own"
    return (words,) if MODELS[spec.model].own else ()


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


@functools.lru_cache(maxsize=256)
def steps_risk(
    method: str, curriculum: str, phases: tuple[Phase, ...], assumptions: Assumptions = AS_TRAINED
) -> Risk | None:
    """What these steps reveal about one person, from the ledger of the sound epsilon; None without a guarantee."""
    return sound_risk(method, curriculum, phases, assumptions)


def planned_risk(spec: HasSteps) -> Risk | None:
    """The same for a run's plan; None under a filter too, whose steps are not known ahead."""
    return None if under_filter(spec) else steps_risk(spec.method, spec.curriculum, spec.phases)


def planned_path(
    spec: HasSteps, accepted: Sequence[int] | None = None
) -> tuple[tuple[float | None, float | None], ...]:
    """(claimed, sound) epsilon after each phase of a run, one per epoch of a spec, as its records will have them.

    Under a filter it is the declared budget from the first epoch on, and nobody claims anything else.
    """
    if isinstance(spec, RunSpec) and spec.filter:
        return ((None, spec.filter.epsilon),) * spec.epochs
    return guarantee_path(spec.method, spec.curriculum, spec.phases, spec.delta, accepted)


def under_filter(spec: HasSteps) -> bool:
    return isinstance(spec, RunSpec) and spec.filter is not None


def audit_refusal(spec: HasSteps) -> str:
    """Why a run has no audit: there is no finite epsilon that it could refute. Empty where it has one."""
    rule = rule_of(spec.method, spec.curriculum)
    if rule.sound is None:
        return rule.assumptions[-1]
    silent = any(phase.noise_multiplier == 0 for phase in spec.phases)
    return "a step without noise has no finite epsilon" if silent else ""
