from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpviz.privacy.schedules import Schedule
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.store.store import Store
from dpviz.training.spec import EpochRecord, RunSpec

ROOT = Path(__file__).parents[2]


def small_spec(**changes) -> RunSpec:
    """Logistic regression on 2,000 digits: ten steps an epoch, some 20 ms each."""
    sigma = changes.pop("sigma", 1.0)
    settings = {"epochs": 3, "model": "logistic", "subset": 2000, "batch_size": 200, "learning_rate": 2.0}
    return RunSpec(**({"schedule": Schedule.of("constant", sigma=sigma)} | settings | changes))


class Foreground:
    """A queue whose `start` and `resume` return when the run has ended."""

    def __init__(self, store: Store, **watching) -> None:
        self.make = lambda: QueueRunner(store, **watching)

    def start(self, spec: RunSpec, **options) -> str:
        with contextlib.closing(self.make()) as self.runner:
            run_id = self.runner.start(spec, options=RunOptions(**options))
            self.runner.wait(run_id)
        return run_id

    def resume(self, run_id: str) -> None:
        with contextlib.closing(self.make()) as self.runner:
            self.runner.resume(run_id)
            self.runner.wait(run_id)

    def stop(self, run_id: str) -> None:
        self.runner.stop(run_id)


def epoch_record(epoch: int, **changes) -> EpochRecord:
    values = {
        "epoch": epoch,
        "step": 10 * epoch,
        "noise_multiplier": 1.0,
        "epsilon_claimed": 0.5 * epoch,
        "epsilon_sound": 0.5 * epoch,
        "train_loss": 1.0 / epoch,
        "train_accuracy": 0.5,
        "test_loss": 1.0 / epoch,
        "test_accuracy": 0.9,
        "seconds": 0.1,
    }
    return EpochRecord(**(values | changes))


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "runs")


@pytest.fixture(scope="session")
def spec():
    return small_spec


@pytest.fixture(scope="session")
def record():
    return epoch_record


@pytest.fixture
def running(store):
    """A running run without epochs."""
    run_id = store.create(small_spec())
    store.set_status(run_id, "running")
    return run_id


@pytest.fixture
def python():
    """Start Python on some code in a process of its own, with the store's folder as its argument."""
    started = []

    def start(code: str, *arguments: object) -> subprocess.Popen:
        path = os.pathsep.join((str(ROOT), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", code, *(str(argument) for argument in arguments)]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def _mount(*arguments: str) -> None:
    if os.geteuid() != 0 or subprocess.run(["mount", *arguments], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 160 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    _mount("-t", "tmpfs", "-o", "size=160k", "tmpfs", str(folder))
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def read_only():
    """Mount a folder over itself, read-only, for a while."""

    @contextlib.contextmanager
    def mounted(folder: Path):
        _mount("--bind", str(folder), str(folder))
        try:
            _mount("-o", "remount,ro,bind", str(folder))
            yield
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)

    return mounted
