"""The course of a run under a filter: what each epoch's noise was or will be, and every change to it.

An epoch that has begun is locked with its noise before its first step: whoever changes the rest, and wherever a process
dies, it is never taken again with other noise.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpviz.privacy import InputError, Phase, epoch_phases
from dpviz.privacy.filters import RenyiFilter
from dpviz.privacy.schedules import check_sigmas
from dpviz.training.spec import RunSpec

NO_FILTER = "its schedule was fixed ahead; a run can be changed on the way if it is started with --filter-epsilon"


@dataclass(frozen=True)
class Redraw:
    """New noise for the epochs from `first` on, what it replaced, and when (UTC)."""

    first: int
    sigmas: tuple[float, ...]
    replaced: tuple[float, ...]
    at: str


@dataclass(frozen=True)
class Course:
    """One sigma per epoch; the first `begun` of them are locked."""

    spec: RunSpec
    sigmas: tuple[float, ...]
    begun: int = 0
    redraws: tuple[Redraw, ...] = ()

    @classmethod
    def planned(cls, spec: RunSpec) -> Course:
        if spec.filter is None:
            raise InputError(f"this run's noise cannot be changed: {NO_FILTER}")
        return cls(spec, tuple(spec.schedule.sigmas(spec.epochs).tolist()))

    @property
    def filter(self) -> RenyiFilter:
        assert self.spec.filter is not None  # planned
        return self.spec.filter

    @property
    def phases(self) -> tuple[Phase, ...]:
        return epoch_phases(self.sigmas, self.spec.sample_rate)

    @property
    def coming(self) -> tuple[float, ...]:
        """Noise of the epochs that have not begun."""
        return self.sigmas[self.begun :]

    @property
    def undone(self) -> tuple[float, ...]:
        """What the last change replaced, as far as its epochs have not begun; empty: there is nothing to undo."""
        last = self.redraws[-1] if self.redraws else None
        return last.replaced[max(0, self.begun + 1 - last.first) :] if last else ()

    def begin(self, epoch: int) -> Course:
        """The same with this epoch, the next one, locked."""
        if epoch != self.begun + 1:
            raise InputError(f"epoch {epoch} cannot begin after epoch {self.begun}")
        return dataclasses.replace(self, begun=epoch)

    def changeable(self, sigmas: Iterable[Any]) -> list[float]:
        """Sigmas for the last epochs without those for epochs that have begun, where these are given as they were."""
        given: list[float] = check_sigmas(sigmas).tolist()
        more = len(given) - len(self.coming)
        locked = self.sigmas[max(0, self.begun - more) : self.begun]
        same = 0 < more < len(given) and np.allclose(given[: len(locked)], locked, rtol=1e-5)
        return given[more:] if same and len(locked) == more else given

    def still_open(self, sigmas: Iterable[Any]) -> list[float]:
        """Sigmas for the last epochs without those for epochs that have begun, whatever these are."""
        given: list[float] = check_sigmas(sigmas).tolist()
        return given[-len(self.coming) :] if self.coming else given

    def redraw(self, sigmas: Iterable[Any], at: str) -> Course:
        """The same with new noise in the last epochs; refused where one has begun, or beyond the budget."""
        new = tuple(check_sigmas(sigmas).tolist())
        left = len(self.coming)
        if not 1 <= len(new) <= left:
            begun = f"epochs 1 to {self.begun} of {self.spec.epochs} have begun" if self.begun else "no epoch has begun"
            raise InputError(f"{begun}, so the noise of the last {left} can be changed at most; got {len(new)} sigmas")
        kept = self.sigmas[: -len(new)]
        rate = self.spec.sample_rate
        self.filter.check(epoch_phases(kept, rate), epoch_phases(new, rate))
        change = Redraw(len(kept) + 1, new, self.sigmas[-len(new) :], at)
        return dataclasses.replace(self, sigmas=kept + new, redraws=(*self.redraws, change))

    def after(self, line: Any) -> Course:
        """The course after one line of its file."""
        match line:
            case {"epoch": int(epoch), "noise_multiplier": float(sigma)} if len(line) == 2:
                course = self.begin(epoch)
                if sigma != self.sigmas[epoch - 1]:
                    raise InputError(f"epoch {epoch} began with noise {sigma:g}, which was not planned")
                return course
            case {"sigmas": list(sigmas), "at": str(at)} if len(line) == 2:
                return self.redraw(sigmas, at)
        raise InputError("neither the begin of an epoch nor a change of noise")

    @property
    def used(self) -> float:
        """Share of the budget that is spent once every epoch was taken as planned now, at most 1."""
        return self.filter.spent(self.phases) / self.filter.budget

    def budget_words(self) -> str:
        """What is left to change, and of which budget."""
        if not self.coming:
            return f"All epochs have begun; they use {self.used:.1%} of the budget (epsilon {self.filter.epsilon:g})."
        past = self.filter.spent(self.phases[: self.begun]) / self.filter.budget if self.begun else 0.0
        return (
            f"Epochs that have begun use {past:.1%} of the budget (epsilon {self.filter.epsilon:g}); with those to "
            f"come as they stand it is {self.used:.1%}. A change holds from the next epoch that begins."
        )

    def budget_json(self) -> dict[str, float]:
        return dataclasses.asdict(self.filter) | {"used": self.used}

    def to_json(self) -> dict[str, Any]:
        changes = [{"first": change.first, "sigmas": change.sigmas, "at": change.at} for change in self.redraws]
        return {"sigmas": self.sigmas, "begun": self.begun, "redraws": changes}
