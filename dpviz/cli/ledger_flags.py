"""The flags that describe a ledger (a schedule, how batches are drawn, how many steps), and the plan they amount to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from dpviz.cli.command import number, whole
from dpviz.privacy.assumptions import ADJACENCIES, SAMPLINGS, Assumptions
from dpviz.privacy.calibrate import check_steps
from dpviz.privacy.records import ROUNDINGS, Phase, epoch_phases, steps_per_epoch
from dpviz.privacy.registry import InputError, Knob
from dpviz.privacy.schedules import CUSTOM, SCHEDULES, Schedule, check_epochs, read_csv

EPOCHS, DATASET_SIZE, BATCH_SIZE = 20, 60_000, 600


def _knobs() -> dict[str, Knob]:
    """Every schedule's knobs, each of which is a flag."""
    return {name: knob for entry in SCHEDULES.values() for name, knob in entry.knobs.items()}


def add_ledger_arguments(parser: argparse.ArgumentParser) -> None:
    """What every accounting command asks. Defaults are filled in later: a flag that was given may exclude another."""
    curve = parser.add_argument_group("schedule")
    curve.add_argument("--schedule", metavar="NAME", help=f"one of {', '.join(SCHEDULES)} (default: constant)")
    for name, knob in _knobs().items():
        curve.add_argument(f"--{name}", type=number, metavar="X", help=knob.help)
    curve.add_argument("--sigmas", metavar="5,4,3", help="your own noise multipliers, one per epoch")
    curve.add_argument("--csv", metavar="FILE", help="a CSV file with one sigma per epoch")
    curve.add_argument("--epochs", type=whole, metavar="N", help=f"number of epochs (default: {EPOCHS})")
    curve.add_argument(
        "--steps-per-epoch",
        type=_steps_rule,
        metavar="RULE",
        help="dataset size / batch size to the nearest whole number (round, the default), rounded up (ceil, as Opacus "
        "counts), or a number",
    )
    curve.add_argument("--steps", type=whole, metavar="N", help="steps in all, instead of epochs, for one sigma")
    data = parser.add_argument_group("data and privacy")
    data.add_argument("--dataset-size", type=whole, metavar="N", help=f"examples (default: {DATASET_SIZE})")
    data.add_argument("--batch-size", type=whole, metavar="N", help=f"expected batch (default: {BATCH_SIZE})")
    data.add_argument("--sample-rate", type=number, metavar="Q", help="batch size / dataset size, instead of both")
    data.add_argument("--delta", type=number, default=1e-5, help="default: 1e-5")
    data.add_argument(
        "--adjacency", metavar="NAME", help=f"{', '.join(ADJACENCIES)} (default: the first that the sampling allows)"
    )
    data.add_argument(
        "--sampling", default="poisson", metavar="NAME", help=f"{', '.join(SAMPLINGS)} (default: poisson)"
    )


def _steps_rule(text: str) -> str | int:
    try:
        return text if text in ROUNDINGS else whole(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"must be {', '.join(ROUNDINGS)} or a whole number, got {text!r}") from None


@dataclass(frozen=True)
class Plan:
    """What the flags describe. `rule` is how the steps of an epoch were found; None: `steps` are all there are."""

    schedule: Schedule
    epochs: int
    sample_rate: float
    steps: int
    rule: str | int | None
    assumptions: Assumptions

    @property
    def chosen_steps(self) -> int | None:
        """Steps per epoch where they are not those that dpviz takes anyway."""
        return None if self.rule == "round" else self.steps

    def phases(self, sigmas: Sequence[float]) -> tuple[Phase, ...]:
        return epoch_phases(sigmas, self.sample_rate, self.steps)

    def facts(self, epochs: int) -> dict[str, object]:
        """Epochs and steps as --json has them; `epochs` may be other than planned."""
        roundings = {name: steps_per_epoch(self.sample_rate, name) for name in ROUNDINGS}
        return {
            "epochs": None if self.rule is None else epochs,
            "steps": epochs * self.steps,
            "steps_per_epoch": None if self.rule is None else {"taken": self.steps, "rule": self.rule, **roundings},
            "sample_rate": self.sample_rate,
            "adjacency": self.assumptions.adjacency,
            "sampling": self.assumptions.sampling,
        }

    def words(self, epochs: int) -> str:
        """Epochs and steps as a person reads them."""
        rate = f"sample rate {self.sample_rate:.6g}"
        if self.rule is None:
            return f"{self.steps:,} steps in all, {rate}"
        nearest, up = (steps_per_epoch(self.sample_rate, name) for name in ("round", "ceil"))
        notes: dict[str | int, str] = {
            "round": f" (1 / sample rate to the nearest whole number; rounded up it would be {up:,})",
            "ceil": f" (1 / sample rate rounded up; to the nearest whole number it would be {nearest:,})",
        }
        given = f" (as given; 1 / sample rate is {nearest:,} to the nearest whole number, {up:,} rounded up)"
        note = "" if self.rule in notes and nearest == up else notes.get(self.rule, given)
        return f"{epochs} epochs of {self.steps:,} steps{note}, {rate}"


