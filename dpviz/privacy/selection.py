r"""What it costs to have chosen: the best of several runs, and two prices that hold for it.

*Composition.* Whoever picks a run has looked at all of them, so all of them are paid for, each with the steps that it
took. It holds for any way of choosing among runs that were planned ahead and drew batches and noise of their own. Runs
that share their *noise* have no price together: their difference shows the data without any noise.

*A random number of trials.* Each trial picks one of the candidates at random, independently of the others, and only the
best result is ever shown. If the number of trials K is itself drawn from one of TRIALS, the best of them costs little
more than one: Papernot & Steinke (2022), arXiv:2110.03620. With Q the trial's mechanism at orders a, b >= 1,

    RDP_best(a) <= RDP_Q(a) + (1 + eta) (1 - 1/b) RDP_Q(b) + (1 + eta) log(1/gamma) / b + log E[K] / (a - 1)

for the truncated negative binomial (Theorem 2; eta = 1: geometric, eta = 0: logarithmic), and

    RDP_best(a) <= RDP_Q(a) + E[K] delta_Q + log E[K] / (a - 1),  Q being (log(a / (a-1)), delta_Q)-DP

for the Poisson distribution (Theorem 6). A fixed number of trials is *not* covered: knowing K, the best of K can reveal
as much as all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dpviz.privacy.prices import epsilon
from dpviz.privacy.rdp import ORDERS, FloatArray, ledger_rdp, smallest_epsilon
from dpviz.privacy.records import Epsilon, Ledger, Phase, check_delta
from dpviz.privacy.registry import InputError

# Small epsilons want larger orders than one run does: log E[K] / (a - 1) falls with the order.
SELECTION_ORDERS: FloatArray = np.concatenate([ORDERS, [80.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0, 1024.0]])
MOST_SIGMAS = 150  # distinct noise levels that are composed tightly; more than that by RDP, which takes no time
MOST_TRIALS = 1e9


SHARED_NOISE = (
    "some of the runs were trained with the same noise, so the difference of two of them shows the data without any "
    "noise, and no sum of their epsilons covers both"
)


@dataclass(frozen=True)
class Spent:
    """What one run spent: the updates that it made, None if it has no guarantee.

    Runs of equal `noise` drew the same noise; None: nobody else's.
    """

    phases: tuple[Phase, ...] | None
    noise: Hashable = None


@dataclass(frozen=True)
class Selection:
    """Prices of having chosen the best of `runs`. A price is None where there is none, and `why_not` says why.

    `single` is the dearest run alone; `composed` holds as things are; `drawn` is what it would have cost had the number
    of trials been drawn as `trials` says, with the same number expected.
    """

    runs: int
    single: Epsilon | None
    composed: Epsilon | None
    drawn: Epsilon | None
    trials: str = ""
    why_not: str = ""


def selection(runs: Sequence[Spent], delta: float) -> Selection:
    """Both prices of the best of these runs."""
    check_delta(delta)
    if not runs:
        raise InputError("the best of no runs has no price; at least one run must have been made")
    known = [Ledger(run.phases) for run in runs if run.phases]
    if len(known) < len(runs):
        return Selection(len(runs), None, None, None, why_not="at least one of the runs has no guarantee")
    single = max((epsilon(ledger, delta) for ledger in dict.fromkeys(known)), key=lambda price: price.upper)
    priced = {name: best_of(known, delta, len(known), name) for name in TRIALS}
    cheapest = min(priced, key=lambda name: priced[name].upper)
    noises = Counter(run.noise for run in runs if run.noise is not None)
    shared = any(count > 1 for count in noises.values())
    return Selection(
        len(runs),
        single,
        None if shared else composed(runs, delta),
        priced[cheapest],
        cheapest,
        SHARED_NOISE if shared else "",
    )


def composed(runs: Iterable[Spent], delta: float) -> Epsilon:
    """Epsilon of showing all of the runs: sound for any way of choosing among them, if none shares another's noise."""
    steps: Counter[tuple[float, float]] = Counter()
    for phase in (phase for run in runs for phase in run.phases or ()):
        steps[phase.noise_multiplier, phase.sample_rate] += phase.steps
    # Order does not matter for the whole, so equal phases of different runs are priced together.
    whole = Ledger(Phase(sigma, rate, count) for (sigma, rate), count in sorted(steps.items()))
    return epsilon(whole, delta, accountant="pld" if len(steps) <= MOST_SIGMAS else "rdp")


