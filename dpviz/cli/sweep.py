"""sweep: many runs from one TOML file, in this process or on a Ray cluster; given again, it goes on."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from dpviz.cli.command import Command, Result, epsilon_text, table
from dpviz.cli.training import check_machine, machine_arguments
from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import cores
from dpviz.runs.execution.ray_runner import ClusterRunner, ray_address
from dpviz.runs.execution.runner import BackgroundRunner
from dpviz.runs.store.records import Run
from dpviz.runs.store.store import Store
from dpviz.runs.sweeps import result as fold
from dpviz.runs.sweeps.driver import WIDTH, Drive
from dpviz.runs.sweeps.spec import Candidate, Sweep, read_toml

MAX_BYTES = 1_000_000


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE.toml", help="what to vary; docs/scaling.md shows one")
    parser.add_argument("--ray", metavar="ADDRESS", help="run on this Ray cluster: auto, or host:port (or DPVIZ_RAY)")
    machine_arguments(parser)


def _sweep(args: argparse.Namespace) -> Result:
    sweep = read_file(args.file)
    store = Store()
    check_machine(args)
    # Ray prints what it has to say, such as that a node is gone, to standard output, which is for the result alone.
    aside = contextlib.redirect_stdout(sys.stderr)
    with aside, crew_for(store, ray_address(args.ray), args.device) as (crew, width):
        line = Line(sweep)
        options = {"device": args.device, "data_dir": args.data_dir, "on_end": line.ended}
        drive = Drive(sweep, store, crew, width=_width(sweep, crew, width), **options)
        line.found = fold.result(store, sweep.id).done
        with stopping(drive):
            drive.run()
    if drive.problem:
        raise InputError(f"the sweep stopped: {drive.problem}")
    found = fold.result(store, sweep.id)
    args.exit_code = 130 if not found.finished else 1 if found.failed else 0
    return fold.result_json(found), _text(found)


def _width(sweep: Sweep, crew: object, width: int) -> int:
    """A search learns from what is done: nothing is proposed before somebody has time for it."""
    return getattr(crew, "slots", 1) if sweep.search else width


def read_file(path: Path) -> Sweep:
    try:
        with open(path, "rb") as file:
            return read_toml(file.read(MAX_BYTES + 1)[:MAX_BYTES].decode())
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"cannot read {str(path)!r}: it is not text") from None


@contextlib.contextmanager
def crew_for(store: Store, address: str, device: str) -> Iterator[tuple[BackgroundRunner | ClusterRunner, int]]:
    """Who trains: a cluster if there is an address, else this process with all of its cores; and how many at a time."""
    crew: BackgroundRunner | ClusterRunner
    if address:
        crew = ClusterRunner(store, address, device=device)
        width = crew.width
    else:
        crew, width = BackgroundRunner(store, threads=cores()), WIDTH
    try:
        yield crew, width
    finally:
        crew.close()


@contextlib.contextmanager
def stopping(drive: Drive) -> Iterator[None]:
    """Ctrl-C ends the sweep's runs as stopped, with checkpoints."""

    def stop(number: int, frame: object) -> None:
        drive.stop()
        signal.signal(number, signal.default_int_handler)  # a second Ctrl-C does not wait for the step

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Line:
    """One line on standard error for each run that has ended, with how far the whole is."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep, self.found = sweep, 0

    def ended(self, candidate: Candidate, run: Run) -> None:
        self.found += 1
        told = f"test accuracy {run.epochs[-1].test_accuracy:.2%}" if run.status == "done" else run.status
        why = f" ({run.error})" if run.error else ""
        print(
            f"{self.found} of {self.sweep.runs}: {candidate.label}, seed {run.spec.seed}: {told}{why}",
            file=sys.stderr,
            flush=True,
        )


def _text(found: fold.Result) -> str:
    heads = ("candidate", "runs", "test accuracy", "std (points)", "epsilon (sound)", "")
    rows = [
        (
            row.candidate.label,
            f"{len(row.done)}/{len(found.sweep.seeds)}",
            f"{row.mean:.2%}" if row.mean is not None else None,
            f"{100 * row.std:.2f}" if row.std is not None else None,
            epsilon_text(row.epsilon) if row.epsilon is not None else ("none" if row.done else None),
            "winner" if row is found.winner else "on the front" if found.sweep.search and row in found.front else "",
        )
        for row in found.rows
    ]
    parts = [table(heads, rows)]
    parts += [f"{row.candidate.label} failed: {row.problem}" for row in found.rows if row.problem]
    if found.winner is not None:
        chosen = f"The winner is {found.winner.candidate.label} with {found.winner.mean:.2%}."
        parts.append("\n".join((chosen, *fold.price_words(found))))
    if not found.finished:
        left = found.total - found.done - found.failed
        parts.append(f"{left} of {found.total} runs are left; give the same file again to go on.")
    return "\n\n".join(parts)


COMMANDS = (Command("sweep", "many runs from one file: grids or a search, here or on Ray", _arguments, _sweep),)
