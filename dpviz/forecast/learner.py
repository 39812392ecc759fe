"""Learn a response in the background of a server, and find in the store what is being learnt, after a restart too.

Pilot runs are runs like any other. Those of equal settings are one group, whoever began them and whenever.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from dpviz.forecast.designs import pilots
from dpviz.forecast.evidence import charged_once, finished, looked_at
from dpviz.forecast.library import keep, own_folder, settings_key
from dpviz.forecast.pilots import Price, is_pilot, lessons
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.pace import Pace
from dpviz.runs.execution.process_wide import process_wide
from dpviz.runs.execution.runner import Runner
from dpviz.runs.store.records import LIVE, RESUMABLE, Run, Summary
from dpviz.runs.store.store import Store
from dpviz.training.limits import check_spec, refuse_if_read_only
from dpviz.training.spec import RunSpec

log = logging.getLogger("dpviz.forecast")
Load = Callable[[Summary], Run]


# --- before


@dataclass(frozen=True)
class LessonPlan:
    """Pilot runs that are wanted, those of them that are missing, and the runs of the same settings that were begun.

    `seen` are the settings of the latter and of deleted pilots.
    """

    spec: RunSpec
    wanted: tuple[RunSpec, ...]
    missing: tuple[RunSpec, ...]
    begun: tuple[Run, ...]
    seen: tuple[RunSpec, ...]

    @classmethod
    def of(cls, spec: RunSpec, count: int, begun: Sequence[Run], store: Store) -> LessonPlan:
        """The plan for so many pilots; refused where settings have no response or a pilot exceeds a limit."""
        settings_key(spec)
        wanted, done = pilots(spec, count), {run.own_spec.key for run in finished(begun)}
        missing = tuple(check_spec(pilot) for pilot in wanted if pilot.key not in done)
        return cls(spec, wanted, missing, tuple(begun), looked_at(spec, begun, store))

    @property
    def price(self) -> Price:
        """What it costs to have looked at all of these runs, with those that are still to be made."""
        going_on = {run.own_spec.key for run in self.begun if run.status in (*RESUMABLE, *LIVE)}
        new = (pilot for pilot in self.missing if pilot.key not in going_on)
        return Price.of(self.spec, charged_once((*self.seen, *new)))


# --- at work


class Learner:
    """Makes pilot runs and learns from each that ends, in a thread of its own; without a runner it only learns."""

    def __init__(self, spec: RunSpec, wanted: Sequence[RunSpec], store: Store, runner: Runner | None = None) -> None:
        refuse_if_read_only()
        self.spec, self.wanted, self.store, self.runner = spec, tuple(wanted), store, runner
        self.problem = ""
        self._thread = threading.Thread(target=self._learn, name="dpviz-learner", daemon=True)

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin; of equal settings one is at work at a time."""
        settings, board = settings_key(self.spec), _board(self.store)
        with board.lock:
            if settings in board.learners and board.learners[settings].running:
                raise InputError("these settings are being learnt already; wait until that has ended, or stop it")
            board.learners[settings] = self
            self._thread.start()

    def wait(self, seconds: float) -> None:
        """Let a short fit end; a long one goes on in the background."""
        self._thread.join(seconds)

    def _learn(self) -> None:
        try:
            for lesson in lessons(self.spec, self.wanted, self.store, self.runner):
                if lesson.response is not None:
                    keep(lesson.response, self.store)
        except InputError as error:
            self.problem = str(error)
        except Exception as error:  # a thread's last line of defence: somebody waits for words
            log.exception("learning a response failed")
            self.problem = f"{type(error).__name__}: {error}"


@dataclass
class _Board:
    """Who learns, by settings, and the lock to change that: sessions are threads."""

    learners: dict[str, Learner] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


def _board(store: Store) -> _Board:
    """This process's; like its runner it survives a hot reload."""
    return process_wide(f"learners {own_folder(store).resolve()}", _Board)


def learners(store: Store) -> dict[str, Learner]:
    """Who learns in this process, by settings, as it is now; those that have ended among them."""
    board = _board(store)
    with board.lock:
        return dict(board.learners)


def forget(settings: str, store: Store) -> None:
    """Drop a learner that has ended, with what went wrong."""
    board = _board(store)
    with board.lock:
        if settings in board.learners and not board.learners[settings].running:
            del board.learners[settings]


# --- in the store


@dataclass(frozen=True)
class PilotGroup:
    """The pilot runs of one response that are in a store, oldest first; `specs` are their settings."""

    runs: tuple[Summary, ...]
    specs: tuple[RunSpec, ...]

    @property
    def settings(self) -> str:
        return settings_key(self.specs[0])

    @property
    def done(self) -> int:
        return sum(run.status == "done" for run in self.runs)

    @property
    def live(self) -> tuple[Summary, ...]:
        return tuple(run for run in self.runs if run.status in LIVE)

    @property
    def resumable(self) -> tuple[Summary, ...]:
        return tuple(run for run in self.runs if run.resumable)

    @property
    def share(self) -> float:
        """Of all their epochs, those that are trained."""
        return sum(run.epochs_done for run in self.runs) / max(1, sum(run.epochs for run in self.runs))

    def seconds_left(self, pace: Pace) -> float:
        """Of all their epochs, those that are still to be trained, one run after another."""
        left = (1 - run.epochs_done / run.epochs for run in self.runs if run.status in LIVE)
        specs = (spec for run, spec in zip(self.runs, self.specs, strict=True) if run.status in LIVE)
        return sum(share * pace.seconds(spec) for share, spec in zip(left, specs, strict=True))


def pilot_groups(summaries: Iterable[Summary], load: Load) -> tuple[PilotGroup, ...]:
    """Groups of pilot runs, the one with the newest run first; runs that cannot be read are left out."""
    groups: dict[str, list[tuple[Summary, RunSpec]]] = {}
    for summary in filter(is_pilot, summaries):
        try:
            spec = load(summary).own_spec
            key = settings_key(spec)
        except InputError:
            continue
        groups[key] = [*groups.pop(key, []), (summary, spec)]  # a newer run moves its group to the end
    return tuple(PilotGroup(*zip(*group, strict=True)) for group in reversed(groups.values()))
