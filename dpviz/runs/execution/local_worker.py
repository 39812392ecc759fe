"""A worker of a run that several processes of this machine share.

It gets its share of the work over a pipe; the first worker answers with what happens, another one only with why it
failed. A line that is closed at the other end means stop: no worker outlives the process that started it by more than a
moment.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import Assignment, Ended, Paced, Word
from dpviz.runs.execution.work import work

LOST = 3  # exit code where another worker is gone


@dataclass(frozen=True)
class Share:
    """A worker's place in a run; all of them meet at a file."""

    rank: int
    meeting: Path
    assignment: Assignment


def main(line: Connection) -> int:
    share: Share = line.recv()
    assignment, first = share.assignment, share.rank == 0

    def report(happened: Word) -> None:
        if first:
            line.send(happened)

    from dpviz.training.team import Team

    try:
        team = Team.meet(share.meeting, share.rank, assignment.options.workers, assignment.options.device)
    except InputError as refused:
        report(Ended("failed", str(refused)))
        return 0
    ended = work(assignment, Paced(report), line.poll, team=team)
    if team.lost:
        return LOST
    if first or ended.status == "failed":
        with contextlib.suppress(ConnectionError):  # whoever started this is gone
            line.send(ended)
    team.part_ways()
    return 0