def plan_of(args: argparse.Namespace) -> Plan:
    """The plan that the flags describe; flags that contradict each other are refused."""
    schedule = schedule_of(args)
    rate = sample_rate_of(args)
    accountant = getattr(args, "accountant", "pld")  # `epsilon` has no such flag: it asks them all
    assumptions = Assumptions(accountant, args.adjacency, args.sampling)
    if args.steps is not None:
        return Plan(schedule, 1, rate, _all_steps(args, schedule), None, assumptions)
    rule = "round" if args.steps_per_epoch is None else args.steps_per_epoch
    steps = steps_per_epoch(rate, rule) if isinstance(rule, str) else _at_least_one("steps_per_epoch", rule)
    plan = Plan(schedule, epochs_of(args, schedule), rate, steps, rule, assumptions)
    check_steps(plan.chosen_steps, args.sampling)
    return plan


def schedule_of(args: argparse.Namespace) -> Schedule:
    """The schedule that the flags describe; more than one description is an error."""
    knobs = {name: getattr(args, name) for name in _knobs() if getattr(args, name) is not None}
    given = [flag for flag in ("schedule", "sigmas", "csv") if getattr(args, flag) is not None]
    if len(given) > 1:
        raise InputError(f"give one of --schedule, --sigmas and --csv, got {_flags(given)}")
    if args.sigmas is not None or args.csv is not None:
        if knobs:
            raise InputError(f"--{next(iter(knobs))} belongs to a named schedule; leave it out with your own sigmas")
        if args.csv is not None:
            return read_csv(args.csv)
        return Schedule.custom(args.sigmas.split(",") if args.sigmas.strip() else [])
    if args.schedule == CUSTOM:
        raise InputError("a custom schedule needs its numbers: give --sigmas 5,4,3 or --csv FILE")
    return Schedule.of(args.schedule or "constant", **knobs)


def epochs_of(args: argparse.Namespace, schedule: Schedule) -> int:
    """The number of epochs: as asked, or as many as a custom schedule has."""
    if args.epochs is not None:
        return check_epochs(args.epochs)
    return len(schedule.values) if schedule.name == CUSTOM else EPOCHS


def sample_rate_of(args: argparse.Namespace) -> float:
    sizes = [flag for flag in ("dataset_size", "batch_size") if getattr(args, flag) is not None]
    if args.sample_rate is not None:
        if sizes:
            raise InputError(f"--sample-rate replaces --dataset-size and --batch-size, but {_flags(sizes)} came too")
        if not 0 < args.sample_rate <= 1:
            raise InputError(f"--sample-rate must be above 0 and at most 1, got {args.sample_rate:g}")
        return float(args.sample_rate)
    dataset = _at_least_one("dataset_size", DATASET_SIZE if args.dataset_size is None else args.dataset_size)
    batch = _at_least_one("batch_size", BATCH_SIZE if args.batch_size is None else args.batch_size)
    if batch > dataset:
        raise InputError(f"--batch-size must be at most the dataset's {dataset:,} examples, got {batch:,}")
    return batch / dataset


def _all_steps(args: argparse.Namespace, schedule: Schedule) -> int:
    """--steps counts the whole training, so there is one noise multiplier and no epoch."""
    others = [flag for flag in ("epochs", "steps_per_epoch") if getattr(args, flag) is not None]
    if others:
        raise InputError(f"--steps counts all steps and replaces {_flags(others)}; give one or the other")
    if schedule.name != "constant" and len(schedule.values) != 1:
        raise InputError(
            "--steps needs one noise multiplier for all steps; with a schedule of several give --epochs and "
            "--steps-per-epoch"
        )
    check_steps(args.steps, args.sampling)
    return _at_least_one("steps", args.steps)


def _at_least_one(flag: str, value: int) -> int:
    if not value >= 1:
        raise InputError(f"--{flag.replace('_', '-')} must be a whole number >= 1, got {value}")
    return value


def _flags(names: Sequence[str]) -> str:
    return " and ".join("--" + name.replace("_", "-") for name in names)
