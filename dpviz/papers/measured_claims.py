"""Claims about accuracy, decided by full-length runs of this code; without those runs they are not checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev, variance

import numpy as np

from dpviz.papers.library import RECIPES, REPORTED
from dpviz.papers.priced_claims import PAIRS, cost
from dpviz.papers.records import Claim, Curves, Finding
from dpviz.privacy.special import stdtr
from dpviz.training.spec import EpochRecord

RISING = {name: name.replace("decreasing", "increasing") for name in PAIRS}
TIGHT = {name: f"matched-pld-{name.removesuffix('-decreasing')}" for name in PAIRS}
ONE_SEED = 0.3  # points: less than this between two single runs may be chance
FIRST = 5  # epochs that count as the first ones
CORRELATED, SIGNIFICANT = 0.8, 0.05

Curve = tuple[EpochRecord, ...]


def verdict_of(held: Sequence[bool]) -> str:
    """All cases: holds; some: holds partly; none: does not hold; no case: not checked."""
    if not held:
        return "not checked"
    return "holds" if all(held) else "holds partly" if any(held) else "does not hold"


def accuracy(curves: Curves, recipe: str) -> float:
    """Mean test accuracy over seeds after the last epoch, in percent."""
    return 100 * fmean(curve[-1].test_accuracy for curve in curves[recipe])


def missing(recipes: Iterable[str]) -> Finding:
    return Finding("not checked", f"Not checked yet: it takes full-length runs of {', '.join(recipes)}.")


# --- two experiments beside each other ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Gain:
    """Points by which one experiment leads another, and how many of them may be chance."""

    points: float
    chance: float
    seeds: int


def _gains(curves: Curves, pairs: Mapping[str, str]) -> dict[str, Gain]:
    """The gain in each pair with runs of both. Chance: two standard errors, or ONE_SEED where a seed stands alone."""
    found = {}
    for one, other in pairs.items():
        both = [curves.get(f"curricula/{name}", ()) for name in (one, other)]
        if all(both):
            ends = [[100 * curve[-1].test_accuracy for curve in runs] for runs in both]
            seeds = min(map(len, ends))
            error = math.sqrt(sum(variance(end) / len(end) for end in ends)) if seeds > 1 else ONE_SEED / 2
            found[one] = Gain(fmean(ends[0]) - fmean(ends[1]), 2 * error, seeds)
    return found


def _reported_gain(one: str, other: str) -> float | None:
    first, second = RECIPES[f"curricula/{one}"].headline, RECIPES[f"curricula/{other}"].headline
    return 100 * (first.value - second.value) if first and second else None


def _pairwise(pairs: Mapping[str, str], winners: str, losers: str, *, wins: bool = True) -> Callable[[Curves], Finding]:
    """A check that compares pairs of experiments: the first wins by more than chance, or (`wins` False) never does."""

    def check(curves: Curves) -> Finding:
        found = _gains(curves, pairs)
        if not found:
            return _unmeasured(pairs)
        said = "; ".join(
            f"{_words(name)}: {gain.points:+.2f}{_told(name, pairs[name])}" for name, gain in found.items()
        )
        seeds, close = min(gain.seeds for gain in found.values()), _close(found)
        text = (
            f"Points of test accuracy by which {winners} gain over {losers}: {said}. The mean is "
            f"{fmean(gain.points for gain in found.values()):+.2f} points over {len(found)} of {len(pairs)} pairs, "
            f"{_seeds(seeds)}. {close}{_caution(curves, seeds)}"
        )
        verdict = _verdict(list(found.values()), len(found) == len(pairs), wins)
        return Finding(verdict, text.strip(), {name: gain.points for name, gain in found.items()})

    return check


def _verdict(gains: Sequence[Gain], complete: bool, wins: bool) -> str:
    """What is too close to call decides nothing, unless the claim is that nothing is won; some pairs are not all."""
    if wins:
        held = [gain.points > 0 for gain in gains if abs(gain.points) > gain.chance]
    else:
        held = [gain.points <= gain.chance for gain in gains]
    verdict = verdict_of(held)
    return "holds partly" if verdict == "holds" and (not complete or len(held) < len(gains)) else verdict


def _close(found: Mapping[str, Gain]) -> str:
    close = [_words(name) for name, gain in found.items() if abs(gain.points) <= gain.chance]
    return f"Too close to call: {', '.join(close)}. " if close else ""


def _unmeasured(pairs: Mapping[str, str]) -> Finding:
    """Without runs the paper's own numbers stand alone."""
    finding = missing(f"curricula/{name}" for pair in list(pairs.items())[:1] for name in pair)
    told = {name: _reported_gain(name, other) for name, other in pairs.items()}
    said = "; ".join(f"{_words(name)}: {gain:+.2f}" for name, gain in told.items() if gain is not None)
    return Finding(
        finding.verdict, f"{finding.text} The paper's own numbers, in points: {said}." if said else finding.text
    )


