"""A run as a notebook shows it: what came out, what it spent, and what that epsilon rests on."""

from __future__ import annotations

import math

from dpviz.privacy.assumptions import ADJACENCIES, SAMPLINGS, adjacency_of
from dpviz.privacy.guarantees import NOT_COVERED, rule_of
from dpviz.privacy.notebook import card, claimed_text, reasons
from dpviz.privacy.rounding import delta_number, epsilon_number
from dpviz.runs.store.imported import AnySpec, ImportedSpec
from dpviz.runs.store.records import Run, epochs_text
from dpviz.training.pricing import rests_on_model

SEEDED = "noise and batches come from a seed: whoever knows it can subtract the noise; secure=True draws them afresh"


def run_html(run: Run) -> str:
    """Title, status, accuracy and epsilon. The epsilon is all that the run has spent, also after its last epoch."""
    last, spec = run.epochs[-1] if run.epochs else None, run.spec
    facts = [
        ("run", run.id),
        ("status", f"{run.status}, {epochs_text(len(run.epochs), spec.epochs)} epochs"),
        ("test accuracy", f"{last.test_accuracy:.2%}" if last and last.test_accuracy is not None else "none yet"),
        *_spent(run),
    ]
    if run.audit:
        facts.append(("audited ε", f"at least {epsilon_number(run.audit.lower, up=False)} (95 % confidence)"))
    if run.error:
        facts.append(("error", run.error))
    heading = run.title or spec.recipe or f"{spec.method} on {spec.dataset or 'an unnamed dataset'}"
    sound = rule_of(spec.method, spec.curriculum).sound
    return card(heading, facts, {reasons(sound): rests_on(spec), "Not covered": NOT_COVERED})


def _spent(run: Run) -> tuple[tuple[str, str], ...]:
    spent, delta = run.spent, run.spec.delta
    if spent is None:
        return (("ε spent", "nothing yet"),)
    sound, claimed = (_number(value, spent.at_most) for value in (spent.epsilon_sound, spent.epsilon_claimed))
    bound = "" if spent.epsilon_sound is None else f" at δ = {delta_number(delta)} (upper bound)"
    return ("sound ε", sound + bound), ("claimed ε", claimed_text(claimed, claimed == sound))


def _number(epsilon: float | None, at_most: bool) -> str:
    if epsilon is None:
        return "none"
    return ("at most " if at_most and epsilon < math.inf else "") + epsilon_number(epsilon)


def rests_on(spec: AnySpec) -> tuple[str, ...]:
    """What must hold for the sound epsilon of a run; where it has none, why."""
    rule = rule_of(spec.method, spec.curriculum)
    if rule.sound is None:
        return rule.assumptions
    neighbours = ADJACENCIES[adjacency_of("poisson")].help
    rest = (SAMPLINGS["poisson"].help, *rule.assumptions, f"{neighbours}; delta = {spec.delta:g}")
    if isinstance(spec, ImportedSpec):
        return rest
    rest = (*rest, *rests_on_model(spec))
    return rest if spec.secure else (*rest, SEEDED)
