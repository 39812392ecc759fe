"""sweep: many runs from one TOML file, in this process or on a Ray cluster; given again, it goes on."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from pathlib import Path

from dpviz.cli.command import Command, epsilon_text, table
from dpviz.cli.command import Result as Printed
from dpviz.cli.mirror_flags import asked_mirror, mirror_arguments
from dpviz.cli.training import checked_options, machine_arguments
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.interrupt import stopping_on
from dpviz.runs.execution.runners import ray_address, runner_for
from dpviz.runs.store.records import Run
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps.driver import SweepDriver
from dpviz.runs.sweeps.result import Result, price_words, result, result_json
from dpviz.runs.sweeps.spec import Candidate, Sweep, read_toml
from dpviz.training.progress_bar import Bar

MAX_BYTES = 1_000_000


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.toml", help="what to vary; docs/scaling.md shows one")
    parser.add_argument("--ray", metavar="ADDRESS", help="run on this Ray cluster: auto, or host:port (or DPVIZ_RAY)")
    machine_arguments(parser)
    mirror_arguments(parser)


def _sweep(args: argparse.Namespace) -> Printed:
    sweep = read_file(args.file)
    store = Store()
    # Ray prints what it has to say, such as that a node is gone, to standard output, which is for the result alone.
    aside = contextlib.redirect_stdout(sys.stderr)
    mirror = asked_mirror(store, args)
    with aside, contextlib.closing(runner_for(store, ray_address(args.ray), mirror=mirror)) as runner:
        ended = Ended(sweep)
        driver = SweepDriver(sweep, store, runner, options=checked_options(args, runner), on_end=ended.say)
        ended.count = result(store, sweep.id).done
        with stopping_on(driver.stop, signal.SIGINT, signal.SIGTERM):
            driver.run()
    if driver.problem:
        raise InputError(f"the sweep stopped: {driver.problem}")
    outcome = result(store, sweep.id)
    args.exit_code = 130 if not outcome.finished else 1 if outcome.failed else 0
    return result_json(outcome), _text(outcome)


def read_file(path: Path) -> Sweep:
    try:
        with open(path, "rb") as file:
            return read_toml(file.read(MAX_BYTES + 1)[:MAX_BYTES].decode())
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"cannot read {str(path)!r}: it is not text") from None


class Ended:
    """One line for each run that has ended, with how far the whole is."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep, self.count, self._bar = sweep, 0, Bar()

    def say(self, candidate: Candidate, run: Run) -> None:
        self.count += 1
        how = f"test accuracy {run.epochs[-1].test_accuracy:.2%}" if run.status == "done" else run.status
        why = f" ({run.error})" if run.error else ""
        self._bar.say(f"{self.count} of {self.sweep.runs}: {candidate.label}, seed {run.spec.seed}: {how}{why}")


def _text(outcome: Result) -> str:
    heads = ("candidate", "runs", "test accuracy", "std (points)", "epsilon (sound)", "")
    front = outcome.front if outcome.sweep.search else ()
    rows = [
        (
            row.candidate.label,
            f"{len(row.done)}/{len(outcome.sweep.seeds)}",
            f"{row.mean:.2%}" if row.mean is not None else None,
            f"{100 * row.std:.2f}" if row.std is not None else None,
            epsilon_text(row.epsilon) if row.epsilon is not None else ("none" if row.done else None),
            "winner" if row is outcome.winner else "on the front" if row in front else "",
        )
        for row in outcome.rows
    ]
    parts = [table(heads, rows)]
    parts += [f"{row.candidate.label} failed: {row.problem}" for row in outcome.rows if row.problem]
    if outcome.winner is not None:
        chosen = f"The winner is {outcome.winner.candidate.label} with {outcome.winner.mean:.2%}."
        parts.append("\n".join((chosen, *price_words(outcome))))
    if not outcome.finished:
        left = outcome.total - outcome.done - outcome.failed
        parts.append(f"{left} of {outcome.total} runs are left; give the same file again to go on.")
    return "\n\n".join(parts)


COMMANDS = (Command("sweep", "many runs from one file: grids or a search, here or on Ray", _arguments, _sweep),)
