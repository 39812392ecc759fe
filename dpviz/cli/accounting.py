"""schedules, epsilon, calibrate: what a noise schedule is and what it costs."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from dpviz.cli.command import Command, Result, epsilon_text, number, table
from dpviz.cli.ledger_flags import add_ledger_arguments, plan_of
from dpviz.privacy.accountants import ACCOUNTANTS, Renyi
from dpviz.privacy.assumptions import ADJACENCIES, SAMPLINGS
from dpviz.privacy.calibrate import MEASURES, TOLERANCE, Target, calibrate, matching_constant, most_epochs
from dpviz.privacy.prices import delta, epsilon, epsilon_path, price_tags
from dpviz.privacy.records import Epsilon
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import delta_number, epsilon_number
from dpviz.privacy.schedules import SCHEDULES
from dpviz.views.numbers import epsilon_kind


def _finite(limit: float) -> float | None:
    return limit if math.isfinite(limit) else None


def _schedules(args: argparse.Namespace) -> Result:
    entries = [
        {
            "name": entry.name,
            "help": entry.help,
            "knobs": {
                n: {"default": k.default, "low": _finite(k.low), "high": _finite(k.high), "help": k.help}
                for n, k in entry.knobs.items()
            },
        }
        for entry in SCHEDULES.values()
    ]
    rows = [
        (entry.name, ", ".join(f"{n}={k.default:g}" for n, k in entry.knobs.items()) or "a list", entry.help)
        for entry in SCHEDULES.values()
    ]
    return {"schedules": entries}, table(("schedule", "knobs and defaults", "what it is"), rows)


def _band(price: Epsilon) -> dict[str, Any]:
    return {"lower": price.lower, "upper": price.upper, "wide": price.wide, "fallback": price.fallback}


def _interval(price: Epsilon) -> str:
    """Rounded outwards, so that it holds."""
    lower = "infinity" if price.lower == math.inf else epsilon_number(price.lower, digits=4, up=False)
    return f"[{lower}, {epsilon_text(price.upper)}]"


def _remark(price: Epsilon) -> str:
    """Why it is no certified band, if it is none, and where the true value lies."""
    return f"{price.fallback}; " * bool(price.fallback) + f"true value in {_interval(price)}"


def _figures(prices: Mapping[str, Epsilon]) -> dict[str, Any]:
    """Bounds from moments by their conversion, every other accountant's band by its name."""
    moments = {entry.conversion: prices[name].upper for name, entry in ACCOUNTANTS.items() if isinstance(entry, Renyi)}
    bands = {name: _band(prices[name]) for name, entry in ACCOUNTANTS.items() if not isinstance(entry, Renyi)}
    return {"rdp": moments, **bands}


def _row(name: str, cost: Epsilon) -> tuple[str, str, str]:
    if not ACCOUNTANTS[name].certified:
        return ACCOUNTANTS[name].title, epsilon_text(cost.upper), "upper bound"
    title = name.upper() if cost.fallback else f"{name.upper()}, {epsilon_kind(cost)}"
    return title, epsilon_text(cost.upper), _remark(cost)


def _epsilon(args: argparse.Namespace) -> Result:
    plan = plan_of(args)
    assumptions = plan.assumptions
    sigmas = plan.schedule.sigmas(plan.epochs).tolist()
    phases = plan.phases(sigmas)
    prices = {name: epsilon(phases, args.delta, replace(assumptions, accountant=name)) for name in ACCOUNTANTS}
    data: dict[str, Any] = {
        **_figures(prices),
        "sigmas": sigmas,
        "delta": args.delta,
        "schedule": plan.schedule.to_json(),
        **plan.facts(plan.epochs),
    }
    rows = [_row(name, cost) for name, cost in prices.items()]
    if not SAMPLINGS[assumptions.sampling].amplified:
        claimed = epsilon(phases, args.delta, replace(assumptions, sampling="poisson"))
        data["not_a_guarantee"] = {"poisson": _band(claimed)}
        rows.append(("PLD as if Poisson", epsilon_text(claimed.upper), "not a guarantee"))
    parts = [
        table(("accountant", "epsilon", ""), rows),
        f"delta {args.delta:g}; {assumptions.adjacency}: {ADJACENCIES[assumptions.adjacency].help};\n"
        f"{SAMPLINGS[assumptions.sampling].help};\n{plan.words(plan.epochs)}",
    ]
    if args.at_epsilon is not None:
        at = delta(phases, args.at_epsilon, assumptions)
        data["delta_at"] = {"epsilon": at.epsilon, "lower": at.lower, "upper": at.upper, "fallback": at.fallback}
        ends = f"true value in [{delta_number(at.lower, up=False)}, {delta_number(at.upper)}]"
        parts.append(
            f"at epsilon {args.at_epsilon:g}: delta {delta_number(at.upper)}, {at.fallback or 'certified'}, {ends}"
        )
    if args.path:
        path = epsilon_path(phases, args.delta, assumptions)
        shares = price_tags(phases, args.delta, assumptions).tolist()
        data |= {"path": [_band(point) for point in path], "shares": shares}
        lines = [
            (epoch, sigma, _interval(point), f"{100 * share:.1f} %")
            for epoch, (sigma, point, share) in enumerate(zip(sigmas, path, shares, strict=True), start=1)
        ]
        parts.append(table(("epoch", "sigma", "epsilon so far", "share of the cost"), lines))
    return data, "\n\n".join(parts)


