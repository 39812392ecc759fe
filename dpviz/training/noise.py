"""Where random numbers come from: the run's seed, or the operating system. Never the global state that threads share.

Every use (weights, batches, noise ...) has a stream of its own, so that two runs with the same seed draw the same
batches whatever their noise, and looking at a run (diagnostics) does not change it.
"""

from __future__ import annotations

import hashlib
import math
import os
from typing import Protocol

import numpy as np
import torch
from torch import Tensor


class Randomness(Protocol):
    """A stream of random numbers whose place can be saved and restored."""

    def uniform(self, count: int) -> Tensor:
        """Numbers in [0, 1) with 53 random bits: at 24 the sampling rate itself would be rounded."""

    def normal(self, count: int) -> Tensor:
        """Independent standard normal numbers, in single precision."""

    def state(self) -> Tensor | None: ...

    def load(self, state: Tensor | None) -> None: ...


class Seeded:
    """Decided by the run's seed and the stream's name: the same on every machine. Not for protecting real people."""

    def __init__(self, seed: int, stream: str) -> None:
        digest = hashlib.sha256(f"dpviz {seed} {stream}".encode()).digest()
        self.generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))

    def uniform(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.generator, dtype=torch.float64)

    def normal(self, count: int) -> Tensor:
        return torch.randn(count, generator=self.generator)

    def state(self) -> Tensor | None:
        return self.generator.get_state()

    def load(self, state: Tensor | None) -> None:
        self.generator.set_state(state)


class Secure:
    """From the operating system's cryptographic source: cannot be predicted, nor repeated.

    A normal number is the sum of four Box-Muller ones over 2, so that the gaps between floating-point numbers tell
    an attacker nothing usable about the value before noise: Holohan & Braghin (2021), arXiv:2107.10138. Opacus' secure
    mode does the same.
    """

    def uniform(self, count: int) -> Tensor:
        return torch.from_numpy(self._fractions(count))

    def normal(self, count: int) -> Tensor:
        # 1 - u lies in (0, 1], so the logarithm is finite.
        radius = np.sqrt(-2 * np.log(1 - self._fractions(4 * count)))
        angle = 2 * math.pi * self._fractions(4 * count)
        return torch.from_numpy((radius * np.cos(angle)).reshape(4, count).sum(0) / 2).float()

    def state(self) -> Tensor | None:
        return None

    def load(self, state: Tensor | None) -> None:
        """Nothing to restore: the numbers go on, new ones."""

    @staticmethod
    def _fractions(count: int) -> np.ndarray:
        return (np.frombuffer(os.urandom(8 * count), np.uint64) >> 11) * 2.0**-53


def randomness(seed: int, stream: str, secure: bool = False) -> Randomness:
    return Secure() if secure else Seeded(seed, stream)
