"""Changing a run's settings by name: `optimizer.momentum=0.9`, `schedule=linear`, `epochs=5`. For flags and sweeps."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dpviz.privacy.records import MAX_EPOCHS
from dpviz.privacy.registry import InputError, Knob
from dpviz.privacy.schedules import CUSTOM, Schedule
from dpviz.training.spec import FILTER, NUMBERS, RunSpec
from dpviz.training.tables import CHOICES

FLAG = Knob(False)
EPOCHS = Knob(1, 1, MAX_EPOCHS)
DELTA = Knob(1e-5, 0.0, 1.0)
PLAIN: dict[str, Knob] = {
    "epochs": EPOCHS,
    "delta": DELTA,
    "secure": FLAG,
    "diagnostics": FLAG,
    **NUMBERS,
    "filter_epsilon": FILTER["filter_epsilon"],
}
LABELS = ("seed", "epochs", "secure", "diagnostics")  # changing these leaves a recipe what it is

DEFAULT = RunSpec(schedule=Schedule.of("constant", sigma=1.23), epochs=5, knobs=(("optimizer.momentum", 0.9),))


def parse(pairs: list[str]) -> dict[str, str]:
    """`key=value` texts as a dict; a key given twice is refused, since one of the two would be lost."""
    settings: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (equals and key and value):
            raise InputError(f"settings are written key=value, for example optimizer.momentum=0.9; got {pair[:60]!r}")
        if key in settings:
            raise InputError(f"{key} is set twice")
        settings[key] = value
    return settings


def parse_seeds(text: str, most: int | None = None) -> tuple[int, ...]:
    """Seeds as typed: "0" or "0, 1, 2"; at most so many."""
    words = [word for word in re.split(r"[,\s]+", text.strip()) if word]
    if not words or not all(re.fullmatch(r"\d{1,10}", word, flags=re.ASCII) for word in words):
        raise InputError(f"seeds are whole numbers separated by commas, for example 0, 1, 2; got {text.strip()[:40]!r}")
    if most is not None and len(words) > most:
        raise InputError(f"at most {most} seeds at a time, got {len(words)}")
    return tuple(int(word) for word in words)


def change(spec: RunSpec, settings: Mapping[str, Any]) -> RunSpec:
    """The spec with some settings changed.

    A choice that changes (another optimizer, another schedule) starts from its own defaults; the rest stays. A
    recipe's name goes once anything that makes up the recipe changes.
    """
    fields: dict[str, Any] = {}
    knobs = dict(spec.knobs)
    for key in settings:
        if key not in PLAIN and key not in CHOICES and "." not in key and key != "schedule":
            known = ", ".join((*CHOICES, *PLAIN, "schedule"))
            raise InputError(f"unknown setting {key!r}; choose one of {known}, or a knob such as optimizer.momentum")
    for choice in CHOICES:
        if choice in settings and settings[choice] != getattr(spec, choice):
            knobs = {key: value for key, value in knobs.items() if not key.startswith(choice + ".")}
        if choice in settings:
            fields[choice] = settings[choice]
    for key, value in settings.items():
        if key in PLAIN:
            fields[key] = PLAIN[key].check(key, value)
        elif "." in key and not key.startswith("schedule."):
            knobs[key] = value
    own = {key.removeprefix("schedule."): value for key, value in settings.items() if key.startswith("schedule.")}
    if settings:
        fields["filter_order"] = None  # chosen anew for the changed plan
    fields["schedule"] = change_schedule(spec.schedule, settings.get("schedule"), own)
    changed = dataclasses.replace(spec, **fields, knobs=tuple(sorted(knobs.items())))
    return dataclasses.replace(changed, recipe=spec.recipe if _same_recipe(spec, changed) else "")


def with_listed_epochs(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings; where they list a schedule's sigmas and say no epochs, there are as many epochs as sigmas.

    One sigma alone may be meant as constant noise, so it does not decide that there is a single epoch.
    """
    sigmas = listed_sigmas(settings.get("schedule")) or ()
    return {"epochs": len(sigmas), **settings} if len(sigmas) > 1 else dict(settings)


def listed_sigmas(schedule: Any) -> Sequence[Any] | None:
    """The sigmas of a schedule that is given as a list, be it the text 5,4,3; None if it is not a list."""
    if isinstance(schedule, str):
        return schedule.split(",") if schedule[:1] in set("0123456789.") else None
    if isinstance(schedule, Schedule):
        return schedule.values if schedule.name == CUSTOM else None
    if schedule is None:
        return None
    try:
        return list(schedule)
    except TypeError:
        raise InputError(f"schedule must be a name, a list of sigmas or a Schedule, got {schedule!r}") from None


def change_schedule(schedule: Schedule, name: Any, knobs: Mapping[str, Any]) -> Schedule:
    """A schedule by name, as a list such as 5,4,3, or as it is; without any the old one with some knobs changed."""
    sigmas = listed_sigmas(name)
    if sigmas is not None:
        if knobs:
            raise InputError("a list of sigmas has no knobs; give either schedule=5,4,3 or a named schedule's knobs")
        return Schedule.custom(sigmas)
    if isinstance(name, Schedule):
        return change_schedule(name, None, knobs)
    if name is None and not knobs:
        return schedule
    if schedule.name == CUSTOM and name is None:
        raise InputError("the schedule is a list of sigmas and has no knobs; name one, for example schedule=linear")
    old = dict(schedule.knobs) if name in (None, schedule.name) else {}
    return Schedule.of(name or schedule.name, **{**old, **knobs})


def _same_recipe(before: RunSpec, after: RunSpec) -> bool:
    labels = {name: getattr(before, name) for name in LABELS}
    if before.schedule != after.schedule:
        return False
    return bool(dataclasses.replace(after, **labels) == before)
