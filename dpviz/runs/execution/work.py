"""One run at work: from its last checkpoint to its end, the same in the queue and on a cluster."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dpviz.privacy.audit import LIKELY_CAUSES, Audit
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import Assignment, Ended, Failed, Running, Saved, Sink, Stepped, check_own_code, ended_by
from dpviz.runs.execution.provenance import versions
from dpviz.runs.store.records import Progress, Provenance
from dpviz.runs.store.spending import Spending, Steps, of_epoch, spending
from dpviz.training.spec import EpochRecord, RunSpec
from dpviz.training.tables import MODELS

if TYPE_CHECKING:
    from dpviz.training.team import Team

SigmasAt = Callable[[int], Sequence[float]]


def work(
    assignment: Assignment,
    sink: Sink,
    should_stop: Callable[[], bool],
    data: Any = None,
    sigmas_at: SigmasAt | None = None,
    team: Team | None = None,
) -> Ended:
    """Train a run and report on it. `data` is what to train on where it was read already; None: read it from data_dir.

    `sigmas_at` asks the store for the noise of a run under a filter, as each epoch begins. Every worker of a `team`
    comes here; what the first reports is the run's. The caller writes down the end, which is returned, not reported.
    """
    began = time.monotonic()
    training = _Training(assignment, sink, should_stop, data, sigmas_at, team)
    ended = ended_by(assignment.run.id, training.train)
    provenance = training.provenance
    if provenance is not None:
        minutes = provenance.minutes + (time.monotonic() - began) / 60
        provenance = dataclasses.replace(provenance, minutes=round(minutes, 4))
    return dataclasses.replace(ended, provenance=provenance, spent=training.spent, audit=training.audit)


class _Training:
    """Holds what is known so far, so that it is on record wherever training ends."""

    def __init__(
        self,
        assignment: Assignment,
        sink: Sink,
        should_stop: Callable[[], bool],
        data: Any,
        sigmas_at: SigmasAt | None,
        team: Team | None,
    ) -> None:
        self.assignment, self.run, self.sink, self.data = assignment, assignment.run, sink, data
        self.sigmas_at, self.team = sigmas_at, team
        self.last = self.run.epochs[-1] if self.run.epochs else None
        self.provenance: Provenance | None = None
        self.spent: Spending | None = None
        self.audit: Audit | None = None
        self._should_stop = should_stop

    def train(self) -> Ended:
        from dpviz.training import checkpoint
        from dpviz.training.divergence import Diverged
        from dpviz.training.engine import Trainer
        from dpviz.training.team import ALONE

        run, options = self.run, self.assignment.options
        check_own_code((run.own_spec,), options)
        self.provenance = provenance = measured(self.assignment)
        checkpoint.use_threads(provenance.threads)
        self.sink(Running(provenance))
        trainer = Trainer(
            run.own_spec, device=provenance.device, data_dir=options.data_dir, data=self.data, team=self.team or ALONE
        )
        if self.assignment.checkpoint is not None:
            self._restore(trainer, checkpoint.from_bytes(self.assignment.checkpoint))
        before = run.written or spending(run.own_spec, 0)
        drawn_by = "" if trainer.generators == "cpu" else trainer.generators
        same = run.provenance is None or run.provenance.generators == drawn_by
        redone = lost_steps(run.own_spec, before, steps_taken(trainer), same_numbers=same)
        if redone != before.redone:  # reported now: a process that is killed later leaves no word of it
            self.sink(Running(spent=spending(run.own_spec, steps_taken(trainer), redone, at_most=before.at_most)))

        if drawn_by != provenance.generators:
            self.provenance = provenance = dataclasses.replace(provenance, generators=drawn_by)
            self.sink(Running(provenance))

        def save(record: EpochRecord | None, *, new: bool) -> None:
            text = json.dumps(record.to_json(), allow_nan=False) if record else ""
            data = checkpoint.to_bytes({"record": text, "trainer": trainer.state()})
            self.sink(Saved(data, record if new else None))

        try:
            clock = self._clock(provenance.device)
            for record in trainer.epochs(on_step=clock, should_stop=self._stopped, sigmas_at=self.sigmas_at):
                new = self._is_new(record)
                save(record, new=new)
                self.last = record if new else self.last
        except Diverged as failure:
            raise Failed(str(failure)) from None
        finally:
            how = trainer.perexample
            halved = how.halved_to or provenance.physical_batch
            self.provenance = dataclasses.replace(provenance, gradients=how.fallback or "", physical_batch=halved)
            self.spent, self.audit = spent_by(trainer, before, redone, self.last), trainer.audit
        done = self._reached(run.own_spec.epochs)
        if not (done or trainer.stopping):
            raise Failed(f"training ended after epoch {self.last.epoch if self.last else 0} of {run.own_spec.epochs}")
        if not done:
            save(self.last, new=False)
        if self.audit and self.audit.failures:
            raise Failed(failure_words(self.audit))
        return Ended("done" if done else "stopped")

    def _is_new(self, record: EpochRecord) -> bool:
        return self.last is None or record.epoch > self.last.epoch

    def _reached(self, epoch: int) -> bool:
        return self.last is not None and self.last.epoch >= epoch

    def _stopped(self) -> bool:
        until = self.assignment.options.until
        return self._should_stop() or (until is not None and self._reached(until))

    def _restore(self, trainer: Any, saved: dict[str, Any]) -> None:
        """Put the trainer where the checkpoint left it; add the epoch that the checkpoint has and the file may lack."""
        if "trainer" not in saved:
            raise Failed("the checkpoint is not a run's; delete it to start the run over")
        try:
            trainer.load(saved["trainer"])
        except InputError:
            raise
        except Exception as error:  # damaged values fail anywhere
            raise Failed(
                f"the checkpoint cannot be used ({type(error).__name__}); delete it to start the run over"
            ) from None
        record = EpochRecord.from_json(json.loads(saved["record"])) if saved.get("record") else None
        if record is not None and self._is_new(record):
            self.sink(Saved(None, record))
            self.last = record

    def _clock(self, device: str) -> Callable[[int, int], None]:
        """What a trainer calls after each step: reports progress, with the time left at the pace so far."""
        began = time.monotonic()
        first: list[float] = []

        def on_step(step: int, steps: int) -> None:
            now = time.monotonic()
            if not first:
                first.extend((step, now))
            taken, seconds = step - first[0], now - first[1]
            left = (steps - step) * seconds / taken if taken else None
            self.sink(Stepped(Progress(self.run.id, step, steps, now - began, left, device)))

        return on_step


def failure_words(audit: Audit) -> str:
    """Why a run whose audit contradicts its epsilon has failed, and what most likely causes it."""
    return f"the audit failed: {'; '.join(audit.failures)}. Likely causes: {'; '.join(LIKELY_CAUSES)}"


def steps_taken(trainer: Any) -> int:
    """Updates in the trainer's ledger, also those after its last whole epoch."""
    return sum(phase.steps for phase in trainer.spent)


