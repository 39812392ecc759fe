"""How far a command is, on standard error: standard output is for its result."""

from __future__ import annotations

from dpviz.cli.command import spent_text
from dpviz.runs.execution.pace import duration_words
from dpviz.runs.store.records import Progress
from dpviz.training.progress_bar import Bar
from dpviz.training.spec import EpochRecord


class RunBar:
    """The progress of one run after the other: steps are drawn over, epochs stay."""

    def __init__(self, runs: int) -> None:
        self.bar, self._runs = Bar(), runs
        self._ids: list[str] = []

    def step(self, progress: Progress) -> None:
        left = "" if progress.seconds_left is None else f", {duration_words(progress.seconds_left)} left"
        note = f"step {progress.step:,} of {progress.steps:,}{left}"
        self.bar.draw(self._name(progress.run_id), progress.step / progress.steps, note)

    def epoch(self, run_id: str, record: EpochRecord) -> None:
        spent = f"sound epsilon {spent_text(record.epsilon_sound)}"
        self.bar.say(f"{self._name(run_id)} epoch {record.epoch}: test accuracy {record.test_accuracy:.2%}, {spent}")

    def _name(self, run_id: str) -> str:
        if run_id not in self._ids:
            self._ids.append(run_id)
        return run_id if self._runs == 1 else f"{run_id} ({self._ids.index(run_id) + 1} of {self._runs})"
