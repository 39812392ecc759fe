"""Where random numbers come from: the run's seed, or the operating system. Never the global state that threads share.

Every use (weights, batches, noise ...) has a stream of its own, so that looking at a run (diagnostics) does not change
it. The seed alone decides the first weights: runs of one seed start alike, which makes their difference less a matter
of chance. The seed and all settings of a run decide the rest. Two runs with common noise would differ by their
gradients alone, and whoever sees both could read the data; with common batches, an example that is drawn for one run
would be drawn for the other, too, and sampling would protect it less. In version 1 the seed alone decided every stream;
runs that were begun with it go on with it.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dpviz.privacy.registry import InputError
from dpviz.training.spec import RunSpec

GRID_BITS = 20  # secure noise is rounded to a grid of this many bits below its standard deviation
SECURE = ("batches", "noise", "screening")  # streams that protect people; the others need not be kept secret
COMMON = ("weights", "diagnostics")  # streams that runs of one seed share


class Randomness(Protocol):
    """A stream of random numbers whose place can be saved and restored."""

    def uniform(self, count: int) -> Tensor:
        """Numbers in [0, 1) with 53 random bits: at 24 the sampling rate itself would be rounded."""

    def normal(self, count: int) -> Tensor:
        """Independent standard normal numbers. In double precision, since single-precision ones end at 5.77."""

    def state(self) -> Tensor | None: ...

    def load(self, state: Tensor | None) -> None: ...


class Seeded:
    """Decided by a seed and a name: the same on every machine. Not for protecting real people.

    Normal numbers reach 8.57, where the tail holds 1e-17 (Box-Muller on 53 bits).
    """

    def __init__(self, seed: int, stream: str, precision: torch.dtype = torch.float64) -> None:
        digest = hashlib.sha256(f"dpviz {seed} {stream}".encode()).digest()
        self.generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        self.precision = precision

    def uniform(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.generator, dtype=torch.float64)

    def normal(self, count: int) -> Tensor:
        return torch.randn(count, generator=self.generator, dtype=self.precision)

    def state(self) -> Tensor | None:
        return self.generator.get_state()

    def load(self, state: Tensor | None) -> None:
        if state is None:
            raise InputError("the checkpoint lacks a seeded stream's place; delete it to start the run over")
        self.generator.set_state(state)


class Secure:
    """From the operating system's cryptographic source: cannot be predicted, nor repeated.

    A normal number is the sum of four Box-Muller ones over 2, so that it is not a function of one pair of 53-bit
    numbers, which could be solved for: Holohan & Braghin (2021), arXiv:2107.10138. Opacus' secure mode does the same.
    """

    def uniform(self, count: int) -> Tensor:
        return torch.from_numpy(self._fractions(count))

    def normal(self, count: int) -> Tensor:
        # 1 - u lies in (0, 1], so the logarithm is finite.
        radius = np.sqrt(-2 * np.log(1 - self._fractions(4 * count)))
        angle = 2 * math.pi * self._fractions(4 * count)
        return torch.from_numpy((radius * np.cos(angle)).reshape(4, count).sum(0) / 2)

    def state(self) -> Tensor | None:
        return None

    def load(self, state: Tensor | None) -> None:
        """Nothing to restore: the numbers go on, new ones."""

    @staticmethod
    def _fractions(count: int) -> np.ndarray:
        return (np.frombuffer(os.urandom(8 * count), np.uint64) >> 11) * 2.0**-53


def seeded(spec: RunSpec, stream: str, sigmas: Sequence[float] = ()) -> Seeded:
    """A run's stream by name, decided by the seed or by the seed and all settings.

    `sigmas` are those of the epochs so far of a run under a filter: two runs of the same settings that were changed
    differently on the way must not share noise and batches from there on.
    """
    if spec.streams == 1:
        return Seeded(spec.seed, stream, torch.float32)
    course = f" {sigmas!r}" if sigmas else ""
    return Seeded(spec.seed, stream if stream in COMMON else f"{stream} {spec.noise_key}{course}")


def randomness(spec: RunSpec, stream: str, sigmas: Sequence[float] = ()) -> Randomness:
    """A run's stream by name: from the system where the run is secure and the stream protects people."""
    return Secure() if spec.secure and stream in SECURE else seeded(spec, stream, sigmas)


def add_noise(value: Tensor, noise: Tensor, grid: float | None = None) -> Tensor:
    """value + noise, added in the noise's precision and rounded to multiples of the grid before it is narrowed.

    The last bits of a floating-point sum tell which values it can have come from (Mironov 2012, CCS). Multiples of one
    grid are the same for all values, so nothing but the noise decides which of them comes out; what is done to it
    afterwards, narrowing included, is post-processing.
    """
    wide = (value.cpu() if value.device.type == "mps" else value).to(noise.dtype)  # MPS has no double precision
    total = wide + noise.to(wide.device)
    if grid is not None:
        total = total.div_(grid).round_().mul_(grid)
    return total.to(value.device, value.dtype)


def noise_grid(noise_std: float) -> float:
    """The power of 2 that lies GRID_BITS below the noise: dividing by it is exact, rounding to it costs no accuracy."""
    return 2.0 ** (math.floor(math.log2(noise_std)) - GRID_BITS)
