"""forecast: the accuracy to expect of a noise schedule, from runs of the same recipe under other schedules."""

from __future__ import annotations

import argparse
import sys

from dpviz.cli.command import Command, Result, table, whole
from dpviz.cli.training import checked_options, foreground, machine_arguments, spec_arguments, specs_of
from dpviz.forecast.designs import held_out_pilots, pilots
from dpviz.forecast.evidence import begun_like, looked_at
from dpviz.forecast.library import keep, shelf
from dpviz.forecast.pilots import Lesson, Price, lessons, publish
from dpviz.forecast.report import report
from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import Schedule
from dpviz.runs.execution.runners import ray_address
from dpviz.runs.store.store import Store

RUNS = 24


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        default="show",
        choices=tuple(ACTIONS),
        help="show a forecast (the default), fit one, or table: how good they are",
    )
    spec_arguments(parser)
    parser.add_argument(
        "--sigmas", metavar="5,4,3", help="show: noise multipliers, one per epoch, for the recipe's own"
    )
    parser.add_argument("--runs", type=whole, default=RUNS, help=f"fit: pilot runs to learn from (default: {RUNS})")
    parser.add_argument(
        "--held-out", type=whole, default=0, help="fit: so many more runs of odd schedules, which no fit sees"
    )
    parser.add_argument(
        "--held-out-seeds", type=whole, default=1, help="fit: seeds of each of those, against which a forecast is held"
    )
    parser.add_argument("--from-cached", action="store_true", help="fit: from the runs that are there; train nothing")
    parser.add_argument("--publish", action="store_true", help="fit: keep it and its runs among what comes with dpviz")
    parser.add_argument("--ray", metavar="ADDRESS", help="fit: run on this Ray cluster (or DPVIZ_RAY)")
    machine_arguments(parser)


def _forecast(args: argparse.Namespace) -> Result:
    return ACTIONS[args.action](args)


def _show(args: argparse.Namespace) -> Result:
    spec = specs_of(args)[0]
    drawn = Schedule.custom(args.sigmas.split(",")).values if args.sigmas is not None else None
    forecast = shelf(Store()).of(spec).forecast(drawn or spec.schedule.sigmas(spec.epochs))
    rows = zip(forecast.accuracy, forecast.lower, forecast.upper, strict=True)
    cells = [(epoch, *(f"{value:.2%}" for value in row)) for epoch, row in enumerate(rows, start=1)]
    words = f"Rests on {forecast.rests_on} runs of {forecast.recipe}; nine of ten runs should end in the band."
    if not forecast.in_domain:
        words += f"\nOutside of what was measured, so the band is a guess: {forecast.why_not}."
    return forecast.to_json(), f"{table(('epoch', 'accuracy', 'lower', 'upper'), cells)}\n\n{words}"


def _fit(args: argparse.Namespace) -> Result:
    (spec,), store = specs_of(args), Store()
    away = held_out_pilots(spec, args.held_out, args.held_out_seeds) if args.held_out else ()
    wanted = (*pilots(spec, args.runs), *away)
    if args.from_cached:
        (lesson,) = lessons(spec, wanted, store)
    else:
        with foreground(store, len(wanted), ray_address(args.ray)) as runner:
            for lesson in lessons(spec, wanted, store, runner, options=checked_options(args, runner)):
                print(_sentence(lesson), file=sys.stderr, flush=True)
                if lesson.response and not args.publish:
                    keep(lesson.response, store)
        args.exit_code = 0 if lesson.done == lesson.wanted else 130
    if lesson.response is None:
        raise InputError(f"{_sentence(lesson)}; dpviz forecast fit without --from-cached makes more")
    if args.publish:
        publish(lesson)
    else:
        keep(lesson.response, store)
    response, price = lesson.response, Price.of(spec, looked_at(spec, (*lesson.runs, *begun_like(spec, store)), store))
    data = {
        "recipe": response.recipe,
        "rests_on": len(response.runs),
        "schedules": response.schedules,
        "held_out_error": response.held_out_error,
        "epochs": response.epochs,
        "sigmas": [response.least_sigma, response.most_sigma],
        "price": price.to_json(),
    }
    domain = f"sigma {response.least_sigma:g} to {response.most_sigma:g}, up to {response.epochs} epochs"
    return data, f"{_sentence(lesson)}\nDomain: {domain}, batch size {response.batch_size}.\n{price.words}"


def _sentence(lesson: Lesson) -> str:
    made = f"{lesson.done} of {lesson.wanted} pilot runs"
    if lesson.response is None:
        return f"{made}: too few schedules for a forecast"
    error, runs = 100 * lesson.response.held_out_error, len(lesson.response.runs)
    return f"{made}, {runs} runs in all: off by {error:.2f} points on average at the end of schedules left out"


def _table(args: argparse.Namespace) -> Result:
    store = Store()
    text = report(shelf(store), store)
    return {"document": text}, text.rstrip()


ACTIONS = {"show": _show, "fit": _fit, "table": _table}

COMMANDS = (
    Command("forecast", "the accuracy to expect of a noise schedule, before it is trained", _arguments, _forecast),
)
