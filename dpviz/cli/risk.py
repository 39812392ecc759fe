"""risk: what the best attack can find out about one person."""

from __future__ import annotations

import argparse

import numpy as np

from dpviz.cli.command import Command, Result, number, table
from dpviz.cli.ledger_flags import add_ledger_arguments, plan_of
from dpviz.privacy.assumptions import ADJACENCIES, SAMPLINGS
from dpviz.privacy.prices import epsilon
from dpviz.privacy.registry import InputError
from dpviz.privacy.risk import FPRS, risk
from dpviz.privacy.rounding import delta_number, epsilon_number, percent_text
from dpviz.views.numbers import risk_sentence

RATES = ",".join(f"{fpr:g}" for fpr in FPRS)
PROFILE_POINTS = 11
LARGEST_PROFILE = 700.0  # a larger epsilon means nothing


def _risk(args: argparse.Namespace) -> Result:
    plan = plan_of(args)
    phases = plan.phases(plan.schedule.sigmas(plan.epochs).tolist())
    top = min(epsilon(phases, args.delta, plan.assumptions).upper, LARGEST_PROFILE)
    found = risk(phases, plan.assumptions)
    rates = [(fpr, found.tpr(fpr)) for fpr in _rates(args.fpr)]
    success, gdp = found.success(args.prior), found.gdp
    profile = [(float(at), found.delta(float(at))) for at in np.linspace(0.0, top, PROFILE_POINTS)]
    data = found.to_json([fpr for fpr, _ in rates], args.prior) | {
        "profile": [{"epsilon": at, "delta_lower": low, "delta_upper": high} for at, (low, high) in profile],
    }
    rows = [
        *((f"members found at {100 * fpr:g} % false alarms", percent_text(*bounds)) for fpr, bounds in rates),
        ("advantage (most TPR - FPR)", percent_text(*found.advantage)),
        (f"right guesses with prior {args.prior:g}", percent_text(*success)),
        ("mu of Gaussian DP", f"{epsilon_number(gdp.mu, digits=4)}, off by {gdp.regret:.2g}"),
    ]
    deltas = [(epsilon_number(at), delta_number(low, up=False), delta_number(high)) for at, (low, high) in profile]
    assumptions = plan.assumptions
    parts = [
        risk_sentence(found, rates[0][0]),
        table(("", found.kind), rows),
        table(("epsilon", "delta at least", "at most"), deltas),
        f"{assumptions.adjacency}: {ADJACENCIES[assumptions.adjacency].help};\n"
        f"{SAMPLINGS[assumptions.sampling].help};\n{plan.words(plan.epochs)}",
    ]
    return data, "\n\n".join(parts)


def _rates(text: str) -> list[float]:
    try:
        return [float(rate) for rate in text.split(",")]
    except ValueError:
        raise InputError(f"--fpr must be numbers with commas between them, such as {RATES}, got {text!r}") from None


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_ledger_arguments(parser)
    parser.add_argument("--fpr", default=RATES, metavar="X,Y", help=f"false-positive rates (default: {RATES})")
    parser.add_argument(
        "--prior", type=number, default=0.5, metavar="P", help="how likely membership is beforehand (default: 0.5)"
    )


COMMANDS = (Command("risk", "what the best attack can find out about one person", _arguments, _risk),)