def _told(one: str, other: str) -> str:
    gain = _reported_gain(one, other)
    return "" if gain is None else f" (paper {gain:+.2f})"


def _words(name: str) -> str:
    return name.replace("-decreasing", "").replace("-", " ")


def _seeds(count: int) -> str:
    return "one seed each" if count == 1 else f"at least {count} seeds each"


def _caution(curves: Curves, seeds: int) -> str:
    """How far seeds lie apart, where that is known."""
    several = [curve for recipe, curve in curves.items() if recipe.startswith("curricula/") and len(curve) > 1]
    if several:
        apart = fmean(stdev(100 * run[-1].test_accuracy for run in curve) for curve in several)
        return f"Seeds of one experiment differ by {apart:.2f} points (standard deviation)."
    return f"With one seed, less than {ONE_SEED} points may be chance." if seeds == 1 else ""


# --- accuracy against log epsilon ---------------------------------------------------------------------------------


def correlation(logs: Sequence[float], accuracies: Sequence[float]) -> tuple[float, float]:
    """Pearson's r and its two-sided p-value: t = r sqrt(f / (1 - r^2)) with f = n - 2 degrees of freedom."""
    r = float(np.corrcoef(logs, accuracies)[0, 1])
    freedom = len(logs) - 2
    t = abs(r) * math.sqrt(freedom / max(1e-15, 1 - r * r))
    return r, float(2 * stdtr(freedom, -t))


def _log_epsilon(curves: Curves) -> Finding:
    like = RECIPES["curricula/constant-0"].spec
    specs = {name: RECIPES[name].spec for name in curves if name.startswith("curricula/")}
    alike = {
        name: spec for name, spec in specs.items() if (spec.curriculum, spec.clip_norm) == ("none", like.clip_norm)
    }
    names = [name for name, spec in alike.items() if cost(spec, "rdp") < math.inf]
    if len(names) < 5:
        return missing(("at least five noise schedules of curricula",))
    logs = [math.log(cost(RECIPES[name].spec, "rdp")) for name in names]
    r, p = correlation(logs, [accuracy(curves, name) for name in names])
    slope = float(np.polyfit(logs, [accuracy(curves, name) for name in names], 1)[0]) * math.log(2)
    printed = next(n.value for n in REPORTED if n.quantity == "pearson_r")
    text = (
        f"Over {len(names)} schedules with random batches the correlation of our test accuracy with log epsilon "
        f"(Renyi, as the paper prices) is {r:.3f} (p = {p:.2g}); the paper finds {printed} over its own. Twice the "
        f"epsilon goes with {slope:+.2f} points. A straight line is a fair summary, not a law: schedules of equal "
        "epsilon, one falling and one rising, lie on either side of it."
    )
    verdict = "holds" if r >= CORRELATED and p < SIGNIFICANT else "holds partly" if r > 0.5 else "does not hold"
    return Finding(verdict, text, {"pearson_r": r, "p_value": p, "points": len(names)})


# --- losing-less --------------------------------------------------------------------------------------------------


