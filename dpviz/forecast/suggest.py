"""The best schedule at a budget, under a forecast; and whether it is worth more than constant noise.

A shape has a few knots in log sigma. While it is searched for, RDP from a table prices it; what is kept is calibrated
by the tight accountant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dpviz.forecast.response import FloatArray, Response, expected
from dpviz.privacy.assumptions import Assumptions
from dpviz.privacy.calibrate import calibrate
from dpviz.privacy.prices import epsilon
from dpviz.privacy.rdp import ORDERS, phase_rdp, smallest_epsilon
from dpviz.privacy.records import Phase, check_delta, epoch_phases, steps_per_epoch
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import rounded_up

KNOTS = 4
LENGTHS = 6  # numbers of epochs that are tried
FEWEST_EPOCHS = 3
TRIES = 90  # shapes per number of epochs
FINALISTS = 2  # that the tight accountant calibrates
LEAST_SIGMA = 0.3  # where the domain goes down to no noise at all
OUTSIDE = 0.05  # accuracy that a doubling outside of the domain is fined, so that the search stays inside
TABLE_ORDERS = ORDERS[::3]


@dataclass(frozen=True)
class Plan:
    """A schedule within the budget, its tight epsilon, and the accuracy to expect at its end."""

    sigmas: tuple[float, ...]
    epsilon: float
    accuracy: float
    lower: float
    upper: float
    why_not: str = ""  # what of it is outside of what was measured

    @property
    def half_width(self) -> float:
        return (self.upper - self.lower) / 2


@dataclass(frozen=True)
class Suggestion:
    """The best schedule, the best constant noise of equal epsilon, and how far apart one run of each may come out."""

    recipe: str
    rests_on: int
    best: Plan
    constant: Plan

    @property
    def gain(self) -> float:
        return self.best.accuracy - self.constant.accuracy

    @property
    def uncertainty(self) -> float:
        """Of the difference of two single runs whose errors are independent."""
        return math.hypot(self.best.half_width, self.constant.half_width)

    @property
    def worth_it(self) -> bool:
        return self.gain > self.uncertainty

    @property
    def words(self) -> str:
        points = f"{100 * self.gain:.2f} points (give or take {100 * self.uncertainty:.2f})"
        sigma, epochs = self.constant.sigmas[0], len(self.constant.sigmas)
        rival = f"constant noise {sigma:g} over {epochs} epochs, the best of equal epsilon"
        outside = self.best.why_not or self.constant.why_not
        verdict = "." if self.worth_it else ": within what chance makes of it, so keep it simple."
        warning = f" Outside of what was measured: {outside}." if outside else ""
        if self.best == self.constant:
            return f"No shape is expected to end above {rival}: keep it simple.{warning}"
        return f"Expected to end {points} above {rival}{verdict}{warning}"

    def to_json(self) -> dict[str, Any]:
        numbers = {"gain": self.gain, "uncertainty": self.uncertainty, "worth_it": self.worth_it, "words": self.words}
        return asdict(self) | numbers


def suggest(
    response: Response,
    target: float,
    sample_rate: float,
    delta: float,
    assumptions: Assumptions | None = None,
    *,
    batch_size: int | None = None,
    on_progress: Callable[[float], object] = lambda share: None,
) -> Suggestion:
    """Search shapes and numbers of epochs within the response's domain; some seconds.

    `batch_size` is that of the run to come, if it is not the one that was measured.
    """
    check_delta(delta)
    if not 0 < target < math.inf:
        raise InputError(f"target epsilon must be a finite number > 0, got {target}")
    low, high = max(response.least_sigma, LEAST_SIGMA), max(response.most_sigma, LEAST_SIGMA)
    quick = QuickPrice(sample_rate, delta, low / 4, high * 4)
    lengths = sorted({round(n) for n in np.geomspace(FEWEST_EPOCHS, response.epochs, LENGTHS)})
    shaped: list[tuple[float, FloatArray]] = []
    flat: list[tuple[float, FloatArray]] = []
    for place, epochs in enumerate(lengths):

        def loss(knots: FloatArray, epochs: int = epochs) -> float:
            sigmas = quick.scaled(shape(knots, epochs), target)
            outside = max(0.0, math.log2(low / sigmas.min()), math.log2(sigmas.max() / high))
            return OUTSIDE * outside - float(expected(response.parameters, sigmas)[0, -1])

        start = np.zeros(KNOTS - 1)  # constant noise
        simplex = np.vstack([start, *(np.tri(KNOTS - 1) * -0.4)])  # falling noise first: late noise is what hurts
        options: Any = {"maxfev": TRIES, "initial_simplex": simplex}
        best = minimize(loss, start, method="Nelder-Mead", options=options)
        shaped.append((float(best.fun), shape(best.x, epochs)))
        flat.append((loss(start), shape(start, epochs)))
        on_progress((place + 1) / (len(lengths) + 1))
    finalists = [curve for _, curve in sorted(shaped, key=lambda pair: pair[0])[:FINALISTS]]

    def plan(curve: FloatArray) -> Plan:
        """The shape scaled to the budget by the tight accountant; sigmas are rounded up to four digits."""
        calibrated = calibrate(curve.tolist(), sample_rate, target, delta, assumptions)
        sigmas = tuple(rounded_up(sigma) for sigma in calibrated.sigmas)
        forecast = response.forecast(sigmas, batch_size)
        ends = forecast.accuracy[-1], forecast.lower[-1], forecast.upper[-1]
        return Plan(
            sigmas, epsilon(epoch_phases(sigmas, sample_rate), delta, assumptions).upper, *ends, forecast.why_not
        )

    constant = plan(min(flat, key=lambda pair: pair[0])[1])
    plans = [*map(plan, finalists), constant]
    on_progress(1.0)
    return Suggestion(response.recipe, len(response.runs), max(plans, key=lambda plan: plan.accuracy), constant)


def shape(knots: Sequence[float] | FloatArray, epochs: int) -> FloatArray:
    """Sigmas over the epochs from log sigmas at evenly spaced knots; the first is 1."""
    places = np.linspace(0.0, 1.0, len(knots) + 1)
    return np.asarray(np.exp(np.interp(np.linspace(0.0, 1.0, epochs), places, np.concatenate([[0.0], knots]))))


class QuickPrice:
    """RDP epsilons of many schedules: one step's RDP on a logarithmic grid of sigmas, straight between its rows."""

    def __init__(self, sample_rate: float, delta: float, low: float, high: float, rows: int = 160) -> None:
        self.delta, self.steps = delta, steps_per_epoch(sample_rate)
        self.start, self.pitch = math.log(low), math.log(high / low) / (rows - 1)
        grid = np.exp(self.start + self.pitch * np.arange(rows))
        steps = [Phase(float(sigma), sample_rate, 1) for sigma in grid]
        self.logs = np.log(np.maximum(phase_rdp(steps, TABLE_ORDERS), 1e-300))

    def epsilon(self, sigmas: FloatArray) -> float:
        place = np.clip((np.log(sigmas) - self.start) / self.pitch, 0, len(self.logs) - 1.001)
        row = place.astype(int)
        share = (place - row)[:, None]
        logs = self.logs[row] * (1 - share) + self.logs[row + 1] * share
        return smallest_epsilon(self.steps * np.exp(logs).sum(axis=0), self.delta, orders=TABLE_ORDERS)[0]

    def scaled(self, curve: FloatArray, target: float) -> FloatArray:
        """The curve times the factor at which it costs the target."""
        low, high = -6.0, 6.0
        for _ in range(22):
            middle = (low + high) / 2
            low, high = (middle, high) if self.epsilon(curve * math.exp(middle)) > target else (low, middle)
        return curve * math.exp(high)
