"""audit: what speaks against a run's epsilon, from its record or from a new run with canaries."""

from __future__ import annotations

import argparse
import sys

from dpviz.cli.command import Command, Result, epsilon_text, table, whole
from dpviz.cli.training import EXIT_CODES, checked_options, foreground, machine_arguments, specs_of
from dpviz.privacy.audit import CANNOT_SHOW, LIKELY_CAUSES, Audit
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import epsilon_number
from dpviz.runs.audits import audit_of, find_run, repeat_audit
from dpviz.runs.store.records import Run
from dpviz.runs.store.store import Store

TRAINED = ("recipe", "canaries", "set", "epochs")  # flags of a new run


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "id", nargs="?", metavar="RUN", help="a run's id, or a full-length run as PAPER/EXPERIMENT/SEED"
    )
    parser.add_argument("--recipe", help="train this recipe, audited, instead of reading a run")
    parser.add_argument("--canaries", type=whole, help="made-up examples for a one-run audit, for example 1000")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a setting, as in train")
    parser.add_argument("--epochs", type=whole, help="train so long")
    parser.add_argument("--repeat", action="store_true", help="train a full-length run again and keep its audit")
    machine_arguments(parser)


def _audit(args: argparse.Namespace) -> Result:
    trains = any(getattr(args, name) for name in TRAINED)
    if trains == (args.id is not None) or (args.repeat and args.id is None):
        raise InputError(
            "give a run's id, or --recipe and settings of a new run; --repeat goes with PAPER/EXPERIMENT/SEED"
        )
    if args.repeat:
        return _shown(args, repeat_audit(args.id, args.data_dir, lambda record: _say(args.id, record.epoch)))
    return _shown(args, audit_of(_trained(args) if trains else find_run(Store(), args.id)))


def _say(name: str, epoch: int) -> None:
    print(f"{name} epoch {epoch}", file=sys.stderr)


def _trained(args: argparse.Namespace) -> Run:
    if args.canaries is not None:
        args.set.append(f"canaries={args.canaries}")
    args.dataset = args.model = args.seeds = None  # flags of train, here --set
    store = Store()
    (spec,) = specs_of(args)
    with foreground(store, 1) as runner:
        run_id = runner.start(spec, title="Audit", options=checked_options(args, runner))
        runner.wait(run_id)
    run = store.get(run_id)
    args.exit_code = EXIT_CODES.get(run.status, 0)
    if run.status == "failed" and not (run.audit and run.audit.failures):
        raise InputError(f"run {run.id} failed: {run.error}")
    return run


def _shown(args: argparse.Namespace, audit: Audit) -> Result:
    """The bounds; the exit code is 1 where they contradict the proven epsilon."""
    data, step, one_run = audit.brief(), audit.step, audit.one_run
    rows = [("proven at most", epsilon_text(audit.proven), "by the accountant")]
    if step:
        rates = f"{step.trials:,} trials, FPR {step.fpr:.4f}, TPR {step.tpr:.4f}"
        rows.append(("step audit, at least", _lower(step.lower), rates))
    if one_run:
        guesses = f"{one_run.correct} of {one_run.guesses} guesses right, {one_run.canaries:,} canaries"
        rows.append(("one-run audit, at least", _lower(one_run.lower), guesses))
    parts = [table(("epsilon", "", "rests on"), rows)]
    if one_run:
        parts.append("The canaries' gradients are part of what was trained, and the canaries are counted in N.")
    if audit.failures:
        args.exit_code = 1
        data["failures"] = audit.failures
        parts.append("\n- ".join(("THE AUDIT FAILED: the proven epsilon does not hold.", *audit.failures)))
        parts.append("\n- ".join(("Likely causes:", *LIKELY_CAUSES)))
    parts.append(CANNOT_SHOW)
    return data, "\n\n".join(parts)


def _lower(value: float) -> str:
    return epsilon_number(value, digits=4, up=False)


COMMANDS = (Command("audit", "what speaks against a run's epsilon: a lower bound on it", _arguments, _audit),)