def _loss_pairs(curves: Curves) -> list[tuple[str, Curve, Curve]]:
    """(dataset, tailored loss, cross-entropy) for each dataset with runs of both, first seeds."""
    pairs = [
        (data, curves.get(f"losing-less/{data}-o-t-cnn"), curves.get(f"losing-less/{data}-ce-t-cnn"))
        for data in ("mnist", "fashion", "cifar10")
    ]
    return [(data, tailored[0], plain[0]) for data, tailored, plain in pairs if tailored and plain]


def _first_epochs(curves: Curves) -> Finding:
    found = {}
    for data, tailored, plain in _loss_pairs(curves):
        gain = [100 * (a.test_accuracy - b.test_accuracy) for a, b in zip(tailored, plain, strict=False)]
        found[data] = (fmean(gain[:FIRST]), fmean(gain[-FIRST:]))
    if not found:
        return missing(("losing-less/mnist-o-t-cnn", "losing-less/mnist-ce-t-cnn"))
    said = "; ".join(f"{data}: {early:+.2f} at first, {late:+.2f} at the end" for data, (early, late) in found.items())
    text = (
        f"Points by which the tailored loss leads cross-entropy in the first {FIRST} and in the last {FIRST} epochs of "
        f"a run, one seed: {said}. A lead that shrinks is worth most to whoever stops early, at a small epsilon."
    )
    figures = {
        f"{data}_{when}": gain
        for data, both in found.items()
        for when, gain in zip(("first", "last"), both, strict=True)
    }
    return Finding(verdict_of([early > max(0.0, late) for early, late in found.values()]), text, figures)


def _alignment(curves: Curves) -> Finding:
    found = {}
    for data, tailored, plain in _loss_pairs(curves):
        means = [_mean_cosine(curve) for curve in (tailored, plain)]
        if None not in means:
            found[data] = tuple(mean for mean in means if mean is not None)
    if not found:
        return missing(
            (
                "losing-less/mnist-o-t-cnn",
                "losing-less/mnist-ce-t-cnn (with diagnostics)",
            )
        )
    said = "; ".join(f"{data}: {one:.3f} against {other:.3f}" for data, (one, other) in found.items())
    text = (
        "Cosine between the mean gradient and the mean of clipped gradients (1: clipping only shortens), averaged over "
        f"epochs, tailored loss against cross-entropy, one seed: {said}."
    )
    figures = {
        f"{data}_{loss}": mean
        for data, both in found.items()
        for loss, mean in zip(("tailored", "ce"), both, strict=True)
    }
    return Finding(verdict_of([one > other for one, other in found.values()]), text, figures)


def _mean_cosine(curve: Curve) -> float | None:
    cosines = [record.diagnostics.get("cosine") for record in curve]
    known = [cosine for cosine in cosines if cosine is not None]
    return fmean(known) if known else None


# --- optimizers ---------------------------------------------------------------------------------------------------


def _adam(curves: Curves) -> Finding:
    sgd, adams = "optimizers/dp-sgd-b256", ("optimizers/dp-adam-b256", "optimizers/dp-adam-b256-lr0.001")
    there = [name for name in adams if name in curves]
    if sgd not in curves or not there:
        finding = missing((sgd, adams[1]))
        printed = [RECIPES[name].headline for name in (adams[0], sgd)]
        one, other = (100 * number.value for number in printed if number)
        text = f"{finding.text} The paper prints {one:.0f} % for DP-Adam and {other:.0f} % for DP-SGD at batch 256."
        return Finding(finding.verdict, text)
    gains = {name: accuracy(curves, name) - accuracy(curves, sgd) for name in there}
    said = "; ".join(f"{RECIPES[name].title} {gain:+.2f}" for name, gain in gains.items())
    text = f"Points of test accuracy over DP-SGD at the same tight epsilon, one seed: {said}."
    return Finding(verdict_of([gain > 0 for gain in gains.values()]), text, gains)


# --- screening ----------------------------------------------------------------------------------------------------


def within(curve: Curve, kind: str, budget: float) -> EpochRecord | None:
    """The last epoch whose epsilon is within the budget."""
    spent = [record for record in curve if (getattr(record, f"epsilon_{kind}") or math.inf) <= budget]
    return spent[-1] if spent else None


