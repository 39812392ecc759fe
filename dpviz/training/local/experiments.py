"""Trials under local privacy: methods against budgets over repeats, lambda by cross-validation, paired differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

from dpviz.privacy.local import local_guarantee
from dpviz.privacy.registry import InputError
from dpviz.training.local.linear import Parts, Progress, train
from dpviz.training.local.spec import LocalSpec
from dpviz.training.local.tabular import Tabular

LAMBDAS = tuple(10.0**power for power in range(-3, 4))
FOLDS = 10
BUDGETS = (0.8, 1.0, 1.2, 1.4, 1.6)


@dataclass(frozen=True)
class Trial:
    """One spec and what its repeats gave: test errors of the last and of the averaged weights, after each epoch.

    Arrays are repeats x epochs. `epsilon_per_person` is what a person pays over all visits; None: no guarantee.
    """

    spec: LocalSpec
    last: npt.NDArray[np.float64]
    average: npt.NDArray[np.float64]
    used: npt.NDArray[np.float64]
    epsilon_per_person: float | None

    @property
    def errors(self) -> npt.NDArray[np.float64]:
        """The test error of what Algorithm 1 returns, one per repeat."""
        return self.last[:, -1]

    @property
    def mean_error(self) -> float:
        return float(self.errors.mean())

    @property
    def std_error(self) -> float:
        """Standard deviation over repeats (not of the mean)."""
        return float(self.errors.std(ddof=1)) if len(self.errors) > 1 else 0.0

    def to_json(self) -> dict[str, object]:
        """A row of `dpviz local --json`; a budget is epsilon per visit."""
        average = self.average[:, -1]
        return {
            "method": self.spec.method,
            "budget": self.spec.epsilon,
            "mean_error": self.mean_error,
            "std_error": self.std_error,
            "epsilon_per_person": self.epsilon_per_person,
            "loss": self.spec.loss,
            "batch_size": self.spec.batch_size,
            "gradient_label": self.spec.gradient_label,
            "regularization": self.spec.regularization,
            "mean_error_average": float(average.mean()),
            "std_error_average": float(average.std(ddof=1)) if len(average) > 1 else 0.0,
            "epoch_errors": [round(float(error), 6) for error in self.last.mean(axis=0)],
            "used": [round(float(share), 4) for share in self.used.mean(axis=0)],
            "errors": [round(float(error), 6) for error in self.errors],
        }


@dataclass(frozen=True)
class Difference:
    """Error of one method minus that of another, repeat by repeat, at one budget; positive: the first is worse."""

    first: str
    second: str
    budget: float
    mean: float
    low: float
    high: float
    p_value: float
    first_better: int
    repeats: int

    def to_json(self) -> dict[str, object]:
        return dataclasses.asdict(self)


def specs_for(base: LocalSpec, methods: Sequence[str], budgets: Sequence[float]) -> list[LocalSpec]:
    """Every method at every budget, method by method."""
    if not (methods and budgets):
        raise InputError("give at least one method and one budget")
    return [dataclasses.replace(base, method=method, epsilon=epsilon) for method in methods for epsilon in budgets]


def run_trials(
    data: Tabular,
    specs: Sequence[LocalSpec],
    *,
    repeats: int = 20,
    seed: int = 0,
    progress: Progress = lambda share: None,
) -> tuple[Trial, ...]:
    """Train every spec `repeats` times. SGD does not see the budget, so it is trained once for all of them."""
    distinct = list(dict.fromkeys(_without_budget(spec) for spec in specs))
    result = train(data, distinct, repeats=repeats, seed=seed, progress=progress)
    trials = []
    for spec in specs:
        lane = distinct.index(_without_budget(spec))
        sound = local_guarantee(spec.method, spec.budget(data.people)).sound
        parts = (result.last_errors[lane], result.average_errors[lane], result.used[lane])
        trials.append(Trial(spec, *parts, sound.upper if sound else None))
    return tuple(trials)


def _without_budget(spec: LocalSpec) -> LocalSpec:
    return spec if spec.private else dataclasses.replace(spec, epsilon=1.0, share=0.2, threshold=1.5, mu=1.0)


def choose_lambda(
    data: Tabular,
    specs: Sequence[LocalSpec],
    *,
    lambdas: Sequence[float] = LAMBDAS,
    folds: int = FOLDS,
    seed: int = 0,
    progress: Progress = lambda share: None,
) -> tuple[LocalSpec, ...]:
    """Each spec with the lambda of least cross-validated error; ties go to the larger lambda.

    The paper chooses lambda so (Sec. 4.1). It looks at every record many times without paying for it.
    """
    distinct = list(dict.fromkeys(_without_budget(spec) for spec in specs))
    tried = [dataclasses.replace(spec, regularization=value) for spec in distinct for value in lambdas]
    result = train(data, tried, repeats=folds, seed=seed, parts=_folds(data.people, folds, seed), progress=progress)
    errors = result.last_errors[..., -1].mean(axis=1).reshape(len(distinct), len(lambdas))
    best = len(lambdas) - 1 - np.argmin(errors[:, ::-1], axis=1)
    chosen = {spec: lambdas[index] for spec, index in zip(distinct, best, strict=True)}
    return tuple(dataclasses.replace(spec, regularization=chosen[_without_budget(spec)]) for spec in specs)


def _folds(people: int, folds: int, seed: int) -> Parts:
    if not 2 <= folds <= people:
        raise InputError(f"cross-validation needs 2 to {people} folds, got {folds}")
    order = np.random.default_rng(seed).permutation(people)
    tests = np.array_split(order, folds)
    return [(np.setdiff1d(order, test), test) for test in tests]


def differences(trials: Sequence[Trial], first: str = "prestige", second: str = "djw") -> tuple[Difference, ...]:
    """first - second at each budget with a paired t-test (both saw the same orders and draws) and its 95 % interval."""
    found = []
    by_method = {
        name: {trial.spec.epsilon: trial for trial in trials if trial.spec.method == name} for name in (first, second)
    }
    for budget in sorted(by_method[first].keys() & by_method[second].keys()):
        gap = by_method[first][budget].errors - by_method[second][budget].errors
        mean, repeats = float(gap.mean()), len(gap)
        spread = float(gap.std(ddof=1)) if repeats > 1 else 0.0
        if spread > 0:
            deviation = spread / repeats**0.5
            reach = float(stdtrit(repeats - 1, 0.975)) * deviation
            low, high, p_value = mean - reach, mean + reach, 2 * float(stdtr(repeats - 1, -abs(mean) / deviation))
        else:  # one repeat, or the same gap in all: nothing to test
            low, high, p_value = mean, mean, 1.0 if mean == 0 or repeats < 2 else 0.0
        found.append(Difference(first, second, budget, mean, low, high, p_value, int(np.sum(gap < 0)), repeats))
    return tuple(found)
