"""local: PRESTIGE, DJW and SGD under local privacy, test error against budget."""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpviz.cli.command import Command, Result, number, table, whole
from dpviz.cli.progress import Bar
from dpviz.papers import LOCAL_RECIPES, LocalRecipe
from dpviz.paths import cached_runs_folder
from dpviz.privacy.registry import InputError
from dpviz.runs.local_results import PAPER, local_results, rows_of
from dpviz.training.local.spec import RANGES, LocalSpec

if TYPE_CHECKING:
    from dpviz.training.local.experiments import Difference, Trial
    from dpviz.training.local.tabular import Tabular

PRINTED = ("prestige", "djw", "sgd")
FOLDS = 5  # of what is cached
SETTINGS = ("batch_size", "epochs", "share", "threshold", "mu", "regularization", "radius", "length", "intercept")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data",
        default="breast-cancer",
        help="mnist38, breast-cancer, a7a, diabetes130, or the path of a CSV or LIBSVM file",
    )
    parser.add_argument("--label", help="name of a CSV file's label column; otherwise label, class, target or y")
    parser.add_argument("--data-dir", type=Path, help="folder with datasets (or set DPVIZ_DATA)")
    parser.add_argument("--methods", default=",".join(PRINTED), help="of prestige, djw, masked, sgd")
    parser.add_argument("--budgets", default="0.8,1.0,1.2,1.4,1.6", help="epsilons of one visit")
    parser.add_argument("--repeats", type=whole, default=20, help="runs of each, with other orders and draws")
    parser.add_argument("--seed", type=whole, default=0)
    parser.add_argument("--loss", default="hinge", help="hinge, logistic, gompertz or ramp")
    parser.add_argument("--loss-knob", type=number, help="c of gompertz (2), s of ramp (-1)")
    parser.add_argument(
        "--gradient-label", default="answered", help="answered (as in the paper) or true: which label gradients use"
    )
    whole_numbers = ("batch_size", "epochs")
    for name in SETTINGS:
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, dest=name, type=whole if name in whole_numbers else number, help=RANGES[name].help)
    parser.add_argument("--cross-validate", action="store_true", help="choose lambda, for each row its own")
    parser.add_argument("--folds", type=whole, default=10, help="of the cross-validation")
    parser.add_argument("--out", type=Path, help="also write the rows, the settings and their provenance to this file")


def _run(args: argparse.Namespace) -> Result:
    from dpviz.training.local.experiments import choose_lambda, differences, run_trials, specs_for
    from dpviz.training.local.tabular import load_tabular

    started = time.monotonic()
    budgets = _numbers(args.budgets)
    data = load_tabular(args.data, args.data_dir, args.label)
    specs: Sequence[LocalSpec] = specs_for(_base(args), _names(args.methods), budgets)
    if args.cross_validate:
        specs = choose_lambda(data, specs, folds=args.folds, seed=args.seed, progress=_bar("cross-validation"))
    trials = run_trials(data, specs, repeats=args.repeats, seed=args.seed, progress=_bar("training"))
    pairs = [pair for first in ("prestige", "masked") for pair in differences(trials, first, "djw")]
    result: dict[str, object]
    result = {"rows": [trial.to_json() for trial in trials], "differences": [pair.to_json() for pair in pairs]}
    result |= {"data": data.name, "people": data.people, "notes": data.notes}
    if args.out is not None:
        _write(args, result, specs[0], (time.monotonic() - started) / 60)
    return result, _text(data, trials, pairs)


def _base(args: argparse.Namespace) -> LocalSpec:
    given = {name: getattr(args, name) for name in SETTINGS if getattr(args, name) is not None}
    names = {"loss": args.loss, "loss_knob": args.loss_knob, "gradient_label": args.gradient_label}
    return LocalSpec(**given | names)


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"budgets are numbers with commas between, for example 0.8,1.0; got {text!r}") from None


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(name.strip() for name in text.split(",")))


def _bar(what: str) -> Callable[[float], None]:
    bar = Bar()
    return lambda share: bar.draw(what, share, f"{share:.0%}") if share < 1 else bar.clear()


