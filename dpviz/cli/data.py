"""data: which datasets are there, and own ones: add, list, remove."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dpviz.cli.command import Command, Result, number, table
from dpviz.privacy.registry import InputError
from dpviz.training.data.catalog import own_names
from dpviz.training.data.own.source import Options, parse_bounds, parse_numbers, parse_range, parse_size
from dpviz.training.progress_bar import Bar
from dpviz.training.tables import DATASETS


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", default="list", choices=tuple(ACTIONS), help="what to do; default: list")
    parser.add_argument("name", nargs="?", help="add, remove: what your dataset is called")
    parser.add_argument(
        "path", nargs="?", type=Path, help="add: an .npz, .csv or .parquet file, or a folder of images per class"
    )
    parser.add_argument("--data-dir", type=Path, help="list: folder to look in first (or set DPVIZ_DATA)")
    parser.add_argument("--label", default="", help="add a table: its label column")
    parser.add_argument("--size", default="", metavar="HxW", help="add images: the size they are brought to")
    parser.add_argument("--grey", action="store_true", help="add images: one grey value per pixel instead of colours")
    parser.add_argument("--test-share", type=number, default=0.2, help="what has no test part: the share for testing")
    parser.add_argument("--range", default="", metavar="LOW,HIGH", help="public range of all numbers, for scaling")
    parser.add_argument(
        "--bounds",
        action="append",
        default=[],
        metavar="COLUMN=LOW,HIGH",
        help="add a table: public range of a column; may be given several times",
    )
    parser.add_argument("--mean", default="", help="add images or arrays: public constants instead of a range")
    parser.add_argument("--std", default="", help="goes with --mean")
    parser.add_argument("--leave-out", action="append", default=[], metavar="COLUMN", help="add a table: ignore it")


def _data(args: argparse.Namespace) -> Result:
    wanted = {"list": 0, "add": 2, "remove": 1}[args.action]
    if [args.name, args.path].count(None) != 2 - wanted:
        raise InputError(
            "data list takes no name, data add a name and a path, data remove a name; for example "
            "dpviz data add hospital patients.csv --label readmitted"
        )
    return ACTIONS[args.action](args)


def _list(args: argparse.Namespace) -> Result:
    from dpviz.training.data.readers import available, places

    folders = available(args.data_dir)
    rows = [(name, "yes" if folder else "no", str(folder) if folder else None) for name, folder in folders]
    text = table(("dataset", "there", "folder"), rows)
    missing = [DATASETS[name] for name, folder in folders if folder is None]
    if missing:
        text += "\n\nMissing ones are downloaded when a run needs them, or can be put by hand into "
        text += f"{places(args.data_dir)[0]}:"
        for dataset in missing:
            text += f"\n  {dataset.name}: {dataset.folder}/ with {', '.join(dataset.files)}"
            text += "" if dataset.torchvision else " (by hand only)"
    damaged = [name for name in own_names() if name not in DATASETS]
    text += "".join(f"\n\nYour data {name} are damaged; remove them and add them again." for name in damaged)
    data = [{"dataset": name, "there": there == "yes", "folder": folder} for name, there, folder in rows]
    return {"datasets": data}, text


def _add(args: argparse.Namespace) -> Result:
    from dpviz.training.data.own.store import add, description

    options = Options(
        label=args.label,
        image_size=parse_size(args.size),
        grey=args.grey,
        test_share=args.test_share,
        mean=parse_numbers(args.mean, "the mean"),
        std=parse_numbers(args.std, "the std"),
        value_range=parse_range(args.range),
        bounds=parse_bounds(args.bounds),
        leave_out=tuple(args.leave_out),
    )
    bar = Bar()
    try:
        dataset = add(
            args.name, args.path, options, on_progress=lambda share: bar.draw(args.name, share, f"{share:.0%}")
        )
    finally:
        bar.clear()
    facts: dict[str, Any] = {"dataset": dataset.name, **description(dataset.name)}
    text = [
        f"added {dataset.name}. {dataset.help}",
        "Treated as public, outside of every epsilon:",
        *(f"  - {words}" for words in facts["public"]),
        f"Train on it: dpviz train --dataset {dataset.name} --model logistic --set batch_size={dataset.batch_size} "
        f"--set delta={dataset.delta:g}",
    ]
    return facts, "\n".join(text)


def _remove(args: argparse.Namespace) -> Result:
    from dpviz.training.data.own.store import remove

    remove(args.name)
    return {"removed": args.name}, f"removed {args.name}; runs on it still open, resuming them needs it again"


ACTIONS = {"list": _list, "add": _add, "remove": _remove}

COMMANDS = (Command("data", "show which datasets are there and where; add or remove your own", _arguments, _data),)
