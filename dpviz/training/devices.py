"""Devices: which there are, how each one works, and how much fits on it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import torch

from dpviz.privacy.registry import InputError

DEVICES = ("auto", "cpu", "cuda", "mps")


@dataclass(frozen=True)
class Portions:
    """How much is worked on at once: numbers that a part of a batch may occupy, examples in it, and, for each thread,
    numbers of a convolution's rows."""

    numbers: int
    examples: int
    rows: int


# Measured on CPUs: more is not faster, since it leaves the cache. Reasoned for devices, where each piece of work has to
# be launched: few large ones, whose 2 GB leave room on most; where they do not, the part is halved.
IN_CACHE, ON_DEVICE = Portions(40_000_000, 256, 500_000), Portions(500_000_000, 1_000_000, 500_000_000)


@dataclass(frozen=True)
class Device:
    """A device by torch's name, and what the loop must know about it.

    `asynchronous`: work is only queued, and whoever asks for a number waits until it is done. `doubles`: there is
    double precision. Random numbers are drawn by the device itself, so a seed gives others on another model of it.
    """

    name: str
    asynchronous: bool = True
    doubles: bool = True

    @property
    def wide(self) -> torch.dtype:
        return torch.float64 if self.doubles else torch.float32

    @property
    def model(self) -> str:
        """The kind of device whose generator draws; a CUDA generator's numbers depend on the number of its cores."""
        kind = torch.device(self.name).type
        return f"cuda ({torch.cuda.get_device_name(self.name)})" if kind == "cuda" else kind

    @property
    def portions(self) -> Portions:
        return ON_DEVICE if self.asynchronous else IN_CACHE

    @property
    def free_bytes(self) -> float:
        """Memory that is free now; on the CPU data stay where they are, so that there is no limit."""
        kind = torch.device(self.name).type
        if kind == "cuda":
            return torch.cuda.mem_get_info(self.name)[0]
        if kind == "mps":
            return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
        return math.inf

    def free_cache(self) -> None:
        """Give back the memory that torch keeps for later, in pieces that may be too small."""
        kind = torch.device(self.name).type
        if kind == "cuda":
            torch.cuda.empty_cache()
        elif kind == "mps":
            torch.mps.empty_cache()


CPU = Device("cpu", asynchronous=False)


def pick_device(name: str) -> str:
    """The device by name; auto takes CUDA, then MPS, then the CPU."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return next(device for device in ("cuda", "mps", "cpu") if there[device])
    if name.partition(":")[0] not in there:
        raise InputError(f"unknown device {name!r}; choose one of {', '.join(DEVICES)}")
    if not there[name.partition(":")[0]]:
        raise InputError(f"this machine has no {name} device; choose auto or cpu")
    return name


def device_of(name: str) -> Device:
    """The device, ready to give the same result every time."""
    kind = torch.device(name := pick_device(name)).type
    if kind == "cpu":
        return CPU
    if kind == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
        torch.backends.cudnn.benchmark = False
    return Device(name, doubles=kind != "mps")


# What PyTorch says where memory ran out and has no error of its own for it: on CPUs, MPS, in CUDA's libraries.
NO_MEMORY = ("DefaultCPUAllocator", "MPS backend out of memory", "Invalid buffer size", "STATUS_ALLOC_FAILED")


def out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in NO_MEMORY)
