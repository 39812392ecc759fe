"""schedules, epsilon, calibrate: what a noise schedule is and what it costs."""

from __future__ import annotations

import argparse
from typing import Any

from dpviz.cli.command import Command, Result, number, table, whole
from dpviz.privacy.accountants import (
    ACCOUNTANTS,
    ADJACENCIES,
    SAMPLINGS,
    adjacency_of,
    epsilon,
    epsilon_path,
    price_tags,
)
from dpviz.privacy.calibrate import calibrate, matching_constant, most_epochs
from dpviz.privacy.records import Epsilon, Ledger, Phase, epoch_phases, steps_per_epoch
from dpviz.privacy.schedules import CUSTOM, SCHEDULES, Schedule, check_epochs, read_csv
from dpviz.privacy.tables import InputError

KNOBS = {name: knob for entry in SCHEDULES.values() for name, knob in entry.knobs.items()}


def add_ledger_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags that describe a schedule and how batches are drawn; every accounting command shares them."""
    curve = parser.add_argument_group("schedule")
    curve.add_argument("--schedule", metavar="NAME", help=f"one of {', '.join(SCHEDULES)} (default: constant)")
    for name, knob in KNOBS.items():
        curve.add_argument(f"--{name}", type=number, metavar="X", help=knob.help)
    curve.add_argument("--sigmas", metavar="5,4,3", help="your own noise multipliers, one an epoch")
    curve.add_argument("--csv", metavar="FILE", help="a CSV file with one sigma an epoch")
    curve.add_argument("--epochs", type=whole, metavar="N", help="number of epochs (default: 20)")
    data = parser.add_argument_group("data and privacy")
    data.add_argument("--dataset-size", type=whole, default=60_000, metavar="N", help="examples (default: 60000)")
    data.add_argument("--batch-size", type=whole, default=600, metavar="N", help="expected batch (default: 600)")
    data.add_argument("--delta", type=number, default=1e-5, help="default: 1e-5")
    data.add_argument(
        "--adjacency", metavar="NAME", help=f"{', '.join(ADJACENCIES)} (default: what the sampling's price is about)"
    )
    data.add_argument("--sampling", default="poisson", metavar="NAME", help=", ".join(SAMPLINGS))


def schedule_of(args: argparse.Namespace) -> Schedule:
    """The schedule that the flags describe; more than one description is an error."""
    knobs = {name: getattr(args, name) for name in KNOBS if getattr(args, name) is not None}
    given = [flag for flag in ("schedule", "sigmas", "csv") if getattr(args, flag) is not None]
    if len(given) > 1:
        raise InputError(
            f"give one of --schedule, --sigmas and --csv, got {' and '.join('--' + flag for flag in given)}"
        )
    if args.sigmas is not None or args.csv is not None:
        if knobs:
            raise InputError(f"--{next(iter(knobs))} belongs to a named schedule; leave it out with your own sigmas")
        return (
            Schedule.custom(args.sigmas.split(",") if args.sigmas.strip() else [])
            if args.sigmas is not None
            else read_csv(args.csv)
        )
    if args.schedule == CUSTOM:
        raise InputError("a custom schedule needs its numbers: give --sigmas 5,4,3 or --csv FILE")
    return Schedule.of(args.schedule or "constant", **knobs)


def epochs_of(args: argparse.Namespace, schedule: Schedule) -> int:
    """The number of epochs: as asked, or as many as a custom schedule has."""
    if args.epochs is not None:
        return check_epochs(args.epochs)
    return len(schedule.values) if schedule.name == CUSTOM else 20


def sample_rate_of(args: argparse.Namespace) -> float:
    for flag in ("dataset_size", "batch_size"):
        if not getattr(args, flag) >= 1:
            raise InputError(f"--{flag.replace('_', '-')} must be a whole number >= 1, got {getattr(args, flag)}")
    if args.batch_size > args.dataset_size:
        raise InputError(
            f"--batch-size must be at most the dataset's {args.dataset_size:,} examples, got {args.batch_size:,}"
        )
    return float(args.batch_size / args.dataset_size)


def _schedules(args: argparse.Namespace) -> Result:
    entries = [
        {
            "name": entry.name,
            "help": entry.help,
            "knobs": {
                n: {"default": k.default, "low": k.low, "high": k.high, "help": k.help} for n, k in entry.knobs.items()
            },
        }
        for entry in SCHEDULES.values()
    ]
    rows = [
        (entry.name, ", ".join(f"{n}={k.default:g}" for n, k in entry.knobs.items()) or "a list", entry.help)
        for entry in SCHEDULES.values()
    ]
    return {"schedules": entries}, table(("schedule", "knobs and defaults", "what it is"), rows)


def _band(found: Epsilon) -> dict[str, Any]:
    return {"lower": found.lower, "upper": found.upper, "fallback": found.fallback}


def _options(args: argparse.Namespace) -> dict[str, str]:
    return {"adjacency": adjacency_of(args.sampling, args.adjacency), "sampling": args.sampling}


def _prices(phases: tuple[Phase, ...], args: argparse.Namespace) -> dict[str, Any]:
    options = _options(args)
    ledger = Ledger(phases)
    found = {name: epsilon(ledger, args.delta, accountant=name, **options) for name in ACCOUNTANTS}
    prices: dict[str, Any] = {
        "rdp": {"classic": found["rdp-classic"].upper, "improved": found["rdp"].upper},
        "pld": _band(found["pld"]),
    }
    if args.sampling != "poisson":
        claimed = epsilon(ledger, args.delta, adjacency=options["adjacency"])
        prices["not_a_guarantee"] = {"poisson": _band(claimed)}
    return prices


def _epsilon(args: argparse.Namespace) -> Result:
    schedule = schedule_of(args)
    sigmas = schedule.sigmas(epochs_of(args, schedule))
    phases = epoch_phases(sigmas, sample_rate_of(args))
    data = _prices(phases, args) | {
        "sigmas": sigmas.tolist(),
        "epochs": len(phases),
        "steps": sum(phase.steps for phase in phases),
        "sample_rate": phases[0].sample_rate,
        "delta": args.delta,
        **_options(args),
        "schedule": schedule.to_json(),
    }
    pld = data["pld"]
    rows: list[tuple[Any, ...]] = [
        ("PLD, certified", pld["upper"], f"true value in [{pld['lower']:.4f}, {pld['upper']:.4f}]"),
        ("RDP, improved", data["rdp"]["improved"], "upper bound"),
        ("RDP, classic", data["rdp"]["classic"], "upper bound"),
    ]
    if pld["fallback"]:
        rows[0] = ("PLD", pld["upper"], pld["fallback"])
    if "not_a_guarantee" in data:
        rows.append(("PLD as if Poisson", data["not_a_guarantee"]["poisson"]["upper"], "not a guarantee"))
    text = table(("accountant", "epsilon", ""), rows)
    neighbours = data["adjacency"]
    text += f"\n\ndelta {args.delta:g}; {neighbours}: {ADJACENCIES[neighbours].help};\n{SAMPLINGS[args.sampling].help};"
    text += f"\n{len(phases)} epochs of {phases[0].steps:,} steps, sample rate {phases[0].sample_rate:.6g}"
    if args.path:
        options = _options(args)
        path = epsilon_path(phases, args.delta, **options)
        shares = price_tags(phases, args.delta, **options)
        data["path"] = [_band(point) for point in path]
        data["shares"] = shares.tolist()
        lines = [
            (k + 1, sigma, point.lower, point.upper, f"{100 * share:.1f} %")
            for k, (sigma, point, share) in enumerate(zip(sigmas.tolist(), path, shares.tolist(), strict=True))
        ]
        text += "\n\n" + table(("epoch", "sigma", "lower", "upper", "share of the cost"), lines)
    return data, text


def _calibrate(args: argparse.Namespace) -> Result:
    schedule, rate = schedule_of(args), sample_rate_of(args)
    options = {"accountant": args.accountant, **_options(args)}
    if args.solve == "epochs":
        most, achieved = most_epochs(schedule, rate, _target(args), args.delta, **options)
        factor, sigmas = 1.0, tuple(schedule.sigmas(most).tolist())
    else:
        curve = schedule.sigmas(epochs_of(args, schedule)).tolist()
        found = (
            matching_constant(curve, rate, args.delta, **options)
            if args.solve == "match"
            else calibrate(curve, rate, _target(args), args.delta, **options)
        )
        factor, sigmas, achieved = found.factor, found.sigmas, found.epsilon
        if args.solve == "match":
            factor = 1.0
    data = {
        "solve": args.solve,
        "target_epsilon": args.target_epsilon,
        "epsilon": {"accountant": args.accountant, **_band(achieved)},
        "factor": factor,
        "epochs": len(sigmas),
        "sigmas": list(sigmas),
        "steps": len(sigmas) * steps_per_epoch(rate),
        "delta": args.delta,
        **_options(args),
    }
    rows = [
        ("achieved epsilon", f"{achieved.upper:.6g} ({args.accountant})"),
        ("target epsilon", "the schedule's own" if args.target_epsilon is None else f"{args.target_epsilon:g}"),
        ("factor", f"{factor:.6g}"),
        ("epochs", len(sigmas)),
        ("sigmas", ", ".join(f"{sigma:.6g}" for sigma in sigmas[:12]) + (" ..." if len(sigmas) > 12 else "")),
    ]
    return data, table(("", ""), rows).lstrip()


def _target(args: argparse.Namespace) -> float:
    if args.target_epsilon is None:
        raise InputError("say which epsilon to meet: --target-epsilon 1.0")
    return float(args.target_epsilon)


def _epsilon_arguments(parser: argparse.ArgumentParser) -> None:
    add_ledger_arguments(parser)
    parser.add_argument("--path", action="store_true", help="also epsilon after each epoch and each epoch's share")


def _calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target-epsilon", type=number, metavar="X", help="the budget to meet, never to exceed")
    parser.add_argument("--accountant", default="pld", metavar="NAME", help=f"{', '.join(ACCOUNTANTS)} (default: pld)")
    parser.add_argument(
        "--solve",
        choices=("scale", "epochs", "match"),
        default="scale",
        help="scale the curve (default), find the most epochs, or the constant that costs what the curve costs",
    )
    add_ledger_arguments(parser)


COMMANDS = (
    Command("schedules", "list the noise schedules and their knobs", lambda parser: None, _schedules),
    Command(
        "epsilon", "price a schedule: RDP (both conversions) and the certified PLD band", _epsilon_arguments, _epsilon
    ),
    Command("calibrate", "fit a schedule to a budget", _calibrate_arguments, _calibrate),
)
