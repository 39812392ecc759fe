"""The one-run audit: canaries that are in the data or not, by a coin each, and what the noisy sums tell about them."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from dpviz.privacy.audit import OneRunBound, one_run_bound
from dpviz.privacy.registry import InputError
from dpviz.training.devices import CPU, Device
from dpviz.training.random_streams import Seeded


class OneRunAudit:
    """Canaries that are in the data or not, by a coin each, and what the noisy sums tell about them.

    A canary's gradient lies on a coordinate of its own. Given the steps before, what the other examples add there does
    not depend on the coins, so it is taken out; the noise stays.
    """

    def __init__(self, canaries: int, parameters: Sequence[Tensor], stream: Seeded, device: Device = CPU) -> None:
        sizes = [part.numel() for part in parameters]
        if canaries > sum(sizes):
            raise InputError(f"canaries must be at most the model's {sum(sizes):,} weights, got {canaries:,}")
        included = stream.uniform(canaries) < 0.5
        order = torch.randperm(sum(sizes), generator=stream.generator)[:canaries].sort().values
        ends = torch.tensor(sizes).cumsum(0)
        owners = torch.bucketize(order, ends, right=True)
        within = order - (ends - torch.tensor(sizes))[owners]
        shares = torch.bincount(owners, minlength=len(sizes)).tolist()
        self.owners = owners
        self.included = included.to(parameters[0].device)
        self.places = within.to(parameters[0].device).split(shares)
        self.scores = torch.zeros(canaries, dtype=device.wide, device=parameters[0].device)
        self.others = self.scores

    @property
    def guesses(self) -> int:
        """How many canaries are guessed to be in: fixed ahead."""
        return max(1, len(self.scores) // 10)

    def add(self, sums: Sequence[Tensor], drawn: Tensor, clipped: Tensor) -> None:
        """Add the clipped gradients of the canaries that are in the data and in this batch to the sums, in place."""
        self.others = self._read(sums)
        gradients = clipped * (self.included & drawn)
        for part, places, some in zip(sums, self.places, gradients.split([len(p) for p in self.places]), strict=True):
            part.put_(places, some.to(part.dtype), accumulate=True)

    def observe(
        self, after: Sequence[Tensor], clip_norm: float, sigma: float, sample_rate: float, scale: float
    ) -> None:
        """Add the step's log-likelihood ratio, in against out, to each canary's score."""
        seen = (self._read(after) * scale - self.others) / clip_norm
        ratio = (2 * seen - 1) / (2 * sigma**2)
        out, drawn = _log_chances(sample_rate)
        self.scores += torch.logaddexp(ratio.new_full((), out), drawn + ratio)

    def _read(self, parts: Sequence[Tensor]) -> Tensor:
        seen = torch.cat([part.take(places) for part, places in zip(parts, self.places, strict=True)])
        return seen.to(self.scores.dtype)

    def bound(self, delta: float) -> OneRunBound:
        """Guess that the canaries with the highest scores are in, and count."""
        top = self.scores.argsort(descending=True, stable=True)[: self.guesses]
        return one_run_bound(len(self.scores), self.guesses, int(self.included[top].sum()), delta)


@functools.lru_cache(maxsize=8)
def _log_chances(sample_rate: float) -> tuple[float, float]:
    """Logarithms of the chances to be left out of a batch and to be in it."""
    drawn = torch.tensor(sample_rate, dtype=torch.float64)
    return float(torch.log1p(-drawn)), float(drawn.log())