def lost_steps(spec: RunSpec, before: Spending, restored: int, *, same_numbers: bool = True) -> tuple[Steps, ...]:
    """What a run has taken beyond its plan once it goes on from `restored` steps: see Spending.redone.

    A seeded run that draws the same numbers takes the same steps, which cost nothing. Another kind of device draws
    others; under a filter there is no budget for that.
    """
    lost = (spec.secure or not same_numbers) and before.steps > restored
    if lost and spec.filter:
        raise Failed("the run's first steps were drawn on another kind of device; a run under a filter needs the same")
    return (*before.redone, (restored, before.steps)) if lost else before.redone


def spent_by(trainer: Any, before: Spending, redone: tuple[Steps, ...], last: EpochRecord | None) -> Spending:
    """What the run has spent in all, wherever it ended. A seeded run that was further before has spent that too."""
    steps = steps_taken(trainer)
    if before.steps > steps and redone == before.redone and not trainer.spec.secure:
        return before
    return spending(
        trainer.spec,
        steps,
        redone,
        accepted=trainer.screening.accepted if trainer.screening else None,
        floor=of_epoch(last) if last else None,
        at_most=bool(redone) and before.at_most,
    )


def measured(assignment: Assignment) -> Provenance:
    """Provenance of a run of this code. A resumed run keeps its thread count: sums round differently with another."""
    from dpviz.training.devices import pick_device
    from dpviz.training.own_models import source_hash

    before, model, workers = assignment.run.provenance, assignment.run.spec.model, assignment.options.workers
    return Provenance(
        kind="measured",
        source="dpviz",
        commit=assignment.commit,
        versions=versions() | ({model: source_hash(model)} if MODELS[model].own else {}),
        device=pick_device(assignment.options.device),
        threads=before.threads if before and before.threads else max(1, assignment.threads // workers),
        workers=workers,
        minutes=before.minutes if before else 0.0,
        physical_batch=before.physical_batch if before else 0,
        generators=before.generators if before else "",
    )
