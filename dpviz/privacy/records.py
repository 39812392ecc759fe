"""What happened and what it costs: small frozen records, checked when they are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from dpviz.privacy.registry import InputError

MAX_STEPS = 10_000_000
MAX_EPOCHS = 100_000


@dataclass(frozen=True)
class Phase:
    """`steps` noisy updates in a row, alike in noise and sampling. Noise std = noise_multiplier * clip_norm."""

    noise_multiplier: float
    sample_rate: float
    steps: int

    def __post_init__(self) -> None:
        if not 0 <= self.noise_multiplier < math.inf:
            raise InputError(f"noise_multiplier must be a finite number >= 0, got {self.noise_multiplier}")
        if not 0 < self.sample_rate <= 1:
            raise InputError(
                f"sample_rate (batch size / dataset size) must be above 0 and at most 1, got {self.sample_rate:g}"
            )
        if not (1 <= self.steps < math.inf and self.steps == int(self.steps)):
            raise InputError(f"steps must be a whole number >= 1, got {self.steps}")
        object.__setattr__(self, "steps", int(self.steps))  # 100.0 counts as 100


@dataclass(frozen=True)
class Ledger:
    """Phases in the order in which they happened; equal neighbours are merged."""

    phases: tuple[Phase, ...]

    def __init__(self, phases: Phases) -> None:
        merged: list[Phase] = []
        for phase in as_phases(phases):
            last = merged[-1] if merged else None
            if last and (last.noise_multiplier, last.sample_rate) == (phase.noise_multiplier, phase.sample_rate):
                merged[-1] = Phase(last.noise_multiplier, last.sample_rate, last.steps + phase.steps)
            else:
                merged.append(phase)
        object.__setattr__(self, "phases", tuple(merged))
        if self.steps > MAX_STEPS:
            raise InputError(f"at most {MAX_STEPS:,} steps can be accounted for, got {self.steps:,}; take fewer epochs")

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)


# What may stand for a ledger: one, or its phases as records or as (noise_multiplier, sample_rate, steps).
Phases = Ledger | Iterable[Phase | tuple[float, float, int]]


def as_phases(given: Phases) -> tuple[Phase, ...]:
    """The phases of a ledger, of a list of phases, or of a list of (noise_multiplier, sample_rate, steps)."""
    if isinstance(given, Ledger):
        return given.phases
    try:
        phases = tuple(item if isinstance(item, Phase) else Phase(*item) for item in given)
    except TypeError:
        raise InputError(
            "a ledger is a list of phases or of (noise_multiplier, sample_rate, steps), for example "
            f"[(1.1, 0.01, 2000)], got {str(given)[:60]}"
        ) from None
    if not phases:
        raise InputError("a ledger needs at least one phase; the schedule is empty")
    return phases


ROUNDINGS: dict[str, Callable[[float], int]] = {
    "round": round,
    "ceil": lambda steps: math.ceil(steps * (1 - 1e-12)),  # 1 / (1 / 49) is a hair above 49
}


def steps_per_epoch(sample_rate: float, rounding: str = "round") -> int:
    """Updates in one epoch: 1 / sample_rate to the nearest whole number, as every part of dpviz counts.

    `rounding="ceil"` takes the next whole number instead, as loaders that keep the last, smaller batch do.
    """
    return max(1, ROUNDINGS[rounding](1 / sample_rate))


def epoch_phases(sigmas: Iterable[float], sample_rate: float, steps: int | None = None) -> tuple[Phase, ...]:
    """One phase per epoch of `steps` updates (None: as many as dpviz counts).

    A bad sigma stops here, naming its epoch (counted from 1).
    """
    if not 0 < sample_rate <= 1:
        raise InputError(f"sample rate (batch size / dataset size) must be above 0 and at most 1, got {sample_rate:g}")
    steps, phases = steps_per_epoch(sample_rate) if steps is None else steps, []
    for epoch, sigma in enumerate(sigmas, start=1):
        if not 0 <= sigma < math.inf:
            raise InputError(f"noise_multiplier must be a finite number >= 0, got {sigma} (epoch {epoch})")
        phases.append(Phase(float(sigma), sample_rate, steps))
    return tuple(phases)


@dataclass(frozen=True)
class Epsilon:
    """A band that holds the true epsilon at this delta. One-sided accountants have lower = 0."""

    lower: float
    upper: float
    delta: float
    accountant: str
    fallback: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.lower <= self.upper:
            raise ValueError(f"an epsilon band needs 0 <= lower <= upper, got [{self.lower}, {self.upper}]")

    @property
    def wide(self) -> bool:
        """Whether the two ends tell different stories. A one-sided bound is no band."""
        return self.lower > 0 and self.upper - self.lower > max(0.03 * self.upper, 0.005)

    def _repr_html_(self) -> str:
        from dpviz.privacy.notebook import epsilon_html

        return epsilon_html(self)


@dataclass(frozen=True)
class Delta:
    """A band that holds the true delta at this epsilon. One-sided accountants have lower = 0."""

    lower: float
    upper: float
    epsilon: float
    accountant: str
    fallback: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.lower <= self.upper <= 1:
            raise ValueError(f"a delta band needs 0 <= lower <= upper <= 1, got [{self.lower}, {self.upper}]")


def check_delta(delta: float) -> float:
    if not 0 < delta < 1:
        raise InputError(f"delta must be above 0 and below 1, got {delta:g}; 1e-5 is a common choice")
    return float(delta)


def check_epsilon(epsilon: float) -> float:
    if not 0 <= epsilon < math.inf:
        raise InputError(f"epsilon must be a finite number >= 0, got {epsilon:g}; 1 to 10 are common choices")
    return float(epsilon)


@dataclass(frozen=True)
class Guarantee:
    """What a method claims and what holds, in words a person can read. None: there is no guarantee."""

    claimed: Epsilon | None
    sound: Epsilon | None
    adjacency: str
    sampling: str
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]

    @property
    def uppers(self) -> tuple[float | None, float | None]:
        """(claimed, sound) upper epsilon; None: there is none."""
        return self.claimed.upper if self.claimed else None, self.sound.upper if self.sound else None

    def _repr_html_(self) -> str:
        from dpviz.privacy.notebook import guarantee_html

        return guarantee_html(self)
