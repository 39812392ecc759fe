"""What was measured for each experiment: cached runs folded over seeds, beside what the paper reports."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpviz.papers import LOCAL_RECIPES, RECIPES, REPORTED, LocalRecipe, Recipe, Reported
from dpviz.papers.records import HEADLINES, Claim, Curves, Finding
from dpviz.privacy.local import local_guarantee
from dpviz.runs.local_results import LocalResult, rows_of
from dpviz.runs.reproduce import same
from dpviz.runs.store.cached import CACHED, CachedRun
from dpviz.runs.store.records import Run
from dpviz.training.local.spec import LocalSpec
from dpviz.training.pricing import planned_guarantee
from dpviz.training.spec import RunSpec
from dpviz.training.tables import METHODS


@dataclass(frozen=True)
class Measured:
    """Where an experiment ended, one value per seed: test accuracies or, under local privacy, errors, as fractions.

    `epochs` are those of the shortest run. Trials under local privacy are no runs.
    """

    values: tuple[float, ...]
    epochs: int
    planned_epochs: int
    runs: tuple[Run, ...] = ()

    @classmethod
    def of_runs(cls, runs: Sequence[Run]) -> Measured:
        ends = tuple(run.epochs[-1].accuracy for run in runs)
        return cls(ends, min(len(run.epochs) for run in runs), runs[0].spec.epochs, tuple(runs))

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds; one seed has none."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def audited(self) -> float | None:
        """The largest lower bound that an audit of these runs gave."""
        return max((run.audit.lower for run in self.runs if run.audit), default=None)

    @property
    def shortened(self) -> bool:
        """Whether a run ended before its last epoch, so that its accuracy is not the experiment's."""
        return self.epochs < self.planned_epochs


@dataclass(frozen=True)
class Experiment:
    """One row of the papers' results: what is reported, what was measured, and both epsilons of the whole run.

    Both are of our own account, whatever epsilon is reported. None: there is none.
    """

    paper: str
    name: str
    recipe: Recipe | LocalRecipe | None
    reported: Reported | None
    measured: Measured | None
    claimed: float | None
    sound: float | None

    @property
    def difference(self) -> float | None:
        """Points of accuracy, or of error, that we measured above what is reported."""
        if self.measured is None or self.measured.shortened or self.reported is None:
            return None
        return 100 * (self.measured.mean - self.reported.value)


def measured(
    cached: Iterable[CachedRun], local: Iterable[LocalResult] = ()
) -> tuple[dict[str, Measured], tuple[str, ...]]:
    """Cached results by recipe, seeds in order; a run whose settings are not its recipe's is left out, with a warning.

    Results under local privacy also vary settings that the papers fix; those that match no recipe stand for themselves.
    """
    by_recipe: dict[str, list[Run]] = {}
    warnings = []
    for item in cached:
        name = f"{item.paper}/{item.experiment}"
        if name not in RECIPES:
            warnings.append(f"skipped: {name}/{item.seed} belongs to no recipe")
        elif not same(item.run.own_spec, dataclasses.replace(RECIPES[name].spec, seed=item.seed)):
            warnings.append(f"skipped: {name}/{item.seed} was made with other settings than the recipe's")
        else:
            by_recipe.setdefault(name, []).append(item.run)
    ordered = {name: sorted(runs, key=lambda run: run.spec.seed) for name, runs in by_recipe.items()}
    results = {name: Measured.of_runs(runs) for name, runs in ordered.items()}
    return results | _measured_locally(tuple(local)), tuple(warnings)


def _measured_locally(local: Sequence[LocalResult]) -> dict[str, Measured]:
    rows = {name: next(rows_of(recipe, local), None) for name, recipe in LOCAL_RECIPES.items()}
    epochs = {name: recipe.spec.epochs for name, recipe in LOCAL_RECIPES.items()}
    return {name: Measured(tuple(row["errors"]), epochs[name], epochs[name]) for name, row in rows.items() if row}


def findings(claims: Iterable[Claim], results: Mapping[str, Measured]) -> list[tuple[Claim, Finding]]:
    """Each claim with what its check finds now, in the evidence that it asks for."""
    evidence = {
        "whole runs": _curves(results, ("done",)),
        "all runs": _curves(results, CACHED),
        "errors": {name: result.values for name, result in results.items() if name in LOCAL_RECIPES},
    }
    return [(claim, claim.check(evidence[claim.evidence])) for claim in claims]


def _curves(results: Mapping[str, Measured], statuses: tuple[str, ...]) -> Curves:
    curves = {
        name: {run.spec.seed: run.epochs for run in result.runs if run.status in statuses}
        for name, result in results.items()
    }
    return {name: runs for name, runs in curves.items() if runs}


def experiments(results: Mapping[str, Measured], paper: str | None = None) -> tuple[Experiment, ...]:
    """Every experiment of a paper, or of all: its recipes in order, then what is reported without a recipe."""
    recipes: dict[str, Recipe | LocalRecipe] = {**RECIPES, **LOCAL_RECIPES}
    rows = [_of_recipe(recipe, results.get(name)) for name, recipe in recipes.items() if paper in (None, recipe.paper)]
    seen = {row.name for row in rows}
    for number in REPORTED:
        wanted = paper in (None, number.paper) and number.quantity in HEADLINES
        if wanted and number.name not in seen:
            seen.add(number.name)
            rows.append(Experiment(number.paper, number.name, None, number, None, None, number.epsilon_sound))
    return tuple(rows)


def _of_recipe(recipe: Recipe | LocalRecipe, result: Measured | None) -> Experiment:
    return Experiment(recipe.paper, recipe.name, recipe, recipe.headline, result, *epsilons(recipe.spec, result))


def epsilons(spec: RunSpec | LocalSpec, result: Measured | None = None) -> tuple[float | None, float | None]:
    """(claimed, sound) epsilon of the whole run; the seed does not matter, nor how many people there are.

    What screening accepts, and so what it claims, is known once runs were made: then it is the most that one claims.
    """
    if isinstance(spec, LocalSpec):
        return local_guarantee(spec.method, spec.budget(people=1)).uppers
    claimed, sound = planned_guarantee(spec).uppers
    if METHODS[spec.method].screened and result is not None and not result.shortened:
        ends = (run.epochs[-1].epsilon_claimed for run in result.runs)
        claimed = max((end for end in ends if end is not None), default=claimed)
    return claimed, sound
