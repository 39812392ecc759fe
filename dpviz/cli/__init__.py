"""The command line: the same tables and records as the dashboard, no browser.

One module per group of commands. Whatever stands in a module's tuple COMMANDS is a command; they are listed by name.
A module that has a command's name is loaded alone when that command is called. Heavy imports happen inside `run`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import sys
from collections.abc import Sequence

from dpviz.cli.command import Command, plain
from dpviz.privacy.registry import InputError


def commands(called: str = "") -> tuple[Command, ...]:
    """All commands, or those of the called one's module: importing all modules takes half a second."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    modules = [importlib.import_module(f"{__name__}.{name}") for name in ([called] if called in names else names)]
    found = [command for module in modules for command in getattr(module, "COMMANDS", ())]
    return tuple(sorted(found, key=lambda command: command.name))


EPILOG = """\
examples:
  dpviz epsilon --schedule linear --start 5 --end 1 --epochs 20 --dataset-size 60000 --batch-size 600
  dpviz calibrate --target-epsilon 1.0 --schedule cosine --epochs 20 --dataset-size 60000 --batch-size 600
  dpviz train --recipe losing-less/mnist-ce-t-cnn --epochs 5
  dpviz train --set subset=6000 --set schedule=linear --set schedule.start=3 --seeds 0,1,2

Every command takes --json. DPVIZ_RUNS is the folder in which runs are kept, DPVIZ_DATA the one with datasets.
Noise multipliers (sigma) are relative to the clipping norm; epsilons hold for add-or-remove-one neighbours
and Poisson sampling unless said otherwise; with --sampling fixed-order or shuffled, for zero-out neighbours.
"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; exit code 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise InputError(message)


def parser(called: str = "") -> Parser:
    top = Parser(
        prog="dpviz",
        description="The privacy-utility trade-off of differentially private training: tight epsilons of any noise "
        "schedule, calibration to a budget, private training, and the baselines of published papers.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    subparsers = top.add_subparsers(dest="command", metavar="COMMAND", parser_class=Parser)
    for command in commands(called):
        sub = subparsers.add_parser(command.name, help=command.help, description=command.help, allow_abbrev=False)
        command.arguments(sub)
        sub.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
        sub.set_defaults(run=command.run, exit_code=0)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; 0 when it worked, 2 with one line on standard error when the input was wrong.

    A command may set `args.exit_code` to something else, for example 1 after printing a run that failed.
    """
    words = sys.argv[1:] if arguments is None else list(arguments)
    top = parser(*words[:1])
    try:
        args = top.parse_args(words)
        if args.command is None:
            top.print_help()
            return 0
        data, text = args.run(args)
        print(json.dumps(plain(data), allow_nan=False) if args.json else text)
        return int(args.exit_code)
    except InputError as error:
        print(f"dpviz: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader (head, less) has gone; keep Python from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("dpviz: stopped", file=sys.stderr)
        return 130


def run() -> None:
    """What the installed command `dpviz` calls."""
    sys.exit(main())
