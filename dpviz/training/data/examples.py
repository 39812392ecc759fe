"""The training examples where a step reads them: on the device if they fit there, else copied over ahead of their turn.

Pixels stay bytes, a quarter of what they take as floats, and are scaled once a batch is drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from dpviz.training.data.readers import Data
from dpviz.training.devices import Device

MOST_OF_FREE = 0.5  # of a device's free memory that data may take; the rest is for the work on a batch
Pair = tuple[Tensor, Tensor]


class Examples:
    """Training examples by number, as a model takes them.

    Where they do not fit on the device, `announce` says which batches come next. While the device works on one, a
    thread gathers the next from memory, or from the memory map of own data, and its copy is only queued.
    """

    def __init__(self, data: Data, device: Device) -> None:
        self.data, self.device = data, device
        whole = (data.train_images, data.train_labels, data.test_images, data.test_labels)
        self.resident = sum(part.nbytes for part in whole) <= MOST_OF_FREE * device.free_bytes
        images, labels, test_images, test_labels = (part.to(device.name) if self.resident else part for part in whole)
        self.stored, self.test = (images, labels), (test_images, test_labels)
        self._thread = None if self.resident else ThreadPoolExecutor(1, "examples")
        self._coming: deque[tuple[Tensor, Tensor]] = deque()  # the index as announced, and on the host
        self._next: Future[Pair] | None = None

    def announce(self, indexes: Sequence[Tensor]) -> None:
        """The batches that `take` will ask for, in this order."""
        if self._thread is None:
            return
        on_host = torch.cat([*indexes]).cpu().split([len(index) for index in indexes])  # all in one read
        self._coming = deque(zip(indexes, on_host, strict=True))
        self._prefetch()

    def take(self, index: Tensor) -> Pair:
        """Inputs and labels of these examples, on the device."""
        if self._thread is None:
            images, labels = self._gather(index.to(self.device.name))
        elif self._next is not None and self._coming[0][0] is index:
            images, labels = self._next.result()
            self._coming.popleft()
            self._prefetch()
        else:
            images, labels = self._gather(index.cpu())
        images, labels = (part.to(self.device.name, non_blocking=True) for part in (images, labels))
        return self.data.inputs(images), labels

    def _prefetch(self) -> None:
        assert self._thread is not None
        self._next = self._thread.submit(self._gather, self._coming[0][1]) if self._coming else None

    def _gather(self, index: Tensor) -> Pair:
        images, labels = (part.index_select(0, index) for part in self.stored)
        pinned = not self.resident and torch.device(self.device.name).type == "cuda"
        return (images.pin_memory(), labels.pin_memory()) if pinned else (images, labels)
