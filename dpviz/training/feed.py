"""What a trainer is fed with, step by step: the batches of its worker's own examples, drawn some steps ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dpviz.training.augmentation import augment, draw_crops
from dpviz.training.batches import Batch, Sampler
from dpviz.training.curricula import batches
from dpviz.training.data.examples import Examples
from dpviz.training.data.readers import Data
from dpviz.training.devices import Device
from dpviz.training.random_streams import numbered, sampling
from dpviz.training.spec import RunSpec
from dpviz.training.team import Team

MOST_AHEAD, MOST_DRAWN = 1000, 2**26  # steps that are drawn ahead; examples drawn for them, a byte each
Look = Callable[[Sequence[Tensor]], list[int]]  # reads numbers off the device, which waits for it


class Feed:
    """Batches of the worker's part of the examples, in an epoch's order if it has one, else as Poisson samples."""

    def __init__(self, spec: RunSpec, data: Data, device: Device, team: Team) -> None:
        self.spec, self.device, self.team, self.part = spec, device, team, team.part(spec.examples)
        self.examples = Examples(data.part(self.part), device)
        self.sampler, self.sampling = Sampler(spec, self.part, device.name), sampling(spec, agree=team.first)
        self.augmentation = numbered(spec, "augmentation")
        self.order: Tensor | None = None
        self.ahead: deque[Batch] = deque()  # the next steps' batches

    def begin_epoch(self, order: Tensor | None) -> None:
        self.order = None if order is None else order.to(self.device.name)

    def follow(self, sigmas: Sequence[float], *, begins: bool) -> None:
        """Draw for a run under a filter whose epochs up to this one have this noise; within an epoch, a stream that has
        a place in a row goes on from there."""
        if begins or self.sampling.state() is None:
            self.sampling = sampling(self.spec, sigmas)

    def take(self, epoch: int, step: int, steps: int) -> tuple[Tensor, Tensor, Tensor]:
        """Images and labels of a step of an epoch of so many, and which canaries were drawn beside them."""
        batch = self.ahead.popleft()
        images, labels = self.examples.take(batch.index)
        if self.spec.knobs_of("dataset").get("augment"):
            numbers = batch.index.to(self.device.name) + self.part.start
            images = augment(images, draw_crops(self.augmentation, epoch * steps + step, numbers, self.spec.size))
        return images, labels, batch.canaries

    def look_ahead(self, epoch: int, step: int, steps: int, stride: int, look: Look) -> None:
        """Decide on the batches of `stride` steps. Their sizes are read with what there is to see of past ones."""
        stride = min(stride, steps - step, MOST_AHEAD, max(1, MOST_DRAWN // self.spec.size))
        if self.order is None:
            first = epoch * steps + step
            samples = [self.sampler.draw(self.sampling, number) for number in range(first, first + stride)]
            sizes = look([sample.size for sample in samples])
            self.ahead.extend(sample.batch(size) for sample, size in zip(samples, sizes, strict=True))
        else:
            look(())
            nobody = self.order.new_zeros(0, dtype=torch.bool)
            coming = batches(self.order, steps)[step : step + stride]
            self.ahead.extend(Batch(self._own(index), nobody) for index in coming)
        self.examples.announce([batch.index for batch in self.ahead])

    def _own(self, index: Tensor) -> Tensor:
        """Those of the examples that this worker has, counted from its first."""
        if self.team.alone:
            return index
        own: Tensor = index[(index >= self.part.start) & (index < self.part.stop)] - self.part.start
        return own

    def state(self) -> dict[str, Any]:
        """Where the stream of batches stood before those that were drawn ahead, and the rest as it is."""
        drawn = self.ahead and self.order is None
        return {
            "batches": self.ahead[0].place if drawn else self.sampling.state(),
            "augmentation": self.augmentation.state(),
            "order": None if self.order is None else self.order.cpu(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.ahead.clear()
        self.sampling.load(state["batches"])
        self.augmentation.load(state["augmentation"])
        self.begin_epoch(state["order"])
