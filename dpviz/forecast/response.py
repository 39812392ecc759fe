r"""How the test accuracy of a recipe follows from its noise schedule, in eight numbers, and how far off that is.

    accuracy(t) = 1 - floor - q(t) - d (w sigma(t)^2 + (1 - w) n(t))^kappa
    n(t) = rho n(t-1) + (1 - rho) sigma(t)^2            recent noise, forgotten within a few epochs
    q(t) = (q(0)^(1-p) + (p-1) k t)^(1/(1-p))           what is not learnt yet: a power law in epochs

The share w of the last epoch's own noise is what a burst at the very end adds. That noise slows learning down was tried
and left out: it made no forecast of a schedule that was left out better.

The browser does the same sums while the pen moves: dpviz/ui/common/editor/forecast.js.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpviz.privacy.records import MAX_EPOCHS
from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import check_sigmas

FloatArray = NDArray[np.float64]

VERSION = 2  # 1 had other parameters
# Parameter -> (least, most): logarithms of what the formula has (`power`: of p - 1); `memory` and `last` are logits.
BOUNDS = {
    "pace": (-6.0, 6.0),
    "power": (-3.0, 1.5),
    "floor": (-9.0, -0.3),
    "unlearnt": (-2.0, 2.0),
    "noise": (-16.0, 0.0),
    "memory": (-4.0, 5.0),
    "last": (-6.0, 6.0),
    "noise_power": (-2.0, 1.5),
}
LEAST_ERROR, MOST_ERROR = 1e-4, 0.95
KEY = re.compile(r"[0-9a-f]{16}")
MOST = 1_000_000  # of any count or sigma
FURTHEST = 4.0  # doublings outside of the domain that still widen the band


def expected(parameters: Iterable[float], sigmas: FloatArray) -> FloatArray:
    """Expected test accuracy after each epoch, one row per schedule; shorter schedules are padded with anything."""
    pace, power, floor, unlearnt, noise, memory, last, noise_power = parameters
    rows = np.atleast_2d(np.square(sigmas))
    steepness, rho, share = math.exp(power), _logistic(memory), _logistic(last)
    steps = steepness * math.exp(pace) * np.arange(1, rows.shape[1] + 1)
    unlearnt_parts = (math.exp(-unlearnt * steepness) + steps) ** (-1 / steepness)
    recent = np.empty(rows.shape)
    before = np.zeros(len(rows))
    for epoch in range(rows.shape[1]):
        before = recent[:, epoch] = rho * before + (1 - rho) * rows[:, epoch]
    mixed = share * rows + (1 - share) * recent
    errors = math.exp(floor) + unlearnt_parts + math.exp(noise) * mixed ** math.exp(noise_power)
    return 1 - np.clip(errors, LEAST_ERROR, MOST_ERROR)


@dataclass(frozen=True)
class Forecast:
    """The test accuracy to expect after each epoch, and the band that nine of ten runs end in, whatever their seed.

    Outside of what was measured `in_domain` is False, the band is wider, and `why_not` says in words what is outside.
    """

    recipe: str
    accuracy: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    rests_on: int
    why_not: str = ""

    @property
    def in_domain(self) -> bool:
        return not self.why_not

    def to_json(self) -> dict[str, Any]:
        rows = zip(self.accuracy, self.lower, self.upper, strict=True)
        epochs = [
            {"epoch": epoch, "accuracy": accuracy, "lower": lower, "upper": upper}
            for epoch, (accuracy, lower, upper) in enumerate(rows, start=1)
        ]
        words = {"why_not": self.why_not} if self.why_not else {}
        return {"epochs": epochs, "in_domain": self.in_domain, "rests_on": self.rests_on, "recipe": self.recipe} | words


@dataclass(frozen=True)
class Response:
    """What was learnt from a recipe's runs. `settings` is the hash of all but schedule, epochs and seed.

    The domain is sigmas from `least_sigma` to `most_sigma`, as many epochs as there are half-widths, and the batch
    size of the runs. `seed_scatter` is a seed's standard deviation per epoch, empty if no schedule had two seeds.
    `held_out_error` is the mean absolute error at the end of schedules that were left out of the fit.
    """

    recipe: str
    settings: str
    dataset: str
    batch_size: int
    parameters: tuple[float, ...]
    least_sigma: float
    most_sigma: float
    half_widths: tuple[float, ...]
    seed_scatter: tuple[float, ...]
    held_out_error: float
    schedules: int
    runs: tuple[str, ...]

    def __post_init__(self) -> None:
        checks = {
            "recipe and dataset are names": all(type(word) is str and 0 < len(word) <= 200 for word in self._words),
            "settings and runs are keys": all(type(key) is str and KEY.fullmatch(key) for key in self._keys),
            "there is a run": len(self.runs) >= 1,
            f"batch_size and schedules are whole numbers from 1 to {MOST:,}": all(
                type(count) is int and 1 <= count <= MOST for count in (self.batch_size, self.schedules)
            ),
            f"parameters are {len(BOUNDS)} numbers within their bounds": len(self.parameters) == len(BOUNDS)
            and all(_within(*pair) for pair in zip(self.parameters, BOUNDS.values(), strict=True)),
            "0 <= least_sigma <= most_sigma": _within(self.least_sigma, (0.0, self.most_sigma))
            and _within(self.most_sigma, (0.0, MOST)),
            "half_widths and seed_scatter are shares, one per epoch": 1 <= len(self.half_widths) <= MAX_EPOCHS
            and len(self.seed_scatter) in (0, len(self.half_widths))
            and all(_within(share, (0.0, 1.0)) for share in (*self.half_widths, *self.seed_scatter)),
            "held_out_error is a share": _within(self.held_out_error, (0.0, 1.0)),
        }
        for sentence, holds in checks.items():
            if not holds:
                raise InputError(f"this is no forecast that dpviz fitted: it must hold that {sentence}; fit it again")

    @property
    def _words(self) -> tuple[str, ...]:
        return self.recipe, self.dataset

    @property
    def _keys(self) -> tuple[str, ...]:
        return (self.settings, *self.runs)

    @property
    def epochs(self) -> int:
        """The longest schedule that the runs speak for."""
        return len(self.half_widths)

    def forecast(self, sigmas: Iterable[Any], batch_size: int | None = None) -> Forecast:
        """The accuracy to expect of a schedule; `batch_size` is that of the run to come, if it is another."""
        curve = check_sigmas(sigmas)
        outside = {words: doublings for words, doublings in self._outside(curve, batch_size).items() if doublings > 0}
        widening = 2 * (1 + min(FURTHEST, max(outside.values()))) if outside else 1.0
        accuracy = expected(self.parameters, curve)[0]
        known = np.minimum(np.arange(len(curve)), self.epochs - 1)
        half = np.array(self.half_widths)[known] * widening
        lower, upper = np.maximum(accuracy - half, 0.0), np.minimum(accuracy + half, 1.0)
        accuracies, lowers, uppers = (tuple(part.tolist()) for part in (accuracy, lower, upper))
        return Forecast(self.recipe, accuracies, lowers, uppers, len(self.runs), "; ".join(outside))

    def _outside(self, curve: FloatArray, batch_size: int | None) -> dict[str, float]:
        """How many doublings a schedule lies outside of what was measured, by what that is in words."""
        least, most, batch = float(curve.min()), float(curve.max()), batch_size or self.batch_size
        return {
            f"sigma {least:.4g} is below the measured {self.least_sigma:.4g}": _doublings(self.least_sigma, least),
            f"sigma {most:.4g} is above the measured {self.most_sigma:.4g}": _doublings(most, self.most_sigma),
            f"{len(curve)} epochs are more than the measured {self.epochs}": _doublings(len(curve), self.epochs),
            f"batch size {batch} is not the measured {self.batch_size}": abs(_doublings(batch, self.batch_size)),
        }

    def to_json(self) -> dict[str, Any]:
        data = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"version": VERSION} | data | {"parameters": dict(zip(BOUNDS, self.parameters, strict=True))}

    @classmethod
    def from_json(cls, data: Any) -> Response:
        """The response in a JSON object; anything odd about it is refused."""
        names = {field.name for field in fields(cls)}
        if not isinstance(data, Mapping) or data.get("version") != VERSION or set(data) != names | {"version"}:
            raise InputError(f"this is no forecast of version {VERSION}: its names are others; fit it again")
        try:
            rest: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
            }
            rest["parameters"] = tuple(data["parameters"][name] for name in BOUNDS)
            del rest["version"]
            return cls(**rest)
        except (TypeError, KeyError) as error:
            raise InputError(f"this is no forecast that dpviz fitted: {error}; fit it again") from None


def scale_to_accuracy(response: Response, sigmas: Iterable[Any], target: float) -> float:
    """The largest factor by which a schedule may be scaled so that its end is still expected to reach the target."""
    curve = check_sigmas(sigmas)
    if not 0 < target < 1:
        raise InputError(f"the accuracy to aim at must be a share above 0 and below 1, got {target}")
    if not curve.any():
        raise InputError("a schedule without noise cannot be scaled; draw one with noise")

    def reaches(log_factor: float) -> bool:
        return bool(expected(response.parameters, curve * math.exp(log_factor))[0, -1] >= target)

    low, high = -math.log(MOST), math.log(MOST / curve.max())
    if not reaches(low):
        most = expected(response.parameters, 0.0 * curve)[0, -1]
        raise InputError(
            f"{target:.2%} is out of reach: even without noise {len(curve)} epochs are expected to end at {most:.2%}; "
            "take more epochs or aim lower"
        )
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if reaches(middle) else (low, middle)
    return math.exp(low)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def _within(value: Any, bounds: tuple[float, float]) -> bool:
    return type(value) in (int, float) and bounds[0] <= value <= bounds[1]


def _doublings(larger: float, smaller: float) -> float:
    """log2 of a ratio; what is compared with nothing is infinitely far."""
    if larger == smaller:
        return 0.0
    return math.log2(larger / smaller) if larger > 0 and smaller > 0 else math.inf if larger > smaller else -math.inf
