"""suggest: the best noise schedule at a budget under a forecast, and a check of it against constant noise."""

from __future__ import annotations

import argparse
import dataclasses

from dpviz.cli.command import Command, Result, epsilon_text, number
from dpviz.cli.training import checked_options, foreground, machine_arguments, spec_arguments, specs_of
from dpviz.forecast.check import TITLE, Check, check_price, check_specs, difference_of
from dpviz.forecast.checked import publish_check
from dpviz.forecast.library import begin, shelf
from dpviz.forecast.suggest import Suggestion, suggest
from dpviz.runs.store.records import Run
from dpviz.runs.store.store import Store
from dpviz.training.progress_bar import Bar
from dpviz.training.spec import RunSpec


def _arguments(parser: argparse.ArgumentParser) -> None:
    spec_arguments(parser)
    parser.add_argument("--target-epsilon", type=number, required=True, help="the budget")
    parser.add_argument(
        "--check", action="store_true", help="then train it and constant noise of equal epsilon, three seeds each"
    )
    parser.add_argument("--publish", action="store_true", help="check: keep its runs among what comes with dpviz")
    machine_arguments(parser)


def _suggest(args: argparse.Namespace) -> Result:
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
        specs = check_specs(spec, suggestion)
        price = check_price(spec, specs, response, store)
        runs = _checked(args, specs, store)
        check = Check(suggestion.gain, suggestion.uncertainty, spec.dataset, tuple(run.id for run in runs), price)
        difference = difference_of(runs)
        if args.publish:
            publish_check(suggestion, response.settings, args.target_epsilon, runs)
        data["check"] = {**dataclasses.asdict(difference), "words": check.words(difference), "price": price}
        text += "\n" + " ".join(filter(None, (check.words(difference), price)))
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


def _checked(args: argparse.Namespace, specs: tuple[RunSpec, ...], store: Store) -> list[Run]:
    """The runs of a check; those that are finished already are not trained again."""
    ids = {run.key: run.id for run in store.list().runs if run.status == "done"}
    missing = [spec for spec in specs if spec.key not in ids]
    if missing:
        with foreground(store, len(missing)) as runner:
            begin(missing, store)
            started = runner.start_all(missing, title=TITLE, options=checked_options(args, runner))
            for run_id in started:
                runner.wait(run_id)
        ids |= dict(zip((spec.key for spec in missing), started, strict=True))
    return [store.get(ids[spec.key]) for spec in specs]


COMMANDS = (Command("suggest", "the best noise schedule at a budget, under a forecast", _arguments, _suggest),)
