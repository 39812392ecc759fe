"""bench: how fast dpviz is, as ratios against named peers in one run."""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Any

from dpviz.cli.command import Command, Result, number, table, whole
from dpviz.paths import ROOT
from dpviz.privacy.registry import InputError

BENCHES = ("accountant", "training", "app", "local", "scale", "load")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bench", choices=[name for name in BENCHES if (ROOT / "benchmarks" / f"{name}.py").exists()])
    parser.add_argument("--sessions", type=whole, help="load: browser sessions at a time (default: 20)")
    parser.add_argument("--minutes", type=number, help="load: how long they go on (default: 5)")


def _run(args: argparse.Namespace) -> Result:
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    try:
        module = importlib.import_module(f"benchmarks.{args.bench}")
    except ModuleNotFoundError as error:
        raise InputError(f"the benchmark needs {error.name}; install requirements-dev.txt") from None
    options = {name: getattr(args, name) for name in ("sessions", "minutes") if getattr(args, name) is not None}
    if options and args.bench != "load":
        raise InputError(f"--{next(iter(options))} goes with bench load only")
    rows: list[dict[str, Any]] = module.rows(**options)
    heads = list(dict.fromkeys(key for row in rows for key in row))
    return {"rows": rows}, table(heads, [[row.get(head) for head in heads] for row in rows])


COMMANDS = (Command("bench", "time dpviz beside its peers", _arguments, _run),)
