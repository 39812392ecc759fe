"""Claims about accuracy, decided by full-length runs of this code; without those runs they are not checked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np

from dpviz.papers.gains import SIGNIFICANT, Gains, by_seed, correlation, gains, seeds, signed
from dpviz.papers.library import LOCAL_RECIPES, RECIPES, REPORTED
from dpviz.papers.priced_claims import PAIRS, cost
from dpviz.papers.records import Claim, Curve, Curves, Errors, Finding
from dpviz.training.spec import EpochRecord

RISING = {name: name.replace("decreasing", "increasing") for name in PAIRS}
TIGHT = {name: f"matched-pld-{name.removesuffix('-decreasing')}" for name in PAIRS}
DATA = {"mnist": "MNIST", "fashion": "Fashion-MNIST", "cifar10": "CIFAR-10"}
FIRST = 5  # epochs that count as the first ones
CORRELATED = 0.8
CIFAR_SEED = 1.0  # points: a guess at what may be chance between two single runs on CIFAR-10, where all is less certain


def verdict_of(held: Sequence[bool]) -> str:
    """All cases: holds; some: holds partly; none: does not hold; no case: not checked."""
    if not held:
        return "not checked"
    return "holds" if all(held) else "holds partly" if any(held) else "does not hold"


def accuracy(curves: Curves, recipe: str) -> float:
    """Mean test accuracy over seeds after the last epoch, in percent."""
    return 100 * fmean(curve[-1].accuracy for curve in curves[recipe].values())


def missing(recipes: Iterable[str]) -> Finding:
    return Finding("not checked", f"Not checked yet: it takes full-length runs of {', '.join(recipes)}.")


# --- two experiments beside each other ----------------------------------------------------------------------------


def _leads(curves: Curves, pairs: Mapping[str, str]) -> dict[str, list[float]]:
    """Points by which the first of each pair ends above the second, one a common seed; pairs without one are left."""
    both = {one: by_seed(curves, f"curricula/{one}", f"curricula/{other}") for one, other in pairs.items()}
    return {
        one: [100 * (first[-1].accuracy - second[-1].accuracy) for first, second in runs]
        for one, runs in both.items()
        if runs
    }


def _reported_gain(one: str, other: str) -> float | None:
    first, second = RECIPES[f"curricula/{one}"].headline, RECIPES[f"curricula/{other}"].headline
    return 100 * (first.value - second.value) if first and second else None


def _pairwise(
    pairs: Mapping[str, str], winners: str, losers: str, verdict: Callable[[Gains], str]
) -> Callable[[Curves], Finding]:
    """A check that compares pairs of experiments by where they end."""

    def check(curves: Curves) -> Finding:
        leads = _leads(curves, pairs)
        if not leads:
            return _unmeasured(pairs)
        found = gains(leads, len(pairs))
        text = (
            f"Points of test accuracy by which {winners} gain over {losers}: the mean is {signed(found.mean.points)} "
            f"over {len(leads)} of {len(pairs)} pairs, {found.seeds}. {found.chance(_title)}"
        )
        drawn = found.pairs(_title, lambda name: _reported_gain(name, pairs[name]))
        return Finding(verdict(found), text, found.points, drawn)

    return check


def _unmeasured(pairs: Mapping[str, str]) -> Finding:
    """Without runs the paper's own numbers stand alone."""
    finding = missing(f"curricula/{name}" for pair in list(pairs.items())[:1] for name in pair)
    gains = {name: _reported_gain(name, other) for name, other in pairs.items()}
    said = "; ".join(f"{_title(name)}: {signed(gain)}" for name, gain in gains.items() if gain is not None)
    return Finding(
        finding.verdict, f"{finding.text} The paper's own numbers, in points: {said}." if said else finding.text
    )


def _title(name: str) -> str:
    """The experiment without what its partner shares."""
    return (
        RECIPES[f"curricula/{name}"].title.removesuffix(", falling from 5 to 1").removesuffix(", sorted easy to hard")
    )


# --- accuracy against log epsilon ---------------------------------------------------------------------------------


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


def _loss_pairs(curves: Curves) -> dict[str, list[tuple[Curve, Curve]]]:
    """Dataset -> (tailored loss, cross-entropy) of each seed with runs of both."""
    pairs = {data: by_seed(curves, f"losing-less/{data}-o-t-cnn", f"losing-less/{data}-ce-t-cnn") for data in DATA}
    return {data: runs for data, runs in pairs.items() if runs}


