"""An epoch of somebody else's run: the steps that it added to the ledger, what was measured, and its record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dpviz.privacy import InputError, Ledger, Phase
from dpviz.runs.store.imported import check_word
from dpviz.training.spec import EpochRecord

MEASURES = ("test_accuracy", "test_loss", "train_accuracy", "train_loss")
MOST_METRICS = 100


@dataclass(frozen=True)
class LoggedEpoch:
    """New phases, and numbers by name: MEASURES, `epsilon` as the run's own accountant said, and any others."""

    phases: tuple[Phase, ...]
    numbers: Mapping[str, float]
    seconds: float = 0.0


def as_numbers(given: Mapping[str, Any]) -> dict[str, float]:
    """What was logged, as finite numbers; None is left out, a tensor of one number will do."""
    if len(given) > MOST_METRICS:
        raise InputError(f"at most {MOST_METRICS} numbers per epoch are kept, got {len(given)}; leave some out")
    numbers = {}
    for name, value in given.items():
        if value is None:
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        finite = math.isfinite(number) or (name == "epsilon" and number == math.inf)
        if not finite:
            raise InputError(f"{check_word('a name', name)} must be a finite number, got {str(value)[:40]}")
        numbers[check_word("a name", name)] = number
    return numbers


def as_ledger(history: Iterable[Any]) -> tuple[Phase, ...]:
    """A history of (noise multiplier, sample rate, steps), also of tensors, as phases; an empty one is no error."""
    try:
        phases = [Phase(float(sigma), float(rate), int(steps)) for sigma, rate, steps in history]
    except (TypeError, ValueError, OverflowError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"a history is a list of (noise multiplier, sample rate, steps), got {str(history)[:60]}"
        ) from None
    return Ledger(phases).phases if phases else ()


def added(before: tuple[Phase, ...], now: tuple[Phase, ...]) -> tuple[Phase, ...]:
    """The steps in `now` after those in `before`. A history only grows; one that was replaced is refused."""
    if not before:
        return now
    *whole, last = before
    grown = now[len(whole)] if len(now) >= len(before) else None
    alike = grown and (grown.noise_multiplier, grown.sample_rate) == (last.noise_multiplier, last.sample_rate)
    if now[: len(whole)] != tuple(whole) or not grown or not alike or grown.steps < last.steps:
        raise InputError(
            "the accountant's history no longer begins with the steps that were logged; it was reset or replaced, so "
            "start another run with dpviz.track"
        )
    more = grown.steps - last.steps
    rest = (Phase(last.noise_multiplier, last.sample_rate, more),) if more else ()
    return rest + now[len(before) :]


def next_record(before: EpochRecord | None, logged: LoggedEpoch, sound: float) -> EpochRecord:
    """The record of the epoch after `before`; `sound` is the price of all steps so far."""
    numbers = dict(logged.numbers)
    claimed, epoch, step, sigma = numbers.pop("epsilon", None), 1, 0, 0.0
    if before is None and not logged.phases:
        raise InputError(
            "no private step was taken before the first log; call make_private before dpviz.track, and log after the "
            "epoch's training"
        )
    if before:
        if (claimed is None) != (before.epsilon_claimed is None):
            raise InputError("epsilon must be logged in every epoch or in none")
        # Both are upper bounds of something that only grows; an accountant's rounding may make them dip.
        sound = max(sound, before.epsilon_sound or 0.0)
        claimed = None if claimed is None else max(claimed, before.epsilon_claimed or 0.0)
        epoch, step, sigma = before.epoch + 1, before.step, before.noise_multiplier
    return EpochRecord(
        epoch=epoch,
        step=step + sum(phase.steps for phase in logged.phases),
        noise_multiplier=logged.phases[-1].noise_multiplier if logged.phases else sigma,
        epsilon_claimed=claimed,
        epsilon_sound=sound,
        train_loss=numbers.pop("train_loss", None),
        train_accuracy=numbers.pop("train_accuracy", None),
        test_loss=numbers.pop("test_loss", None),
        test_accuracy=numbers.pop("test_accuracy", None),
        seconds=logged.seconds,
        phases=logged.phases,
        metrics=numbers,
    )
