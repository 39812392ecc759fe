"""Where random numbers come from: the run's seed, or the operating system. Never the global state that threads share.

Every use (weights, batches, noise ...) has a stream of its own, so that looking at a run (diagnostics) does not change
it. The seed alone decides the first weights: runs of one seed start alike, which makes their difference less a matter
of chance. The seed and all settings of a run decide the rest. Two runs with common noise would differ by their
gradients alone, and whoever sees both could read the data; with common batches, an example that is drawn for one run
would be drawn for the other, too, and sampling would protect it less.

What belongs to an example (`numbered`) is drawn by its number, so that it does not depend on who draws it: see Counted.
What every step needs besides (`RESIDENT`) is drawn by a generator of the device that trains, so that nothing is copied;
a seed gives other numbers there than on the CPU. Runs of older versions go on as they began: in version 2 all streams
were drawn on the CPU in one row, in version 1 the seed alone decided them as well.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from dpviz.privacy.registry import InputError
from dpviz.training.devices import CPU, Device
from dpviz.training.spec import RunSpec

GRID_BITS = 20  # secure noise is rounded to a grid of this many bits below its standard deviation
SECURE = ("noise", "screening")  # streams that protect people, beside the batches; the others need not be secret
COMMON = ("weights", "diagnostics")  # streams that runs of one seed share
RESIDENT = ("noise", "audit")  # streams that are drawn where the run trains


class Stream(Protocol):
    """Random numbers whose place can be saved and restored."""

    def state(self) -> Tensor | None: ...

    def load(self, state: Tensor | None) -> None: ...


class Randomness(Stream, Protocol):
    """Random numbers one after the other."""

    def uniform(self, count: int) -> Tensor:
        """Numbers in [0, 1) with 53 random bits: at 24 the sample rate itself would be rounded."""

    def normal(self, count: int) -> Tensor:
        """Independent standard normal numbers. In double precision, since single-precision ones end at 5.77."""


class Sampling(Stream, Protocol):
    """Who is in which batch."""

    def chosen(self, step: int, numbers: Tensor, size: int, rate: float) -> Tensor:
        """Whether each of these examples, out of so many, is in the batch of a step: with probability `rate`, to 53
        bits, independently."""


Agree = Callable[[Tensor], Tensor]


def as_drawn(drawn: Tensor) -> Tensor:
    """One worker need not agree with anybody."""
    return drawn


class Seeded:
    """Decided by a seed and a name: the same on every machine with this kind of device. Not for protecting real people.

    Normal numbers reach 8.57, where the tail holds 1e-17 (Box-Muller on 53 bits).
    """

    def __init__(self, seed: int, stream: str, precision: torch.dtype = torch.float64, device: Device = CPU) -> None:
        self.device, self.precision = device, precision
        self.generator = torch.Generator(device.name).manual_seed(int.from_bytes(_digest(seed, stream)[:7], "big"))

    def uniform(self, count: int) -> Tensor:
        return torch.rand(count, generator=self.generator, dtype=self.device.wide, device=self.device.name)

    def chosen(self, step: int, numbers: Tensor, size: int, rate: float) -> Tensor:
        return (self.uniform(size) < rate).to(numbers.device)[numbers]

    def normal(self, count: int) -> Tensor:
        return torch.randn(count, generator=self.generator, dtype=self.precision, device=self.device.name)

    def state(self) -> Tensor | None:
        return self.generator.get_state()

    def load(self, state: Tensor | None) -> None:
        if state is None:
            raise InputError("the checkpoint lacks a seeded stream's place; delete it to start the run over")
        self.generator.set_state(state)


class Counted:
    """Decided by a seed, a name and an example's number at a step: the same on every device, whoever draws it.

    Each of several workers draws for its own examples, and together they draw what one would; there is no place in a
    row to be saved. The k-th number of SplitMix64 is mix(key + k * GOLDEN), here with k = step * size + number (Steele,
    Lea & Flood 2014, OOPSLA). Not for protecting real people.
    """

    def __init__(self, seed: int, stream: str) -> None:
        self.key = _signed(int.from_bytes(_digest(seed, stream)[:8], "big"))

    def bits(self, step: int, numbers: Tensor, size: int) -> Tensor:
        """64 random bits for each of these examples, out of so many."""
        mixed = (numbers + step * size) * GOLDEN + self.key
        for shift, factor in ((30, MIX[0]), (27, MIX[1])):
            mixed = (mixed ^ _shifted(mixed, shift)) * factor
        return mixed ^ _shifted(mixed, 31)

    def chosen(self, step: int, numbers: Tensor, size: int, rate: float) -> Tensor:
        """As signed numbers of 53 bits; rounded down, so that nobody is drawn more often than an accountant is told."""
        return (self.bits(step, numbers, size) >> 11) < math.floor(rate * 2**53) - 2**52

    def state(self) -> Tensor | None:
        return None

    def load(self, state: Tensor | None) -> None:
        """Nothing to restore: there is no place in a row."""


class Secure:
    """From the operating system's cryptographic source: cannot be predicted, nor repeated.

    A normal number is the sum of four Box-Muller ones over 2, so that it is not a function of one pair of 53-bit
    numbers, which could be solved for: Holohan & Braghin (2021), arXiv:2107.10138. Opacus' secure mode does the same.
    Drawn on the CPU and copied, wherever the run trains. `agree` lets several workers draw the same.
    """

    def __init__(self, agree: Agree = as_drawn) -> None:
        self.agree = agree

    def uniform(self, count: int) -> Tensor:
        return self.agree(torch.from_numpy(self._fractions(count)))

    def chosen(self, step: int, numbers: Tensor, size: int, rate: float) -> Tensor:
        return (self.uniform(size) < rate).to(numbers.device)[numbers]

    def normal(self, count: int) -> Tensor:
        # 1 - u lies in (0, 1], so the logarithm is finite.
        radius = np.sqrt(-2 * np.log(1 - self._fractions(4 * count)))
        angle = 2 * math.pi * self._fractions(4 * count)
        return self.agree(torch.from_numpy((radius * np.cos(angle)).reshape(4, count).sum(0) / 2))

    def state(self) -> Tensor | None:
        return None

    def load(self, state: Tensor | None) -> None:
        """Nothing to restore: the numbers go on, new ones."""

    @staticmethod
    def _fractions(count: int) -> np.ndarray:
        return (np.frombuffer(os.urandom(8 * count), np.uint64) >> 11) * 2.0**-53


def seeded(spec: RunSpec, stream: str, sigmas: Sequence[float] = (), device: Device = CPU) -> Seeded:
    """A run's stream by name, decided by the seed or by the seed and all settings."""
    return Seeded(
        spec.seed,
        stream_name(spec, stream, sigmas),
        torch.float32 if spec.streams == 1 else torch.float64,
        # Normal numbers of single precision end early, so noise comes from the CPU where a device has no doubles.
        drawn_on(spec, device) if stream in RESIDENT and (device.doubles or stream != "noise") else CPU,
    )