def _first_epochs(curves: Curves) -> Finding:
    pairs = _loss_pairs(curves)
    if not pairs:
        return missing(("losing-less/mnist-o-t-cnn", "losing-less/mnist-ce-t-cnn"))
    ends = {"first": slice(FIRST), "last": slice(-FIRST, None)}
    found = {
        data: {
            when: fmean(_lead(tailored[some], plain[some]) for tailored, plain in runs) for when, some in ends.items()
        }
        for data, runs in pairs.items()
    }
    said = "; ".join(
        f"{DATA[data]}: {signed(gain['first'])} at first, {signed(gain['last'])} at the end"
        for data, gain in found.items()
    )
    text = (
        f"Points by which the tailored loss leads cross-entropy in the first {FIRST} and in the last {FIRST} epochs of "
        f"a run, {seeds(map(len, pairs.values()))}: {said}. A lead that shrinks is worth most to whoever stops "
        "early, at a small epsilon."
    )
    figures = {f"{data}_{when}": points for data, gain in found.items() for when, points in gain.items()}
    return Finding(verdict_of([gain["first"] > max(0.0, gain["last"]) for gain in found.values()]), text, figures)


def _lead(one: Curve, other: Curve) -> float:
    """Points by which one curve lies above another, mean over their epochs."""
    return 100 * fmean(a.accuracy - b.accuracy for a, b in zip(one, other, strict=True))


def _alignment(curves: Curves) -> Finding:
    found = {}
    for data, runs in _loss_pairs(curves).items():
        cosines = [(_mean_cosine(tailored), _mean_cosine(plain)) for tailored, plain in runs]
        known = [(one, other) for one, other in cosines if one is not None and other is not None]
        if known:
            found[data] = {"tailored": fmean(one for one, _ in known), "ce": fmean(other for _, other in known)}
    if not found:
        return missing(("losing-less/mnist-o-t-cnn", "losing-less/mnist-ce-t-cnn (with diagnostics)"))
    said = "; ".join(f"{DATA[data]}: {mean['tailored']:.3f} against {mean['ce']:.3f}" for data, mean in found.items())
    text = (
        "Cosine between the mean gradient and the mean of clipped gradients (1: clipping only shortens), averaged over "
        f"epochs, tailored loss against cross-entropy, in the runs that were looked into: {said}."
    )
    figures = {f"{data}_{loss}": value for data, mean in found.items() for loss, value in mean.items()}
    return Finding(verdict_of([mean["tailored"] > mean["ce"] for mean in found.values()]), text, figures)


def _mean_cosine(curve: Curve) -> float | None:
    cosines = [record.diagnostics.get("cosine") for record in curve]
    known = [cosine for cosine in cosines if cosine is not None]
    return fmean(known) if known else None


# --- optimizers ---------------------------------------------------------------------------------------------------


SGD = "optimizers/dp-sgd-b256"
ADAMS = ("optimizers/dp-adam-b256", "optimizers/dp-adam-b256-lr0.001")
OTHERS = (*ADAMS, "optimizers/dp-rmsprop-b256", "optimizers/dp-lion-b256")


def _against_sgd(names: Sequence[str], verdict: Callable[[Gains], str]) -> Callable[[Curves], Finding]:
    """A check that compares other optimizers with DP-SGD, each at the last epoch that both reached."""

    def check(curves: Curves) -> Finding:
        there = {name: runs for name in names if (runs := by_seed(curves, name, SGD))}
        if not there:
            finding = missing((SGD, *names))
            printed = {name: number for name in (SGD, *names) if (number := RECIPES[name].headline)}
            said = "; ".join(f"{RECIPES[name].title}: {100 * number.value:.0f} %" for name, number in printed.items())
            return Finding(finding.verdict, f"{finding.text} The paper prints: {said}.")
        of = RECIPES[SGD].spec.epochs
        common = {name: min(len(curve) for pair in runs for curve in pair) for name, runs in there.items()}
        ends = {name: slice(epochs - 1, epochs) for name, epochs in common.items()}
        leads = {name: [_lead(a[ends[name]], b[ends[name]]) for a, b in runs] for name, runs in there.items()}
        found = gains(leads, len(there), CIFAR_SEED)
        drawn = found.pairs(lambda name: RECIPES[name].title)
        text = (
            f"Points of test accuracy over DP-SGD after {of} epochs, at the same epsilon, {found.seeds}. "
            f"{found.chance(lambda name: RECIPES[name].title)}"
        )
        early = [f"{RECIPES[name].title} after {epochs}" for name, epochs in common.items() if epochs < of]
        if early:
            text = f"{text} Runs stopped early, so compared are {'; '.join(early)}. What they end at decides."
            return Finding("undecided", text, found.points, drawn)
        return Finding(verdict(found), text, found.points, drawn)

    return check


# --- prestige -----------------------------------------------------------------------------------------------------


