"""What a sweep's choice has to pay for: every run that it began, with the steps that the run really took.

A run that is still there counts with its steps: all of them if it is done, those that it took if it failed or was
stopped. One that was deleted counts in full, since nobody knows any more how far it came. Seeded runs of equal settings
are the same run, bit for bit, and are paid for once; secure ones are drawn anew each time, and each is paid for.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from dpviz.privacy import Spent, steps_per_epoch
from dpviz.privacy.guarantees import rule_of
from dpviz.runs.store.records import Summary
from dpviz.runs.store.spending import Steps, spent_phases
from dpviz.runs.sweeps.folder import Begun
from dpviz.runs.sweeps.spec import Candidate
from dpviz.training.spec import RunSpec

# How a charged run stands -> how that is said of one and of several.
STATES = {
    "done": ("is done", "are done"),
    "unfinished": ("did not finish and counts with the steps that it took", "did not finish and count with theirs"),
    "gone": ("is no longer there and counts in full", "are no longer there and count in full"),
    "live": ("is not over and counts in full", "are not over and count in full"),
}


@dataclass(frozen=True)
class Charge:
    """One run that is paid for, and in which state it is found."""

    spent: Spent
    state: str


def charges_of(
    candidates: Iterable[Candidate], runs: Sequence[Summary], begun: Iterable[Begun] | None
) -> tuple[Charge, ...]:
    """What was begun, run by run; without that record, every run that the candidates may have had."""
    specs = {spec.key: spec for candidate in candidates for spec in candidate.specs}
    if begun is None:
        begun = _presumed(specs, runs)
    by_id = {run.id: run for run in runs}
    charges: dict[Hashable, Charge] = {}
    steps: dict[Hashable, int] = {}
    for item in dict.fromkeys(begun):
        spec = specs.get(item.key)
        if spec is None:  # its candidate is lost, so nobody can say what it cost
            charges[item] = Charge(Spent(None), "gone")
            continue
        taken, charge = _charge(spec, by_id.get(item.run_id))
        same: Hashable = item if spec.secure else item.key
        if taken and taken >= steps.get(same, 0):
            charges[same], steps[same] = charge, taken
    return tuple(charges.values())


def _presumed(specs: Mapping[str, RunSpec], runs: Iterable[Summary]) -> tuple[Begun, ...]:
    there = tuple(Begun(run.key, run.id) for run in runs if run.key in specs)
    missing = set(specs) - {begun.key for begun in there}
    return (*there, *(Begun(key, "") for key in specs if key in missing))


def _charge(spec: RunSpec, run: Summary | None) -> tuple[int, Charge]:
    """(steps, charge) of one run; no steps: nothing to pay."""
    each = steps_per_epoch(spec.sample_rate)
    state = _state(run)
    steps, redone = spec.epochs * each, run.written.redone if run and run.written else ()
    if run is not None and state == "unfinished":
        steps = max(run.epochs_done * each, run.written.steps if run.written else 0)
    count = steps + sum(last - first for first, last in redone)
    return count, Charge(spent_of(spec, steps, redone), state)


def _state(run: Summary | None) -> str:
    if run is None:
        return "gone"
    return {"done": "done", "queued": "live", "running": "live"}.get(run.status, "unfinished")


@functools.lru_cache(maxsize=10_000)  # a page asks every second
def spent_of(spec: RunSpec, steps: int, redone: tuple[Steps, ...] = ()) -> Spent:
    """A run's steps as its rule prices them, and whether others drew the same noise: see training/random_streams.py."""
    if rule_of(spec.method, spec.curriculum).sound is None:
        return Spent(None)
    return Spent(spent_phases(spec, steps, redone), spec.seed if spec.streams == 1 and not spec.secure else None)


def charged_counts(charges: Iterable[Charge]) -> dict[str, int]:
    """How many charged runs are in each state."""
    counts = Counter(charge.state for charge in charges)
    return {state: counts[state] for state in STATES}


def charged_words(charges: Sequence[Charge]) -> str:
    """What was charged, in a sentence."""
    parts = [f"{count} {STATES[state][count > 1]}" for state, count in charged_counts(charges).items() if count]
    return f"Charged are all runs that were begun: {', '.join(parts)}."
