"""What a price rests on besides the steps: the accountant, the neighbouring datasets, and how batches are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from dpviz.privacy.accountants import ACCOUNTANTS
from dpviz.privacy.registry import Entry, InputError, Table


@dataclass(frozen=True, kw_only=True)
class Adjacency(Entry):
    """Which datasets are neighbours, and the adjacency whose price it takes.

    Under Poisson sampling an example that counts nothing and one that is absent change a batch alike.
    """

    priced_as: str


ADJACENCIES = Table(
    "adjacency",
    Adjacency(
        "add-remove",
        "neighbours differ by adding or removing one example",
        title="Add or remove one",
        priced_as="add-remove",
    ),
    Adjacency(
        "zero-out",
        "neighbours differ by one example that counts nothing in one of them; every batch keeps its other examples",
        title="Zero out one",
        priced_as="add-remove",
    ),
    Adjacency(
        "replace-one",
        "neighbours differ by replacing one example with another",
        title="Replace one",
        priced_as="replace-one",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Sampling(Entry):
    """How batches are drawn, and the adjacencies for which its price holds; the first one is its default."""

    adjacencies: tuple[str, ...]
    amplified: bool = False  # chance keeps an example out of most batches, which lowers the price


SAMPLINGS = Table(
    "sampling",
    Sampling(
        "poisson",
        "each example enters each batch independently with probability q",
        adjacencies=("add-remove", "zero-out", "replace-one"),
        amplified=True,
    ),
    Sampling(
        "fixed-order",
        "each example is in one batch per epoch, always in the same order: no amplification",
        adjacencies=("zero-out", "replace-one"),
    ),
    Sampling(
        "shuffled",
        "each example is in one batch per epoch, in random order: no tight accountant exists, so as if fixed",
        adjacencies=("zero-out", "replace-one"),
    ),
)


def adjacency_of(sampling: str, adjacency: str | None = None) -> str:
    """The neighbours that a price under this sampling is about: as asked, or the sampling's default.

    In batches of a fixed or shuffled order one example less moves all later examples to other places, which changes
    every later batch. No price here covers that, so add-remove is refused there.
    """
    allowed = SAMPLINGS[sampling].adjacencies
    if adjacency is None:
        return allowed[0]
    if ADJACENCIES[adjacency].name not in allowed:
        raise InputError(
            f"{adjacency} has no price with {sampling} batches: one example less would shift all later batches; choose "
            + " or ".join(allowed)
        )
    return adjacency


def nearest_adjacency(sampling: str, adjacency: str | None) -> str:
    """The adjacency where the sampling allows it, else the sampling's default."""
    return adjacency_of(sampling, adjacency if adjacency in SAMPLINGS[sampling].adjacencies else None)


@dataclass(frozen=True)
class Assumptions:
    """The three choices that every question to an accountant takes. Without an adjacency: the sampling's default."""

    accountant: str
    adjacency: str
    sampling: str

    def __init__(self, accountant: str = "pld", adjacency: str | None = None, sampling: str = "poisson") -> None:
        object.__setattr__(self, "accountant", ACCOUNTANTS[accountant].name)
        object.__setattr__(self, "adjacency", adjacency_of(sampling, adjacency))
        object.__setattr__(self, "sampling", sampling)

    @property
    def priced_as(self) -> str:
        """The adjacency whose price this one takes."""
        return ADJACENCIES[self.adjacency].priced_as


class Named(TypedDict, total=False):
    """The assumptions by name, as every public question takes them in place of the record."""

    accountant: str
    adjacency: str | None
    sampling: str


def assumed(assumptions: Assumptions | None, named: Named) -> Assumptions:
    """The record as given, or made of what was named; both at once would leave open which of them counts."""
    if assumptions is None:
        return Assumptions(**named)
    if named or not isinstance(assumptions, Assumptions):
        got = ", ".join([type(assumptions).__name__, *named])
        raise InputError(
            f"assumptions must be one Assumptions record, or accountant, adjacency and sampling by name; got {got}"
        )
    return assumptions