def _calibrate(args: argparse.Namespace) -> Result:
    plan, target = plan_of(args), _target(args)
    tolerance = TOLERANCE if args.tolerance is None else args.tolerance
    options: dict[str, Any] = {"assumptions": plan.assumptions, "steps": plan.chosen_steps}
    factor = 1.0
    if args.solve == "epochs" and target:
        most, achieved = most_epochs(plan.schedule, plan.sample_rate, target.value, args.delta, **options)
        reached = achieved.upper
        sigmas = tuple(plan.schedule.sigmas(most).tolist())
    else:
        curve = plan.schedule.sigmas(plan.epochs).tolist()
        options["tolerance"] = tolerance
        if target is None:
            calibration = matching_constant(curve, plan.sample_rate, args.delta, **options)
        else:
            calibration = calibrate(curve, plan.sample_rate, target, args.delta, **options)
            factor = calibration.factor
        sigmas, achieved, reached = calibration.sigmas, calibration.epsilon, calibration.achieved
    data = {
        "solve": args.solve,
        "target_epsilon": args.target_epsilon,
        "target": asdict(target) if target else None,
        "achieved": reached,
        "tolerance": None if args.solve == "epochs" else tolerance,
        "epsilon": {"accountant": args.accountant, **_band(achieved)},
        "factor": factor,
        "sigmas": list(sigmas),
        "delta": args.delta,
        **plan.facts(len(sigmas)),
    }
    rows = [
        ("achieved epsilon", epsilon_number(achieved.upper, digits=6)),
        *([(f"achieved {target.measure}", f"{reached:.6g}")] if target and target.measure != "epsilon" else []),
        ("accountant", f"{args.accountant}, {achieved.fallback or epsilon_kind(achieved)}"),
        ("target", f"{target.measure} {target.value:g}" if target else "the schedule's own epsilon"),
        ("factor", f"{factor:.6g}"),
        ("sigmas", ", ".join(f"{sigma:.6g}" for sigma in sigmas[:12]) + (" ..." if len(sigmas) > 12 else "")),
        ("training", plan.words(len(sigmas))),
        ("neighbours", f"{plan.assumptions.adjacency}: {ADJACENCIES[plan.assumptions.adjacency].help}"),
    ]
    return data, table(("", ""), rows).lstrip()


def _target(args: argparse.Namespace) -> Target | None:
    """The budget to meet, None for the schedule's own epsilon; what is solved for is not given."""
    given = {name: value for name in MEASURES if (value := getattr(args, f"target_{name}")) is not None}
    flags = " and ".join(f"--target-{name}" for name in given)
    if args.solve == "epochs" and not (args.epochs is args.steps is args.tolerance is None):
        raise InputError("--solve epochs finds a whole number of epochs; leave --epochs, --steps and --tolerance out")
    if args.fpr is not None and "tpr" not in given:
        raise InputError("--fpr goes with --target-tpr only")
    if args.solve == "match":
        if given:
            raise InputError(f"--solve match meets the schedule's own epsilon; leave {flags} out")
        return None
    if len(given) > 1:
        raise InputError(f"give one target, got {flags}")
    if not given or (args.solve == "epochs" and "epsilon" not in given):
        raise InputError("say which epsilon to meet: --target-epsilon 1.0")
    ((measure, value),) = given.items()
    return Target(value, measure) if args.fpr is None else Target(value, measure, args.fpr)


def _epsilon_arguments(parser: argparse.ArgumentParser) -> None:
    add_ledger_arguments(parser)
    parser.add_argument("--at-epsilon", type=number, metavar="X", help="also the delta that belongs to this epsilon")
    parser.add_argument("--path", action="store_true", help="also epsilon after each epoch and each epoch's share")


def _calibrate_arguments(parser: argparse.ArgumentParser) -> None:
    for name, measure in MEASURES.items():
        parser.add_argument(f"--target-{name}", type=number, metavar="X", help=f"never to exceed: {measure.help}")
    parser.add_argument("--fpr", type=number, metavar="X", help="the rate of --target-tpr (default: 0.001)")
    parser.add_argument(
        "--tolerance",
        type=number,
        metavar="X",
        help=f"share of the target by which it may be missed (default: {TOLERANCE:g})",
    )
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
