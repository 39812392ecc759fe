"""Reported numbers, recipes and papers: frozen records, and a mapping that helps with misspelt names."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from dpviz.privacy.registry import InputError
from dpviz.training.local.spec import LocalSpec
from dpviz.training.spec import EpochRecord, RunSpec

T = TypeVar("T")

SOURCES = ("table", "text", "cited")
VERDICTS = ("holds", "holds partly", "does not hold", "undecided", "not checked")
TEST_ACCURACY = "test_accuracy"
HEADLINES = (TEST_ACCURACY, "test_error")  # what experiments are compared by


@dataclass(frozen=True)
class Reported:
    """One number that a paper prints, and where. Accuracies and errors are fractions; epsilon and delta as claimed.

    `source` says what it was typed from: a table (or a figure that is one), running text, or cited from another paper.
    Where no recipe says it, `dataset` is what it was measured on and `epsilon_sound` the epsilon that holds for it.
    """

    paper: str
    experiment: str
    quantity: str
    value: float
    place: str
    source: str
    epsilon: float | None = None
    delta: float | None = None
    spread: float | None = None
    note: str = ""
    dataset: str = ""
    epsilon_sound: float | None = None

    def __post_init__(self) -> None:
        if not (self.place and self.source in SOURCES):
            raise ValueError(f"{self.name} needs its place and a source of {', '.join(SOURCES)}")
        if not math.isfinite(self.value):
            raise ValueError(f"{self.name}: {self.quantity} must be a finite number, got {self.value}")
        if self.quantity.endswith(("_accuracy", "_error")) and not 0 <= self.value <= 1:
            raise ValueError(f"{self.name}: {self.quantity} must be a fraction from 0 to 1, got {self.value}")

    @property
    def name(self) -> str:
        """The recipe's name, where the experiment has one: "curricula/linear-decreasing"."""
        return f"{self.paper}/{self.experiment}"


@dataclass(frozen=True)
class OpenValue:
    """A setting that the paper leaves open: what it is, what was chosen, and why."""

    what: str
    chosen: str
    why: str


@dataclass(frozen=True)
class Recipe:
    """An experiment of a paper as settings that can be run, beside what the paper reports for it."""

    name: str
    paper: str
    title: str
    spec: RunSpec
    open_values: tuple[OpenValue, ...] = ()
    reported: tuple[Reported, ...] = ()

    @property
    def headline(self) -> Reported | None:
        return headline(self.reported)


@dataclass(frozen=True)
class LocalRecipe:
    """An experiment under local privacy: its data, and its settings but for lambda, which cross-validation chooses."""

    name: str
    paper: str
    title: str
    data: str
    spec: LocalSpec
    open_values: tuple[OpenValue, ...] = ()
    reported: tuple[Reported, ...] = ()

    @property
    def headline(self) -> Reported | None:
        return headline(self.reported)


def headline(reported: Iterable[Reported]) -> Reported | None:
    """The number to compare with: the first accuracy or error, tables before text. None: the paper prints none."""
    return next((number for number in reported if number.quantity in HEADLINES), None)


@dataclass(frozen=True)
class Paper:
    """A paper by its folder's name: what it proposes in four sentences, its methods, and doubts about its numbers.

    `order` is its place among the papers; `picture` names the function that draws its idea ("module:function"; papers
    know no pictures); `tried` says what was tried where our numbers and the paper's differ; `diagnostics`, that it
    looks inside its runs.
    """

    name: str
    order: int
    title: str
    short_title: str
    authors: str
    year: int
    picture: str
    picture_sentence: str
    summary: tuple[str, ...]
    methods: tuple[str, ...]
    doubts: tuple[str, ...]
    tried: tuple[str, ...] = ()
    diagnostics: bool = False


# Recipe -> seed -> curve, as measured here, and local recipe -> test errors, one per repeat. Papers know no runs:
# whoever asks brings them.
Curve = tuple[EpochRecord, ...]
Curves = Mapping[str, Mapping[int, Curve]]
Errors = Mapping[str, Sequence[float]]
EVIDENCE = ("whole runs", "all runs", "errors")


@dataclass(frozen=True)
class Gain:
    """Points by which one experiment leads another, how many of them may be chance, and what the paper prints."""

    points: float
    chance: float
    seeds: int
    title: str = ""
    reported: float | None = None

    @property
    def won(self) -> bool:
        return self.points > self.chance

    @property
    def lost(self) -> bool:
        return self.points < -self.chance


@dataclass(frozen=True)
class Finding:
    """What a check found: a verdict, a plain paragraph, the figures that both were made from, and pairs to draw.

    "undecided" means that there are runs, but that their differences may be chance; "not checked", that there are none.
    """

    verdict: str
    text: str
    figures: Mapping[str, float] = field(default_factory=dict)
    pairs: tuple[Gain, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"a verdict is one of {', '.join(VERDICTS)}, got {self.verdict!r}")


@dataclass(frozen=True)
class Claim:
    """Something a paper says, where it says it, and the function that checks it.

    `evidence` is what the check gets: curves of whole runs; of all runs, if it tells what shortened ones have come to
    (they decide nothing); or test errors under local privacy.
    """

    name: str
    paper: str
    place: str
    text: str
    check: Callable[[Any], Finding]
    evidence: str = EVIDENCE[0]

    def __post_init__(self) -> None:
        if self.evidence not in EVIDENCE:
            raise ValueError(f"evidence is one of {', '.join(EVIDENCE)}, got {self.evidence!r}")


class Named(dict[str, T]):
    """Records by name; an unknown name is answered with the nearest known ones."""

    def __init__(self, noun: str, records: dict[str, T]) -> None:
        super().__init__(records)
        self.noun = noun

    def __missing__(self, name: object) -> T:
        near = difflib.get_close_matches(str(name), self, n=5, cutoff=0.4) or list(self)[:5]
        raise InputError(f"unknown {self.noun} {name!r}; the nearest are {', '.join(near)}")