def _text(data: Tabular, trials: tuple[Trial, ...], pairs: list[Difference]) -> str:
    heads = ("method", "epsilon per visit", "test error", "std", "averaged weights", "lambda", "epsilon per person")
    rows = [
        (
            trial.spec.method,
            trial.spec.epsilon if trial.spec.private else None,
            trial.mean_error,
            trial.std_error,
            float(trial.average[:, -1].mean()),
            trial.spec.regularization,
            trial.epsilon_per_person if trial.spec.private else "none",
        )
        for trial in trials
        if trial.spec.private or trial.spec.epsilon == trials[0].spec.epsilon
    ]
    spec = trials[0].spec
    parts = [
        f"{data.name}: {data.people:,} people, {len(data.test_labels):,} test rows, {data.dimension} features; "
        f"{spec.loss} loss, {spec.epochs} epochs, {len(trials[0].errors)} repeats",
        table(heads, rows),
    ]
    if pairs:
        heads = ("difference", "epsilon per visit", "mean", "95 % from", "to", "p", "first is better")
        shown = [
            (
                f"{pair.first} - {pair.second}",
                pair.budget,
                pair.mean,
                pair.low,
                pair.high,
                f"{pair.p_value:.2g}",
                f"{pair.first_better} of {pair.repeats}",
            )
            for pair in pairs
        ]
        parts.append(table(heads, shown))
    if any(trial.spec.method == "prestige" for trial in trials):
        parts.append("epsilon per person of prestige covers the label only: who falls silent shows the features")
    return "\n\n".join(parts)


def _write(args: argparse.Namespace, result: dict[str, Any], spec: LocalSpec, minutes: float) -> None:
    from dpviz.runs.execution.provenance import commit

    settings = {name: getattr(spec, name) for name in SETTINGS if name != "regularization"}
    settings |= {"cross_validated": args.cross_validate, "repeats": args.repeats, "seed": args.seed}
    provenance = {
        "kind": "measured",
        "source": "dpviz",
        "command": _command(args),
        "commit": commit(),
        "versions": {name: version(name) for name in ("numpy", "scipy")} | {"python": platform.python_version()},
        "minutes": round(minutes, 2),
    }
    text = json.dumps({**result, "settings": settings, "provenance": provenance}, indent=1, allow_nan=False)
    try:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {str(args.out)!r}: {error.strerror}") from None


def _command(args: argparse.Namespace) -> str:
    """The command again, without folders of this machine."""
    words = ["dpviz local", f"--data {Path(args.data).name}", f"--methods {args.methods}"]
    words += [f"--budgets {args.budgets}", f"--repeats {args.repeats}", f"--seed {args.seed}", f"--loss {args.loss}"]
    words += [f"--gradient-label {args.gradient_label}"] if args.gradient_label != "answered" else []
    words += [f"--loss-knob {args.loss_knob:g}"] if args.loss_knob is not None else []
    for name in SETTINGS:
        if getattr(args, name) is not None:
            words.append(f"--{name.replace('_', '-')} {getattr(args, name):g}")
    return " ".join([*words, f"--cross-validate --folds {args.folds}"] if args.cross_validate else words)


def reproduce(recipes: Sequence[LocalRecipe], data_dir: Path | None) -> Iterator[tuple[LocalRecipe, ...]]:
    """Make what is missing of these experiments, by the command above: a file for all methods of one data and loss."""
    for data, loss in dict.fromkeys((recipe.data, recipe.spec.loss) for recipe in missing(recipes)):
        group = [recipe for recipe in LOCAL_RECIPES.values() if (recipe.data, recipe.spec.loss) == (data, loss)]
        spec, methods = group[0].spec, ",".join(recipe.spec.method for recipe in group)
        line = [f"--data={data}", f"--loss={loss}", f"--methods={methods}", f"--budgets={spec.epsilon:g}"]
        line += [f"--{name.replace('_', '-')}={getattr(spec, name):g}" for name in SETTINGS if name != "regularization"]
        out = cached_runs_folder() / PAPER / f"{data}-{loss}.json"
        line += ["--cross-validate", f"--folds={FOLDS}", f"--out={out}"]
        line += [f"--data-dir={data_dir}"] if data_dir is not None else []
        parser = argparse.ArgumentParser()
        _arguments(parser)
        _run(parser.parse_args(line))
        yield tuple(group)


def missing(recipes: Iterable[LocalRecipe]) -> tuple[LocalRecipe, ...]:
    """Those of these experiments that no cached result holds."""
    results, _ = local_results()
    return tuple(recipe for recipe in recipes if next(rows_of(recipe, results), None) is None)


COMMANDS = (Command("local", "local privacy: PRESTIGE, DJW and SGD, test error against budget", _arguments, _run),)
