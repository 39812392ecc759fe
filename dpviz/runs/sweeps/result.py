"""What came of a sweep: candidates over their seeds, how far the whole is, the winner and what choosing it costs."""

from __future__ import annotations

import dataclasses
import functools
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dpviz.privacy import Selection, Spent, selection
from dpviz.privacy.rounding import epsilon_number
from dpviz.runs.store.records import Summary
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps.charges import Charge, charged_counts, charged_words, charges_of
from dpviz.runs.sweeps.folder import Begun, SweepFolder
from dpviz.runs.sweeps.spec import Candidate, Sweep

RANK = {"done": 0, "running": 1, "queued": 2}  # which of several runs alike speaks for its settings


@dataclass(frozen=True)
class CandidateResult:
    """One candidate: a run for each seed (None: not begun), accuracies as fractions."""

    candidate: Candidate
    runs: tuple[Summary | None, ...]

    @property
    def done(self) -> tuple[Summary, ...]:
        return tuple(run for run in self.runs if run is not None and run.status == "done")

    @property
    def complete(self) -> bool:
        return bool(self.runs) and len(self.done) == len(self.runs)

    @property
    def accuracies(self) -> tuple[float, ...]:
        return tuple(run.test_accuracy for run in self.done if run.test_accuracy is not None)

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.accuracies) if self.accuracies else None

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds; one seed has none."""
        return statistics.stdev(self.accuracies) if len(self.accuracies) > 1 else None

    @property
    def epsilon(self) -> float | None:
        """Sound epsilon of one of its runs; None before one is done, and without a guarantee."""
        return self.done[0].epsilon_sound if self.done else None

    @property
    def problem(self) -> str:
        """Why it failed, in a sentence; empty if it did not."""
        failed = (run.error for run in self.runs if run is not None and run.status == "failed")
        return self.candidate.error or next(failed, "")


@dataclass(frozen=True)
class Result:
    """A sweep as it stands. `total` counts every run that it will have; `charges` are what its choice pays for."""

    sweep: Sweep
    rows: tuple[CandidateResult, ...]
    total: int
    charges: tuple[Charge, ...] = ()

    def count(self, *statuses: str) -> int:
        """Runs of these statuses; a candidate whose settings make no run counts as failed, once per seed."""
        made = sum(run is not None and run.status in statuses for row in self.rows for run in row.runs)
        broken = sum(bool(row.candidate.error) for row in self.rows) * len(self.sweep.seeds)
        return made + (broken if "failed" in statuses else 0)

    @property
    def done(self) -> int:
        return self.count("done")

    @property
    def failed(self) -> int:
        return self.count("failed")

    @property
    def finished(self) -> bool:
        """Nothing is left to be done, although some of it may have failed."""
        return self.done + self.failed >= self.total

    @property
    def share(self) -> float:
        """Share of all epochs that are trained."""
        shares = (run.epochs_done / max(1, run.epochs) for row in self.rows for run in row.runs if run is not None)
        broken = sum(bool(row.candidate.error) for row in self.rows) * len(self.sweep.seeds)
        return min(1.0, (sum(shares) + broken) / max(1, self.total))

    @property
    def winner(self) -> CandidateResult | None:
        """The candidate of highest mean test accuracy among those that are complete."""
        complete = [row for row in self.rows if row.complete]
        return max(complete, key=lambda row: row.mean or 0.0) if complete else None

    @property
    def front(self) -> tuple[CandidateResult, ...]:
        """Candidates that no other beats in both accuracy and epsilon; those without a guarantee are not on it."""
        priced = [row for row in self.rows if row.complete and row.epsilon is not None]
        return tuple(row for row in priced if not any(_beats(other, row) for other in priced))

    @property
    def varies_plans(self) -> bool:
        """Whether candidates differ in noise, epochs or batches, and so in what they plan to spend."""
        specs = (spec for row in self.rows for spec in row.candidate.specs)
        return len({(spec.schedule, spec.epochs, spec.sample_rate) for spec in specs}) > 1

    @property
    def selection(self) -> Selection | None:
        """What it costs to have chosen among all runs that were begun; None before one was."""
        if not self.charges:
            return None
        spent = sorted((charge.spent for charge in self.charges), key=repr)
        price = _selection(tuple(spent), self.sweep.start.delta)
        # A search's trials depend on one another's results, which the bound for random trials does not allow.
        return dataclasses.replace(price, drawn=None, trials="") if self.sweep.search else price


def _beats(one: CandidateResult, other: CandidateResult) -> bool:
    """At least as accurate, at most as costly, and not both alike."""
    here, there = (_score(row) for row in (one, other))
    return here[0] >= there[0] and here[1] <= there[1] and here != there


def _score(row: CandidateResult) -> tuple[float, float]:
    return row.mean or 0.0, math.inf if row.epsilon is None else row.epsilon


@functools.lru_cache(maxsize=64)
def _selection(spent: tuple[Spent, ...], delta: float) -> Selection:
    return selection(spent, delta)


def by_key(summaries: Iterable[Summary]) -> dict[str, Summary]:
    """The run that speaks for each choice of settings: a finished one, else a live one, else the newest."""
    speaking: dict[str, Summary] = {}
    for run in summaries:
        before = speaking.get(run.key)
        if before is None or RANK.get(run.status, 3) <= RANK.get(before.status, 3):
            speaking[run.key] = run
    return speaking


def result_of(
    sweep: Sweep,
    candidates: Iterable[Candidate],
    runs: Iterable[Summary],
    begun: Iterable[Begun] | None = None,
) -> Result:
    """Each candidate with its runs; `runs` are a store's, `begun` those that the sweep began (None: not on record)."""
    candidates, runs = tuple(candidates), tuple(runs)
    speaking = by_key(runs)
    rows = tuple(CandidateResult(c, tuple(speaking.get(spec.key) for spec in c.specs)) for c in candidates)
    return Result(sweep, rows, sweep.runs, charges_of(candidates, runs, begun))