def stream_name(spec: RunSpec, stream: str, sigmas: Sequence[float] = ()) -> str:
    """What decides a stream beside the seed.

    `sigmas` are those of the epochs so far of a run under a filter: two runs of the same settings that were changed
    differently on the way must not share noise and batches from there on.
    """
    course = f" {sigmas!r}" if sigmas else ""
    return stream if spec.streams == 1 or stream in COMMON else f"{stream} {spec.noise_key}{course}"


def drawn_on(spec: RunSpec, device: Device) -> Device:
    """Where resident streams are drawn: runs of older versions of the streams draw on the CPU wherever they train."""
    return device if spec.streams >= 3 else CPU


def randomness(
    spec: RunSpec, stream: str, sigmas: Sequence[float] = (), device: Device = CPU, agree: Agree = as_drawn
) -> Randomness:
    """A run's stream by name: from the system where the run is secure and the stream protects people."""
    return Secure(agree) if spec.secure and stream in SECURE else seeded(spec, stream, sigmas, device)


def sampling(spec: RunSpec, sigmas: Sequence[float] = (), agree: Agree = as_drawn) -> Sampling:
    """The stream that decides who is in which batch."""
    return Secure(agree) if spec.secure else numbered(spec, "batches", sigmas)


def numbered(spec: RunSpec, stream: str, sigmas: Sequence[float] = ()) -> Seeded | Counted:
    """A run's stream by name that is drawn by the examples' numbers; in older versions, one after the other."""
    return Counted(spec.seed, stream_name(spec, stream, sigmas)) if spec.streams >= 3 else seeded(spec, stream, sigmas)


def add_noise(value: Tensor, noise: Tensor, grid: float | None = None, *, doubles: bool = True) -> Tensor:
    """value + noise, added in the noise's precision and rounded to multiples of the grid before it is narrowed.

    The last bits of a floating-point sum tell which values it can have come from (Mironov 2012, CCS). Multiples of one
    grid are the same for all values, so nothing but the noise decides which of them comes out; what is done to it
    afterwards, narrowing included, is post-processing. On a device without doubles a sum that has no grid is added up
    there, in the value's precision; one that has a grid is added up on the CPU.
    """
    if not doubles and grid is None:
        return value + noise.to(value.device, value.dtype, non_blocking=True)
    wide = (value if doubles else value.cpu()).to(noise.dtype)
    total = wide + noise.to(wide.device)
    if grid is not None:
        total = total.div_(grid).round_().mul_(grid)
    return total.to(value.device, value.dtype)


def noise_grid(noise_std: float) -> float:
    """The power of 2 that lies GRID_BITS below the noise: dividing by it is exact, rounding to it costs no accuracy."""
    return 2.0 ** (math.floor(math.log2(noise_std)) - GRID_BITS)


def _digest(seed: int, stream: str) -> bytes:
    return hashlib.sha256(f"dpviz {seed} {stream}".encode()).digest()


def _signed(word: int) -> int:
    """An unsigned number of 64 bits as torch has it."""
    return word - 2**64 if word >= 2**63 else word


def _shifted(words: Tensor, by: int) -> Tensor:
    """Shifted to the right, zeros coming in: torch repeats the sign."""
    return (words >> by).bitwise_and_((1 << (64 - by)) - 1)


GOLDEN, *MIX = (_signed(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
