"""What an audit of a run shows: a lower bound on its epsilon, from counts of right and wrong guesses.

Thresholds and the number of guesses are fixed ahead: chosen on the same counts they would give no valid bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import bdtrc, betainccinv, expit, ndtri

from dpviz.privacy.prices import epsilon
from dpviz.privacy.records import Phase, check_delta
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import epsilon_number

MISTAKE = 0.05  # the probability that a bound is too large, at most
THRESHOLD = 0.5  # halfway between no canary and a canary of length C, in units of C
LIKELY_CAUSES = (
    "noise that is scaled by another sigma or clipping norm than the ledger says",
    "noise that some steps or parameters do not get, or that is used twice",
    "gradients that are longer than the clipping norm after clipping",
    "examples that are drawn more often than the sample rate says",
)
CANNOT_SHOW = (
    "An audit that finds nothing is no proof: it tries one attack, holds with 95 % confidence, and sees the noise and "
    "the clipping of this run, not mistakes elsewhere. The proven epsilon is the guarantee."
)


@dataclass(frozen=True)
class Guesses:
    """Trials at one noise level: how often a canary seemed to be in a step without it, and with it."""

    noise_multiplier: float
    steps: int
    trials: int
    false_positives: int
    true_positives: int

    def __post_init__(self) -> None:
        if not self.noise_multiplier > 0:
            raise InputError(f"an audited step has noise above 0, got {self.noise_multiplier}")
        if not all(0 <= hits <= self.trials for hits in (self.false_positives, self.true_positives)):
            raise InputError(f"there are at most {self.trials} hits, got {self.false_positives}, {self.true_positives}")


@dataclass(frozen=True)
class StepBound:
    """What the step audit found; `faults` are checks that failed, one sentence each."""

    lower: float
    guesses: tuple[Guesses, ...]
    faults: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_bound(self.lower)

    @property
    def trials(self) -> int:
        return sum(level.trials for level in self.guesses)

    @property
    def fpr(self) -> float:
        return sum(level.false_positives for level in self.guesses) / max(self.trials, 1)

    @property
    def tpr(self) -> float:
        return sum(level.true_positives for level in self.guesses) / max(self.trials, 1)


@dataclass(frozen=True)
class OneRunBound:
    """What the one-run audit found: of so many canaries guessed to be in, so many were."""

    lower: float
    canaries: int
    guesses: int
    correct: int

    def __post_init__(self) -> None:
        _check_bound(self.lower)
        if not 0 <= self.correct <= self.guesses <= self.canaries:
            raise InputError(f"correct <= guesses <= canaries must hold, got {self}")


@dataclass(frozen=True)
class Audit:
    """Lower bounds on a run's epsilon beside the upper bound that is proven, for the steps that were taken."""

    proven: float
    step: StepBound | None = None
    one_run: OneRunBound | None = None

    def __post_init__(self) -> None:
        _check_bound(self.proven)

    @property
    def lower(self) -> float:
        """The larger of the two bounds; each holds on its own with 95 % confidence."""
        return max((part.lower for part in (self.step, self.one_run) if part), default=0.0)

    @property
    def failures(self) -> tuple[str, ...]:
        """Why the proven epsilon does not hold, one sentence each; none where nothing speaks against it."""
        bounds = (("step", self.step), ("one-run", self.one_run))
        exceeded = (
            f"the {name} audit shows an epsilon of at least {epsilon_number(part.lower, up=False)}, above the proven "
            f"{epsilon_number(self.proven)}"
            for name, part in bounds
            if part and part.lower > self.proven
        )
        return (*exceeded, *(self.step.faults if self.step else ()))

    def brief(self) -> dict[str, Any]:
        """The bounds and what they rest on, as `dpviz audit` prints them."""
        step = {name: getattr(self.step, name) for name in ("lower", "fpr", "tpr", "trials")} if self.step else None
        return {"proven": self.proven, "step": step, "one_run": asdict(self.one_run) if self.one_run else None}

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Any) -> Audit:
        try:
            step, one_run = data["step"], data["one_run"]
            levels = tuple(Guesses(**level) for level in step["guesses"]) if step else ()
            return cls(
                float(data["proven"]),
                StepBound(float(step["lower"]), levels, tuple(map(str, step["faults"]))) if step else None,
                OneRunBound(**one_run) if one_run else None,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a run's audit: {error}") from None


def _check_bound(epsilon: float) -> None:
    if not 0 <= epsilon < math.inf:
        raise InputError(f"an audit's epsilons are finite numbers >= 0, got {epsilon}")


# --- step audit ---------------------------------------------------------------------------------------------------


def noise_level(sigma: float) -> float:
    """Sigma as counts are kept by it: a run may go on where its last bits are rounded otherwise."""
    return float(f"{sigma:.9g}")


def step_bound(
    guesses: Sequence[Guesses], phases: Iterable[Phase], delta: float, faults: Sequence[str] = ()
) -> StepBound:
    r"""The epsilon that the counts leave to the whole schedule, at least.

    A Gaussian step told apart with error rates FPR and 1 - TPR has mu >= Phi^-1(1 - FPR) - Phi^-1(1 - TPR), where its
    noise is 1 / mu. Clopper-Pearson bounds both rates for each noise level, all at once with 95 % confidence; then the
    schedule is priced with the noise that was found. Nasr et al. (2023), arXiv:2302.07956, Sec. 4.
    """
    check_delta(delta)
    sigmas = {level.noise_multiplier: audited_sigma(level, MISTAKE / len(guesses)) for level in guesses}
    audited = [(sigmas.get(noise_level(phase.noise_multiplier), math.inf), phase) for phase in phases]
    found = [Phase(sigma, phase.sample_rate, phase.steps) for sigma, phase in audited if sigma < math.inf]
    return StepBound(epsilon(found, delta).lower if found else 0.0, tuple(guesses), tuple(faults))


def audited_sigma(level: Guesses, mistake: float = MISTAKE) -> float:
    """The most noise that the counts allow; infinite where they show none of the canary."""
    most_false = _upper_rate(level.false_positives, level.trials, mistake / 2)
    least_true = 1 - _upper_rate(level.trials - level.true_positives, level.trials, mistake / 2)
    mu = ndtri(1 - most_false) - ndtri(1 - least_true)
    return float(1 / mu) if mu > 0 else math.inf


def _upper_rate(hits: int, trials: int, mistake: float) -> float:
    """Clopper-Pearson: the rate is below this, but for the given probability of a mistake."""
    return float(betainccinv(hits + 1, trials - hits, mistake)) if hits < trials else 1.0


# --- one-run audit ------------------------------------------------------------------------------------------------


def one_run_bound(canaries: int, guesses: int, correct: int, delta: float) -> OneRunBound:
    """The largest epsilon that so many correct guesses refute. Steinke, Nasr & Jagielski (2023), arXiv:2305.08846."""
    check_delta(delta)
    low, high = 0.0, 1.0
    if one_run_p_value(0.0, canaries, guesses, correct, delta) <= MISTAKE:
        while one_run_p_value(high, canaries, guesses, correct, delta) <= MISTAKE:
            low, high = high, 2 * high
        for _ in range(50):
            middle = (low + high) / 2
            refuted = one_run_p_value(middle, canaries, guesses, correct, delta) <= MISTAKE
            low, high = (middle, high) if refuted else (low, middle)
    return OneRunBound(low, canaries, guesses, correct)


def one_run_p_value(at: float, canaries: int, guesses: int, correct: int, delta: float) -> float:
    r"""The probability, at most, of so many correct guesses in an (epsilon, delta)-private run.

    B(v) + 2 m delta max_i (B(v - i) - B(v)) / i, where B(v) = P[Bin(guesses, logistic(epsilon)) >= v]; Theorem 5.2.
    """
    below = np.arange(1, correct + 1)
    tail = _at_least(correct, guesses, expit(at))
    gap = np.max((_at_least(correct - below, guesses, expit(at)) - tail) / below, initial=0.0)
    return float(min(1.0, tail + 2 * canaries * delta * gap))


def _at_least(hits: Any, trials: int, rate: float) -> Any:
    """P[Bin(trials, rate) >= hits]; always 1 for no hits."""
    return np.where(np.equal(hits, 0), 1.0, bdtrc(np.maximum(hits, 1) - 1.0, trials, rate))
