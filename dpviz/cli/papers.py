"""reproduce, papers: full-length runs of the papers' experiments, and what they report beside what we measured."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import time
from collections.abc import Iterator
from typing import Any

from dpviz.cli.command import Command, Result, epsilon_text, table, whole
from dpviz.cli.local import missing as missing_locally
from dpviz.cli.local import reproduce as reproduce_locally
from dpviz.cli.training import checked_options, foreground, machine_arguments
from dpviz.papers import LOCAL_RECIPES, PAPERS, REPORTED, LocalRecipe, Reported, local_recipes_of
from dpviz.papers.claims import CLAIMS
from dpviz.papers.records import HEADLINES, Claim, Finding
from dpviz.privacy.rounding import epsilon_number
from dpviz.runs.experiments import Experiment, Measured, experiments, findings, measured
from dpviz.runs.local_results import local_results
from dpviz.runs.reproduce import Outcome, PaperRun, Reproduction, paper_runs
from dpviz.runs.settings import parse_seeds
from dpviz.runs.store.cached import cached_runs
from dpviz.runs.store.store import Store

UNITS = {"h": 3600, "m": 60, "s": 1}


# --- reproduce ----------------------------------------------------------------------------------------------------


def _reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("which", nargs="?", metavar="PAPER[/EXPERIMENT]", help="everything, if left out")
    parser.add_argument("--seeds", help="one run per seed, for example 0,1,2 (the default)")
    parser.add_argument("--time-budget", type=duration, help="stop after so long, for example 2h or 1h30m")
    parser.add_argument(
        "--until-epoch", type=whole, metavar="N", help="stop each run after its epoch N; it is kept, and marked as such"
    )
    parser.add_argument("--list", action="store_true", help="show what is cached, begun and missing; train nothing")
    machine_arguments(parser)


def duration(text: str) -> float:
    """2h, 90m, 1h30m or 45s in seconds."""
    if not re.fullmatch(r"(\d+h)?(\d+m)?(\d+s)?", text) or not text:
        raise argparse.ArgumentTypeError(f"must be a time such as 2h, 1h30m or 45s, got {text!r}")
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


def _reproduce(args: argparse.Namespace) -> Result:
    local = _local_recipes(args.which)
    alone = args.which is not None and bool(local)
    wanted = () if alone else paper_runs(args.which, parse_seeds(args.seeds) if args.seeds is not None else None)
    started, reproduction = time.monotonic(), Reproduction(Store())
    for warning in reproduction.warnings:
        print(f"dpviz: {warning}", file=sys.stderr)
    if args.list:
        return _listed(reproduction, wanted, local)
    outcomes = []
    missing = reproduction.missing(wanted, args.until_epoch)
    with foreground(reproduction.store, len(missing)) as runner:
        options = checked_options(args, runner, args.until_epoch)
        for outcome in reproduction.run(missing, runner, options=options, seconds=args.time_budget, on_start=_announce):
            outcomes.append(outcome)
            print(_sentence(outcome), file=sys.stderr, flush=True)
    stopped = any(outcome.state == "stopped" for outcome in outcomes)
    made_locally = [] if stopped else list(_reproduce_locally(local, args, started))
    left = len(reproduction.missing(wanted, args.until_epoch)) + len(missing_locally(local))
    args.exit_code = int(any(outcome.state == "failed" for outcome in outcomes))
    every = len(wanted) + len(local)
    lines = [*map(_sentence, outcomes), *(f"{name}: cached" for name in made_locally)]
    lines.append(f"{every - left} of {every} runs are cached; {left} are missing")
    runs = [_outcome_json(outcome) for outcome in outcomes]
    runs += [{"experiment": name, "seed": None, "state": "cached", "error": ""} for name in made_locally]
    return {"runs": runs, "missing": left}, "\n".join(lines)


def _local_recipes(which: str | None) -> tuple[LocalRecipe, ...]:
    """The experiments under local privacy among those asked for; their repeats take the place of seeds."""
    paper, _, experiment = (which or "").partition("/")
    if which is not None and not (paper in PAPERS and local_recipes_of(paper)):
        return ()
    return (LOCAL_RECIPES[which],) if which and experiment else tuple(LOCAL_RECIPES.values())


def _reproduce_locally(recipes: tuple[LocalRecipe, ...], args: argparse.Namespace, started: float) -> Iterator[str]:
    """Names of the experiments that were made, until the time is up."""
    making = reproduce_locally(recipes, args.data_dir)
    while args.time_budget is None or time.monotonic() - started < args.time_budget:
        made = next(making, None)
        if made is None:
            return
        for recipe in made:
            print(f"{recipe.name}: cached", file=sys.stderr, flush=True)
            yield recipe.name


def _listed(reproduction: Reproduction, wanted: tuple[PaperRun, ...], local: tuple[LocalRecipe, ...]) -> Result:
    rows: list[tuple[str, int | None, str]]
    rows = [(run.recipe, run.seed, reproduction.state(run)) for run in wanted]
    absent = missing_locally(local)
    rows += [(recipe.name, None, "missing" if recipe in absent else "cached") for recipe in local]
    data = [{"experiment": recipe, "seed": seed, "state": state} for recipe, seed, state in rows]
    return {"runs": data, "warnings": reproduction.warnings}, table(("experiment", "seed", "state"), rows)


def _announce(run: PaperRun) -> None:
    print(f"{run}: {run.spec.epochs} epochs", file=sys.stderr, flush=True)


def _sentence(outcome: Outcome) -> str:
    text = f"{outcome.wanted}: {outcome.state}"
    if outcome.error:
        return f"{text}: {outcome.error}"
    last = outcome.run.epochs[-1] if outcome.run and outcome.run.epochs else None
    return f"{text}, test accuracy {last.test_accuracy:.2%} after epoch {last.epoch}" if last else text


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    last = outcome.run.epochs[-1] if outcome.run and outcome.run.epochs else None
    return {
        "experiment": outcome.wanted.recipe,
        "seed": outcome.wanted.seed,
        "state": outcome.state,
        "error": outcome.error,
        "test_accuracy": last.test_accuracy if last else None,
    }


# --- papers -------------------------------------------------------------------------------------------------------


def _papers_arguments(parser: argparse.ArgumentParser) -> None:
    names = f"{', '.join(PAPERS)}; all, if left out"
    parser.add_argument("which", nargs="?", metavar="PAPER", choices=tuple(PAPERS), help=names)


def _papers(args: argparse.Namespace) -> Result:
    listing, (local, unread) = cached_runs(), local_results()
    results, odd = measured(listing.runs, local)
    rows = experiments(results, args.which)
    checked = findings((claim for claim in CLAIMS.values() if args.which in (None, claim.paper)), results)
    warnings = (*listing.warnings, *unread, *odd)
    heads = ("experiment", "reported", "at", "place", "ours", "seeds", "difference", "claimed", "sound", "audited")
    verdicts = [(claim.paper, claim.text, finding.verdict) for claim, finding in checked]
    parts = [
        table(heads, map(_row, rows)),
        "epsilon: at is the printed one, claimed prices what the paper counts, sound holds at most, audited is what "
        "our runs show at least; claimed and sound are of the whole run",
        table(("paper", "claim", "verdict"), verdicts),
        *(f"warning: {warning}" for warning in warnings),
    ]
    data = {
        "experiments": [_experiment_json(row) for row in rows],
        "claims": [_claim_json(claim, finding) for claim, finding in checked],
        "reported": [dataclasses.asdict(number) for number in REPORTED if _shown(number, args.which)],
        "warnings": warnings,
    }
    return data, "\n\n".join(parts)


def _shown(number: Reported, paper: str | None) -> bool:
    return paper in (None, number.paper) and number.quantity in HEADLINES


def _row(row: Experiment) -> tuple[Any, ...]:
    ours, reported = row.measured, row.reported
    spread = f" +- {100 * ours.std:.2f}" if ours and ours.std is not None else ""
    return (
        row.name,
        f"{100 * reported.value:.2f} %{'' if reported.quantity == 'test_accuracy' else ' error'}" if reported else None,
        epsilon_text(reported.epsilon) if reported and reported.epsilon is not None else None,
        reported.place if reported else None,
        f"{100 * ours.mean:.2f}{spread} %{_shortened(ours)}" if ours else None,
        len(ours.values) if ours else None,
        f"{row.difference:+.2f}" if row.difference is not None else None,
        *(None if epsilon is None else epsilon_text(epsilon) for epsilon in (row.claimed, row.sound)),
        f">= {epsilon_number(ours.audited, up=False)}" if ours and ours.audited is not None else None,
    )


def _shortened(ours: Measured) -> str:
    return f" ({ours.epochs} of {ours.planned_epochs} epochs)" if ours.shortened else ""


def _experiment_json(row: Experiment) -> dict[str, Any]:
    """Accuracies (and prestige's errors) are fractions; null: not reported, not measured, no guarantee, no audit."""
    ours, reported = row.measured, row.reported
    theirs = reported and {name: getattr(reported, name) for name in ("value", "epsilon", "place", "quantity")}
    measured_json = ours and {
        "mean": ours.mean,
        "std": ours.std,
        "seeds": len(ours.values),
        "epochs": ours.epochs,
        "shortened": ours.shortened,
    }
    return {
        "paper": row.paper,
        "name": row.name,
        "reported": theirs,
        "ours": measured_json,
        "epsilon": {"claimed": row.claimed, "sound": row.sound, "audited": ours.audited if ours else None},
    }


def _claim_json(claim: Claim, finding: Finding) -> dict[str, Any]:
    return {
        "paper": claim.paper,
        "name": claim.name,
        "claim": claim.text,
        "place": claim.place,
        "verdict": finding.verdict,
        "text": finding.text,
        "figures": dict(finding.figures),
        "pairs": [dataclasses.asdict(pair) for pair in finding.pairs],
    }


COMMANDS = (
    Command("papers", "what the papers report beside what was measured, and what holds", _papers_arguments, _papers),
    Command("reproduce", "run the papers' experiments that are not cached yet", _reproduce_arguments, _reproduce),
)
