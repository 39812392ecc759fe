"""--mirror and --with-private-metrics, for every command that trains."""

from __future__ import annotations

import argparse

from dpviz.privacy.registry import InputError
from dpviz.runs.store.store import Store
from dpviz.runs.tracking.exporters import PRIVATE_WORDS
from dpviz.runs.tracking.mirror import Mirror
from dpviz.runs.tracking.trackers import TRACKERS, Destination


def mirror_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--mirror",
        metavar="TRACKER:PLACE",
        help=f"write runs to a tracker while they train, for example tensorboard:logs; one of {', '.join(TRACKERS)}",
    )
    private_metrics_argument(parser)


def private_metrics_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--with-private-metrics", action="store_true", help=f"send also {PRIVATE_WORDS}")


def asked_mirror(store: Store, args: argparse.Namespace) -> Mirror | None:
    """The mirror that the flags ask for; one that cannot be is refused before anything is trained."""
    if args.mirror is None:
        if args.with_private_metrics:
            raise InputError("--with-private-metrics goes with --mirror, or with dpviz export")
        return None
    return Mirror(store, Destination.parse(args.mirror), private_metrics=args.with_private_metrics)