def best_of(ledgers: Iterable[Ledger], delta: float, trials: float, distribution: str) -> Epsilon:
    """Epsilon of the best of a random number of trials, `trials` on average, each one of the ledgers at random.

    A trial is a mixture of the candidates' mechanisms, and the Renyi divergence is quasi-convex: the dearest candidate
    of each order bounds it.
    """
    check_delta(delta)
    if distribution not in TRIALS:
        raise InputError(f"unknown distribution of trials {distribution!r}; choose one of {', '.join(TRIALS)}")
    if not 1 <= trials <= MOST_TRIALS:
        raise InputError(f"the expected number of trials must be from 1 to {MOST_TRIALS:g}, got {trials}")
    each = [_rdp(ledger) for ledger in dict.fromkeys(ledgers)]
    rdp = np.max(each, axis=0)
    bound, _ = smallest_epsilon(TRIALS[distribution](rdp, SELECTION_ORDERS, trials), delta, orders=SELECTION_ORDERS)
    return Epsilon(0.0, bound, delta, "rdp")


def _rdp(ledger: Ledger) -> FloatArray:
    return np.asarray(ledger_rdp(ledger, SELECTION_ORDERS).sum(axis=0))


# --- the two theorems ---------------------------------------------------------------------------------------------


def negative_binomial(rdp: FloatArray, orders: FloatArray, mean: float, eta: float) -> FloatArray:
    """RDP of the best of K trials, K from the truncated negative binomial of this mean; Theorem 2.

    The bound may be taken at any second order b; b = 1, where the Renyi term drops out, counts too.
    """
    log_odds = -math.log(gamma_of(mean, eta))
    second = np.concatenate([[1.0], orders])
    at_second = np.concatenate([[0.0], (1 - 1 / orders) * rdp])
    extra = float(np.min((1 + eta) * (at_second + log_odds / second)))
    return rdp + extra + math.log(mean) / (orders - 1)


def poisson(rdp: FloatArray, orders: FloatArray, mean: float) -> FloatArray:
    """RDP of the best of K trials, K Poisson; Theorem 6. K may be 0: then something public is shown."""
    epsilons = np.log1p(1 / (orders - 1))
    # The improved conversion solved for delta, at the best order of the trial's own.
    log_deltas = (orders - 1) * (rdp - epsilons[:, None] + np.log1p(-1 / orders)) - np.log(orders)
    deltas = np.exp(np.minimum(log_deltas.min(axis=1), 0.0))
    return rdp + mean * deltas + math.log(mean) / (orders - 1)


def mean_of(gamma: float, eta: float) -> float:
    """E[K] of the truncated negative binomial: eta (1 - gamma) / (gamma (1 - gamma^eta)), and its limit at eta = 0."""
    log_odds = -math.log(gamma)
    if eta == 0:
        return math.expm1(log_odds) / log_odds
    return eta * math.expm1(log_odds) / -math.expm1(-eta * log_odds)


def gamma_of(mean: float, eta: float) -> float:
    """The gamma at which K has this mean; 1 if the mean is 1, when K is always 1."""
    if mean <= 1 + 1e-12:
        return 1.0
    low, high = 0.0, 60.0  # of log 1/gamma, with which the mean rises
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_of(math.exp(-middle), eta) < mean else (low, middle)
    return math.exp(-high)


# Name -> RDP of the best, from the RDP of one trial, its orders and the expected number of trials.
TRIALS: dict[str, Callable[[FloatArray, FloatArray, float], FloatArray]] = {
    "geometric": lambda rdp, orders, mean: negative_binomial(rdp, orders, mean, 1.0),
    "logarithmic": lambda rdp, orders, mean: negative_binomial(rdp, orders, mean, 0.0),
    "Poisson": poisson,
}
