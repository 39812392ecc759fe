"""SCHEDULES: named curves sigma(t), one noise multiplier an epoch, known before any training.

t = 0 ... T-1 throughout. The families of An & Shi (2021), "DP-SGD with curricula", Table 1, are generalised from
their fixed 5 and 1 to any start and end; "decreasing" and "increasing" are then a matter of which is larger.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpviz.privacy.records import MAX_EPOCHS
from dpviz.privacy.registry import Entry, InputError, Knob, Table, Value

FloatArray = NDArray[np.float64]

SCHEDULES: Table[Entry] = Table("schedule")
MAX_CSV_BYTES = 4_000_000
MAX_SIGMA = 1e9  # of a knob; calibration stays below it, so what it returns can be given again

START = Knob(5.0, 0.0, MAX_SIGMA, "noise multiplier of the first epoch")
END = Knob(1.0, 0.0, MAX_SIGMA, "noise multiplier of the last epoch")


@SCHEDULES.register("constant", sigma=Knob(1.0, 0.0, MAX_SIGMA, "noise multiplier of every epoch"))
def constant(epochs: int, sigma: float) -> FloatArray:
    """The same noise in every epoch: sigma(t) = sigma."""
    return np.full(epochs, float(sigma))


@SCHEDULES.register("linear", start=START, end=END)
def linear(epochs: int, start: float, end: float) -> FloatArray:
    """A straight line: sigma(t) = start + (end - start) t / (T - 1)."""
    return _between(start, end, _progress(epochs))


@SCHEDULES.register("quadratic", start=START, end=END)
def quadratic(epochs: int, start: float, end: float) -> FloatArray:
    """Slow at first, then fast: sigma(t) = start + (end - start) t^2 / (T - 1)^2."""
    return _between(start, end, _progress(epochs) ** 2)


@SCHEDULES.register("exponential", start=START, end=END)
def exponential(epochs: int, start: float, end: float) -> FloatArray:
    """Most of the change at the noisy end: sigma = a e^-t + b from start to end; rising curves are its mirror image.

    The rising one equals a e^t + b of Sec. 4.2 of the paper, so both trends use the same set of sigmas.
    """
    if epochs == 1:
        return np.array([float(start)])
    t = np.arange(epochs, dtype=float)
    t = t if start >= end else t[::-1]
    high, low = max(start, end), min(start, end)
    floor = np.exp(-(epochs - 1.0))
    return low + (high - low) * (np.exp(-t) - floor) / (1 - floor)


@SCHEDULES.register("piecewise", start=START, end=END, levels=Knob(5, 2, 50, "number of flat levels"))
def piecewise(epochs: int, start: float, end: float, levels: int) -> FloatArray:
    """Flat levels of equal length: sigma(t) = start + (end - start) floor(t / (T / levels)) / (levels - 1)."""
    # Whole-number arithmetic: t / (T / 5) in floating point falls below the step it should reach for some T.
    level = np.arange(epochs) * levels // epochs
    return _between(start, end, level / (levels - 1))


@SCHEDULES.register("logarithmic", start=Knob(1.0, 0.0, MAX_SIGMA, START.help), end=Knob(5.0, 0.0, MAX_SIGMA, END.help))
def logarithmic(epochs: int, start: float, end: float) -> FloatArray:
    """Fast at first, then slow: sigma(t) = start + (end - start) log(t + 1) / log(T + 1); `end` is only approached."""
    return _between(start, end, np.log1p(np.arange(epochs)) / np.log(epochs + 1))


@SCHEDULES.register("cosine", start=START, end=END)
def cosine(epochs: int, start: float, end: float) -> FloatArray:
    """Half a cosine wave: sigma(t) = end + (start - end) (1 + cos(pi t / (T - 1))) / 2."""
    return _between(start, end, 1 - (1 + np.cos(np.pi * _progress(epochs))) / 2)


@SCHEDULES.register(
    "step-decay",
    start=START,
    factor=Knob(0.5, 0.01, 2.0, "multiply by this at each step"),
    every=Knob(5, 1, MAX_EPOCHS, "epochs between steps"),
)
def step_decay(epochs: int, start: float, factor: float, every: int) -> FloatArray:
    """A staircase: sigma(t) = start * factor^floor(t / every)."""
    return start * np.power(factor, np.arange(epochs) // every, dtype=float)


@SCHEDULES.register(
    "exponential-decay",
    start=START,
    rate=Knob(0.05, -1.0, 2.0, "share by which sigma falls per epoch; negative: rises"),
)
def exponential_decay(epochs: int, start: float, rate: float) -> FloatArray:
    """A fixed share less each epoch: sigma(t) = start * e^(-rate t)."""
    return start * np.exp(-rate * np.arange(epochs))


@SCHEDULES.register(
    "warm-up",
    start=START,
    end=Knob(1.0, 0.0, MAX_SIGMA, "noise multiplier that is held"),
    warmup=Knob(5, 0, MAX_EPOCHS, "epochs until it is reached"),
)
def warm_up(epochs: int, start: float, end: float, warmup: int) -> FloatArray:
    """Straight to a level, then hold: sigma(t) = start + (end - start) min(t / warmup, 1)."""
    return _between(start, end, np.minimum(np.arange(epochs) / max(warmup, 1e-9), 1.0))


def _between(start: float, end: float, share: FloatArray) -> FloatArray:
    """A weighted mean: start + (end - start) share would miss the end where both are far apart."""
    return start * (1 - share) + end * share


def _progress(epochs: int) -> FloatArray:
    """0 ... 1 over the epochs; a single epoch stays at the start."""
    return np.linspace(0.0, 1.0, epochs) if epochs > 1 else np.zeros(1)


CUSTOM = "custom"
SCHEDULES.add(Entry(CUSTOM, "Your own curve: a list of noise multipliers, drawn, typed or read from a CSV file."))


@dataclass(frozen=True)
class Schedule:
    """A schedule by name with its knobs, or a custom list of sigmas. Compares and hashes by value."""

    name: str
    knobs: tuple[tuple[str, Value], ...] = ()
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, name: str, **knobs: Any) -> Schedule:
        """A named schedule; knobs that are left out take their defaults."""
        entry = SCHEDULES[name]
        if name == CUSTOM:
            raise InputError("a custom schedule needs its list of sigmas")
        return cls(name, tuple(entry.complete(knobs).items()))

    @classmethod
    def custom(cls, sigmas: Iterable[Any]) -> Schedule:
        """One sigma an epoch, as given."""
        return cls(CUSTOM, values=tuple(check_sigmas(sigmas).tolist()))

    def sigmas(self, epochs: int) -> FloatArray:
        """One noise multiplier an epoch."""
        check_epochs(epochs)
        if self.name == CUSTOM:
            if len(self.values) != epochs:
                raise InputError(f"the custom schedule has {len(self.values)} epochs, but {epochs} were asked for")
            return np.array(self.values)
        with np.errstate(over="ignore", invalid="ignore"):  # what leaves the numbers is named by its epoch
            return check_sigmas(SCHEDULES[self.name].function(epochs, **dict(self.knobs)))

    def to_json(self) -> dict[str, Any]:
        if self.name == CUSTOM:
            return {"name": CUSTOM, "sigmas": list(self.values)}
        return {"name": self.name, **dict(self.knobs)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Schedule:
        if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
            raise InputError(f"a schedule needs a name, got {str(data)[:60]!r}")
        rest = {key: value for key, value in data.items() if key != "name"}
        if data["name"] == CUSTOM:
            if set(rest) != {"sigmas"} or not isinstance(rest["sigmas"], list | tuple):
                raise InputError("a custom schedule needs exactly one list named 'sigmas'")
            return cls.custom(rest["sigmas"])
        return cls.of(data["name"], **rest)

    def _repr_html_(self) -> str:
        from dpviz.privacy.notebook import schedule_html

        return schedule_html(self)


def check_epochs(epochs: Any) -> int:
    if not (isinstance(epochs, int) and not isinstance(epochs, bool) and 1 <= epochs <= MAX_EPOCHS):
        raise InputError(f"epochs must be a whole number from 1 to {MAX_EPOCHS:,}, got {epochs}")
    return epochs


def check_sigmas(sigmas: Iterable[Any]) -> FloatArray:
    """The sigmas as an array; the first bad one is named by its epoch (counted from 1)."""
    values: Sequence[Any] = list(sigmas)
    if not values:
        raise InputError("the schedule is empty; give one sigma an epoch, for example 5,4,3")
    if len(values) > MAX_EPOCHS:
        raise InputError(f"at most {MAX_EPOCHS:,} epochs, got {len(values):,}")
    for epoch, value in enumerate(values, start=1):
        try:
            good = 0 <= float(value) < np.inf
        except (TypeError, ValueError, OverflowError):
            good = False
        if not good:
            shown = str(value)[:40]
            raise InputError(f"noise_multiplier must be a finite number >= 0, got {shown} (epoch {epoch})")
    return np.array([float(value) for value in values])


def parse_csv(text: str) -> Schedule:
    """One sigma an epoch: the first column of each row, or the column named sigma; a heading line may come first."""
    if len(text) > MAX_CSV_BYTES:
        raise InputError(f"a schedule's CSV may have at most {MAX_CSV_BYTES // 1_000_000} MB")
    try:
        rows = [row for row in csv.reader(io.StringIO(text)) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise InputError(f"the CSV cannot be read: {error}") from None
    if not rows:
        raise InputError("the CSV is empty; give one sigma per line")
    heading = [cell.strip().lower() for cell in rows[0]]
    names = ("sigma", "sigmas", "noise_multiplier")
    column = next((heading.index(name) for name in names if name in heading), None)
    if column is not None:
        rows = rows[1:]
    elif len(rows) == 1:  # 5,4,3 on one line is a schedule too
        return Schedule.custom(cell.strip() for cell in rows[0])
    elif any(len(row) > 1 for row in rows):
        raise InputError("the CSV has several columns; name the one to use 'sigma'")
    return Schedule.custom(row[column or 0].strip() if len(row) > (column or 0) else "" for row in rows)


def read_csv(path: str | Path) -> Schedule:
    """The schedule in a CSV file."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return parse_csv(file.read(MAX_CSV_BYTES + 1))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(f"cannot read {str(path)!r}: {reason}; give a CSV file with one sigma per line") from None
