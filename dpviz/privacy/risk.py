"""What an epsilon means for one person: how well the best attack can tell whether they are in the data.

    risk([(1.1, 0.01, 2000)]).tpr(0.001)   # of the members, the share it finds at one false alarm in a thousand

The attacker sees every noisy step, knows all other examples and has any computer: nobody does better. Each number is a
band. Its upper end holds, because it comes from (epsilon, delta) guarantees; its lower end is the rate of an attack
that exists.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
from scipy.special import ndtr

from dpviz.privacy.accountants import ACCOUNTANTS
from dpviz.privacy.assumptions import Assumptions, Named, assumed
from dpviz.privacy.gaussian import composed_mu, log_delta, visits
from dpviz.privacy.pld.composition import Contradiction
from dpviz.privacy.pld.loss_curves import loss_curves
from dpviz.privacy.pld.loss_grid import NoBand
from dpviz.privacy.prices import exposure, is_amplified, upper_deltas, usage
from dpviz.privacy.records import Ledger, Phases, check_epsilon
from dpviz.privacy.registry import InputError
from dpviz.privacy.trade_off import (
    EVERYTHING,
    LARGEST_EPSILON,
    NOTHING,
    FloatArray,
    Gdp,
    TradeOff,
    from_attacks,
    from_guarantees,
)

ROUNDED = 1e-12  # by which a lower end may exceed an upper one before they contradict each other
FPRS = (0.001, 0.01, 0.1)  # false-positive rates that are written down if nobody asks for others
KNOTS = 2000
FAR = 12.0  # standard deviations


class Bounds(NamedTuple):
    """The true number lies between them. One-sided accountants have a lower end that anybody reaches by guessing."""

    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Risk:
    """The trade-off curve of a ledger as a band, and what follows from it. `mu` where the curve is a Gaussian one."""

    lower: TradeOff
    upper: TradeOff
    assumptions: Assumptions
    fallback: str | None = None
    mu: float | None = None

    def tpr(self, fpr: float) -> Bounds:
        """Share of the members that the best attack finds while it takes this share of non-members for members."""
        _check_rate("fpr", fpr)
        return _bounds(self.lower.tpr(fpr), self.upper.tpr(fpr))

    def delta(self, epsilon: float) -> Bounds:
        """The privacy profile: delta at an epsilon, from 0 on."""
        check_epsilon(epsilon)
        return _bounds(self.lower.delta(epsilon), self.upper.delta(epsilon))

    @property
    def advantage(self) -> Bounds:
        """The most by which an attack's true-positive rate exceeds its false-positive rate: delta(0)."""
        return self.delta(0.0)

    def success(self, prior: float) -> Bounds:
        """How often an attacker guesses membership right who expects it with this probability beforehand.

        Without the model it is the larger of prior and 1 - prior. Kulynych et al. (2024), arXiv:2407.02191.
        """
        _check_rate("prior", prior)
        rarer = min(prior, 1 - prior)
        if rarer == 0:
            return Bounds(1.0, 1.0)
        return Bounds(*(1 - rarer * (1 - delta) for delta in self.delta(math.log((1 - rarer) / rarer))))

    def reconstruction(self, baseline: float) -> float:
        """At most so often an attack reconstructs an example or infers an attribute that succeeds with probability
        `baseline` without the model.

        Hayes, Mahloujifar & Balle (2023), arXiv:2302.07225, Thm. 2; Kulynych et al. (2025), arXiv:2507.06969.
        """
        return self.tpr(_check_rate("baseline", baseline)).upper

    @property
    def gdp(self) -> Gdp:
        """mu of Gaussian DP, from above, for error rates of 1e-10 and more, and its regret: how far off it is."""
        return self.upper.gdp() if self.mu is None else Gdp(self.mu, 0.0)

    @property
    def kind(self) -> str:
        """What kind of numbers these are: certified, or what stands in for a certified band."""
        return self.fallback or ACCOUNTANTS[self.assumptions.accountant].kind

    def curve(self, fprs: Any) -> tuple[FloatArray, FloatArray]:
        """(lower, upper) true-positive rates at many false-positive rates."""
        upper = self.upper.tpr(fprs)
        return np.minimum(self.lower.tpr(fprs), upper), upper

    def to_json(self, fprs: Iterable[float] = FPRS, prior: float = 0.5) -> dict[str, Any]:
        """Its numbers as a JSON object."""
        gdp = self.gdp
        return {
            "advantage": self.advantage._asdict(),
            "tpr": [{"fpr": fpr, **self.tpr(fpr)._asdict()} for fpr in fprs],
            "success": {"prior": prior, **self.success(prior)._asdict()},
            "gdp": {"mu": "infinity" if gdp.mu == math.inf else gdp.mu, "regret": gdp.regret},
            **({"fallback": self.fallback} if self.fallback else {}),
        }

    def _repr_html_(self) -> str:
        from dpviz.privacy.notebook import risk_html

        return risk_html(self)


