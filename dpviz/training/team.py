"""Workers that train one run together, each on its part of the examples.

Every worker draws the Poisson sample of its own examples and sums their clipped gradients. The sums are added up over
all workers; then each adds the same noise, which is so added once, and takes the same step. Sigma, ledger and epsilon
are those of one worker.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from dpviz.privacy.registry import InputError
from dpviz.training.devices import pick_device

PATIENCE = timedelta(minutes=10)  # with a worker that is slower than the others: reading data may take that long


class WorkerLost(InputError):
    """Another worker of the team is gone, so that nothing can be added up any more."""


class Team:
    """A worker's place among the workers of a run, and what they do together, always all of them and in one order.

    The process group must exist already, where there is more than one worker: gloo on CPUs, NCCL on GPUs. `lost` is set
    once another worker does not answer.
    """

    def __init__(self, rank: int = 0, workers: int = 1, device: str = "cpu") -> None:
        self.rank, self.workers, self.device = rank, workers, device
        self.lost = False

    @classmethod
    def meet(cls, meeting: Path, rank: int, workers: int, device: str) -> Team:
        """Wait at a file for the other workers of this machine, and be connected to them."""
        kind = _own_device(device, rank, workers)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo0" if sys.platform == "darwin" else "lo")
        backend, place = "nccl" if kind == "cuda" else "gloo", f"file://{meeting}"
        dist.init_process_group(backend, init_method=place, rank=rank, world_size=workers, timeout=PATIENCE)
        return cls(rank, workers, kind)

    @classmethod
    def connected(cls, device: str) -> Team:
        """The team of a process that somebody else has connected."""
        return cls(dist.get_rank(), dist.get_world_size(), pick_device(device))

    @staticmethod
    def part_ways() -> None:
        """Needed at the end: a process that ends while gloo's threads still hold tensors is aborted now and then."""
        dist.destroy_process_group()

    @property
    def alone(self) -> bool:
        return self.workers == 1

    def part(self, count: int) -> slice:
        """This worker's share of so many things: consecutive, alike in size to within one."""
        return slice(self.rank * count // self.workers, (self.rank + 1) * count // self.workers)

    def add(self, parts: Sequence[Tensor]) -> None:
        """Put the sum over all workers in place of each tensor: the same bits on every worker."""
        if self.alone:
            return
        flat = torch.cat([part.reshape(-1) for part in parts])
        with self._together():
            dist.all_reduce(flat)
        for part, total in zip(parts, flat.split([part.numel() for part in parts]), strict=True):
            part.copy_(total.view(part.shape))

    def first(self, drawn: Tensor) -> Tensor:
        """What the first worker has, for all of them."""
        if self.alone:
            return drawn
        shared = drawn.to(self.device)
        with self._together():
            dist.broadcast(shared, 0)
        return shared.to(drawn.device)

    def first_number(self, ask: Callable[[], float]) -> float:
        """What the first worker answers; the others are not asked."""
        if self.alone:
            return ask()
        return float(self.first(torch.tensor([float(ask()) if self.rank == 0 else 0.0], dtype=torch.float64)))

    def alike(self, words: str) -> bool:
        """Whether all workers say the same; each of them gets the same answer."""
        if self.alone:
            return True
        own = torch.tensor([*hashlib.sha256(words.encode()).digest()], dtype=torch.int64)
        differing = (self.first(own.clone()) != own).sum().to(self.device)
        self.add([differing])
        return not differing.item()

    def whole(self, own: Tensor, count: int) -> Tensor:
        """A row of so many numbers of which each worker has its share."""
        if self.alone:
            return own
        row = torch.zeros(count, dtype=own.dtype, device=self.device)
        row[self.part(count)] = own.to(self.device)
        self.add([row])
        return row.to(own.device)

    @contextmanager
    def _together(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # what torch raises when the others' connections are gone
            self.lost = True
            raise WorkerLost(f"another worker of the run is gone ({type(error).__name__})") from None


def _own_device(device: str, rank: int, workers: int) -> str:
    """The kind of device that a worker of this machine trains on; each takes a GPU of its own."""
    kind = pick_device(device)
    if kind == "mps":
        raise InputError("MPS cannot be shared by several workers; choose the device cpu, or one worker")
    if kind == "cuda":
        if torch.cuda.device_count() < workers:
            raise InputError(f"{workers} workers need a GPU each, and this machine has {torch.cuda.device_count()}")
        torch.cuda.set_device(rank)
    return kind


ALONE = Team()
