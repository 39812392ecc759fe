"""dpviz.track: somebody else's training loop as a run in the store, epoch by epoch, while it trains.

    with dpviz.track(privacy_engine, delta=1e-5, name="my CNN", dataset="hospital") as run:
        for epoch in range(epochs):
            train(...)
            run.log(test_accuracy=evaluate(...))

The run's own accounting stays as it is: an accountant's history is only read, an optimizer's step hook is called first.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from dpviz.privacy import InputError, Phase
from dpviz.privacy.registry import Value
from dpviz.runs.execution.provenance import versions
from dpviz.runs.store import run_files as files
from dpviz.runs.store.imported import ImportedSpec
from dpviz.runs.store.records import Provenance
from dpviz.runs.store.spending import Spending
from dpviz.runs.store.store import Store
from dpviz.runs.tracking.epochs import LoggedEpoch, added, as_ledger, as_numbers, next_record
from dpviz.training.pricing import steps_guarantee
from dpviz.training.spec import EpochRecord

History = Iterable[Any]
LedgerSoFar = History | Callable[[], History]


class TrackedRun:
    """A run at work in another loop. `log` adds an epoch; `id` is the run's in the store."""

    def __init__(self, store: Store, run_id: str, delta: float, history: Callable[[], History]) -> None:
        self.id = run_id
        self._store, self._delta, self._history = store, delta, history
        self._phases: tuple[Phase, ...] = ()
        self._last: EpochRecord | None = None
        self._clock = time.monotonic()

    def log(
        self,
        *,
        test_accuracy: Any = None,
        test_loss: Any = None,
        train_accuracy: Any = None,
        train_loss: Any = None,
        epsilon: Any = None,
        **more: Any,
    ) -> EpochRecord:
        """Add an epoch: the steps since the last one, priced, and what was measured. It is on the disk on return.

        Accuracies are fractions. `epsilon` is what the loop's own accountant says (the claimed one). Numbers from the
        training data are not covered by epsilon; they are optional.
        """
        measured = {"test_accuracy": test_accuracy, "test_loss": test_loss}
        measured |= {"train_accuracy": train_accuracy, "train_loss": train_loss, "epsilon": epsilon}
        now = as_ledger(self._history())
        epoch = LoggedEpoch(added(self._phases, now), as_numbers(measured | more), time.monotonic() - self._clock)
        record = next_record(self._last, epoch, self._price(now))
        with _saving(self.id):
            self._store.append(self.id, record)
        self._phases, self._last, self._clock = now, record, time.monotonic()
        return record

    def _price(self, phases: tuple[Phase, ...]) -> float:
        return steps_guarantee(ImportedSpec.method, ImportedSpec.curriculum, phases, self._delta).uppers[1] or 0.0

    def _end(self, status: str, error: str = "") -> None:
        """Write how the run ended and all that it spent, also after its last epoch."""
        spent = None
        try:
            now = as_ledger(self._history())
            added(self._phases, now)
            last = self._last
            sound = max(self._price(now), (last.epsilon_sound or 0.0) if last else 0.0)
            spent = Spending(sum(phase.steps for phase in now), last.epsilon_claimed if last else None, sound)
        except InputError as problem:
            status, error = "failed", error or str(problem)
        with _saving(self.id):
            self._store.set_status(self.id, status, error=error, spent=spent)


@contextlib.contextmanager
def track(
    privacy_engine: Any = None,
    *,
    delta: float,
    optimizer: Any = None,
    sample_rate: float | None = None,
    ledger: LedgerSoFar | None = None,
    name: str = "",
    dataset: str = "",
    epochs: int = 0,
    store: Store | Path | str | None = None,
    **facts: Value,
) -> Iterator[TrackedRun]:
    """Keep a run of your own training loop in the store, as kind "imported"; pages show it while it trains.

    The steps come from an Opacus PrivacyEngine (or its accountant), from a DPOptimizer with the `sample_rate` of its
    loader, or from `ledger`: a list of (noise multiplier, sample rate, steps) that your loop extends, or a function
    that returns it. `epochs` is how many are planned, if known. `facts` are kept with the run: model="my CNN",
    learning_rate=0.1, seed=1. Ctrl-C ends it as stopped, another exception as failed; a killed process leaves the
    epochs that were logged. In distributed training, track in one process only.
    """
    if sum(source is not None for source in (privacy_engine, optimizer, ledger)) != 1:
        raise InputError("give one source of steps: a privacy engine, optimizer=, or ledger=")
    spec = ImportedSpec(delta, dataset, epochs, tuple(facts.items()))
    keep = store if isinstance(store, Store) else Store(store)
    with _history_of(privacy_engine, optimizer, sample_rate, ledger) as history:
        as_ledger(history())  # a source of another kind is refused before anything is written
        run_id = keep.create(spec, title=name)
        try:
            source = "own ledger" if ledger is not None else "Opacus"
            keep.set_status(run_id, "running", provenance=Provenance("imported", source, versions=versions()))
            run = TrackedRun(keep, run_id, spec.delta, history)
            try:
                yield run
            except (KeyboardInterrupt, SystemExit):
                run._end("stopped")
                raise
            except BaseException as error:
                run._end("failed", files.without_paths(f"{type(error).__name__}: {error}")[:300])
                raise
            run._end("done")
        finally:
            keep.release(run_id)


@contextlib.contextmanager
def _history_of(
    privacy_engine: Any, optimizer: Any, sample_rate: float | None, ledger: LedgerSoFar | None
) -> Iterator[Callable[[], History]]:
    """What gives all steps so far; an optimizer gets its own hook back at the end."""
    if ledger is not None:
        yield ledger if callable(ledger) else lambda: ledger
    elif optimizer is not None:
        if sample_rate is None:
            raise InputError(
                "optimizer= needs sample_rate=, batch size / dataset size, which an optimizer does not know"
            )
        if not hasattr(optimizer, "attach_step_hook"):
            raise InputError(f"optimizer must be Opacus' DPOptimizer, got {type(optimizer).__name__}; see make_private")
        with _counted(optimizer, sample_rate) as history:
            yield history
    else:
        accountant = getattr(privacy_engine, "accountant", privacy_engine)
        if not hasattr(accountant, "history"):
            raise InputError(f"an Opacus PrivacyEngine or accountant is needed, got {type(privacy_engine).__name__}")
        yield lambda: accountant.history


@contextlib.contextmanager
def _counted(optimizer: Any, sample_rate: float) -> Iterator[Callable[[], History]]:
    """Count a DPOptimizer's steps. It has room for one hook, so the one that is there (accounting!) is called first."""
    steps: list[list[Any]] = []
    before = optimizer.step_hook

    def hook(at_work: Any) -> None:
        if before is not None:
            before(at_work)
        now = [at_work.noise_multiplier, sample_rate * at_work.accumulated_iterations]
        if steps and steps[-1][:2] == now:
            steps[-1][2] += 1
        else:
            steps.append([*now, 1])

    def history() -> History:
        if optimizer.step_hook is not hook:
            raise InputError(
                "another step hook replaced dpviz.track's, so steps are no longer counted; attach it first"
            )
        return steps

    optimizer.attach_step_hook(hook)
    try:
        yield history
    finally:
        if optimizer.step_hook is hook:
            optimizer.attach_step_hook(before)


@contextlib.contextmanager
def _saving(run_id: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(f"run {run_id} cannot be saved: {files.reason(error)} (the runs folder)") from None
