"""What a run has really spent: the steps that it took, whole epochs or not, and their price.

A run may end anywhere: stopped within an epoch, interrupted, failed. The steps since its last whole epoch were taken
too (a stopped run's checkpoint holds them), so they are written down and priced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dpviz.privacy import InputError, Phase, steps_per_epoch
from dpviz.privacy.guarantees import LedgerOf, rule_of
from dpviz.training.pricing import steps_guarantee
from dpviz.training.spec import EpochRecord, RunSpec

Steps = tuple[int, int]


@dataclass(frozen=True)
class Spending:
    """The first `steps` steps of a run's plan, and what they cost. None: no guarantee.

    `redone` are parts of the plan, from one step to another, that were taken once more than the plan says: a secure run
    that goes on from a checkpoint repeats what came after it with fresh noise. (A seeded run repeats it bit for bit,
    which shows nothing new.) `at_most`: nobody wrote down how far the run came, so this is the most that it can be.
    """

    steps: int
    epsilon_claimed: float | None
    epsilon_sound: float | None
    redone: tuple[Steps, ...] = ()
    at_most: bool = False

    def __post_init__(self) -> None:
        counts = (self.steps, *(step for part in self.redone for step in part))
        if not all(isinstance(count, int) and count >= 0 for count in counts):
            raise InputError(f"steps must be whole numbers >= 0, got {counts}")
        if not all(value is None or value >= 0 for value in (self.epsilon_claimed, self.epsilon_sound)):
            raise InputError(f"epsilon must be >= 0, got {self.epsilon_claimed} and {self.epsilon_sound}")

    def to_json(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "epsilon": {"claimed": _word(self.epsilon_claimed), "sound": _word(self.epsilon_sound)},
            "redone": [list(part) for part in self.redone],
            "at_most": self.at_most,
        }

    @classmethod
    def from_json(cls, data: Any) -> Spending:
        try:
            claimed, sound = (_number(data["epsilon"][name]) for name in ("claimed", "sound"))
            redone = tuple((first, last) for first, last in data["redone"])
            return cls(data["steps"], claimed, sound, redone, bool(data["at_most"]))
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not what a run has spent: {error}") from None


def _word(value: float | None) -> float | str | None:
    """JSON has no infinity: it is stored as a word."""
    return "infinity" if value == math.inf else value


def _number(value: Any) -> float | None:
    return math.inf if value == "infinity" else (None if value is None else float(value))


def of_epoch(last: EpochRecord) -> Spending:
    """What a run had spent at the end of an epoch, as that epoch's record says."""
    return Spending(last.step, last.epsilon_claimed, last.epsilon_sound)


def spent_phases(spec: RunSpec, steps: int, redone: Sequence[Steps] = ()) -> tuple[Phase, ...]:
    """The first steps of a run's plan, one phase per epoch, then what was taken once more."""
    return tuple(phase for part in ((0, steps), *redone) for phase in _part(spec, *part))


def _part(spec: RunSpec, first: int, last: int) -> tuple[Phase, ...]:
    """The plan's steps first + 1 ... last."""
    each = steps_per_epoch(spec.sample_rate)
    cut = ((phase, min(last, (k + 1) * each) - max(first, k * each)) for k, phase in enumerate(spec.phases))
    return tuple(Phase(phase.noise_multiplier, phase.sample_rate, steps) for phase, steps in cut if steps > 0)


def spending(
    spec: RunSpec,
    steps: int,
    redone: tuple[Steps, ...] = (),
    *,
    accepted: Sequence[int] | None = None,
    floor: Spending | None = None,
    at_most: bool = False,
) -> Spending:
    """Price these steps by the rules of the run's method.

    `accepted` are the updates that screening kept, per epoch; None: all of them. `floor` is what the last epoch on
    record says: its numbers are not computed again, and no later price is below them.
    """
    if floor is not None and steps == floor.steps and not redone:
        return Spending(steps, floor.epsilon_claimed, floor.epsilon_sound, at_most=at_most)
    planned, again = spent_phases(spec, steps), spent_phases(spec, 0, redone)
    kept = None if accepted is None else (*accepted[: len(planned)], *(phase.steps for phase in again))
    claimed, sound = _price(spec, planned + again, kept)
    if floor is not None:
        claimed, sound = _at_least(claimed, floor.epsilon_claimed), _at_least(sound, floor.epsilon_sound)
    return Spending(steps, claimed, sound, redone, at_most)


def _price(
    spec: RunSpec, phases: tuple[Phase, ...], accepted: tuple[int, ...] | None
) -> tuple[float | None, float | None]:
    if spec.filter:  # the declared budget holds from the first step on, and nothing less
        return None, spec.filter.epsilon if phases else 0.0
    rule = rule_of(spec.method, spec.curriculum)
    price = steps_guarantee(spec.method, spec.curriculum, phases, spec.delta, accepted=accepted) if phases else None
    claimed, sound = price.uppers if price else (None, None)
    return _upper(rule.claimed, claimed), _upper(rule.sound, sound)


def _upper(ledger_of: LedgerOf | None, upper: float | None) -> float | None:
    """A rule without a price has an empty ledger: nothing was spent. No rule: no guarantee."""
    return None if ledger_of is None else upper or 0.0


def _at_least(value: float | None, least: float | None) -> float | None:
    return least if value is None else max(value, least or 0.0)


def at_most(spec: RunSpec, epochs_done: int, known: Spending | None, floor: Spending | None) -> Spending:
    """The most that a run can have spent whose process died, or which ended before steps were recorded: one more epoch.

    In a secure run those steps are lost with the process and will be taken anew.
    """
    each = steps_per_epoch(spec.sample_rate)
    done, end = epochs_done * each, min(epochs_done + 1, spec.epochs) * each
    steps, redone = (known.steps, known.redone) if known else (0, ())
    if spec.secure and end > done:
        return spending(spec, max(steps, done), (*redone, (done, end)), floor=floor, at_most=True)
    return spending(spec, max(steps, end), redone, floor=floor, at_most=True)


def dearer(one: Spending | None, other: Spending | None) -> Spending | None:
    """Of what an epoch's record says and what was written down at a run's end, that which says more."""
    known = [spent for spent in (one, other) if spent is not None]
    return max(known, key=lambda spent: (spent.epsilon_sound or 0.0, spent.steps), default=None)