def _screening(kind: str) -> Callable[[Curves], Finding]:
    def check(curves: Curves) -> Finding:
        found: dict[str, tuple[float, float, float]] = {}
        for data in ("mnist", "fashion", "cifar10"):
            ours, plain = curves.get(f"screening/{data}"), curves.get(f"screening/{data}-tanh")
            if ours and plain:
                found[data] = _at_equal(ours[0], plain[0], kind)
        if not found:
            return missing(("screening/mnist", "screening/mnist-tanh"))
        said = "; ".join(
            f"{data} at {kind} epsilon {budget:.2f}: {one:.2f} % against {other:.2f} %"
            for data, (budget, one, other) in found.items()
        )
        text = f"Noise screening beside plain DP-SGD (tanh) at equal {kind} epsilon, one seed: {said}. {SAYS[kind]}"
        figures = {f"{data}_gain": one - other for data, (_, one, other) in found.items()}
        return Finding(verdict_of([one > other for _, one, other in found.values()]), text, figures)

    return check


def _at_equal(ours: Curve, plain: Curve, kind: str) -> tuple[float, float, float]:
    """The largest epsilon that both reach, and both accuracies there, in percent."""
    ends = [getattr(curve[-1], f"epsilon_{kind}") for curve in (ours, plain)]
    budget = min(end for end in ends if end is not None)
    reached = [within(curve, kind, budget) for curve in (ours, plain)]
    one, other = (100 * record.test_accuracy if record else math.nan for record in reached)
    return budget, one, other


SAYS = {
    "claimed": "The claim counts accepted updates only, so screening takes more looks at the data for the same number.",
    "sound": "Soundly, every candidate is paid for: screening gets as many looks as plain DP-SGD and throws some away.",
}

CLAIMS = (
    Claim(
        "falling-beats-rising",
        "curricula",
        "Table 2",
        "Noise that falls beats its rising mirror image at equal epsilon.",
        _pairwise(RISING, "falling schedules", "rising ones"),
    ),
    Claim(
        "falling-beats-constant-renyi",
        "curricula",
        "Table 3",
        "Falling noise beats constant noise of equal Renyi epsilon.",
        _pairwise(PAIRS, "falling schedules", "constants of equal Renyi epsilon"),
    ),
    Claim(
        "falling-beats-constant-tight",
        "curricula",
        "Table 3, with tight accounting",
        "Falling noise beats constant noise of equal tight epsilon.",
        _pairwise(TIGHT, "falling schedules", "constants of equal tight epsilon"),
    ),
    Claim(
        "log-epsilon",
        "curricula",
        "Sec. 6.2, Fig. 4",
        "Accuracy is linear in the logarithm of epsilon.",
        _log_epsilon,
    ),
    Claim(
        "sorting-does-not-help",
        "curricula",
        "Table 4",
        "Sorting examples from easy to hard does not help.",
        _pairwise(
            {f"sample-{name}": name for name in (*(f"constant-{sigma}" for sigma in range(6)), "linear-decreasing")},
            "sorted examples",
            "random batches of the same noise",
            wins=False,
        ),
    ),
    Claim(
        "first-epochs",
        "losing-less",
        "Sec. 4.1",
        "The tailored loss gains most in the first epochs.",
        _first_epochs,
    ),
    Claim(
        "alignment",
        "losing-less",
        "Sec. 4.2",
        "Clipped gradients point closer to the true gradient with the tailored loss.",
        _alignment,
    ),
    Claim("adam", "optimizers", "Table 2", "DP-Adam does at least as well as DP-SGD.", _adam),
    Claim(
        "screening-claimed",
        "screening",
        "Table 1",
        "Noise screening beats DP-SGD at equal claimed epsilon.",
        _screening("claimed"),
    ),
    Claim(
        "screening-sound",
        "screening",
        "Table 1, with every candidate charged",
        "Noise screening beats DP-SGD at equal sound epsilon.",
        _screening("sound"),
    ),
)
