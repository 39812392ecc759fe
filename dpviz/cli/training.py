"""train, runs: training from the command line, and the runs it leaves."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import signal
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpviz.cli.command import Command, Result, number, spent_text, table, whole
from dpviz.cli.mirror_flags import asked_mirror, mirror_arguments
from dpviz.cli.progress import RunBar
from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import CUSTOM
from dpviz.runs.execution.interrupt import stopping_on
from dpviz.runs.execution.job import DEVICES, RunOptions
from dpviz.runs.execution.runner import Runner, with_seeds
from dpviz.runs.execution.runners import runner_for
from dpviz.runs.settings import DEFAULT, change, parse, parse_seeds, with_listed_epochs
from dpviz.runs.store.records import Run, Summary, epochs_text
from dpviz.runs.store.store import MAX_TITLE, Store
from dpviz.runs.tracking.mirror import Mirror
from dpviz.training.spec import RunSpec

EXIT_CODES = {"failed": 1, "stopped": 130}


# --- train --------------------------------------------------------------------------------------------------------


def spec_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recipe", help="settings to start from, for example losing-less/mnist-ce-t-cnn")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting: batch_size=256, optimizer=adam, optimizer.beta1=0.8, schedule=linear, "
        "schedule.start=5, schedule=5,4,3; may be given several times",
    )
    parser.add_argument("--dataset", help="what to train on; dpviz data lists them (the same as --set dataset=...)")
    parser.add_argument("--model", help="a model by name, or a function of your own: package.module:function")
    parser.add_argument("--epochs", type=whole, help="train so long; the schedule is drawn over them by its formula")


def _train_arguments(parser: argparse.ArgumentParser) -> None:
    spec_arguments(parser)
    parser.add_argument(
        "--filter-epsilon",
        type=number,
        help="a budget declared ahead, so that dpviz runs redraw may change the noise of epochs to come",
    )
    parser.add_argument("--seeds", help="one run per seed, for example 0,1,2")
    parser.add_argument("--title", default="", help="a name for the runs")
    parser.add_argument("--ray", metavar="ADDRESS", help="train on this Ray cluster: auto, or host:port")
    machine_arguments(parser)
    mirror_arguments(parser)


def machine_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", choices=DEVICES, default="auto", help="auto: CUDA, then MPS, then the CPU")
    parser.add_argument("--workers", type=whole, default=1, help="so many processes, or machines of a cluster, per run")
    parser.add_argument("--data-dir", type=Path, help="folder with datasets (or set DPVIZ_DATA)")


def _train(args: argparse.Namespace) -> Result:
    specs = specs_of(args)
    store = Store()
    with foreground(store, len(specs), args.ray or "", mirror=asked_mirror(store, args)) as runner:
        options = checked_options(args, runner)
        ids = runner.start_all(specs, title=args.title or _origin(args, specs[0]), options=options)
        for run_id in ids:
            runner.wait(run_id)
    return _results([store.get(run_id) for run_id in ids], args)


def specs_of(args: argparse.Namespace) -> tuple[RunSpec, ...]:
    """The runs that were asked for; every setting is checked here, before anything is written."""
    settings: dict[str, Any] = dict(parse(args.set))
    start = DEFAULT
    if args.recipe is not None:
        from dpviz.papers import recipe

        start = recipe(args.recipe).spec
    for name in ("dataset", "model", "epochs", "filter_epsilon"):
        if getattr(args, name, None) is not None:
            if name in settings:
                raise InputError(f"{name} is given twice, by --{name.replace('_', '-')} and by --set")
            settings[name] = getattr(args, name)
    seeds = getattr(args, "seeds", None)
    if seeds is not None and "seed" in settings:
        raise InputError("the seed is given twice, by --seeds and by --set")
    spec = change(start, with_listed_epochs(settings))
    return with_seeds(spec, parse_seeds(seeds)) if seeds is not None else (spec,)


def _origin(args: argparse.Namespace, spec: RunSpec) -> str:
    """A title for runs that began as a recipe and were then changed, so that they no longer bear its name."""
    changed = args.recipe is not None and not spec.recipe
    given = [f"{name}={getattr(args, name)}" for name in ("dataset", "model") if getattr(args, name)]
    return f"{args.recipe} with {' '.join((*given, *args.set))}"[:MAX_TITLE] if changed else ""


def checked_options(args: argparse.Namespace, runner: Runner, until: int | None = None) -> RunOptions:
    """What --device, --workers and --data-dir say; what is not there is refused before anything is written."""
    options = RunOptions(args.device, args.data_dir, until, own_code=True, workers=args.workers)
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # where a model of one's own is looked for, after everything installed
    runner.check_device(options.device)
    if args.data_dir is not None and not args.data_dir.is_dir():
        raise InputError(f"--data-dir must be a folder, and {str(args.data_dir)!r} is none")
    return options


@contextlib.contextmanager
def foreground(store: Store, runs: int, address: str = "", mirror: Mirror | None = None) -> Iterator[Runner]:
    """A runner with a progress bar; Ctrl-C ends its runs as stopped, with a checkpoint."""
    shown = RunBar(runs)
    runner = runner_for(store, address, on_progress=shown.step, on_epoch=shown.epoch, mirror=mirror)

    def stop() -> None:
        runner.stop_all()
        shown.bar.say("stopping; Ctrl-C once more leaves at once")

    # Some trackers print to standard output, which is for the result alone.
    aside = contextlib.redirect_stdout(sys.stderr)
    with aside, contextlib.closing(runner), stopping_on(stop, signal.SIGINT, signal.SIGTERM):
        try:
            yield runner
        finally:
            shown.bar.clear()


def _results(runs: list[Run], args: argparse.Namespace) -> Result:
    """What came out; the exit code is 1 if a run failed, and 130, as after any Ctrl-C, if one was stopped."""
    args.exit_code = max((EXIT_CODES.get(run.status, 0) for run in runs), default=0)
    return runs_result(runs)


def runs_result(runs: list[Run]) -> Result:
    parts = [_epochs_table(runs[0])] if len(runs) == 1 and runs[0].epochs else []
    parts.append(_runs_table([run.summary for run in runs]))
    accuracies = [run.epochs[-1].accuracy for run in runs if run.status == "done" and run.kind == "measured"]
    if len(accuracies) > 1:
        mean, std = statistics.mean(accuracies), statistics.stdev(accuracies)
        parts.append(
            f"test accuracy over {len(accuracies)} seeds: {mean:.2%}, standard deviation {100 * std:.2f} points"
        )
    for run in runs:
        if run.provenance and run.provenance.gradients:
            parts.append(f"{run.id}: per-example gradients by Opacus, because {run.provenance.gradients}")
        if run.provenance and run.provenance.physical_batch:
            parts.append(f"{run.id}: {run.provenance.physical_batch} examples at once, since memory ran out")
        if run.error:
            parts.append(f"{run.id} failed: {run.error}")
        elif run.status == "stopped":
            parts.append(f"{run.id} was stopped; go on with: dpviz runs resume {run.id}")
    return {"runs": [run_json(run) for run in runs]}, "\n\n".join(parts)


def run_json(run: Run) -> dict[str, Any]:
    """A run in --json output. An epsilon is null where there is no guarantee."""
    return {
        "run_id": run.id,
        "kind": run.kind,
        "status": run.status,
        "error": run.error,
        "title": run.title,
        "recipe": run.spec.recipe,
        "seed": run.spec.seed,
        "epochs": [record.to_json() for record in run.epochs],
        "spent": run.spent.to_json() if run.spent else None,
        **({"course": run.course.to_json()} if run.course else {}),
    }


def _epochs_table(run: Run) -> str:
    heads = ("epoch", "sigma", "epsilon (sound)", "epsilon (claimed)", "test accuracy", "test loss", "seconds")
    rows = [
        (
            record.epoch,
            record.noise_multiplier,
            spent_text(record.epsilon_sound),
            spent_text(record.epsilon_claimed),
            _percent(record.test_accuracy),
            record.test_loss,
            f"{record.seconds:.1f}",
        )
        for record in run.epochs
    ]
    return table(heads, rows)


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.2%}"


def _runs_table(runs: list[Summary]) -> str:
    heads = ("run", "status", "what", "seed", "epochs", "test accuracy", "epsilon (sound)", "epsilon (claimed)")
    rows = []
    for run in runs:
        claimed, sound = run.spent
        rows.append(
            (
                run.id,
                run.status,
                (run.title or run.recipe or f"{run.method} on {run.dataset}")
                + (" (imported)" * (run.kind == "imported")),
                run.seed,
                epochs_text(run.epochs_done, run.epochs, "/"),
                _percent(run.test_accuracy),
                spent_text(sound, run.at_most) if run.begun else None,
                spent_text(claimed, run.at_most) if run.begun else None,
            )
        )
    return table(heads, rows)


# --- runs ---------------------------------------------------------------------------------------------------------


def _runs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=tuple(ACTIONS), help="what to do")
    parser.add_argument("id", nargs="?", help="a run's id; list shows them")
    parser.add_argument("--out", type=Path, help="export: write to this file")
    parser.add_argument("--sigmas", help="redraw: noise of the run's last epochs, for example 1.5,1.4,1.2")
    machine_arguments(parser)
    mirror_arguments(parser)


def _runs(args: argparse.Namespace) -> Result:
    if (args.id is None) != (args.action == "list"):
        raise InputError("runs list takes no id" if args.id else f"runs {args.action} needs a run's id")
    if args.out is not None and args.action != "export":
        raise InputError("--out goes with runs export only")
    if (args.mirror is not None or args.with_private_metrics) and args.action != "resume":
        raise InputError("--mirror and --with-private-metrics go with runs resume only")
    if (args.sigmas is not None) != (args.action == "redraw"):
        raise InputError("--sigmas goes with runs redraw, which needs it, for example --sigmas 1.5,1.4,1.2")
    return ACTIONS[args.action](Store(), args)


def _list(store: Store, args: argparse.Namespace) -> Result:
    listing = store.list()
    text = _runs_table(list(listing.runs)) if listing.runs else "no runs yet; dpviz train starts one"
    runs = [_summary_json(run) for run in listing.runs]
    return {"runs": runs, "warnings": listing.warnings}, "\n".join((text, *listing.warnings))


def _summary_json(run: Summary) -> dict[str, Any]:
    """A line of the list; its epsilon is all that the run has spent, also after its last whole epoch."""
    data = dataclasses.asdict(run)
    for name in ("epsilon_claimed", "epsilon_sound", "written"):
        del data[name]
    claimed, sound = run.spent
    return {"run_id": data.pop("id"), **data, "epsilon": {"claimed": claimed, "sound": sound}, "at_most": run.at_most}


def _show(store: Store, args: argparse.Namespace) -> Result:
    run = store.get(args.id)
    data, text = runs_result([run])
    spec = run.spec.to_json()
    more = next(spec[name] for name in ("knobs", "facts") if name in spec)  # knobs, or an imported run's facts
    settings = [(key, _setting(value)) for key, value in spec.items() if value is not more] + [
        (key, _setting(value)) for key, value in more.items()
    ]
    budget = f"\n\n{run.course.budget_words()}" if run.course else ""
    return data["runs"][0] | {"spec": spec}, f"{table(('setting', 'value'), settings)}\n\n{text}{budget}"


def _setting(value: Any) -> str:
    """A schedule as `linear (start 5.0, end 1.0)`, own data as `size 455, ...`; anything else as it is."""
    if not isinstance(value, dict):
        return str(value)
    if value.get("name") == CUSTOM:
        return ", ".join(f"{sigma:g}" for sigma in value["sigmas"])
    words = ", ".join(f"{key} {item}" for key, item in value.items() if key != "name")
    return f"{value['name']} ({words})" if "name" in value else words


def _resume(store: Store, args: argparse.Namespace) -> Result:
    with foreground(store, 1, mirror=asked_mirror(store, args)) as runner:
        runner.resume(args.id, options=checked_options(args, runner))
        runner.wait(args.id)
    return _results([store.get(args.id)], args)


def _export(store: Store, args: argparse.Namespace) -> Result:
    data = store.export(args.id)
    text = json.dumps(data, indent=2, allow_nan=False)
    if args.out is None:
        return data, text
    try:
        args.out.write_text(text + "\n")
    except OSError as error:
        raise InputError(f"cannot write {str(args.out)!r}: {error.strerror}") from None
    return data, f"wrote {args.out}"


def _redraw(store: Store, args: argparse.Namespace) -> Result:
    course = store.redraw(args.id, args.sigmas.split(","))
    rows = [(k, sigma, "begun" if k <= course.begun else "to come") for k, sigma in enumerate(course.sigmas, start=1)]
    return {"run_id": args.id, **course.to_json(), "budget": course.budget_json()}, "\n\n".join(
        (table(("epoch", "sigma", ""), rows), course.budget_words())
    )


def _delete(store: Store, args: argparse.Namespace) -> Result:
    store.delete(args.id)
    return {"deleted": args.id}, f"deleted {args.id}"


ACTIONS = {
    "list": _list,
    "show": _show,
    "resume": _resume,
    "redraw": _redraw,
    "export": _export,
    "delete": _delete,
}


COMMANDS = (
    Command("train", "train privately, from a recipe or your own settings", _train_arguments, _train),
    Command("runs", "list, show, resume, redraw, export or delete runs", _runs_arguments, _runs),
)
