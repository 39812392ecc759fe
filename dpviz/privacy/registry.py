"""Tables of named choices: each entry carries its knobs, so forms, flags and docs build themselves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])
Value = float | int | str | bool


class InputError(ValueError):
    """Something a person typed, drew or uploaded does not hold; the message says what, and what to do."""


@dataclass(frozen=True)
class Knob:
    """One parameter of an entry: a number between low and high (whole if the default is), or one of the choices."""

    default: Value
    low: float = -math.inf
    high: float = math.inf
    help: str = ""
    choices: tuple[str, ...] = ()

    def check(self, name: str, value: Any) -> Value:
        """The value in the knob's own type, or an InputError that names it."""
        if self.choices:
            if value not in self.choices:
                raise InputError(f"{name} must be one of {', '.join(self.choices)}, got {value!r}")
            return str(value)
        if isinstance(self.default, bool):
            if str(value).lower() not in ("true", "false", "1", "0"):
                raise InputError(f"{name} must be true or false, got {value!r}")
            return str(value).lower() in ("true", "1")
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"{name} must be a number, got {value!r}") from None
        if not self.low <= number <= self.high:
            raise InputError(f"{name} must be a number from {self.low:g} to {self.high:g}, got {value}")
        if isinstance(self.default, int):
            if number != int(number):
                raise InputError(f"{name} must be a whole number, got {value}")
            return int(number)
        return number


@dataclass(frozen=True)
class Entry:
    """A named choice: what it is in one sentence, its knobs, and where it is light, the function itself."""

    name: str
    help: str
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    function: Callable[..., Any] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def complete(self, values: Mapping[str, Any]) -> dict[str, Value]:
        """Every knob with its checked value; a knob that was not given takes its default."""
        for name in values:
            if name not in self.knobs:
                known = ", ".join(self.knobs) or "none"
                raise InputError(f"{self.name} has no knob {name!r}; it has {known}")
        return {name: knob.check(name, values.get(name, knob.default)) for name, knob in self.knobs.items()}


class Table(dict[str, Entry]):
    """Entries by name. `table.add` fills it and refuses duplicates; an unknown name lists the known ones."""

    def __init__(self, noun: str) -> None:
        super().__init__()
        self.noun = noun

    def __missing__(self, name: object) -> Entry:
        raise InputError(f"unknown {self.noun} {name!r}; choose one of {', '.join(self)}")

    def add(self, name: str, help: str, facts: Mapping[str, Any] | None = None, **knobs: Knob) -> Entry:
        """A light entry, whose builder (if any) lives in a Builders of its own."""
        if name in self:
            raise ValueError(f"{self.noun} {name!r} is registered twice")
        self[name] = Entry(name, help, knobs, facts=facts or {})
        return self[name]

    def register(self, name: str, **knobs: Knob) -> Callable[[Function], Function]:
        """Decorator: the function becomes the entry, the first line of its docstring its help."""

        def keep(function: Function) -> Function:
            help = (function.__doc__ or "").strip().partition("\n")[0]
            self.add(name, help, None, **knobs)
            self[name] = Entry(name, help, knobs, function)
            return function

        return keep


class Builders(dict[str, Callable[..., T]], Generic[T]):
    """The heavy half of a table: one function per entry, imported only when a run starts."""

    def __init__(self, table: Table) -> None:
        super().__init__()
        self.table = table

    def __call__(self, name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
        def keep(function: Callable[P, T]) -> Callable[P, T]:
            self.table[name]
            if name in self:
                raise ValueError(f"{self.table.noun} {name!r} is built twice")
            self[name] = function
            return function

        return keep
