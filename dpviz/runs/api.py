"""Training from a script or a notebook: `dpviz.train` and `dpviz.sweep`.

run = dpviz.train(recipe="losing-less/mnist-ce-t-cnn", epochs=2, subset=2000)
run.epochs[-1].test_accuracy, run.epochs[-1].epsilon_sound
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dpviz.papers import recipe as recipe_named
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.interrupt import stopping_on
from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.runner import Runner
from dpviz.runs.execution.runners import runner_for
from dpviz.runs.settings import DEFAULT, change, with_listed_epochs
from dpviz.runs.store.records import Run
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps.driver import SweepDriver
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
    workers: int = 1,
    data_dir: Folder | None = None,
    store: Store | Folder | None = None,
    on_epoch: Callable[[EpochRecord], None] | None = None,
    **settings: Any,
) -> Run:
    """Train in the foreground and return the finished run, which is saved in the store as any other.

    Settings have the names of the command line's `--set` and start from a recipe, else from dpviz's own. A name with a
    dot goes into a mapping: train({"optimizer.momentum": 0.9}, epochs=2). A schedule may be a name, a list of sigmas or
    a Schedule. A whole RunSpec can be given instead of a recipe. Several workers are processes of this machine that
    share the run's examples; batches, noise and epsilon are those of one.

    A run that fails raises InputError with its reason. Ctrl-C stops the run with a checkpoint (`dpviz runs resume`
    goes on) and then raises KeyboardInterrupt. `on_epoch` is called from the thread that trains.
    """
    planned = planned_spec(spec, recipe, settings)
    store = as_store(store)
    runner = runner_for(store, on_epoch=(lambda _, record: on_epoch(record)) if on_epoch else None)
    with contextlib.closing(runner):
        options = checked_options(runner, device, data_dir, workers)
        with stopping_on(runner.stop_all, signal.SIGINT) as pressed:
            run_id = runner.start(planned, title=title, options=options)
            runner.wait(run_id)
    if pressed.is_set():
        raise KeyboardInterrupt
    run = store.get(run_id)
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
    store = as_store(store)

    def ended(candidate: Candidate, run: Run) -> None:
        if on_run:
            on_run(run)

    with contextlib.closing(runner_for(store)) as runner:
        driver = SweepDriver(plan, store, runner, options=checked_options(runner, device, data_dir), on_end=ended)
        with stopping_on(driver.stop, signal.SIGINT) as pressed:
            driver.run()
    if pressed.is_set():
        raise KeyboardInterrupt
    if driver.problem:
        raise InputError(f"the sweep stopped: {driver.problem}")
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


def checked_options(runner: Runner, device: str, data_dir: Folder | None, workers: int = 1) -> RunOptions:
    """Device and data folder; one that is not there is refused before anything is written."""
    if data_dir is not None and not Path(data_dir).is_dir():
        raise InputError(f"data_dir must be a folder, and {str(data_dir)!r} is none")
    options = RunOptions(device, None if data_dir is None else Path(data_dir), own_code=True, workers=workers)
    try:
        runner.check_device(device)
    except ModuleNotFoundError as error:
        raise InputError(f"training needs {error.name}; install it with pip install 'dpviz[train]'") from None
    return options
