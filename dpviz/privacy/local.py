r"""Local privacy: what leaves a person is random already. Mechanisms and budgets.

PRESTIGE is Han, Tsang, Xiao, Chen, Fung & Yu (2018), "Privacy-preserving Stochastic Gradual Learning"; private sampling
is Duchi, Jordan & Wainwright (2013), "Local privacy and statistical minimax rates".
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit, gammaln

from dpviz.privacy.guarantees import prestige_guarantee
from dpviz.privacy.records import Epsilon, Guarantee
from dpviz.privacy.registry import Entry, InputError, Table

FloatArray = npt.NDArray[np.floating]
MAX_EPSILON = 50.0  # beyond, a coin is certain in double precision


def check_epsilon(epsilon: float, name: str = "epsilon") -> float:
    if not 0 < epsilon <= MAX_EPSILON:
        raise InputError(f"{name} must be above 0 and at most {MAX_EPSILON:g}, got {epsilon:g}")
    return float(epsilon)


# --- randomized response ------------------------------------------------------------------------------------------


def flip_probability(epsilon: float) -> float:
    """rho = 1 / (e^eps + 1): how often a label is answered wrongly (Remark 2)."""
    return float(expit(-check_epsilon(epsilon)))


# --- private sampling ---------------------------------------------------------------------------------------------


def scale(dimension: int, epsilon: float, bound: float = 1.0, *, printed: bool = False) -> float:
    r"""Length B of what private sampling sends, such that its mean is the vector that came in.

    B = L sqrt(pi) (e^eps + 1) / (e^eps - 1) Gamma((d + 1) / 2) / Gamma(d / 2). The half-sphere's mean has length
    Gamma(d/2) / (sqrt(pi) Gamma((d+1)/2)). Lemma 2 as printed has d / Gamma(d/2 + 1) in place of 1 / Gamma(d/2),
    which is twice as much.
    """
    if not (dimension >= 1 and dimension == int(dimension)):
        raise InputError(f"the dimension must be a whole number >= 1, got {dimension}")
    if not 0 < bound < math.inf:
        raise InputError(f"the bound L on a gradient's length must be a finite number above 0, got {bound}")
    half_sphere = math.exp(gammaln((dimension + 1) / 2) - gammaln(dimension / 2))
    unbiased = bound * math.sqrt(math.pi) * half_sphere / math.tanh(check_epsilon(epsilon) / 2)
    return 2 * unbiased if printed else unbiased


def toward_probability(lengths: FloatArray, bound: float, epsilon: float) -> FloatArray:
    """Chance that the answer lies in the half-sphere around the vector itself: 1/2 + (|g| / L) (pi_eps - 1/2).

    The two coins of Prop. 1 (rescale: 1/2 + |g| / 2L; half-sphere: pi_eps = e^eps / (e^eps + 1)) agree or both fail.
    """
    return 0.5 + np.minimum(lengths / bound, 1.0) * (expit(check_epsilon(epsilon)) - 0.5)


def private_sample(
    vectors: FloatArray,
    bound: float,
    epsilon: float,
    generator: np.random.Generator,
    *,
    printed: bool = False,
) -> FloatArray:
    """One private answer of length B for each row, whose length is at most L (Prop. 1).

    A uniform direction is turned to the side that the coins chose: on a sphere that is the uniform law on a half.
    """
    vectors = np.atleast_2d(vectors)
    lengths = np.linalg.norm(vectors, axis=1)
    if not np.all(lengths <= bound * (1 + 1e-9)):
        raise InputError(f"vectors must be no longer than the bound {bound:g}, got one of length {lengths.max():g}")
    directions = generator.standard_normal(vectors.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    toward = generator.random(len(vectors)) < toward_probability(lengths, bound, epsilon)
    ahead = np.vecdot(directions, vectors) > 0
    sign = np.where(toward == ahead, 1.0, -1.0)
    return scale(vectors.shape[1], epsilon, bound, printed=printed) * sign[:, None] * directions


# --- budgets ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class LocalMethod(Entry):
    """How a person's gradient is asked for, and what the answer protects."""

    private: bool = True
    curriculum: bool = False  # people below a threshold are passed over
    flips_labels: bool = False  # the curriculum asks for a randomized label, which takes its share of epsilon
    covers_silence: bool = False  # whoever is passed over answers for a zero gradient all the same


