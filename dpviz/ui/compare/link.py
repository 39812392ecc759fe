"""What the Compare page shows, as a record, and the same in a link. Links are read strictly."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dpviz.papers import PAPERS
from dpviz.privacy.registry import InputError, Knob
from dpviz.runs import Run
from dpviz.training.tables import CHOICES, DATASETS
from dpviz.views.comparison.experiments import SOURCES, group_of
from dpviz.views.comparison.settings import TITLES
from dpviz.views.comparison.views import VIEWS

ALL = "all"
EPSILONS = {"sound": "Sound", "claimed": "Claimed"}
GROUP = re.compile(r"(own|imported|cached|reported)/[a-z0-9][a-z0-9./+-]{0,150}")
KNOB = re.compile(rf"({'|'.join(CHOICES)})\.[a-z0-9_]{{1,40}}")
AT = Knob(2.0, 0.001, 1e6, "epsilon at which curves are compared")
MOST_GROUPS = 60
MOST_LETTERS = 80
EXPERIMENT = "experiment"  # colour and group by the experiment itself


@dataclass(frozen=True)
class Comparison:
    """Everything that a link to the Compare page can say.

    `highlight` are the coloured groups, one per mark, "" where a mark is free; none at all: chosen automatically, as
    is an empty `baseline`.
    """

    show: tuple[str, ...] = tuple(SOURCES)
    dataset: str = "mnist"
    paper: str = ALL
    search: str = ""
    view: str = "epsilon"
    epsilon: str = "sound"
    log: bool = True
    at: float = float(AT.default)
    highlight: tuple[str, ...] = ()
    baseline: str = ""
    colour: str = EXPERIMENT
    group: str = EXPERIMENT
    facet: str = "dataset"
    rest: bool = True
    cells: tuple[str, ...] = ()

    @property
    def column(self) -> str:
        return f"epsilon_{self.epsilon}"


def _one_of(known: Iterable[str], *more: str) -> Callable[[str, str], str]:
    def check(name: str, text: str) -> str:
        if text not in known and text not in more:
            raise InputError(f"{name} in this link must be one of {', '.join((*more, *known))}, got {text[:40]!r}")
        return text

    return check


def _sources(name: str, text: str) -> tuple[str, ...]:
    return tuple(_one_of(SOURCES)(name, word) for word in text.split(",")) if text else ()


def _groups(name: str, text: str) -> tuple[str, ...]:
    words = tuple(text.split(",")) if text else ()
    if len(words) > MOST_GROUPS or not all(GROUP.fullmatch(word) for word in words if word):
        raise InputError(f"{name} in this link must name at most {MOST_GROUPS} curves; copy the link again")
    return words


def _group(name: str, text: str) -> str:
    if text and not GROUP.fullmatch(text):
        raise InputError(f"{name} in this link must name a curve, got {text[:40]!r}; copy the link again")
    return text


def _setting(name: str, text: str) -> str:
    return text if KNOB.fullmatch(text) else _one_of(TITLES, EXPERIMENT)(name, text)


def _settings(name: str, text: str) -> tuple[str, ...]:
    words = tuple(_setting(name, word) for word in text.split(",")) if text else ()
    if len(words) not in (0, 2):
        raise InputError(f"{name} in this link must name two settings, got {len(words)}")
    return words


def _search(name: str, text: str) -> str:
    if len(text) > MOST_LETTERS or not text.isprintable():
        raise InputError(f"{name} in this link must be at most {MOST_LETTERS} printable letters")
    return text


def _flag(name: str, text: str) -> bool:
    return _one_of({"0": False, "1": True})(name, text) == "1"


FIELDS: dict[str, Callable[[str, str], Any]] = {
    "show": _sources,
    "dataset": _one_of(DATASETS, ALL),
    "paper": _one_of(PAPERS, ALL),
    "search": _search,
    "view": _one_of(VIEWS),
    "epsilon": _one_of(EPSILONS),
    "log": _flag,
    "at": AT.check,
    "highlight": _groups,
    "baseline": _group,
    "colour": _setting,
    "group": _setting,
    "facet": _setting,
    "rest": _flag,
    "cells": _settings,
}


def parse_link(params: Mapping[str, str]) -> Comparison:
    """What a link asks for; what it leaves out takes its default, what it does not mean is refused."""
    for name in params:
        if name not in FIELDS:
            raise InputError(f"a link to this page has no {name[:40]!r}; it has {', '.join(FIELDS)}")
    return Comparison(**{name: FIELDS[name](name, text) for name, text in params.items()})


def to_link(shown: Comparison) -> dict[str, str]:
    """The link's fields; defaults are left out, but for the dataset: without one a visitor's own runs decide."""
    plain = Comparison()
    changed = {
        name: getattr(shown, name)
        for name in FIELDS
        if name == "dataset" or getattr(shown, name) != getattr(plain, name)
    }
    return {name: _text(value) for name, value in changed.items()}


def link_to(runs: Iterable[Run]) -> dict[str, str]:
    """The link that shows these runs in colour, on their dataset if it is one that dpviz knows."""
    runs = tuple(runs)
    datasets = {run.spec.dataset for run in runs}
    groups = tuple(dict.fromkeys(group_of(run) for run in runs))[:MOST_GROUPS]
    dataset = datasets.pop() if len(datasets) == 1 else ALL
    return to_link(Comparison(dataset=dataset if dataset in DATASETS else ALL, highlight=groups))


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(value)
    return (
        str(int(value))
        if isinstance(value, bool)
        else repr(value).removesuffix(".0")
        if isinstance(value, float)
        else value
    )
