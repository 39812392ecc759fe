"""Search: Optuna proposes the next candidate from what those before it gave, accuracy against sound epsilon.

Its memory is a journal (lines of JSON) in the sweep's folder. Trial k of the journal is candidate k of the sweep.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dpviz.privacy.registry import InputError, Value
from dpviz.runs.sweeps.folder import JOURNAL, SweepFolder
from dpviz.runs.sweeps.result import CandidateResult
from dpviz.runs.sweeps.spec import Candidate, Range, Settings, Sweep

RANDOM_TRIALS = 10  # before the first proposal that learns


class SearchProposer:
    """Asks and tells an Optuna study. A search without a guarantee has accuracy as its only aim."""

    def __init__(self, sweep: Sweep, folder: SweepFolder) -> None:
        if sweep.search is None:
            raise InputError("this sweep has no search")
        self.sweep, self.folder, self.space = sweep, folder, sweep.search.space
        self.study = open_study(sweep, folder)
        self._numbers: dict[Settings, int] = {}

    def candidates(self) -> Iterator[Candidate]:
        """Trials that a process left unfinished, then new ones up to the sweep's number."""
        from optuna.trial import TrialState

        known = self.folder.candidates()
        for trial in self.study.trials:
            candidate = known[trial.number] if trial.number < len(known) else self._make(trial.params)
            if trial.state == TrialState.RUNNING and self._is_new(candidate, trial.number):
                yield candidate
        while len(self.study.trials) < self.sweep.size:
            trial = self.study.ask(self._distributions())
            candidate = self._make(trial.params)
            if self._is_new(candidate, trial.number):
                yield candidate

    def tell(self, result: CandidateResult) -> None:
        """What a candidate gave: mean accuracy and sound epsilon over its finished runs, or that it failed."""
        from optuna.trial import TrialState

        number = self._numbers.pop(result.candidate.settings, None)
        if number is None or not (result.complete or result.problem):
            return  # stopped in between: the trial stays open, and the next process goes on with it
        if result.mean is None:
            self.study.tell(number, state=TrialState.FAIL)
        else:
            self.study.tell(number, [result.mean, _finite(result.epsilon)])

    def _make(self, params: dict[str, Any]) -> Candidate:
        settings = tuple((key, _plain(params[key])) for key, _ in self.space)
        candidate = self.sweep.candidate(settings)
        self.folder.append(candidate)
        return candidate

    def _is_new(self, candidate: Candidate, number: int) -> bool:
        """Whether the candidate is not at work already; of a proposal made twice at a time one trial is enough."""
        from optuna.trial import TrialState

        if candidate.settings in self._numbers:
            self.study.tell(number, state=TrialState.FAIL)
            return False
        self._numbers[candidate.settings] = number
        return True

    def _distributions(self) -> dict[str, Any]:
        return {key: _distribution(values) for key, values in self.space}


def open_study(sweep: Sweep, folder: SweepFolder) -> Any:
    """The sweep's study, from its journal if there is one."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(folder.path / JOURNAL)))
    aims: Any = ["maximize", "minimize"]  # accuracy, epsilon
    study = optuna.create_study(study_name=sweep.id, storage=storage, directions=aims, load_if_exists=True)
    # Another seed after each interruption, or random trials would come again.
    seed = (int(sweep.id[:7], 16) + len(study.trials)) % 2**31
    study.sampler = optuna.samplers.TPESampler(
        seed=seed, n_startup_trials=min(RANDOM_TRIALS, max(1, sweep.size // 2)), constant_liar=True
    )
    return study


def _distribution(values: Range | tuple[Value, ...]) -> Any:
    from optuna import distributions

    if not isinstance(values, Range):
        return distributions.CategoricalDistribution(values)
    if values.whole:
        return distributions.IntDistribution(int(values.low), int(values.high), log=values.log)
    return distributions.FloatDistribution(float(values.low), float(values.high), log=values.log)


def _plain(value: Any) -> Value:
    return value if isinstance(value, bool | str | int) else float(value)


def _finite(epsilon: float | None) -> float:
    """No guarantee is worse than any epsilon; Optuna wants a number."""
    return 1e9 if epsilon is None else min(epsilon, 1e9)
