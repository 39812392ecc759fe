"""What the Compare page shows, as a record, and the same in a link. Links are read strictly."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from dpviz.papers import PAPERS
from dpviz.privacy.registry import InputError, Knob
from dpviz.training.tables import DATASETS
from dpviz.views.comparison import SOURCES
from dpviz.views.comparison_figures import MOST_LIT

ALL = "all"
EPSILONS = {"sound": "Sound", "claimed": "Claimed"}
GROUP = re.compile(r"(own|cached|reported)/[a-z0-9][a-z0-9./+-]{0,150}")
AT = Knob(3.0, 0.001, 1e6, "budget of the table at equal epsilon")


@dataclass(frozen=True)
class View:
    """One way to look: its title, and the columns of a plot of curves (None: the epsilon that was chosen)."""

    title: str
    x: str | None = None
    y: str = "test_accuracy"


VIEWS = {
    "epsilon": View("Against epsilon"),
    "epoch": View("Against epochs", "epoch"),
    "time": View("Against time", "minutes"),
    "schedules": View("Schedules", "epoch", "noise_multiplier"),
    "frontier": View("Frontier"),
    "fit": View("Log-epsilon fit"),
    "equal": View("At equal epsilon"),
}


@dataclass(frozen=True)
class Comparison:
    """Everything that a link to the Compare page can say."""

    show: tuple[str, ...] = tuple(SOURCES)
    dataset: str = "mnist"
    paper: str = ALL
    view: str = "epsilon"
    epsilon: str = "sound"
    log: bool = True
    at: float = float(AT.default)
    highlight: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        return f"epsilon_{self.epsilon}"


def _one_of(known: Mapping[str, Any], *more: str) -> Callable[[str, str], str]:
    def check(name: str, text: str) -> str:
        if text not in known and text not in more:
            raise InputError(f"{name} in this link must be one of {', '.join((*more, *known))}, got {text[:40]!r}")
        return text

    return check


def _sources(name: str, text: str) -> tuple[str, ...]:
    return tuple(_one_of(SOURCES)(name, word) for word in text.split(",")) if text else ()


def _groups(name: str, text: str) -> tuple[str, ...]:
    words = tuple(text.split(",")) if text else ()
    if len(words) > MOST_LIT or not all(GROUP.fullmatch(word) for word in words):
        raise InputError(f"{name} in this link must name at most {MOST_LIT} curves; copy the link again")
    return words


def _flag(name: str, text: str) -> bool:
    return _one_of({"0": False, "1": True})(name, text) == "1"


FIELDS: dict[str, Callable[[str, str], Any]] = {
    "show": _sources,
    "dataset": _one_of(DATASETS, ALL),
    "paper": _one_of(PAPERS, ALL),
    "view": _one_of(VIEWS),
    "epsilon": _one_of(EPSILONS),
    "log": _flag,
    "at": AT.check,
    "highlight": _groups,
}


def parse_link(params: Mapping[str, str]) -> Comparison:
    """What a link asks for; what it leaves out takes its default, what it does not mean is refused."""
    for name in params:
        if name not in FIELDS:
            raise InputError(f"a link to this page has no {name[:40]!r}; it has {', '.join(FIELDS)}")
    return Comparison(**{name: FIELDS[name](name, text) for name, text in params.items()})


def to_link(shown: Comparison) -> dict[str, str]:
    """The link's fields; defaults are left out."""
    plain = Comparison()
    changed = {name: getattr(shown, name) for name in FIELDS if getattr(shown, name) != getattr(plain, name)}
    return {name: _text(value) for name, value in changed.items()}


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(int(value)) if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
