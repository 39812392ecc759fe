"""dpviz's accountant in Opacus: after `dpviz.register_with_opacus()`, PrivacyEngine(accountant="dpviz") uses it."""

from __future__ import annotations

from typing import Any

from opacus.accountants import IAccountant
from opacus.accountants.registry import register_accountant

from dpviz.privacy import epsilon

MECHANISM = "dpviz"


class CertifiedAccountant(IAccountant):  # type: ignore[misc]
    """Opacus' history of steps, priced by a certified upper bound: Poisson sampling, add or remove one example."""

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        steps = 1
        if self.history and self.history[-1][:2] == (noise_multiplier, sample_rate):
            steps += self.history.pop()[2]
        self.history.append((noise_multiplier, sample_rate, steps))

    def get_epsilon(self, delta: float, **_: Any) -> float:
        """The upper end of the band that holds the true epsilon; 0 before the first step."""
        return epsilon(self.history, delta).upper if self.history else 0.0

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        return MECHANISM


def register_with_opacus() -> None:
    """Make "dpviz" a name that PrivacyEngine and get_noise_multiplier know. Calling it again changes nothing."""
    register_accountant(MECHANISM, CertifiedAccountant, force=True)
