"""Runs made up for tests of views and pages: the records are real, the numbers follow a formula."""

from __future__ import annotations

from pathlib import Path

from dpviz.privacy.audit import Audit
from dpviz.privacy.schedules import Schedule
from dpviz.runs import CachedRun, Provenance, Run
from dpviz.runs.store import run_files as files
from dpviz.runs.store.records import labels
from dpviz.runs.store.spending import Spending
from dpviz.runs.store.store import new_id
from dpviz.training.spec import EpochRecord, RunSpec


def made_spec(sigma: float = 1.0, **changes) -> RunSpec:
    settings = {"epochs": 4, "model": "logistic", "subset": 2000, "batch_size": 200}
    schedule = Schedule.of("constant", sigma=0.0 if changes.get("method") == "sgd" else sigma)
    return RunSpec(schedule=schedule, **(settings | changes))


def made_diagnostics(epoch: int, clip_norm: float = 0.1) -> dict:
    return {
        "examples": 8,
        "gradient_norms": {"edges": [0.0, 0.05, 0.15, 0.25], "counts": [2, 4, 2]},
        "clip_norm": clip_norm,
        "clipped_fraction": 0.75,
        "cosine": 0.9,
        "update": {"signal": 1.0 / epoch, "clipping_bias": 0.5, "noise": 0.25 * epoch},
        "layers": [
            {"name": "0", "weight_norm": 1.0 * epoch, "pre_activation_norm": 2.0},
            {"name": "2", "weight_norm": 3.0 * epoch, "pre_activation_norm": 4.0},
        ],
        "logit_norm": 4.0,
        "confusion": {"train": [[3, 1], [0, 4]], "test": [[30, 10], [5, 55]]},
        "hessian_eigenvalue": None,
    }


def made_epochs(spec: RunSpec, count: int, *, best: float = 0.9, diagnostics: bool = False) -> tuple[EpochRecord, ...]:
    private = spec.method != "sgd"
    sigmas = spec.schedule.sigmas(spec.epochs)
    return tuple(
        EpochRecord(
            epoch=epoch,
            step=10 * epoch,
            noise_multiplier=float(sigmas[epoch - 1]),
            epsilon_claimed=0.4 * epoch / float(sigmas[0]) if private else None,
            epsilon_sound=0.5 * epoch / float(sigmas[0]) if private else None,
            train_loss=1.0 / epoch,
            train_accuracy=best - 0.4 / epoch,
            test_loss=1.1 / epoch,
            test_accuracy=best - 0.5 / epoch,
            seconds=30.0,
            diagnostics=made_diagnostics(epoch) if diagnostics else {},
        )
        for epoch in range(1, count + 1)
    )


def made_run(
    run_id: str = "a",
    *,
    status: str = "done",
    count: int | None = None,
    title: str = "",
    best: float = 0.9,
    written: Spending | None = None,
    audit: Audit | None = None,
    **changes,
) -> Run:
    """A run whose accuracy climbs towards `best`; at sigma 1 an epoch costs 0.4 (claimed) and 0.5 (sound)."""
    spec = made_spec(**changes)
    count = spec.epochs if count is None else count
    epochs = made_epochs(spec, count, best=best, diagnostics=spec.diagnostics)
    origin = ("2026-01-02T03:04:05+00:00", Provenance("measured", "dpviz"), "", title)
    return Run(run_id, spec, status, epochs, *origin, written=written, audit=audit)


def made_cached(experiment: str = "constant-1", seed: int = 0, paper: str = "curricula", **changes) -> CachedRun:
    return CachedRun(paper, experiment, seed, made_run(f"{paper}/{experiment}/{seed}", seed=seed, **changes))


def keep(folder: Path, run: Run, owner: str = "") -> str:
    """Save a made run in a store's folder as if it had been trained; its id there."""
    run_id = new_id()
    place = folder / run_id
    place.mkdir(parents=True)
    last = run.epochs[-1] if run.epochs else None
    parts = (run.provenance, labels(run.spec, last), owner, run.written, run.audit)
    status = files.Status(run.status, run.created, "", *parts)
    (place / files.SPEC).write_bytes(files.dump(run.spec.to_json()))
    (place / files.EPOCHS).write_bytes(b"".join(files.dump(record.to_json()) for record in run.epochs))
    (place / files.STATUS).write_bytes(files.dump(status.to_json()))
    if run.title:
        (place / files.TITLE).write_bytes(files.dump({"title": run.title}))
    return run_id
