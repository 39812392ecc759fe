"""What was measured for each experiment: cached runs folded over seeds, beside what the paper reports."""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dpviz.papers import RECIPES, REPORTED, Recipe, Reported
from dpviz.papers.records import Claim, Curves, Finding
from dpviz.privacy import epoch_phases, guarantee
from dpviz.runs.cached import CACHED, CachedRun
from dpviz.runs.records import Run
from dpviz.runs.reproduce import same
from dpviz.training.spec import RunSpec

HEADLINES = ("test_accuracy", "test_error")


@dataclass(frozen=True)
class Measured:
    """An experiment's runs, one a seed: last test accuracies as fractions."""

    runs: tuple[Run, ...]

    @property
    def accuracies(self) -> tuple[float, ...]:
        return tuple(run.epochs[-1].test_accuracy for run in self.runs)

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies)

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds; one seed has none."""
        return statistics.stdev(self.accuracies) if len(self.runs) > 1 else None

    @property
    def epochs(self) -> int:
        """Epochs of the shortest run."""
        return min(len(run.epochs) for run in self.runs)

    @property
    def shortened(self) -> bool:
        """Whether a run ended before its last epoch, so that its accuracy is not the experiment's."""
        return self.epochs < self.runs[0].spec.epochs


@dataclass(frozen=True)
class Experiment:
    """One row of the papers' results: what is reported, what was measured, and both epsilons. None: there is none."""

    paper: str
    name: str
    recipe: Recipe | None
    reported: Reported | None
    measured: Measured | None
    claimed: float | None
    sound: float | None

    @property
    def difference(self) -> float | None:
        """Points of accuracy that we measured above what is reported."""
        if self.measured is None or self.measured.shortened or self.reported is None:
            return None
        if self.reported.quantity != HEADLINES[0]:
            return None
        return 100 * (self.measured.mean - self.reported.value)


def measured(cached: Iterable[CachedRun]) -> tuple[dict[str, Measured], tuple[str, ...]]:
    """Cached runs by recipe, seeds in order; a run whose settings are not its recipe's is left out, with a warning."""
    found: dict[str, list[Run]] = {}
    warnings = []
    for item in cached:
        name = f"{item.paper}/{item.experiment}"
        if name not in RECIPES:
            warnings.append(f"skipped: {name}/{item.seed} belongs to no recipe")
        elif not same(item.run.spec, dataclasses.replace(RECIPES[name].spec, seed=item.seed)):
            warnings.append(f"skipped: {name}/{item.seed} was made with other settings than the recipe's")
        else:
            found.setdefault(name, []).append(item.run)
    ordered = {name: sorted(runs, key=lambda run: run.spec.seed) for name, runs in found.items()}
    return {name: Measured(tuple(runs)) for name, runs in ordered.items()}, tuple(warnings)


def findings(claims: Iterable[Claim], results: Mapping[str, Measured]) -> list[tuple[Claim, Finding]]:
    """Each claim with what its check finds now, on the runs that went their full length or, if it can, on all."""
    full, every = _curves(results, ("done",)), _curves(results, CACHED)
    return [(claim, claim.check(every if claim.shortened else full)) for claim in claims]


def _curves(results: Mapping[str, Measured], statuses: tuple[str, ...]) -> Curves:
    found = {
        name: {run.spec.seed: run.epochs for run in result.runs if run.status in statuses}
        for name, result in results.items()
    }
    return {name: runs for name, runs in found.items() if runs}


def experiments(results: dict[str, Measured], paper: str | None = None) -> tuple[Experiment, ...]:
    """Every experiment of a paper, or of all: its recipes in order, then what is reported without a recipe."""
    rows = [_of_recipe(recipe, results.get(name)) for name, recipe in RECIPES.items() if paper in (None, recipe.paper)]
    seen = {row.name for row in rows}
    for number in REPORTED:
        wanted = paper in (None, number.paper) and number.quantity in HEADLINES
        if wanted and number.name not in RECIPES and number.name not in seen:
            seen.add(number.name)
            rows.append(Experiment(number.paper, number.name, None, number, None, number.epsilon, None))
    return tuple(rows)


def _of_recipe(recipe: Recipe, result: Measured | None) -> Experiment:
    claimed, sound = priced(recipe.spec)
    if result is not None:
        last = result.runs[0].epochs[-1]
        claimed, sound = last.epsilon_claimed, last.epsilon_sound
    reported = recipe.headline
    if reported is not None and reported.epsilon is not None:
        claimed = reported.epsilon
    return Experiment(recipe.paper, recipe.name, recipe, reported, result, claimed, sound)


def priced(spec: RunSpec) -> tuple[float | None, float | None]:
    """(claimed, sound) epsilon of the spec's planned ledger; the seed does not matter."""
    return _priced(spec.method, spec.curriculum, tuple(spec.schedule.sigmas(spec.epochs)), spec.sample_rate, spec.delta)


@functools.cache
def _priced(
    method: str, curriculum: str, sigmas: tuple[float, ...], sample_rate: float, delta: float
) -> tuple[float | None, float | None]:
    found = guarantee(method, curriculum, epoch_phases(sigmas, sample_rate), delta)
    return tuple(bound.upper if bound else None for bound in (found.claimed, found.sound))  # type: ignore[return-value]
