"""Tables of named choices. An entry holds everything about one choice, so forms, flags and docs build themselves.

LOSSES = Table("loss", Entry("focal", "Plays down easy examples.", {"gamma": Knob(5.0)}, build=focal))
LOSSES["focal"].make({"gamma": 2.0})
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

E = TypeVar("E", bound="Entry")
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


SPELLED = {"relu": "ReLU"}


def in_words(name: str) -> str:
    """A name as people write it: clip_norm -> Clip norm, relu -> ReLU."""
    words = name.replace("_", " ").replace("-", " ")
    return SPELLED.get(name, words[:1].upper() + words[1:])


@dataclass(frozen=True)
class Entry:
    """A named choice: what it is in one sentence, its knobs, its title on screen, and the function behind it.

    `build` is that function or, where its module is heavy, the function's name "package.module:function": pages and
    the command line read tables without importing torch.
    """

    name: str
    help: str
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    title: str = ""
    build: Callable[..., Any] | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", self.title or in_words(self.name))

    @functools.cached_property
    def function(self) -> Callable[..., Any]:
        """The function behind the entry, imported at its first use."""
        if isinstance(self.build, str):
            module, _, name = self.build.partition(":")
            function: Callable[..., Any] = getattr(importlib.import_module(module), name)
            return function
        if self.build is None:
            raise TypeError(f"{self.name} has no function")
        return self.build

    def complete(self, values: Mapping[str, Any]) -> dict[str, Value]:
        """Every knob with its checked value; a knob that was not given takes its default."""
        for name in values:
            if name not in self.knobs:
                known = ", ".join(self.knobs) or "none"
                raise InputError(f"{self.name} has no knob {name!r}; it has {known}")
        return {name: knob.check(name, values.get(name, knob.default)) for name, knob in self.knobs.items()}

    def make(self, knobs: Mapping[str, Any], *arguments: Any) -> Any:
        """What the function gives for these arguments and the completed knobs."""
        return self.function(*arguments, **self.complete(knobs))


class Table(dict[str, E], Generic[E]):
    """Entries by name, in their order. A second entry of a name is refused; an unknown name lists the known ones."""

    def __init__(self, noun: str, *entries: E) -> None:
        super().__init__()
        self.noun = noun
        for entry in entries:
            self.add(entry)

    def __missing__(self, name: object) -> E:
        raise InputError(f"unknown {self.noun} {name!r}; choose one of {', '.join(self)}")

    @property
    def titles(self) -> dict[str, str]:
        return {name: entry.title for name, entry in self.items()}

    def add(self, entry: E) -> E:
        if entry.name in self:
            raise ValueError(f"{self.noun} {entry.name!r} is registered twice")
        self[entry.name] = entry
        return entry

    def register(self: Table[Entry], name: str, *, title: str = "", **knobs: Knob) -> Callable[[Function], Function]:
        """Decorator: the function becomes the entry, the first line of its docstring its help."""

        def keep(function: Function) -> Function:
            help = (function.__doc__ or "").strip().partition("\n")[0]
            self.add(Entry(name, help, knobs, title, function))
            return function

        return keep


def title_of(table: Mapping[str, Entry], name: str) -> str:
    """An entry as it is written on screen; a name that the table no longer has stands for itself."""
    return table[name].title if name in table else name
