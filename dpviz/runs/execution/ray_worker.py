"""A run on a Ray worker: trained by the same `work` as in the queue, its reports streamed to the driver.

The worker keeps nothing on its disk. Ray is imported inside functions only: it is optional.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from dpviz.runs.execution.job import PULSE, Assignment, Paced, Running, Word
from dpviz.runs.execution.work import work


def train_member(assignment: Assignment, arrays: Mapping[str, Any], flags: Any) -> Iterator[Word]:
    """A Ray task: train a run to its end, yielding what happens; the last report is how it ended."""
    from dpviz.training.data.readers import Data

    yield Running()  # a worker is at it: the run is no longer waiting
    reports: queue.SimpleQueue[Word | None] = queue.SimpleQueue()
    stop, poll = threading.Event(), StopPoll(flags, assignment.run.id)

    def train() -> None:
        try:
            reports.put(work(assignment, Paced(reports.put), stop.is_set, Data.of_arrays(arrays)))
        finally:
            reports.put(None)

    threading.Thread(target=train, daemon=True).start()
    while True:
        try:
            report = reports.get(timeout=PULSE)
        except queue.Empty:
            pass
        else:
            if report is None:
                return
            yield report
        if poll.to_stop():
            stop.set()


class StopFlags:
    """A Ray actor that knows which runs are to stop."""

    def __init__(self) -> None:
        self._raised: set[str] = set()

    def stop(self, run_id: str) -> None:
        self._raised.add(run_id)

    def take(self, run_id: str) -> bool:
        """Whether to stop; the flag is lowered by that, so that a run which is resumed later starts clean."""
        raised = run_id in self._raised
        self._raised.discard(run_id)
        return raised


class StopPoll:
    """Asks for a run's flag once per pulse and reads the answer at the next: waiting would give the core away."""

    def __init__(self, flags: Any, run_id: str) -> None:
        self._flags, self._run_id = flags, run_id
        self._asked, self._answer = time.monotonic(), None

    def to_stop(self) -> bool:
        import ray

        if time.monotonic() - self._asked < PULSE:
            return False
        self._asked = time.monotonic()
        if self._answer is None:
            self._answer = self._flags.take.remote(self._run_id)
            return False
        ready, _ = ray.wait([self._answer], timeout=0)
        if not ready:
            return False
        answer, self._answer = ray.get(self._answer), None
        return bool(answer)


def here() -> Any:
    """The driver's own node: whatever lies there is not lost with another one."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
