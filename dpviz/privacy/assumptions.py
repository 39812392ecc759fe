"""What a price rests on besides the steps: the accountant, the neighbouring datasets, and how batches are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from dpviz.privacy.registry import InputError, Table

ACCOUNTANTS = Table("accountant")
ACCOUNTANTS.add("pld", "Privacy-loss distribution: a certified band around the true epsilon.")
ACCOUNTANTS.add("rdp", "Renyi moments with the improved conversion (Balle et al. 2020): an upper bound.")
ACCOUNTANTS.add("rdp-classic", "Renyi moments with the classic conversion (Mironov 2017): a looser upper bound.")

# Every adjacency names the one whose price it takes: under Poisson sampling an example that counts nothing and one that
# is absent change a batch alike.
ADJACENCIES = Table("adjacency")
ADJACENCIES.add("add-remove", "neighbours differ by adding or removing one example", {"priced_as": "add-remove"})
ADJACENCIES.add(
    "zero-out",
    "neighbours differ by one example that counts nothing in one of them; every batch keeps its other examples",
    {"priced_as": "add-remove"},
)
ADJACENCIES.add("replace-one", "neighbours differ by replacing one example with another", {"priced_as": "replace-one"})

# Every sampling names the adjacencies for which its price holds; the first one is its default.
SAMPLINGS = Table("sampling")
SAMPLINGS.add(
    "poisson",
    "each example enters each batch independently with probability q",
    {"adjacencies": ("add-remove", "zero-out", "replace-one")},
)
SAMPLINGS.add(
    "fixed-order",
    "each example is in one batch per epoch, always in the same order: no amplification",
    {"adjacencies": ("zero-out", "replace-one")},
)
SAMPLINGS.add(
    "shuffled",
    "each example is in one batch per epoch, in random order: no tight accountant exists, so as if fixed",
    {"adjacencies": ("zero-out", "replace-one")},
)


def adjacency_of(sampling: str, adjacency: str | None = None) -> str:
    """The neighbours that a price under this sampling is about: as asked, or the sampling's default.

    In batches of a fixed or shuffled order one example less moves all later examples to other places, which changes
    every later batch. No price here covers that, so add-remove is refused there.
    """
    allowed: tuple[str, ...] = SAMPLINGS[sampling].facts["adjacencies"]
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
    return adjacency_of(sampling, adjacency if adjacency in SAMPLINGS[sampling].facts["adjacencies"] else None)


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
        return str(ADJACENCIES[self.adjacency].facts["priced_as"])


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
