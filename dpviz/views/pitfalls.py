"""PITFALLS: ways to read an epsilon wrongly, each with a live example that is worked out for a curve at hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Unpack

import pandas as pd
import plotly.graph_objects as go
from scipy.special import ndtr

from dpviz.privacy import (
    ACCOUNTANTS,
    ADJACENCIES,
    SAMPLINGS,
    Epsilon,
    Guarantee,
    InputError,
    Ledger,
    Phase,
    Schedule,
    adjacency_of,
    epoch_phases,
    epsilon,
    matching_constant,
    prestige_guarantee,
    price_tags,
    selection_cost,
)
from dpviz.privacy.assumptions import Named
from dpviz.training.pricing import steps_guarantee
from dpviz.views.axes import COLOURS, layout
from dpviz.views.numbers import delta_text, epsilon_number, epsilon_text, sigma_text

Case = tuple[str, Epsilon | None]


@dataclass(frozen=True)
class Example:
    """A curve and the settings under which it is priced."""

    sigmas: tuple[float, ...]
    batch_size: int = 600
    dataset_size: int = 60_000
    delta: float = 1e-5

    def __post_init__(self) -> None:
        if not all(sigma > 0 for sigma in self.sigmas):
            raise InputError("the examples need noise in every epoch, but this curve has none in one; choose another")

    @property
    def sample_rate(self) -> float:
        return self.batch_size / self.dataset_size

    @property
    def phases(self) -> tuple[Phase, ...]:
        return epoch_phases(self.sigmas, self.sample_rate)

    def price(self, sigmas: Iterable[float] | None = None, **assumptions: Unpack[Named]) -> Epsilon:
        phases = self.phases if sigmas is None else epoch_phases(sigmas, self.sample_rate)
        return epsilon(phases, self.delta, **assumptions)

    def guarantee(self, method: str, curriculum: str, accepted: tuple[int, ...] | None = None) -> Guarantee:
        return steps_guarantee(method, curriculum, self.phases, self.delta, accepted=accepted)


@dataclass(frozen=True)
class Finding:
    """What an example shows: one sentence, and a row for each case. An epsilon of None means no guarantee."""

    sentence: str
    cases: tuple[Case, ...]


@dataclass(frozen=True)
class Pitfall:
    """A mistake, why it is one, and the function that shows it."""

    title: str
    lesson: str
    example: Callable[[Example], Finding]


PITFALLS: list[Pitfall] = []


def pitfall(title: str, lesson: str) -> Callable[[Callable[[Example], Finding]], Callable[[Example], Finding]]:
    def keep(example: Callable[[Example], Finding]) -> Callable[[Example], Finding]:
        PITFALLS.append(Pitfall(title, lesson, example))
        return example

    return keep


@pitfall(
    "One curve, three epsilons",
    "Accountants are upper bounds, and some are looser than others. Two papers may quote different epsilons for the "
    "same training; compare numbers only when the same accountant gave them.",
)
def accountants(at: Example) -> Finding:
    costs = {name: at.price(accountant=name) for name in ACCOUNTANTS}
    extra = costs["rdp-classic"].upper / costs["pld"].upper - 1
    return Finding(
        f"The classic conversion quotes {100 * extra:.0f} % more than the tight one.",
        tuple((ACCOUNTANTS[name].title, cost) for name, cost in costs.items()),
    )


@pitfall(
    "Equal under one accountant is not equal",
    "A constant noise that costs the same as a curve under RDP need not cost the same under tight accounting: RDP is "
    "looser for curves that vary. Match under the tight accountant before you compare accuracies.",
)
def equal_budgets(at: Example) -> Finding:
    by_rdp, by_pld = (matching_constant(at.sigmas, at.sample_rate, at.delta, accountant=a) for a in ("rdp", "pld"))
    return Finding(
        f"Constant σ = {sigma_text(by_rdp.sigmas[0])} equals this curve under RDP only; under tight accounting "
        f"σ = {sigma_text(by_pld.sigmas[0])} does. Below, all three are priced tightly.",
        (
            ("This curve", at.price()),
            (f"Constant {sigma_text(by_rdp.sigmas[0])} (matched by RDP)", at.price(by_rdp.sigmas)),
            (f"Constant {sigma_text(by_pld.sigmas[0])} (matched by PLD)", by_pld.epsilon),
        ),
    )


@pitfall(
    "The order of the epochs is free",
    "Epsilon adds up what the epochs cost, in any order. A falling and a rising schedule with the same values have the "
    "same epsilon; only the accuracy tells them apart.",
)
def order(at: Example) -> Finding:
    forth, back = at.price(), at.price(at.sigmas[::-1])
    return Finding(
        f"As drawn ε is {epsilon_text(forth)}; read from right to left it is {epsilon_text(back)}.",
        (("As drawn", forth), ("Mirrored", back)),
    )


@pitfall(
    "Batches must be drawn at random",
    "The small epsilons of DP-SGD come from Poisson sampling: nobody knows who is in a batch. With a fixed order each "
    "example is in one known batch per epoch, and the gain is gone. Shuffled batches cost no more than a fixed order; "
    "how much less, nobody can say tightly. Without sampling the price is about one example that counts nothing, while "
    "all batches stay as they are.",
)
def batches(at: Example) -> Finding:
    costs = {name: at.price(sampling=name) for name in SAMPLINGS}
    factor = costs["fixed-order"].upper / costs["poisson"].upper
    return Finding(
        f"Without amplification this curve costs {factor:.1f} times as much."
        if factor > 1
        else "With as little noise as here sampling gains nothing: an example may come into several batches.",
        tuple(
            (f"{SAMPLINGS[name].title} ({ADJACENCIES[adjacency_of(name)].title.lower()})", cost)
            for name, cost in costs.items()
        ),
    )


@pitfall(
    "An order learnt from the data has no epsilon",
    "Sorting examples from easy to hard by a model that was fitted on them is a use of the data that no ledger holds. "
    "The usual figure is a claim. A mask that looks at one example at a time keeps DP-SGD's epsilon.",
)
def sorted_examples(at: Example) -> Finding:
    public = at.price(sampling="fixed-order")
    claim = at.guarantee("dp-sgd", "sample")
    masked = at.guarantee("dp-sgd", "masked")
    return Finding(
        f"The claim is {epsilon_text(claim.claimed)}. Even a public order would cost {epsilon_text(public)}.",
        (
            ("Sorted, as claimed", claim.claimed),
            ("Sorted, what holds", claim.sound),
            ("Sorted in a public order (zero out one)", public),
            ("Masked, what holds", masked.sound),
        ),
    )


@pitfall(
    "Rejected updates cost too",
    "Noise screening keeps an update only if it helps. The model that is kept depends on every candidate that was "
    "tried, so each of them has to be paid for, not only the accepted ones.",
)
def screening(at: Example) -> Finding:
    accepted = tuple(max(1, round(0.6 * phase.steps)) for phase in at.phases)
    found = at.guarantee("screening", "none", accepted)
    once = epsilon(Ledger([Phase(2.0, 1.0, 1)]), at.delta)
    needed = accepted_delta(once.upper, shift=0.5, threshold=4.0)
    return Finding(
        "If 60 % of the candidates are accepted, the two figures below differ. A small proof that the first one cannot "
        f"hold: release a number with noise, ε {epsilon_number(once.upper)}, again and again until it is beyond ±4; at "
        f"that ε the accepted number needs δ = {needed:.2f}, not {delta_text(at.delta)}.",
        (("Accepted updates only (claimed)", found.claimed), ("Every candidate (sound)", found.sound)),
    )


def accepted_delta(epsilon: float, shift: float, threshold: float) -> float:
    """The delta at this epsilon of releasing N(0, 1) or N(shift, 1) until it lies beyond +-threshold.

    P and Q are the two laws given acceptance; p/q falls with the output, so {p > e^eps q} is everything below a point.
    """
    kept = [float(ndtr(-threshold - centre) + ndtr(centre - threshold)) for centre in (0.0, shift)]
    point = (math.log(kept[1] / kept[0]) - epsilon + shift**2 / 2) / shift

    def below(centre: float) -> float:
        tail = ndtr(min(point, -threshold) - centre)
        return float(tail + max(0.0, ndtr(point - centre) - ndtr(threshold - centre)))

    return max(0.0, below(0.0) / kept[0] - math.exp(epsilon) * below(shift) / kept[1])


@pitfall(
    "Epsilon without delta says nothing",
    "Every epsilon belongs to a delta: what comes on top of it. A method that fails altogether with that chance is "
    "allowed, too. Delta should be well under 1/N; above it, to publish one random person's record would count as "
    "private.",
)
def deltas(at: Example) -> Finding:
    values = sorted({1e-3, 1 / at.dataset_size, at.delta, 1e-10}, reverse=True)
    costs = {d: epsilon(Ledger(at.phases), d) for d in values}

    def name(d: float) -> str:
        return f"δ = {delta_text(float(f'{d:.2g}'))}" + (" = 1/N" if d == 1 / at.dataset_size else "")

    return Finding(
        f"The same training costs ε {epsilon_text(costs[values[0]])} or {epsilon_text(costs[values[-1]])}, by delta.",
        tuple((name(d), cost) for d, cost in costs.items()),
    )


@pitfall(
    "Which neighbours?",
    "Adding or removing one example, or counting it as zero, moves the gradient sum by at most one clipping norm; "
    "replacing one by another moves it by two. Papers use either, often without saying which. Batches in a fixed or "
    "shuffled order all change when one example is removed: there only zeroing out or replacing has a price.",
)
def neighbours(at: Example) -> Finding:
    costs = {name: at.price(adjacency=name) for name in ADJACENCIES}
    factor = costs["replace-one"].upper / costs["add-remove"].upper
    return Finding(
        f"Replacing one example costs {factor:.2f} times as much here.",
        tuple((ADJACENCIES[name].title, cost) for name, cost in costs.items()),
    )


@pitfall(
    "Trying is spending",
    "Choosing the best of several runs, settings or epochs looks at all of them, also at those that failed or were "
    "deleted. Unless the choice itself is private, the runs add up, and the figure of a single run is too low. Here "
    "each run draws batches and noise of its own, as dpviz's do; runs that share their noise have no price together.",
)
def tuning(at: Example) -> Finding:
    costs = {runs: selection_cost(at.phases, at.delta, runs) for runs in (1, 5, 20)}
    return Finding(
        f"The best of 20 runs costs ε {epsilon_text(costs[20])}, not {epsilon_text(costs[1])}.",
        tuple((f"Best of {runs}" if runs > 1 else "One run", cost) for runs, cost in costs.items()),
    )


@pitfall(
    "One quiet epoch can cost more than all others",
    "Cost grows steeply as noise falls. A single epoch with little noise can take most of the budget, and an epoch "
    "without noise costs infinity.",
)
def quiet_epoch(at: Example) -> Finding:
    middle = len(at.sigmas) // 2
    quiet = (*at.sigmas[:middle], 0.35, *at.sigmas[middle + 1 :])
    silent = (*at.sigmas[:middle], 0.0, *at.sigmas[middle + 1 :])
    share = price_tags(epoch_phases(quiet, at.sample_rate), at.delta)[middle]
    return Finding(
        f"With σ = 0.35 in epoch {middle + 1} alone, that epoch takes {100 * share:.0f} % of the cost.",
        (
            ("This curve", at.price()),
            (f"Epoch {middle + 1} at σ = 0.35", at.price(quiet)),
            (f"Epoch {middle + 1} without noise", at.price(silent)),
        ),
    )


@pitfall(
    "Sigma alone is no privacy level",
    "The same noise multiplier costs more with larger batches: each example is more likely to be in a batch. A pair of "
    "epsilon and sigma means something only with batch size, dataset size and epochs.",
)
def batch_sizes(at: Example) -> Finding:
    rates = [(b, b / 50_000) for b in (64, 256, 1024)]
    constant = Schedule.of("constant", sigma=1.1).sigmas(30)
    costs = {b: epsilon(Ledger(epoch_phases(constant, rate)), at.delta) for b, rate in rates}
    return Finding(
        f"σ = 1.1 over 30 epochs of 50,000 examples: ε {epsilon_text(costs[64])} to {epsilon_text(costs[1024])}.",
        tuple((f"Batch size {b:,}", cost) for b, cost in costs.items()),
    )


@pitfall(
    "Pictures of the training are not private",
    "Epsilon covers the model's weights. Training loss, gradient norms, which examples were clipped: all of these are "
    "computed from private data without noise. Look at them, but do not publish them as private.",
)
def pictures(at: Example) -> Finding:
    found = at.guarantee("dp-sgd", "none")
    return Finding(
        "Not covered: " + "; ".join(found.not_covered) + ".",
        (("The weights after training", found.sound), ("Training loss and diagnostics", None)),
    )


@pitfall(
    "Local budgets do not add up over people",
    "Under local privacy each person randomises their own answers. A person's loss is what their own visits cost; "
    "multiplying by the number of people gives a figure that belongs to nobody.",
)
def local_budgets(at: Example) -> Finding:
    people, visits, answer = 1000, 5, 0.5
    found = prestige_guarantee(answer, answer, visits, people)
    return Finding(
        f"{people:,} people, {visits} visits each, two answers of ε {answer:g} a visit.",
        (("Summed over people (claimed)", found.claimed), ("Each person (sound)", found.sound)),
    )


def case_frame(finding: Finding) -> pd.DataFrame:
    """The cases of a finding: name, epsilon as text, and its upper end (empty: no guarantee)."""
    rows = [(name, epsilon_text(cost), cost.upper if cost else math.nan) for name, cost in finding.cases]
    return pd.DataFrame(rows, columns=["case", "epsilon", "upper"])


def case_figure(frame: pd.DataFrame, *, height: int | None = None) -> go.Figure:
    """One bar a case; without a guarantee, or without an end, there is only the word."""
    figure = go.Figure(layout=layout("Epsilon (upper bound)", "", height=height or 110 + 40 * len(frame)))
    finite = frame["upper"].where(frame["upper"] < math.inf, 0.0).fillna(0.0)
    words = frame["epsilon"].replace("none", "no guarantee")
    figure.add_bar(
        y=frame["case"],
        x=finite,
        orientation="h",
        text=words,
        textposition=["auto" if length > 0 else "outside" for length in finite],
        marker={"color": COLOURS[0], "line": {"width": 0}},
        hovertemplate="%{y}: ε %{text}<extra></extra>",
        showlegend=False,
    )
    figure.update_yaxes(autorange="reversed", automargin=True)
    figure.update_layout(bargap=0.35, margin={"t": 10})
    return figure
