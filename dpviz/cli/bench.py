"""bench: how fast dpviz is, as ratios against named peers in one run."""

from __future__ import annotations

import argparse
import importlib
import sys
from itertools import groupby
from typing import Any

from dpviz.cli.command import Command, Result, number, table, whole
from dpviz.paths import ROOT
from dpviz.privacy.registry import InputError

BENCHES = ("accountant", "training", "app", "local", "scale", "load")
# Flag -> the benchmark that it goes with.
OPTIONS = {"sessions": "load", "seconds": "load", "servers": "load", "device": "training"}


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bench", choices=[name for name in BENCHES if (ROOT / "benchmarks" / f"{name}.py").exists()])
    parser.add_argument("--sessions", type=whole, help="load: sessions at a time (default: 50)")
    parser.add_argument("--seconds", type=number, help="load: how long they go on (default: 240)")
    parser.add_argument("--servers", type=whole, help="load: server processes, behind nginx if several (default: 1)")
    parser.add_argument("--device", help="training: cpu, cuda or mps (default: cpu)")


def _run(args: argparse.Namespace) -> Result:
    sys.path.insert(0, str(ROOT))  # before Opacus, whose wheel has a package `benchmarks`, too
    try:
        module = importlib.import_module(f"benchmarks.{args.bench}")
    except ModuleNotFoundError as error:
        raise InputError(f"the benchmark needs {error.name}; install requirements-dev.txt") from None
    options = {name: getattr(args, name) for name in OPTIONS if getattr(args, name) is not None}
    for name in options:
        if OPTIONS[name] != args.bench:
            raise InputError(f"--{name} goes with bench {OPTIONS[name]} only")
    rows: list[dict[str, Any]] = module.rows(**options)
    alike = groupby(map(_flat, rows), key=tuple)
    return {"rows": rows}, "\n\n".join(table(heads, [[*row.values()] for row in some]) for heads, some in alike)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """A column for each number: those of a dict come under its name and theirs."""
    flat: dict[str, Any] = {}
    for name, value in row.items():
        flat |= {f"{name} {inner}": one for inner, one in value.items()} if isinstance(value, dict) else {name: value}
    return flat


COMMANDS = (Command("bench", "time dpviz beside its peers", _arguments, _run),)
