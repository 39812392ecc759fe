"""Candidates at equal epsilon: each schedule keeps its shape, and its noise is scaled to the budget."""

from __future__ import annotations

import dataclasses
import functools

from dpviz.privacy import Schedule, calibrate
from dpviz.privacy.guarantees import rule_of
from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import CUSTOM
from dpviz.training.pricing import AS_TRAINED
from dpviz.training.spec import RunSpec

NOISE_KNOBS = ("sigma", "start", "end")  # scaling these scales a named schedule's whole curve


def refuse_uncalibrated(spec: RunSpec) -> None:
    """Only what has a sound epsilon, and noise in every epoch, can be brought to a budget."""
    if rule_of(spec.method, spec.curriculum).sound is None:
        raise InputError(
            f"{spec.method} with curriculum {spec.curriculum} has no sound epsilon, so no scale of its noise meets a "
            "budget; leave epsilon out"
        )
    if not all(spec.schedule.sigmas(spec.epochs) > 0):
        raise InputError("an epoch without noise costs infinity at any scale; raise its sigma above 0 or leave it out")


def shape_key(spec: RunSpec) -> str:
    """Equal for specs that become one run when their noise is scaled to a budget."""
    sigmas = spec.schedule.sigmas(spec.epochs)
    return dataclasses.replace(spec, schedule=Schedule.custom((sigmas / sigmas[0]).round(9))).key


def at_epsilon(spec: RunSpec, epsilon: float) -> RunSpec:
    """The spec with its noise scaled until the sound epsilon of the whole run meets the budget, never above it."""
    schedule = _calibrated(spec.schedule, spec.epochs, spec.sample_rate, epsilon, spec.delta)
    return dataclasses.replace(spec, schedule=schedule, recipe=spec.recipe if schedule == spec.schedule else "")


@functools.lru_cache(maxsize=1024)
def _calibrated(schedule: Schedule, epochs: int, sample_rate: float, epsilon: float, delta: float) -> Schedule:
    calibration = calibrate(schedule.sigmas(epochs).tolist(), sample_rate, epsilon, delta, AS_TRAINED)
    return scaled(schedule, calibration.factor, epochs)


def scaled(schedule: Schedule, factor: float, epochs: int) -> Schedule:
    """The schedule times a factor, under its own name where its knobs can say it, else as a list of sigmas."""
    wanted = factor * schedule.sigmas(epochs)
    if schedule.name != CUSTOM:
        knobs = {name: factor * float(value) for name, value in schedule.knobs if name in NOISE_KNOBS}
        try:
            named = Schedule.of(schedule.name, **(dict(schedule.knobs) | knobs))
        except InputError:  # a knob beyond its range
            return Schedule.custom(wanted)
        if abs(named.sigmas(epochs) / wanted - 1).max() < 1e-12:
            return named
    return Schedule.custom(wanted)
