"""Training from a script or a notebook: `dpviz.train` and `dpviz.sweep`.

run = dpviz.train(recipe="losing-less/mnist-ce-t-cnn", epochs=2, subset=2000)
run.epochs[-1].test_accuracy, run.epochs[-1].epsilon_sound
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dpviz.papers import recipe as recipe_named
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import cores
from dpviz.runs.execution.runner import BackgroundRunner, ForegroundRunner
from dpviz.runs.settings import DEFAULT, change, with_listed_epochs
from dpviz.runs.store.records import Run
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps.driver import WIDTH, Drive
from dpviz.runs.sweeps.result import Result, result
from dpviz.runs.sweeps.spec import Candidate, Sweep, sweep_of
from dpviz.training.spec import EpochRecord, RunSpec

Folder = Path | str


def train(
    spec: RunSpec | Mapping[str, Any] | None = None,
    *,
    recipe: str | None = None,
    title: str = "",
    device: str = "auto",
    data_dir: Folder | None = None,
    store: Store | Folder | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    **settings: Any,
) -> Run:
    """Train in the foreground and return the finished run, which is saved in the store as any other.

    Settings have the names of the command line's `--set` and start from a recipe, else from dpviz's own. A name with a
    dot goes into a mapping: train({"optimizer.momentum": 0.9}, epochs=2). A schedule may be a name, a list of sigmas or
    a Schedule. A whole RunSpec can be given instead of a recipe.

    A run that fails raises InputError with its reason. Ctrl-C stops the run with a checkpoint (`dpviz runs resume`
    goes on) and then raises KeyboardInterrupt.
    """
    planned = planned_spec(spec, recipe, settings)
    store, data_dir = as_store(store), check_machine(device, data_dir)
    told = (lambda _, record: on_epoch(record)) if on_epoch else None
    runner = ForegroundRunner(store, on_epoch=told)
    with interruptible(runner.stop_all):
        run = store.get(runner.start(planned, title=title, device=device, data_dir=data_dir))
    if run.status == "failed":
        raise InputError(f"run {run.id} failed: {run.error}")
    return run


def sweep(
    plan: Sweep | None = None,
    *,
    device: str = "auto",
    data_dir: Folder | None = None,
    store: Store | Folder | None = None,
    on_run: Callable[[Run], None] | None = None,
    **description: Any,
) -> Result:
    """Train every candidate of a sweep in this process and return what came of it; given again, it goes on.

    The description has the keys of a sweep's file: title, recipe, seeds, epsilon, settings, and grid or search; so
    sweep(**tomllib.loads(text)) runs a file. A run that failed is counted in the result; only what stops the whole
    raises InputError.
    """
    if (plan is None) == (not description):
        raise InputError(
            "give either a Sweep or its description, for example grid={'schedule': ['constant', 'linear']}"
        )
    plan = plan.check() if plan is not None else sweep_of(description)
    store, data_dir = as_store(store), check_machine(device, data_dir)

    def ended(candidate: Candidate, run: Run) -> None:
        if on_run:
            on_run(run)

    crew = BackgroundRunner(store, threads=cores())
    try:
        width = 1 if plan.search else WIDTH  # a search learns from what is done before it proposes more
        drive = Drive(plan, store, crew, width=width, device=device, data_dir=data_dir, on_end=ended)
        with interruptible(drive.stop):
            drive.run()
    finally:
        crew.close()
    if drive.problem:
        raise InputError(f"the sweep stopped: {drive.problem}")
    return result(store, plan.id)


def planned_spec(spec: RunSpec | Mapping[str, Any] | None, recipe: str | None, settings: Mapping[str, Any]) -> RunSpec:
    """The settings of a run, all of them checked, before anything is written."""
    if isinstance(spec, RunSpec):
        if recipe is not None:
            raise InputError("give either a RunSpec or a recipe to start from, not both")
        return change(spec, with_listed_epochs(settings))
    given = dict(spec or {})
    twice = sorted(set(given) & set(settings))
    if twice:
        raise InputError(f"{twice[0]} is set twice")
    start = recipe_named(recipe).spec if recipe is not None else DEFAULT
    return change(start, with_listed_epochs(given | dict(settings)))


def as_store(store: Store | Folder | None) -> Store:
    return store if isinstance(store, Store) else Store(store)


def check_machine(device: str, data_dir: Folder | None) -> Path | None:
    """The data folder as a path; a device or a folder that is not there is refused before anything is written."""
    try:
        from dpviz.training.engine import pick_device
    except ModuleNotFoundError as error:
        raise InputError(f"training needs {error.name}; install it with pip install 'dpviz[train]'") from None
    pick_device(device)
    if data_dir is not None and not Path(data_dir).is_dir():
        raise InputError(f"data_dir must be a folder, and {str(data_dir)!r} is none")
    return None if data_dir is None else Path(data_dir)


@contextlib.contextmanager
def interruptible(stop: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C stop what is at work, with its checkpoint, and become KeyboardInterrupt after that.

    Otherwise a notebook, which lives on, would keep the run's lock, and the run would seem to be running.
    """
    if threading.current_thread() is not threading.main_thread():  # signals come to the main thread alone
        yield
        return
    pressed = threading.Event()

    def handler(number: int, frame: object) -> None:
        pressed.set()
        stop()
        signal.signal(number, signal.default_int_handler)  # a second Ctrl-C does not wait for the step

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
    if pressed.is_set():
        raise KeyboardInterrupt
