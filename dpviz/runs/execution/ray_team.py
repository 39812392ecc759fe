"""One run over several workers of a Ray cluster, started by Ray Train. Ray is imported inside functions only.

Ray Train places the workers and connects them; nothing of the run is kept by it. The first worker hands what it has to
say to an actor, from which the driver takes it. If one worker dies, Ray Train ends the others.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dpviz.runs.execution.job import PULSE, Assignment, Paced, Word
from dpviz.runs.execution.ray_worker import StopPoll
from dpviz.runs.execution.work import work

log = logging.getLogger("dpviz.runs")
LEAVING = 20.0  # seconds in which Ray Train must let go of the workers


class Words:
    """A Ray actor that holds what the first worker said until the driver takes it."""

    def __init__(self) -> None:
        self._waiting: list[Word] = []

    def put(self, word: Word) -> None:
        self._waiting.append(word)

    def take(self) -> list[Word]:
        waiting, self._waiting = self._waiting, []
        return waiting


def team_words(
    assignment: Assignment, data: Any, flags: Any, wanted: Mapping[str, float], stopped: Callable[[], bool]
) -> Iterator[Word]:
    """Train a run by several workers, each with the resources that are wanted; yields what the first one says.

    It ends after the last word, or without one where a worker died, or where it was stopped before it found room.
    """
    import ray

    from dpviz.runs.execution.ray_worker import here

    logging.getLogger("ray.train").setLevel(logging.WARNING)
    words: Any = ray.remote(num_cpus=0, scheduling_strategy=here())(Words).remote()
    given = {"assignment": assignment, "data": data, "flags": flags, "words": words}
    fitting, begun = None, False
    with tempfile.TemporaryDirectory(prefix="dpviz-team-") as folder:
        try:
            while fitting is None or (fitting.no_room and not stopped()):
                fitting = Fitting(given, wanted, folder)
                fitting.start()
                while fitting.is_alive() and (begun or not stopped()):
                    for word in ray.get(words.take.remote()):
                        begun = True
                        yield word
                    time.sleep(PULSE / 2)
            yield from ray.get(words.take.remote())
        finally:
            if fitting is not None and begun:
                fitting.join(LEAVING)
            ray.kill(words)  # a team that finds room after all ends at its first word


class Fitting(threading.Thread):
    """Has Ray Train place the workers and see them to their end; `no_room` says that it found no place for them.

    Ray Train itself begins nothing again: it would start from the checkpoint that this life of the run began with.
    """

    def __init__(self, given: Mapping[str, Any], wanted: Mapping[str, float], folder: str) -> None:
        super().__init__(name="dpviz-team", daemon=True)
        self._given, self._wanted, self._folder = given, wanted, folder
        self.no_room = False

    def run(self) -> None:
        from ray.exceptions import RayError
        from ray.train import FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
        from ray.train.torch import TorchTrainer

        assignment, gpus = self._given["assignment"], self._wanted.get("num_gpus", 0)
        once = FailureConfig(max_failures=0, max_preemption_failures=0, controller_failure_limit=0)  # type: ignore[call-arg]
        trainer = TorchTrainer(
            train_share,
            train_loop_config=dict(self._given),
            scaling_config=ScalingConfig(
                num_workers=assignment.options.workers,
                use_gpu=gpus > 0,
                resources_per_worker={"CPU": self._wanted["num_cpus"]} | ({"GPU": gpus} if gpus else {}),
                placement_strategy="SPREAD",
            ),
            run_config=RunConfig(storage_path=self._folder, failure_config=once),
        )
        try:
            trainer.fit()
        except (TrainingFailedError, RayError) as failure:
            cause = getattr(failure, "controller_failure", None)
            self.no_room = type(cause).__name__ == "WorkerGroupStartupTimeoutError"
            log.warning("run %s: %s", assignment.run.id, str(failure).strip().splitlines()[-1])


def train_share(given: Mapping[str, Any]) -> None:
    """A worker's share of a run; Ray Train has connected the workers already."""
    import ray

    from dpviz.training.data.readers import Data
    from dpviz.training.team import Team

    assignment, words = given["assignment"], given["words"]
    team = Team.connected(assignment.options.device)
    data = Data.of_arrays(ray.get(given["data"]))

    def report(word: Word) -> None:
        if team.rank == 0:
            ray.get(words.put.remote(word))

    ended = work(assignment, Paced(report), StopPoll(given["flags"], assignment.run.id).to_stop, data, team=team)
    if team.lost:
        raise RuntimeError("another worker of the run is gone")
    report(ended)