def risk(ledger: Phases, assumptions: Assumptions | None = None, **named: Unpack[Named]) -> Risk:
    """What a ledger reveals about one person, under the same assumptions as its epsilon.

    A plain list will do: risk([(1.1, 0.01, 2000)]) is about 2,000 steps of noise 1.1 at sample rate 0.01.
    """
    assumptions, ledger = assumed(assumptions, named), Ledger(ledger)
    adjacency, tight = assumptions.priced_as, ACCOUNTANTS[assumptions.accountant].certified
    # No delta is larger than the chance that an example is used at all.
    most = min(usage(ledger.phases, assumptions) * (1 + ROUNDED), 1.0)
    exposed = exposure(ledger, assumptions)
    if exposed:
        # An example that meets no noise is known for sure, which no mu of Gaussian DP covers.
        return Risk(_given_away(exposed) if tight else NOTHING, _given_away(most), assumptions, mu=math.inf)
    if not is_amplified(ledger, assumptions) and tight:
        mu = composed_mu(visits(ledger), adjacency)
        return Risk(*_gaussian(mu), assumptions, mu=mu)
    if not tight:
        return Risk(NOTHING, _from_deltas(ledger, assumptions, most), assumptions)
    try:
        return Risk(*_certified(ledger, adjacency, most), assumptions)
    except NoBand as reason:
        upper = _from_deltas(ledger, assumptions, most)
        return Risk(NOTHING, upper, assumptions, fallback=f"RDP upper bound, because {reason}")


def _given_away(chance: float) -> TradeOff:
    """Of an example that is known for sure with this chance, and otherwise not used."""
    return from_attacks(np.zeros(1), np.array([chance]))


def _certified(ledger: Ledger, adjacency: str, most: float) -> tuple[TradeOff, TradeOff]:
    curves = loss_curves(ledger, adjacency)
    lower = from_attacks(curves.fprs, curves.tprs)
    upper = from_guarantees(curves.epsilons, np.minimum(curves.deltas, most))
    if not (lower.tprs <= upper.tpr(lower.fprs) + ROUNDED).all():
        raise Contradiction("its lower and upper bounds contradict each other")
    return lower, upper


def _gaussian(mu: float) -> tuple[TradeOff, TradeOff]:
    """TPR(FPR) = Phi(mu - Phi^-1(1 - FPR)), by its tangents and by its points: less than 1e-5 of it apart."""
    if mu == math.inf:
        return EVERYTHING, EVERYTHING
    epsilons = np.linspace(0.0, min(mu * (mu / 2 + FAR), LARGEST_EPSILON), KNOTS)
    thresholds = epsilons / mu + mu / 2
    deltas = np.array([math.exp(log_delta(epsilon, mu)) for epsilon in epsilons.tolist()])
    return from_attacks(ndtr(-thresholds), ndtr(mu - thresholds)), from_guarantees(epsilons, deltas)


def _from_deltas(ledger: Ledger, assumptions: Assumptions, most: float) -> TradeOff:
    """An upper bound from the accountant's deltas, at epsilons up to where delta no longer matters."""
    tops = np.geomspace(1e-6, LARGEST_EPSILON, 100)
    small = upper_deltas(ledger, tops, assumptions) <= 1e-14
    top = tops[small.argmax()] if small.any() else LARGEST_EPSILON
    epsilons = np.linspace(0.0, top, KNOTS)
    return from_guarantees(epsilons, np.minimum(upper_deltas(ledger, epsilons, assumptions), most))


def _bounds(lower: Any, upper: Any) -> Bounds:
    return Bounds(min(float(lower), float(upper)), float(upper))


def _check_rate(name: str, rate: float) -> float:
    if not 0 <= rate <= 1:
        raise InputError(f"{name} is a probability and must be from 0 to 1, got {rate}")
    return rate