def _prestige(errors: Errors) -> Finding:
    printed = {number.name: number.value for number in REPORTED if number.name.startswith("prestige/")}
    pairs = {name.replace("-djw-", "-prestige-"): name for name in printed if "-djw-" in name}
    there = {one: other for one, other in pairs.items() if one in errors and other in errors}
    if not there:
        return missing(("prestige/mnist38-prestige-hinge", "prestige/mnist38-djw-hinge"))
    found = gains(
        {
            one: [100 * (djw - own) for own, djw in zip(errors[one], errors[other], strict=False)]
            for one, other in there.items()
        },
        len(pairs),
    )
    drawn = found.pairs(
        lambda one: LOCAL_RECIPES[one].title.replace(", PRESTIGE", ""),
        lambda one: 100 * (printed[pairs[one]] - printed[one]),
    )
    text = (
        "Points of test error by which PRESTIGE lies below DJW at epsilon 1 per visit: the mean is "
        f"{signed(found.mean.points, 1)} over {len(there)} of {len(pairs)} pairs, {found.mean.seeds} repeats each; "
        "the other data cannot be had. Of epsilon 1 the curriculum's answer gets 0.2, so 45 % of the answered labels "
        "are wrong, and Algorithm 1 makes the gradient from them; DJW spends all of it on gradients of true labels."
    )
    return Finding(found.wins(), text, found.points, drawn)


# --- screening ----------------------------------------------------------------------------------------------------


def within(curve: Curve, kind: str, budget: float) -> EpochRecord | None:
    """The last epoch whose epsilon is within the budget."""
    spent = [record for record in curve if (getattr(record, f"epsilon_{kind}") or math.inf) <= budget]
    return spent[-1] if spent else None


def _screening(kind: str) -> Callable[[Curves], Finding]:
    def check(curves: Curves) -> Finding:
        pairs = {data: by_seed(curves, f"screening/{data}", f"screening/{data}-tanh") for data in DATA}
        equal = {data: at for data, runs in pairs.items() if (at := _at_equal(runs, kind))[1]}
        if not equal:
            return missing(("screening/mnist", "screening/mnist-tanh"))
        found = gains({data: [one - other for one, other in ends] for data, (_, ends) in equal.items()}, len(pairs))
        text = (
            f"Points by which noise screening leads plain DP-SGD (tanh) at equal {kind} epsilon, {found.seeds}. "
            f"{found.chance(DATA.__getitem__)} {SAYS[kind]}{_left_out(equal)}"
        )
        drawn = found.pairs(lambda data: f"{DATA[data]} at {kind} epsilon {equal[data][0]:.2f}")
        return Finding(found.wins(), text, {f"{data}_gain": points for data, points in found.points.items()}, drawn)

    return check


def _left_out(found: Iterable[str]) -> str:
    """A sentence on the datasets that a finding says nothing about."""
    names = [name for data, name in DATA.items() if data not in set(found)]
    return f" Without runs yet: {', '.join(names)}." if names else ""


def _at_equal(runs: Sequence[tuple[Curve, Curve]], kind: str) -> tuple[float, list[tuple[float, float]]]:
    """The largest epsilon that every run reaches, and there both accuracies of each seed, in percent."""
    ends = [getattr(curve[-1], f"epsilon_{kind}") for pair in runs for curve in pair]
    budget = min((end for end in ends if end is not None), default=math.inf)
    reached = [[within(curve, kind, budget) for curve in pair] for pair in runs]
    return budget, [(100 * one.accuracy, 100 * other.accuracy) for one, other in reached if one and other]


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
        _pairwise(RISING, "falling schedules", "rising ones", Gains.wins),
    ),
    Claim(
        "falling-beats-constant-renyi",
        "curricula",
        "Table 3",
        "Falling noise beats constant noise of equal Renyi epsilon.",
        _pairwise(PAIRS, "falling schedules", "constants of equal Renyi epsilon", Gains.wins),
    ),
    Claim(
        "falling-beats-constant-tight",
        "curricula",
        "Table 3, with tight accounting",
        "Falling noise beats constant noise of equal tight epsilon.",
        _pairwise(TIGHT, "falling schedules", "constants of equal tight epsilon", Gains.wins),
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
            Gains.never_wins,
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
    Claim(
        "adam",
        "optimizers",
        "Table 2",
        "DP-Adam does at least as well as DP-SGD.",
        _against_sgd(ADAMS, Gains.never_loses),
        "all runs",
    ),
    Claim(
        "other-optimizers",
        "optimizers",
        "Sec. 4.3",
        "Another optimizer brings little, if any, over DP-SGD.",
        _against_sgd(OTHERS, Gains.never_wins),
        "all runs",
    ),
    Claim(
        "prestige-beats-djw",
        "prestige",
        "Table 3",
        "PRESTIGE has a lower test error than DJW at the same budget.",
        _prestige,
        "errors",
    ),
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
