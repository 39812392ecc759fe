"""The trackers that runs can go to, through their own clients; all are optional, and imported when used.

A tracker is a whole entry of TRACKERS: its names, what its place is, and how a run is opened there.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import importlib.util
import os
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from dpviz.privacy.registry import Entry, InputError, Table, Value
from dpviz.runs.store.run_files import without_paths

LONGEST = 2000  # letters of a parameter; MLflow refuses more than 6,000


@dataclass(frozen=True)
class ExportedRun:
    """A run as a tracker gets it before its first epoch."""

    id: str
    name: str
    parameters: Mapping[str, Value]


class Writer(Protocol):
    """A run that is open in a tracker."""

    def epoch(self, epoch: int, numbers: Mapping[str, float]) -> None: ...

    def close(self, status: str) -> None: ...


class TrackerError(InputError):
    """A tracker failed; dpviz and the run did not."""


@dataclass(frozen=True, kw_only=True)
class Tracker(Entry):
    """`help` says what a place in it is, `client` is the module to import, `package` what must be installed for it.

    `build` opens a run: (client, place, run) -> Writer.
    """

    client: str
    package: str


@dataclass(frozen=True)
class Destination:
    """A tracker and a place in it: a folder, a database, a project."""

    tracker: Tracker
    place: str

    @classmethod
    def of(cls, name: str, place: str) -> Destination:
        """Checked without an import of the client, which takes seconds."""
        tracker = TRACKERS[name]
        if not place.strip():
            raise InputError(f"{tracker.title} needs {tracker.help}; none is given")
        if importlib.util.find_spec(tracker.package) is None:
            raise InputError(
                f"{tracker.title} needs {tracker.package}, which is not installed; pip install 'dpviz[{tracker.name}]'"
            )
        return cls(tracker, place.strip())

    @classmethod
    def parse(cls, text: str) -> Destination:
        """A destination in one word, such as tensorboard:DIR."""
        name, colon, place = text.partition(":")
        if not colon:
            raise InputError(f"a mirror is written as TRACKER:PLACE, for example tensorboard:logs; got {text[:40]!r}")
        return cls.of(name.strip(), place)

    def open(self, run: ExportedRun) -> Writer:
        """Open a run. What a client takes for its current run stays in here: several may be open at a time."""
        client = importlib.import_module(self.tracker.client)
        writer: Writer = contextvars.copy_context().run(self.tracker.function, client, self.place, run)
        return writer

    @contextlib.contextmanager
    def client_errors(self, run_id: str) -> Iterator[None]:
        """Whatever a client raises, in one sentence."""
        try:
            yield
        except InputError:
            raise
        except Exception as error:
            said = without_paths(" ".join(str(error).split()))[:200]
            raise TrackerError(
                f"{self.tracker.title} did not take run {run_id}: {said or type(error).__name__}"
            ) from error


# --- TensorBoard


class EventFiles:
    """A folder of event files per run. Written again, a run replaces what its folder had (`purge_step`)."""

    def __init__(self, client: Any, place: str, run: ExportedRun) -> None:
        self._writer = client.SummaryWriter(str(Path(place).expanduser() / run.id), purge_step=1)
        parameters = {name: _short(value) for name, value in run.parameters.items()}
        # As add_hparams does, but without its points of their own on the curves.
        for part in client.summary.hparams(parameters, {"test_accuracy": 0.0, "epsilon_sound": 0.0}):
            self._writer.file_writer.add_summary(part)
        self._writer.flush()

    def epoch(self, epoch: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, _rounded_up(value) if _is_epsilon(name) else value, epoch)
        self._writer.flush()

    def close(self, status: str) -> None:
        self._writer.add_text("status", status)
        self._writer.close()


def _is_epsilon(name: str) -> bool:
    return name.startswith(("epsilon_", "spent_"))


def _rounded_up(value: float) -> float:
    """An upper bound in single precision, which event files hold: the next number above where it lies between two."""
    near = np.float32(value)
    return float(near if float(near) >= value else np.nextafter(near, np.float32(np.inf)))


def _short(value: Value) -> Value:
    return value[:LONGEST] if isinstance(value, str) else value


# --- MLflow


class MlflowRun:
    """A run of the experiment "dpviz" in a database file, or on the tracking server at an address."""

    def __init__(self, client: Any, place: str, run: ExportedRun) -> None:
        address = place if "://" in place else f"sqlite:///{Path(place).expanduser().resolve()}"
        self._entities = client.entities
        self._client = client.MlflowClient(tracking_uri=address)
        known = self._client.get_experiment_by_name("dpviz")
        experiment = known.experiment_id if known else self._client.create_experiment("dpviz")
        self._id = self._client.create_run(experiment, run_name=run.name, tags={"dpviz.run_id": run.id}).info.run_id
        for name, value in run.parameters.items():
            self._client.log_param(self._id, _mlflow_name(name), _short(value))

    def epoch(self, epoch: int, numbers: Mapping[str, float]) -> None:
        now = time.time_ns() // 1_000_000
        metrics = [self._entities.Metric(_mlflow_name(name), value, now, epoch) for name, value in numbers.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def close(self, status: str) -> None:
        self._client.set_tag(self._id, "dpviz.status", status)
        self._client.set_terminated(self._id, {"failed": "FAILED", "stopped": "KILLED"}.get(status, "FINISHED"))


def _mlflow_name(name: str) -> str:
    """MLflow takes letters, digits and few signs."""
    return re.sub(r"[^\w./ -]", "_", name)[:250]


# --- Weights & Biases and Trackio, which share init, log and finish


class LoggedRun:
    """A run of a project."""

    def __init__(self, client: Any, place: str, run: ExportedRun, **options: Any) -> None:
        self._run = client.init(project=place, name=run.name, config=dict(run.parameters), **options)

    def epoch(self, epoch: int, numbers: Mapping[str, float]) -> None:
        self._run.log(dict(numbers), step=epoch)

    def close(self, status: str) -> None:
        self._run.finish()


def _open_wandb(client: Any, place: str, run: ExportedRun) -> Writer:
    """Offline unless WANDB_MODE says otherwise; nothing of the machine, its code or its console goes along."""
    left_out = {"disable_git": True, "x_disable_stats": True, "x_disable_meta": True, "x_save_requirements": False}
    settings = client.Settings(silent=True, console="off", **left_out)
    mode = os.environ.get("WANDB_MODE", "offline")
    return LoggedRun(client, place, run, mode=mode, reinit="create_new", settings=settings)


def _open_trackio(client: Any, place: str, run: ExportedRun) -> Writer:
    return LoggedRun(client, place, run, embed=False, auto_log_gpu=False, auto_log_cpu=False)


TRACKERS = Table(
    "tracker",
    Tracker(
        name="tensorboard",
        title="TensorBoard",
        help="a folder",
        client="torch.utils.tensorboard",
        package="tensorboard",
        build=EventFiles,
    ),
    Tracker(
        name="mlflow",
        title="MLflow",
        help="a database file or a server's address",
        client="mlflow",
        package="mlflow",
        build=MlflowRun,
    ),
    Tracker(
        name="wandb",
        title="Weights & Biases",
        help="a project's name",
        client="wandb",
        package="wandb",
        build=_open_wandb,
    ),
    Tracker(
        name="trackio",
        title="Trackio",
        help="a project's name",
        client="trackio",
        package="trackio",
        build=_open_trackio,
    ),
)
