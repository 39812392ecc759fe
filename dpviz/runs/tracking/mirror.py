"""Live mirroring: a runner's runs go to a tracker while they train.

A thread of its own does the writing, so a tracker that is slow, gone or broken neither slows nor ends a run.
"""

from __future__ import annotations

import logging
import os
import queue
import threading

from dpviz.privacy.registry import InputError
from dpviz.runs.store.store import Store
from dpviz.runs.tracking.exporters import exported_run, write_end, write_epochs
from dpviz.runs.tracking.trackers import Destination, TrackerError, Writer
from dpviz.training.spec import EpochRecord

log = logging.getLogger("dpviz.runs")
PATIENCE = 30.0  # seconds in which a tracker must take what is left when the process ends
SETTING = "DPVIZ_MIRROR"


class Mirror:
    """Follows the runs of a store. `epoch` and `end` return at once; the first failure is the last try."""

    def __init__(self, store: Store, destination: Destination, *, private_metrics: bool = False) -> None:
        self.destination = destination
        self._store, self._private = store, private_metrics
        self._events: queue.SimpleQueue[tuple[str, EpochRecord | None] | None] = queue.SimpleQueue()
        self._writers: dict[str, Writer] = {}
        self._thread = threading.Thread(target=self._work, name="dpviz-mirror", daemon=True)
        self._thread.start()

    def epoch(self, run_id: str, record: EpochRecord) -> None:
        self._report(run_id, record)

    def end(self, run_id: str) -> None:
        self._report(run_id, None)

    def _report(self, run_id: str, record: EpochRecord | None) -> None:
        if self._thread.is_alive():
            self._events.put((run_id, record))

    def close(self) -> None:
        """Write what is left, as far as the time allows."""
        self._events.put(None)
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            log.warning("%s did not take everything within %g seconds", self.destination.tracker.title, PATIENCE)

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                with self.destination.client_errors(event[0]):
                    self._write(*event)
            except TrackerError as error:
                log.warning("%s; runs go on, but are no longer mirrored. dpviz export writes them later", error)
                return
            except InputError as error:  # the run was deleted
                log.warning("not mirrored: %s", error)

    def _write(self, run_id: str, record: EpochRecord | None) -> None:
        if run_id not in self._writers:  # with the epochs from before, where a run was resumed
            run = self._store.get(run_id)
            if not run.summary.begun:
                return
            self._writers[run_id] = self.destination.open(exported_run(run))
            before = [old for old in run.epochs if record is None or old.epoch < record.epoch]
            write_epochs(self._writers[run_id], before, self._private)
        if record is not None:
            write_epochs(self._writers[run_id], [record], self._private)
        else:
            write_end(self._writers.pop(run_id), self._store.get(run_id))


def server_destination() -> Destination | None:
    """Where the dashboard's runs are mirrored to, as the operator's environment says; pages cannot choose it."""
    text = os.environ.get(SETTING, "").strip()
    try:
        return Destination.parse(text) if text else None
    except InputError as error:
        raise InputError(f"{SETTING}: {error}") from None


def mirror_words() -> str:
    """What a page says of it, without the place, which is the operator's; empty where nothing is mirrored."""
    try:
        destination = server_destination()
    except InputError:
        return ""
    title = destination.tracker.title if destination else ""
    return f"This server also writes runs to {title}: settings, test metrics, noise and epsilon." if destination else ""