METHODS = Table(
    "method",
    LocalMethod(
        "prestige",
        "Private curriculum on a flipped label, then private sampling of the gradient (Alg. 1).",
        title="PRESTIGE",
        curriculum=True,
        flips_labels=True,
    ),
    LocalMethod(
        "djw",
        "Private sampling of every gradient, all of epsilon spent on it (Duchi, Jordan & Wainwright).",
        title="DJW",
    ),
    LocalMethod(
        "masked",
        "dpviz's own: the curriculum without flips; people outside it answer for a zero gradient.",
        curriculum=True,
        covers_silence=True,
    ),
    LocalMethod("sgd", "Plain stochastic gradient descent: no privacy.", title="SGD", private=False),
)


@dataclass(frozen=True)
class LocalBudget:
    """What a person pays: `epsilon` at each of `visits` visits, a share of it for the curriculum's answer."""

    epsilon: float
    share: float
    visits: int
    people: int

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        if not 0 < self.share < 1:
            raise InputError(f"the curriculum's share of epsilon must lie between 0 and 1, got {self.share:g}")
        if not (self.visits >= 1 and self.people >= 1):
            raise InputError(f"visits and people must be at least 1, got {self.visits} and {self.people}")

    @property
    def curriculum(self) -> float:
        """epsilon_r, for the randomized answer."""
        return self.epsilon * self.share

    @property
    def gradient(self) -> float:
        """epsilon_s, for the private gradient."""
        return self.epsilon * (1 - self.share)

    @property
    def per_person(self) -> float:
        """What holds: a person's visits compose, and nobody else's budget is hers."""
        return self.epsilon * self.visits

    @property
    def total(self) -> float:
        """The paper's sum over people and epochs, epsilon n T_max; no person's loss."""
        return self.per_person * self.people

    @property
    def visit_if_total(self) -> float:
        """What a visit would get if `epsilon` were the paper's total (Sec. 4.1): far too little to learn from."""
        return self.epsilon / (self.visits * self.people)


def local_guarantee(method: str, budget: LocalBudget) -> Guarantee:
    """The paper's epsilon of one visit beside what a person pays over all visits, and what it protects."""
    entry = METHODS[method]
    base = prestige_guarantee(budget.curriculum, budget.gradient, budget.visits, budget.people)
    # The two parts of a visit add up to its epsilon; say so without a rounding error.
    base = dataclasses.replace(base, sound=Epsilon(budget.per_person, budget.per_person, 0.0, "pure"))
    visits = f"{budget.visits} visits at {budget.epsilon:g} each add up (pure epsilon, delta = 0)"
    total = (
        f"the paper calls {budget.epsilon:g} a total over {budget.people:,} people and {budget.visits} epochs; "
        f"that would leave {budget.visit_if_total:.2g} a visit, at which every answer is a fair coin"
    )
    one_visit = Epsilon(budget.epsilon, budget.epsilon, 0.0, "pure")
    if not entry.private:
        assumptions: tuple[str, ...] = ("gradients leave people as they are: no guarantee",)
        return dataclasses.replace(base, claimed=None, sound=None, assumptions=assumptions)
    if entry.flips_labels:
        label_only = budget.curriculum * budget.visits
        return dataclasses.replace(
            base,
            claimed=one_visit,
            adjacency="one person's label is replaced; the features are known (local privacy of labels)",
            assumptions=(
                "it covers the label only: who falls silent is seen and depends on the features without noise, so for "
                "the features there is no guarantee, at any epsilon",
                visits,
                f"the gradient is made from the answered label, so labels alone pay only {label_only:.4g} in all",
                total,
            ),
        )
    if not entry.covers_silence:
        return dataclasses.replace(base, claimed=one_visit, assumptions=(visits, total))
    silent = "people outside the curriculum send the private answer for a zero gradient, so silence is never seen"
    return dataclasses.replace(base, claimed=None, assumptions=(visits, silent))
