"""One run over several workers of a Ray cluster, started by Ray Train. Ray is imported inside functions only.

Ray Train places the workers and connects them; nothing of the run is kept by it. The first worker hands its reports to
an actor, from which the driver takes them. If one worker dies, Ray Train ends the others.
"""

from __future__ import annotations

import logging
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from dpviz.runs.execution.job import PULSE, Assignment, Paced, Report
from dpviz.runs.execution.ray_worker import StopPoll
from dpviz.runs.execution.work import work

log = logging.getLogger("dpviz.runs")
LEAVING = 20.0  # seconds in which Ray Train must let go of the workers


class Reports:
    """A Ray actor that holds what the first worker reported until the driver takes it."""

    def __init__(self) -> None:
        self._waiting: list[Report] = []

    def put(self, report: Report) -> None:
        self._waiting.append(report)

    def take(self) -> list[Report]:
        waiting, self._waiting = self._waiting, []
        return waiting


def team_reports(assignment: Assignment, data: Any, flags: Any, wanted: Mapping[str, float]) -> Iterator[Report]:
    """Train a run by several workers, each with the resources that are wanted; yields what the first one reports.

    It ends after the last report, or without one where a worker died.
    """
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    logging.getLogger("ray.train").setLevel(logging.WARNING)
    reports: Any = ray.remote(num_cpus=0)(Reports).remote()
    gpus = wanted.get("num_gpus", 0)
    with tempfile.TemporaryDirectory(prefix="dpviz-team-") as folder:
        trainer = TorchTrainer(
            train_share,
            train_loop_config={"assignment": assignment, "data": data, "flags": flags, "reports": reports},
            scaling_config=ScalingConfig(
                num_workers=assignment.workers,
                use_gpu=gpus > 0,
                resources_per_worker={"CPU": wanted["num_cpus"]} | ({"GPU": gpus} if gpus else {}),
                placement_strategy="SPREAD",
            ),
            run_config=RunConfig(storage_path=folder, failure_config=FailureConfig(max_failures=0)),
        )
        training = threading.Thread(target=_fit, args=(trainer, assignment.run.id), name="dpviz-team", daemon=True)
        training.start()
        try:
            while training.is_alive():
                yield from ray.get(reports.take.remote())
                time.sleep(PULSE / 2)
            yield from ray.get(reports.take.remote())
        finally:
            training.join(LEAVING)
            ray.kill(reports)


def _fit(trainer: Any, run_id: str) -> None:
    from ray.exceptions import RayError
    from ray.train import TrainingFailedError

    try:
        trainer.fit()
    except (TrainingFailedError, RayError) as failure:
        log.warning("run %s: %s", run_id, str(failure).strip().splitlines()[-1])


def train_share(given: Mapping[str, Any]) -> None:
    """A worker's share of a run; Ray Train has connected the workers already."""
    import ray

    from dpviz.training.data.readers import Data
    from dpviz.training.team import Team

    assignment, reports = given["assignment"], given["reports"]
    team = Team.connected(assignment.options.device)
    data = Data.of_arrays(ray.get(given["data"]))

    def report(happened: Report) -> None:
        if team.rank == 0:
            ray.get(reports.put.remote(happened))

    ended = work(assignment, Paced(report), StopPoll(given["flags"], assignment.run.id).to_stop, data, team=team)
    if team.lost:
        raise RuntimeError("another worker of the run is gone")
    report(ended)
