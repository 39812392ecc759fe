"""Schedules to learn a recipe's response from: they fill the space of levels, slopes, bends, steps and spikes.

A design is a function of its number alone, so that runs which exist already are found again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import qmc

from dpviz.papers import RECIPES
from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import Schedule
from dpviz.training.spec import RunSpec

FloatArray = NDArray[np.float64]

# Settings whose response comes with dpviz; a paper's recipe by its name, and a small network for tables.
TABULAR = RunSpec(
    dataset="a7a",
    model="mlp",
    batch_size=256,
    clip_norm=0.5,
    schedule=Schedule.of("constant", sigma=1.23),
    epochs=20,
    knobs=(("optimizer.momentum", 0.9),),
)
NAMES = ("losing-less/mnist-ce-t-cnn", "losing-less/fashion-ce-t-cnn", "curricula/constant-1.54")
DESIGNED: tuple[RunSpec, ...] = (*(RECIPES[name].spec for name in NAMES), TABULAR)

LEAST, MOST = 0.5, 4.0  # sigmas, in units of the recipe's own
EPOCHS = (5, 30)
HELD_OUT_SEED = 1000  # of the first run that is kept away from every fit
HELD_OUT_STEP = 100  # from a schedule's seed to its next one, where those held out have several
CHECK_SEEDS = (2000, 2001, 2002)  # of runs that check a suggestion; no fit sees them either

# Shapes as log sigma over t from 0 to 1, within 0 ... 1 (least to most noise), by three numbers from 0 to 1.
Shape = Callable[[FloatArray, float, float, float], FloatArray]


def _line(t: FloatArray, a: float, b: float, c: float) -> FloatArray:
    return a + (b - a) * t


def _bend(t: FloatArray, a: float, b: float, c: float) -> FloatArray:
    return _line(t, a, b, c) + (2 * c - 1) * 2 * t * (1 - t)


def _step(t: FloatArray, a: float, b: float, c: float) -> FloatArray:
    return np.where(t < 0.2 + 0.6 * c, a, b)


def _spike(t: FloatArray, a: float, b: float, c: float) -> FloatArray:
    return np.where(np.abs(t - c) <= 0.08, b, a)


def _level(t: FloatArray, a: float, b: float, c: float) -> FloatArray:
    return np.full_like(t, a)


def _teeth(t: FloatArray, a: float, b: float, c: float) -> FloatArray:
    return _line((t * (2 + round(2 * c))) % 1.0, a, b, c)


def _late_burst(t: FloatArray, a: float, b: float, c: float) -> FloatArray:
    return np.where(t > 0.95 - 0.15 * c, b, a)


FITTED: tuple[Shape, ...] = (_line, _bend, _step, _spike, _level)
ODD: tuple[Shape, ...] = (_teeth, _late_burst, _spike, _step)


def held_out_pilots(spec: RunSpec, schedules: int, seeds: int = 1) -> tuple[RunSpec, ...]:
    """Runs of odd schedules that no fit sees; the more seeds, the less of an error is a seed's."""
    if not 1 <= schedules <= HELD_OUT_STEP or not 1 <= seeds <= HELD_OUT_SEED // HELD_OUT_STEP:
        raise InputError(
            f"held out are 1 to {HELD_OUT_STEP} schedules over 1 to {HELD_OUT_SEED // HELD_OUT_STEP} seeds each, got "
            f"{schedules} over {seeds}"
        )
    first = pilots(spec, schedules, held_out=True)
    steps = range(0, seeds * HELD_OUT_STEP, HELD_OUT_STEP)
    return tuple(dataclasses.replace(pilot, seed=pilot.seed + step) for step in steps for pilot in first)


def pilots(spec: RunSpec, runs: int, *, held_out: bool = False) -> tuple[RunSpec, ...]:
    """A recipe with so many schedules, one seed each; those held out have odder shapes and other seeds."""
    if not 1 <= runs <= HELD_OUT_SEED:
        raise InputError(f"pilot runs must be from 1 to {HELD_OUT_SEED:,}, got {runs}")
    if not spec.private:
        raise InputError(f"{spec.method} has no noise, so its accuracy does not follow a schedule")
    own = np.asarray(spec.schedule.sigmas(spec.epochs))
    centre = float(np.exp(np.log(own[own > 0]).mean())) if (own > 0).any() else 1.0
    shapes, first = (ODD, HELD_OUT_SEED) if held_out else (FITTED, 0)
    places = qmc.Sobol(4, seed=first).random_base2(10)[:runs]
    return tuple(
        _pilot(spec, centre, shapes[k % len(shapes)], first + k, *place.tolist()) for k, place in enumerate(places)
    )


def _pilot(spec: RunSpec, centre: float, shape: Shape, seed: int, length: float, *knobs: float) -> RunSpec:
    """Short runs are more frequent than long ones: their epochs cost less, and a long run holds them, too."""
    low, high = EPOCHS
    epochs = round(low * (high / low) ** length)
    heights = np.clip(shape(np.linspace(0.0, 1.0, epochs), *knobs), 0.0, 1.0)
    sigmas = centre * LEAST * (MOST / LEAST) ** heights
    schedule = Schedule.custom([float(f"{sigma:.4g}") for sigma in sigmas])
    spec = dataclasses.replace(spec, filter_epsilon=None, filter_order=None)  # its noise is fixed ahead
    return dataclasses.replace(spec, schedule=schedule, epochs=epochs, seed=seed, diagnostics=False)
