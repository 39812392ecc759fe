"""Which examples each batch has: Poisson sampling, drawn some steps ahead.

How many examples a batch has decides the shapes of all work on it, so the host must know, and to ask a device is to
wait for it. So the samples of several steps are drawn at once and their sizes are read together. The samples do not
depend on how many are drawn ahead, nor on how many workers share the examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dpviz.training.random_streams import Sampling
from dpviz.training.spec import RunSpec


@dataclass(frozen=True)
class Batch:
    """Places of the examples in a batch among the worker's own, and which canaries are in it.

    `place` is where the stream stood before: a run that stops ahead of this batch draws it again.
    """

    index: Tensor
    canaries: Tensor
    place: Tensor | None = None


@dataclass(frozen=True)
class Sample:
    """A Poisson sample whose size the host does not know yet: whether each example, and each canary, is in it."""

    chosen: Tensor
    canaries: Tensor
    place: Tensor | None

    @property
    def size(self) -> Tensor:
        return self.chosen.sum()

    def batch(self, size: int) -> Batch:
        """The sample as a batch; given its size, the device is not asked: the k-th example is where k are counted."""
        counted = self.chosen.cumsum(0, dtype=torch.int32)
        ranks = torch.arange(1, size + 1, dtype=torch.int32, device=counted.device)
        return Batch(torch.searchsorted(counted, ranks), self.canaries, self.place)


class Sampler:
    """Draws each of a worker's examples, and each canary of the run, with the run's sample rate, independently."""

    def __init__(self, spec: RunSpec, part: slice, device: str) -> None:
        self.rate, self.size, self.canaries = spec.sample_rate, spec.size, spec.canaries
        own, canaries = torch.arange(part.start, part.stop), torch.arange(spec.examples, spec.size)
        self.numbers = torch.cat([own, canaries]).to(device)

    def draw(self, stream: Sampling, step: int) -> Sample:
        """The sample of a step, counted from 0 through the run."""
        place = stream.state()
        drawn = stream.chosen(step, self.numbers, self.size, self.rate)
        own = len(drawn) - self.canaries
        return Sample(drawn[:own], drawn[own:], place)
