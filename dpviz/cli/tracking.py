"""import: a run that another program trained, from a file that it left. export: runs for other programs."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path

from dpviz.cli.command import Command, Result, number, whole
from dpviz.cli.mirror_flags import private_metrics_argument
from dpviz.cli.training import run_json, runs_result
from dpviz.runs.audits import find_run
from dpviz.runs.store.store import Store
from dpviz.runs.tracking.exporters import EXPORT_NAMES, PRIVATE_WORDS, export_runs
from dpviz.runs.tracking.importers import import_run
from dpviz.runs.tracking.trackers import TRACKERS


def _import_arguments(parser: argparse.ArgumentParser) -> None:
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


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs", nargs="+", metavar="RUN", help="a run's id, or a full-length run as PAPER/EXPERIMENT/SEED"
    )
    places = "; ".join(f"{tracker.name}: {tracker.help}" for tracker in TRACKERS.values())
    parser.add_argument("--to", choices=EXPORT_NAMES, required=True, help="a tracker, or a file of all runs")
    parser.add_argument("--out", default="", metavar="PLACE", help=f"where to; {places}; csv, json: a file")
    private_metrics_argument(parser)


def _export(args: argparse.Namespace) -> Result:
    runs = [find_run(Store(), name) for name in dict.fromkeys(args.runs)]
    with contextlib.redirect_stdout(sys.stderr):  # some trackers print, and standard output is for the result alone
        text = export_runs(runs, args.to, args.out, private_metrics=args.with_private_metrics)
    data = {"to": args.to, "runs": [run.id for run in runs], "private_metrics": args.with_private_metrics}
    if text and not args.out:
        return (json.loads(text) if args.to == "json" else data | {"text": text}), text.rstrip("\n")
    parts = [f"exported {len(runs)} run{'s' * (len(runs) > 1)} to {args.out}"]
    if args.with_private_metrics:
        parts.append(f"not covered by epsilon, and exported too: {PRIVATE_WORDS}.")
    return data, "\n".join(parts)


COMMANDS = (
    Command("export", "write runs to a tracker, or to a CSV or JSON file", _export_arguments, _export),
    Command("import", "keep a run that another program trained, from a file that it left", _import_arguments, _import),
)
