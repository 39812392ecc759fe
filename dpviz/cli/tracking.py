"""import: a run that another program trained, from a file that it left."""

from __future__ import annotations

import argparse
from pathlib import Path

from dpviz.cli.command import Command, Result, number, whole
from dpviz.cli.training import run_json, runs_result
from dpviz.runs.tracking.importers import import_run


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file",
        type=Path,
        help="an Opacus checkpoint or accountant, a dp_accounting event as JSON, a CSV or JSON of epochs, an export of "
        "wandb or TensorBoard; see docs/tracking.md",
    )
    parser.add_argument("--name", default="", help="what the run is called; without it, the file's name")
    parser.add_argument("--dataset", default="", help="what it was trained on, for example mnist")
    parser.add_argument("--delta", type=number, default=1e-5, help="delta of its epsilon (default 1e-5)")
    parser.add_argument("--sigma", type=number, help="noise multiplier of every epoch, where the file has none")
    parser.add_argument("--sample-rate", type=number, help="sample rate of every epoch, where the file has none")
    parser.add_argument("--steps", type=whole, help="steps per epoch, where the file has none")
    parser.add_argument("--test-accuracy", type=number, help="as a fraction; with a file that holds a ledger only")
    parser.add_argument("--epsilon", type=number, help="what its own accountant said; with such a file")
    parser.add_argument("--metric", default="test_accuracy", help="what the values of a TensorBoard CSV are")


def _import(args: argparse.Namespace) -> Result:
    run = import_run(
        args.file,
        delta=args.delta,
        name=args.name,
        dataset=args.dataset,
        noise_multiplier=args.sigma,
        sample_rate=args.sample_rate,
        steps=args.steps,
        test_accuracy=args.test_accuracy,
        epsilon=args.epsilon,
        metric=args.metric,
    )
    return run_json(run), runs_result([run])[1]


COMMANDS = (
    Command("import", "keep a run that another program trained, from a file that it left", _arguments, _import),
)
