"""Noise screening: a noisy step is taken back if the loss got worse, with simulated annealing (`screening`, Alg. 2).

The paper's loop ends after T iterations, and an iteration is a candidate, accepted or not. So the schedule's steps
count candidates here too: the sound ledger, which charges each of them, is then known before training. The loss that
judges is cross-entropy on examples set aside as public; the paper takes the test set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dpviz.training.random_streams import Randomness


class Screening:
    """Accepts a candidate with probability min(1, exp(-dE Q)), or after `rejections` rejections in a row (mu0).

    dE is the change in loss, Q = temperature * (updates accepted so far), Q = temperature before the first (Q0).
    """

    def __init__(self, temperature: float, rejections: int, energy: Callable[[], float], source: Randomness) -> None:
        self.temperature, self.rejections = temperature, rejections
        self.energy, self.source = energy, source
        self.last_energy: float | None = None
        self.rejected_in_a_row = 0
        self.accepted: list[int] = []
        self.generated: list[int] = []

    def begin_epoch(self) -> None:
        self.accepted.append(0)
        self.generated.append(0)

    def judge(self, take: Callable[[], None], undo: Callable[[], None]) -> bool:
        """Take a candidate update; undo it if it is rejected."""
        if self.last_energy is None:
            self.last_energy = self.energy()
        take()
        energy = self.energy()
        accepted = self._accepts(energy - self.last_energy, float(self.source.uniform(1)))
        self.generated[-1] += 1
        if accepted:
            self.last_energy, self.rejected_in_a_row = energy, 0
            self.accepted[-1] += 1
        else:
            self.rejected_in_a_row += 1
            undo()
        return accepted

    def _accepts(self, change: float, uniform: float) -> bool:
        if self.rejected_in_a_row >= self.rejections or change <= 0:
            return True
        heat = self.temperature * (sum(self.accepted) if any(self.generated) else 1)
        # A change that is not a number is a rejection: the comparison is False.
        return uniform <= math.exp(-change * heat)

    def state(self) -> dict[str, Any]:
        return {
            "last_energy": self.last_energy,
            "rejected_in_a_row": self.rejected_in_a_row,
            "accepted": list(self.accepted),
            "generated": list(self.generated),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.last_energy, self.rejected_in_a_row = state["last_energy"], state["rejected_in_a_row"]
        self.accepted, self.generated = list(state["accepted"]), list(state["generated"])
