"""What each method claims and what holds, with the assumptions in words.

A method's claimed ledger is the one its authors price; its sound ledger is the one that covers every use of the data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Unpack

from dpviz.privacy.assumptions import ADJACENCIES, SAMPLINGS, Assumptions, Named, assumed, nearest_adjacency
from dpviz.privacy.prices import epsilon, epsilon_path
from dpviz.privacy.records import Epsilon, Guarantee, Ledger, Phase
from dpviz.privacy.registry import InputError
from dpviz.privacy.risk import Risk, risk
from dpviz.privacy.rounding import delta_text, epsilon_number

Phases = tuple[Phase, ...]
LedgerOf = Callable[[Phases, Sequence[int] | None], Phases]


def every_update(phases: Phases, accepted: Sequence[int] | None) -> Phases:
    return phases


def accepted_updates(phases: Phases, accepted: Sequence[int] | None) -> Phases:
    """Only the updates that were kept; before a run it is not known how many, so all of them."""
    if accepted is None:
        return phases
    kept = zip(phases, accepted, strict=False)
    return tuple(Phase(phase.noise_multiplier, phase.sample_rate, count) for phase, count in kept if count > 0)


@dataclass(frozen=True)
class Rule:
    """How a method is priced: by its authors, soundly (None: no guarantee), and what must be said with it."""

    claimed: LedgerOf | None
    sound: LedgerOf | None
    assumptions: tuple[str, ...]
    sorted_once: bool = False  # batches follow one order, which has a price had it been public


FIXED_AHEAD = "the schedule was fixed before the data were looked at"
CLIPPED = "each example's gradient is clipped, and the noise is scaled to the clipping norm"
PER_EXAMPLE = "loss and optimizer treat each example on its own; what the optimizer does with the noisy sum is free"
ONE_EXAMPLE = "a person with several examples in the data: epsilon is about one example"
NOT_COVERED = (
    ONE_EXAMPLE,
    "choosing the schedule, the settings, the best seed or the best epoch by looking at results",
    "training loss, training accuracy and diagnostics: they are computed from private data without noise",
)

RULES: dict[tuple[str, str], Rule] = {
    ("dp-sgd", "none"): Rule(every_update, every_update, (CLIPPED, PER_EXAMPLE, FIXED_AHEAD)),
    ("dp-sgd", "sample"): Rule(
        every_update,
        None,
        (
            "the claim prices random batches, but the batches follow a fixed order",
            "the order comes from a model fitted on the same private data, which no ledger accounts for: no guarantee",
        ),
        sorted_once=True,
    ),
    ("dp-sgd", "dynamic"): Rule(
        None,
        None,
        ("each epoch's order comes from the losses of all private examples, without noise: no guarantee",),
    ),
    ("dp-sgd", "masked"): Rule(
        None,
        every_update,
        (
            CLIPPED,
            FIXED_AHEAD,
            "whether an example counts depends on its own loss only, so a masked gradient is a clipped one too",
        ),
    ),
    ("screening", "none"): Rule(
        accepted_updates,
        every_update,
        (
            CLIPPED,
            FIXED_AHEAD,
            "every candidate update is charged, also the rejected ones: the model that is kept depends on them all",
            "updates are judged on public examples; judged on private ones there would be no guarantee",
        ),
    ),
    ("sgd", "none"): Rule(None, None, ("no clipping and no noise: no guarantee",)),
    # A run that another program trained: dpviz prices its ledger; the claim is what its own accountant said.
    ("imported", "none"): Rule(
        None,
        every_update,
        (
            CLIPPED,
            PER_EXAMPLE,
            FIXED_AHEAD,
            "another program trained this run: that its batches were Poisson samples, its clipping per example and its "
            "ledger complete is what that program says; dpviz did not see it",
        ),
    ),
}
RULES["screening", "masked"] = RULES["screening", "none"]
for _curriculum in ("sample", "dynamic", "masked"):
    RULES["sgd", _curriculum] = RULES["sgd", "none"]


def rule_of(method: str, curriculum: str) -> Rule:
    if (method, curriculum) not in RULES:
        known = ", ".join(f"{m} with curriculum {c}" for m, c in RULES)
        raise InputError(f"no rule for method {method!r} with curriculum {curriculum!r}; there is {known}")
    return RULES[method, curriculum]


def guarantee(
    method: str,
    curriculum: str,
    phases: Sequence[Phase],
    delta: float,
    assumptions: Assumptions | None = None,
    *,
    accepted: Sequence[int] | None = None,
    **named: Unpack[Named],
) -> Guarantee:
    """The claimed and the sound epsilon of a whole run, and what they rest on.

    Shuffled or fixed batches are commonly priced as if they were Poisson samples: that figure is the claim, the price
    without amplification is what holds.
    """
    rule = rule_of(method, curriculum)
    assumptions = assumed(assumptions, named)
    adjacency, sampling = assumptions.adjacency, assumptions.sampling

    def price(ledger_of: LedgerOf | None, drawn: Assumptions) -> Epsilon | None:
        ledger = ledger_of(tuple(phases), accepted) if ledger_of else ()
        return epsilon(Ledger(ledger), delta, drawn) if ledger else None

    words = [*rule.assumptions, f"{ADJACENCIES[adjacency].help}; delta = {delta_text(delta)}"]
    if rule.sound:
        words.insert(0, SAMPLINGS[sampling].help)
    elif rule.sorted_once:
        known = nearest_adjacency("fixed-order", adjacency)
        public = epsilon(Ledger(phases), delta, Assumptions(assumptions.accountant, known, "fixed-order"))
        words.append(
            f"had the order been public, epsilon would be {epsilon_number(public.upper)} (no amplification; {known}: "
            f"{ADJACENCIES[known].help})"
        )
    if not SAMPLINGS[sampling].amplified and rule.claimed and rule.sound:
        words.append("the claimed figure assumes Poisson sampling and is not a guarantee for these batches")
    return Guarantee(
        claimed=price(rule.claimed, replace(assumptions, sampling="poisson")),
        sound=price(rule.sound, assumptions),
        adjacency=adjacency,
        sampling=sampling,
        assumptions=tuple(words),
        not_covered=NOT_COVERED,
    )


def sound_risk(
    method: str, curriculum: str, phases: Sequence[Phase], assumptions: Assumptions | None = None
) -> Risk | None:
    """What the steps that the sound epsilon prices reveal about one person; None without a guarantee."""
    ledger_of = rule_of(method, curriculum).sound
    return risk(ledger_of(tuple(phases), None), assumptions) if ledger_of else None


def guarantee_path(
    method: str,
    curriculum: str,
    phases: Sequence[Phase],
    delta: float,
    accepted: Sequence[int] | None = None,
) -> tuple[tuple[float | None, float | None], ...]:
    """(claimed, sound) upper epsilon after each epoch; None where there is none."""
    rule = rule_of(method, curriculum)
    phases = tuple(phases)
    sound = _uppers(rule.sound and phases, delta, len(phases))
    if rule.claimed is accepted_updates and accepted is not None:
        claimed = _accepted_path(phases[: len(accepted)], accepted, delta)
    elif rule.claimed is rule.sound:
        claimed = sound
    else:
        claimed = _uppers(rule.claimed and phases, delta, len(phases))
    return tuple(zip(claimed, sound, strict=False))


def _uppers(phases: Phases | None, delta: float, epochs: int) -> tuple[float | None, ...]:
    return tuple(point.upper for point in epsilon_path(phases, delta)) if phases else (None,) * epochs


def _accepted_path(phases: Phases, accepted: Sequence[int], delta: float) -> tuple[float | None, ...]:
    """An epoch in which nothing was accepted adds nothing."""
    kept = accepted_updates(phases, accepted)
    priced = iter(_uppers(kept, delta, 0))
    path: list[float | None] = []
    for count in accepted[: len(phases)]:
        path.append(next(priced) if count > 0 else (path[-1] if path else 0.0))
    return tuple(path)


def selection_cost(phases: Sequence[Phase], delta: float, runs: int) -> Epsilon:
    """Epsilon of releasing the best of several runs alike: all of them were looked at, so all of them compose."""
    if not (runs >= 1 and runs == int(runs)):
        raise InputError(f"runs must be a whole number >= 1, got {runs}")
    return epsilon(Ledger(tuple(phases) * int(runs)), delta)


def prestige_guarantee(epsilon_curriculum: float, epsilon_gradient: float, visits: int, people: int) -> Guarantee:
    """Local privacy with a curriculum: a person pays epsilon_r + epsilon_s at each of T_max visits.

    The paper's budget, epsilon * n * T_max, adds up over people; local privacy does not compose over them.
    """
    for name, value in (
        ("epsilon of the curriculum", epsilon_curriculum),
        ("epsilon of the gradient", epsilon_gradient),
    ):
        if not value > 0:
            raise InputError(f"{name} must be above 0, got {value}")
    if not (visits >= 1 and people >= 1):
        raise InputError(f"visits and people must be at least 1, got {visits} and {people}")
    visit = epsilon_curriculum + epsilon_gradient
    return Guarantee(
        claimed=Epsilon(visit * people * visits, visit * people * visits, 0.0, "pure"),
        sound=Epsilon(visit * visits, visit * visits, 0.0, "pure"),
        adjacency="one person's record is replaced by any other (local privacy)",
        sampling="every person is visited once per epoch",
        assumptions=(
            f"each of the {visits} visits spends {epsilon_curriculum:g} on the curriculum's answer and "
            f"{epsilon_gradient:g} on the gradient, and they add up (pure epsilon, delta = 0)",
            "the claimed figure adds up all people's budgets; a person's own loss is the sound one",
        ),
        not_covered=("the test error and everything else that is measured on private records without noise",),
    )
