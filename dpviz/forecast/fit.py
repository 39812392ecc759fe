"""Learn a recipe's response from its runs, and measure how far off it is on schedules that it has not seen."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from dpviz.forecast.response import BOUNDS, FloatArray, Response, expected
from dpviz.privacy.registry import InputError

FOLDS = 8
COVERAGE = 0.9
NORMAL = 1.645  # standard deviations either side that hold nine of ten
MEAN_SIZE = math.sqrt(2 / math.pi)  # of a normal error, in standard deviations
FEWEST = 8  # schedules that a fit needs
SPOKEN_FOR = 3  # schedules that must reach an epoch for it to count as measured
POOLED = 40  # errors that an epoch's half-width rests on; where fewer runs got, those of the nearest epochs count
RANKED = 5  # runs that must reach an epoch for their order to say anything
LEAST_SCATTER = 5e-4  # an epoch's typical error, for its weight: no epoch counts without end
START = np.array([2.0, 0.0, -4.0, 1.9, -6.0, 2.0, -2.0, 0.0])


@dataclass(frozen=True)
class Curve:
    """What a run says: its noise and its test accuracy after each epoch that it reached."""

    key: str
    sigmas: tuple[float, ...]
    accuracies: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.accuracies) <= len(self.sigmas):
            raise InputError(f"a curve needs a sigma for each of its {len(self.accuracies)} accuracies")


@dataclass(frozen=True)
class HeldOut:
    """How forecasts of schedules did that no fit had seen: errors in accuracy, and the share of epochs in the band.

    `rank_correlation` is about all pairs of schedules that differ by more than a seed's scatter after an epoch: the
    share whose order was forecast less the share whose order was not (Goodman and Kruskal's gamma), the median over
    epochs. Schedules with several seeds count by their mean. `seeds_error` is the error that a perfect forecast would
    have, because runs scatter by their seeds; NaN if that was not measured.
    """

    schedules: int
    runs: int
    error: float
    seeds_error: float
    coverage: float
    rank_correlation: float


def fit(curves: Sequence[Curve], *, recipe: str, settings: str, dataset: str, batch_size: int) -> Response:
    """The response of the runs. Its half-widths come from runs that were left out of a fit, a schedule at a time."""
    curves = sorted(curves, key=lambda curve: curve.key)  # whichever order they were read in, the folds are the same
    schedules = _schedules(curves)
    if len(schedules) < FEWEST:
        raise InputError(f"a forecast needs runs of {FEWEST} schedules or more, got {len(schedules)}; make more pilots")
    first = _parameters(curves, START, np.full(_reach(curves), 0.01))
    weights = _typical_errors(curves, first)
    whole = _parameters(curves, first, weights)
    errors: list[FloatArray] = []
    for left_out in _folds(schedules, FOLDS):
        parameters = _parameters([curve for curve in curves if curve.sigmas not in left_out], whole, weights)
        errors += [_errors(parameters, curve) for curve in curves if curve.sigmas in left_out]
    epochs = sorted((len(sigmas) for sigmas in _longest(curves)), reverse=True)[SPOKEN_FOR - 1]
    scatter = _seed_scatter(curves, epochs)
    noise = [sigma for curve in curves for sigma in curve.sigmas[: len(curve.accuracies)]]
    return Response(
        recipe=recipe,
        settings=settings,
        dataset=dataset,
        batch_size=batch_size,
        parameters=tuple(round(value, 6) for value in whole.tolist()),
        least_sigma=min(noise),
        most_sigma=max(noise),
        half_widths=_half_widths(errors, scatter, epochs),
        seed_scatter=scatter,
        held_out_error=round(float(np.mean([abs(each[-1]) for each in errors])), 6),
        schedules=len(schedules),
        runs=tuple(sorted(curve.key for curve in curves)),
    )


def held_out(response: Response, curves: Sequence[Curve]) -> HeldOut:
    """How a response does on runs that it was not fitted to."""
    return _judged([(response, curve) for curve in curves])


def left_out(curves: Sequence[Curve], folds: int = FOLDS) -> HeldOut:
    """The same, where there are no such runs: every schedule is left out of one fit, band included, and forecast."""
    pairs = []
    for part in _folds(_schedules(curves), folds):
        rest = [curve for curve in curves if curve.sigmas not in part]
        response = fit(rest, recipe="-", settings="0" * 16, dataset="-", batch_size=1)
        pairs += [(response, curve) for curve in curves if curve.sigmas in part]
    return _judged(pairs)


def _judged(pairs: Sequence[tuple[Response, Curve]]) -> HeldOut:
    covered: list[bool] = []
    ends: dict[tuple[float, ...], list[float]] = {}
    chance: dict[tuple[float, ...], float] = {}
    for response, curve in pairs:
        schedule = curve.sigmas[: len(curve.accuracies)]
        forecast, truth = response.forecast(schedule), np.array(curve.accuracies)
        covered += list((forecast.lower <= truth) & (truth <= forecast.upper))
        ends.setdefault(schedule, []).append(forecast.accuracy[-1] - truth[-1])
        scatter = response.seed_scatter or (math.nan,)
        chance[schedule] = MEAN_SIZE * scatter[min(len(truth), len(scatter)) - 1] / math.sqrt(len(ends[schedule]))
    return HeldOut(
        schedules=len(ends),
        runs=len(pairs),
        error=float(np.mean([abs(np.mean(seeds)) for seeds in ends.values()])),
        seeds_error=float(np.mean(list(chance.values()))),
        coverage=float(np.mean(covered)),
        rank_correlation=_rank_correlation(pairs),
    )


def _rank_correlation(pairs: Sequence[tuple[Response, Curve]]) -> float:
    """NaN where no epoch can be judged."""
    correlations = []
    for epoch in range(_reach([curve for _, curve in pairs])):
        runs: dict[tuple[float, ...], list[float]] = {}
        forecasts: dict[tuple[float, ...], float] = {}
        scatter = 0.0
        for response, curve in pairs:
            if len(curve.accuracies) > epoch:
                schedule = curve.sigmas[: epoch + 1]
                runs.setdefault(schedule, []).append(curve.accuracies[epoch])
                forecasts[schedule] = response.forecast(schedule).accuracy[-1]
                scatter = max(scatter, *response.seed_scatter[epoch : epoch + 1], 0.0)
        measured = np.array([np.mean(seeds) for seeds in runs.values()])
        forecast = np.array(list(forecasts.values()))
        apart = np.subtract.outer(measured, measured)
        same_order = np.sign(np.subtract.outer(forecast, forecast))
        if len(runs) >= RANKED and (apart > scatter).any():
            correlations.append(float(same_order[apart > scatter].mean()))
    return float(np.median(correlations)) if correlations else math.nan


def _schedules(curves: Iterable[Curve]) -> list[tuple[float, ...]]:
    return list(dict.fromkeys(curve.sigmas for curve in curves))


def _folds(schedules: Sequence[tuple[float, ...]], folds: int) -> list[set[tuple[float, ...]]]:
    return [set(schedules[fold::folds]) for fold in range(min(folds, len(schedules)))]


def _longest(curves: Iterable[Curve]) -> list[tuple[float, ...]]:
    """Of each schedule, as much as a run has reached."""
    reached: dict[tuple[float, ...], int] = {}
    for curve in curves:
        reached[curve.sigmas] = max(reached.get(curve.sigmas, 0), len(curve.accuracies))
    return [sigmas[:count] for sigmas, count in reached.items()]


def _errors(parameters: FloatArray, curve: Curve) -> FloatArray:
    truth = np.array(curve.accuracies)
    return np.asarray(expected(parameters, np.array(curve.sigmas[: len(truth)]))[0] - truth)


def _reach(curves: Iterable[Curve]) -> int:
    return max(len(curve.accuracies) for curve in curves)


def _typical_errors(curves: Sequence[Curve], parameters: FloatArray) -> FloatArray:
    """Root mean square per epoch, by which errors are weighed: a run's first epochs depend most on its seed."""
    squares: list[list[float]] = [[] for _ in range(_reach(curves))]
    for curve in curves:
        for epoch, error in enumerate(_errors(parameters, curve)):
            squares[epoch].append(error**2)
    return np.maximum(np.sqrt([np.mean(each) for each in squares]), LEAST_SCATTER)


def _parameters(curves: Sequence[Curve], start: FloatArray, scatter: FloatArray) -> FloatArray:
    """The best ones, where an error counts in units of its epoch's scatter, and a large one less than by its square."""
    longest = _reach(curves)
    sigmas, truth = np.ones((len(curves), longest)), np.full((len(curves), longest), np.nan)
    for row, curve in enumerate(curves):
        count = len(curve.accuracies)
        sigmas[row, :count], truth[row, :count] = curve.sigmas[:count], curve.accuracies
    reached = ~np.isnan(truth)
    least, most = np.array(list(BOUNDS.values())).T

    def residuals(parameters: FloatArray) -> FloatArray:
        return np.asarray(((expected(parameters, sigmas) - truth) / scatter[:longest])[reached])

    inside = np.clip(start, least + 1e-3, most - 1e-3)
    best = least_squares(residuals, inside, loss="soft_l1", bounds=(least, most), max_nfev=500, x_scale="jac")
    return np.asarray(best.x, float)


def _seed_scatter(curves: Iterable[Curve], epochs: int) -> tuple[float, ...]:
    """Standard deviation over seeds per epoch, pooled over the schedules that have several; the last known goes on."""
    same: dict[tuple[float, ...], list[tuple[float, ...]]] = {}
    for curve in curves:
        same.setdefault(curve.sigmas, []).append(curve.accuracies)
    scatter: list[float] = []
    for epoch in range(epochs):
        there = [[each[epoch] for each in seeds if len(each) > epoch] for seeds in same.values()]
        variances = [np.var(each, ddof=1) for each in there if len(each) > 1]
        if not variances and not scatter:
            return ()
        scatter.append(round(float(np.sqrt(np.mean(variances))), 6) if variances else scatter[-1])
    return tuple(scatter)


def _half_widths(errors: Sequence[FloatArray], scatter: Sequence[float], epochs: int) -> tuple[float, ...]:
    """Conformal, epoch by epoch: the (n + 1) COVERAGE-th smallest error of runs that were not fitted to."""
    when = np.concatenate([np.arange(len(each)) for each in errors])
    size = np.abs(np.concatenate(errors))
    widths = []
    for epoch in range(epochs):
        count = max(POOLED, int((when == epoch).sum()))
        near = np.sort(size[np.argsort(np.abs(when - epoch), kind="stable")[:count]])
        rank = min(len(near), math.ceil((len(near) + 1) * COVERAGE))
        width = max(float(near[rank - 1]), NORMAL * scatter[epoch] if scatter else 0.0)
        widths.append(math.ceil(1e6 * width) / 1e6)
    return tuple(widths)
