"""CLAIMS: what the papers claim, each with the function that checks it, run when somebody asks."""

from __future__ import annotations

from dpviz.papers import measured_claims, priced_claims
from dpviz.papers.library import PAPERS
from dpviz.papers.records import Claim, Named

CLAIMS: Named[Claim] = Named("claim", {claim.name: claim for claim in (*priced_claims.CLAIMS, *measured_claims.CLAIMS)})


def claims_of(paper: str) -> tuple[Claim, ...]:
    """Every claim of a paper: those about epsilon, then those about accuracy."""
    return tuple(claim for claim in CLAIMS.values() if claim.paper == PAPERS[paper].name)