def result(store: Store, sweep_id: str, runs: Iterable[Summary] | None = None) -> Result:
    """How a sweep in a store stands; `runs` are the store's, if they are at hand."""
    folder = SweepFolder(store, sweep_id)
    return result_of(folder.sweep(), folder.candidates(), store.list().runs if runs is None else runs, folder.begun())


def price_words(result: Result) -> tuple[str, ...]:
    """What the winner's epsilon is once it was chosen, sentence by sentence, each with what it assumes."""
    cost = result.selection
    if cost is None:
        return ()
    if cost.single is None:
        return (f"There is no price for this choice: {cost.why_not}.", charged_words(result.charges))
    sentences = [
        f"One run alone, had no other been looked at: epsilon {epsilon_number(cost.single.upper)} "
        f"(the most expensive of {cost.runs}).",
        _composed_words(result, cost),
        charged_words(result.charges),
    ]
    if cost.drawn is not None:
        sentences.append(
            f"Had the number of runs been drawn at random ({cost.trials}, {cost.runs} on average), each of them a "
            f"random candidate, and only the best ever been shown: epsilon {epsilon_number(cost.drawn.upper)} "
            "(Papernot & Steinke 2022). This sweep's number was fixed ahead, so that is a comparison and not a "
            "guarantee."
        )
    else:
        sentences.append("Each proposal depended on results before it, so no cheaper bound than composition applies.")
    sentences.append("The choice looked at test accuracy: people whose records are in the test data are not covered.")
    return tuple(sentences)


def _composed_words(result: Result, cost: Selection) -> str:
    if cost.composed is None:
        return f"All {cost.runs} runs together have no price: {cost.why_not}. So the winner has no guarantee."
    price = f"All {cost.runs} runs composed: epsilon {epsilon_number(cost.composed.upper)}."
    if result.sweep.search and result.varies_plans:
        return (
            f"{price} That is what was spent. The proposals changed the noise or the batches by looking at results, so "
            "it is a guarantee for the winner only if such a total was set as the limit before the search began."
        )
    return f"{price} This holds for the winner, however it was chosen among them."


def result_json(result: Result) -> dict[str, Any]:
    """A sweep's result as JSON: rows in order, accuracies as fractions, an epsilon null where there is none."""
    cost, winner = result.selection, result.winner
    return {
        "sweep_id": result.sweep.id,
        "title": result.sweep.title,
        "runs": result.total,
        "done": result.done,
        "failed": result.failed,
        "rows": [_row_json(row) for row in result.rows],
        "winner": dict(winner.candidate.settings) if winner else None,
        "front": [dict(row.candidate.settings) for row in result.front],
        "selection": cost
        and {
            "runs": cost.runs,
            "single": cost.single and cost.single.upper,
            "composed": cost.composed and cost.composed.upper,
            "drawn": cost.drawn and cost.drawn.upper,
            "trials": cost.trials,
            "charged": charged_counts(result.charges),
            "words": list(price_words(result)),
        },
    }


def _row_json(row: CandidateResult) -> dict[str, Any]:
    return {
        "settings": dict(row.candidate.settings),
        "seeds": [spec.seed for spec in row.candidate.specs],
        "run_ids": [run.id if run else None for run in row.runs],
        "statuses": [run.status if run else None for run in row.runs],
        "test_accuracy": {"mean": row.mean, "std": row.std},
        "epsilon": row.epsilon,
        "error": row.problem,
    }
