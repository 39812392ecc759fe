"""suggest: the best noise schedule at a budget under a forecast, and a check of it against constant noise."""

from __future__ import annotations

import argparse
import dataclasses

from dpviz.cli.command import Command, Result, epsilon_text, number
from dpviz.cli.training import checked_options, foreground, machine_arguments, spec_arguments, specs_of
from dpviz.forecast.library import shelf
from dpviz.forecast.suggest import Plan, Suggestion, suggest
from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import Schedule
from dpviz.runs.differences import Difference, paired_difference
from dpviz.runs.execution.runner import with_seeds
from dpviz.runs.store.store import Store
from dpviz.training.progress_bar import Bar
from dpviz.training.spec import RunSpec

CHECK_SEEDS = (2000, 2001, 2002)  # of no fit


def _arguments(parser: argparse.ArgumentParser) -> None:
    spec_arguments(parser)
    parser.add_argument("--target-epsilon", type=number, required=True, help="the budget")
    parser.add_argument(
        "--check", action="store_true", help="then train it and constant noise of equal epsilon, three seeds each"
    )
    machine_arguments(parser)


def _suggest(args: argparse.Namespace) -> Result:
    if args.recipe is None:
        raise InputError("a suggestion is about a recipe; give --recipe, for example curricula/constant-1.54")
    (spec,), store, bar = specs_of(args), Store(), Bar()
    response = shelf(store).of(spec)
    suggestion = suggest(
        response,
        args.target_epsilon,
        spec.sample_rate,
        spec.delta,
        on_progress=lambda share: bar.draw("searching", share, f"{share:.0%}"),
    )
    bar.clear()
    data, text = suggestion.to_json(), _text(suggestion)
    if args.check:
        difference = _checked(args, spec, store, suggestion)
        data["check"] = {**dataclasses.asdict(difference), "words": difference.words}
        text += f"\nChecked over {len(CHECK_SEEDS)} seeds: {difference.words}."
    return data, text


def _text(suggestion: Suggestion) -> str:
    best = suggestion.best
    lines = [
        ",".join(f"{sigma:g}" for sigma in best.sigmas),
        f"{len(best.sigmas)} epochs, epsilon {epsilon_text(best.epsilon)}, accuracy to expect {best.accuracy:.2%} "
        f"({best.lower:.2%} to {best.upper:.2%}), from {suggestion.rests_on} runs of {suggestion.recipe}.",
        suggestion.words,
    ]
    return "\n".join(lines)


def _checked(args: argparse.Namespace, spec: RunSpec, store: Store, suggestion: Suggestion) -> Difference:
    """Points by which the suggested schedule really leads the constant, over seeds that no fit has seen."""

    def runs(plan: Plan) -> tuple[RunSpec, ...]:
        schedule = Schedule.custom(plan.sigmas)
        return with_seeds(dataclasses.replace(spec, schedule=schedule, epochs=len(plan.sigmas)), CHECK_SEEDS)

    specs = [*runs(suggestion.best), *runs(suggestion.constant)]
    with foreground(store, len(specs)) as runner:
        ids = runner.start_all(specs, title="check of a suggestion", options=checked_options(args, runner))
        for run_id in ids:
            runner.wait(run_id)
    ended = [store.get(run_id) for run_id in ids]
    if unfinished := [run for run in ended if run.status != "done"]:
        run = unfinished[0]
        raise InputError(f"the check did not end: run {run.id} {run.status} {run.error}".rstrip())
    accuracies = [100 * run.epochs[-1].accuracy for run in ended]
    count = len(CHECK_SEEDS)
    ours, constant = (dict(zip(CHECK_SEEDS, part, strict=True)) for part in (accuracies[:count], accuracies[count:]))
    return paired_difference(ours, constant)


COMMANDS = (Command("suggest", "the best noise schedule at a budget, under a forecast", _arguments, _suggest),)
