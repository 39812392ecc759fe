"""Records as a notebook shows them: small pieces of HTML, no scripts. Plain text goes in; `card` escapes all of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

import numpy as np

from dpviz.privacy.assumptions import ADJACENCIES, SAMPLINGS
from dpviz.privacy.records import Epsilon, Guarantee
from dpviz.privacy.registry import InputError
from dpviz.privacy.risk import Risk
from dpviz.privacy.rounding import delta_number, epsilon_kind, epsilon_remark, epsilon_text, percent_text
from dpviz.privacy.schedules import CUSTOM, FloatArray, Schedule

WIDTH, HEIGHT, MARGIN = 260, 80, 6
DRAWN_EPOCHS = 20  # a formula has no length of its own
MOST_POINTS = 200
LEFT = 'style="text-align: left"'


def card(
    heading: str, facts: Iterable[tuple[str, str]], lists: Mapping[str, Iterable[str]] | None = None, picture: str = ""
) -> str:
    """A heading, a table of facts, a picture (finished HTML), and lists that can be unfolded."""
    rows = "".join(f"<tr><th {LEFT}>{escape(name)}</th><td {LEFT}>{escape(text)}</td></tr>" for name, text in facts)
    folded = "".join(
        f"<details><summary>{escape(name)}</summary><ul>{''.join(f'<li>{escape(text)}</li>' for text in texts)}</ul>"
        "</details>"
        for name, texts in (lists or {}).items()
    )
    return f"<div><strong>{escape(heading)}</strong><table>{rows}</table>{picture}{folded}</div>"


def epsilon_html(epsilon: Epsilon) -> str:
    remark = epsilon_remark(epsilon) or epsilon_kind(epsilon)
    return card(f"ε = {epsilon_text(epsilon)}", (("at δ", delta_number(epsilon.delta)), ("kind", remark)))


def guarantee_html(guarantee: Guarantee) -> str:
    facts = (
        ("sound ε", _priced(guarantee.sound)),
        ("claimed ε", claimed_text(epsilon_text(guarantee.claimed), guarantee.claimed == guarantee.sound)),
        ("neighbours", guarantee.adjacency),
        ("batches", guarantee.sampling),
    )
    heading = "Guarantee" if guarantee.sound else "No guarantee"
    return card(heading, facts, {reasons(guarantee.sound): guarantee.assumptions, "Not covered": guarantee.not_covered})


def risk_html(risk: Risk) -> str:
    rates = ((f"finds of the members, at {100 * fpr:g} % false alarms", risk.tpr(fpr)) for fpr in (0.001, 0.01, 0.1))
    facts = [(name, percent_text(*bounds)) for name, bounds in (*rates, ("advantage", risk.advantage))]
    mu, regret = risk.gdp
    facts += [
        ("Gaussian DP", f"μ = {mu:.4g}, off by {regret:.2g}"),
        ("neighbours", ADJACENCIES[risk.assumptions.adjacency].help),
        ("batches", SAMPLINGS[risk.assumptions.sampling].help),
        ("kind", risk.kind),
    ]
    return card("What the best attack can do", facts)


def reasons(sound: object | None) -> str:
    """The heading of a guarantee's sentences."""
    return "It rests on" if sound else "Why there is no guarantee"


def claimed_text(text: str, holds: bool) -> str:
    """A claimed epsilon, never with the words of one that holds."""
    return text if holds or text == "none" else f"{text} (a claim; what holds is the sound ε)"


def _priced(epsilon: Epsilon | None) -> str:
    """An epsilon in one line: 1.003–1.006 at δ = 1e-5 (certified)."""
    if epsilon is None:
        return "none"
    return f"{epsilon_text(epsilon)} at δ = {delta_number(epsilon.delta)} ({epsilon_kind(epsilon)})"


def schedule_html(schedule: Schedule) -> str:
    epochs = len(schedule.values) if schedule.name == CUSTOM else DRAWN_EPOCHS
    facts = [(name, str(value)) for name, value in schedule.knobs]
    try:
        sigmas = schedule.sigmas(epochs)
    except InputError as error:  # a curve that leaves the numbers, or a record that was made by hand
        return card(f"Schedule {schedule.name}", [*facts, ("not drawn", str(error))])
    own = schedule.name == CUSTOM
    facts += [("epochs", str(epochs) if own else f"any; drawn over {epochs}")]
    facts += [("noise multiplier σ", f"{sigmas[0]:.4g} in the first epoch, {sigmas[-1]:.4g} in the last")]
    return card(f"Schedule {schedule.name}", facts, picture=curve_svg(sigmas))


def curve_svg(sigmas: FloatArray) -> str:
    """sigma(t) as a line above a base line at 0; long curves are thinned out."""
    at = np.unique(np.linspace(0, len(sigmas) - 1, min(len(sigmas), MOST_POINTS)).round().astype(int))
    across = at / max(len(sigmas) - 1, 1)
    up = sigmas[at] / (float(sigmas.max()) or 1.0)
    if len(at) == 1:  # one epoch is a level, not a point
        across, up = np.array([0.0, 1.0]), np.repeat(up, 2)
    x = MARGIN + across * (WIDTH - 2 * MARGIN)
    y = HEIGHT - MARGIN - up * (HEIGHT - 2 * MARGIN)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    base = HEIGHT - MARGIN
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="noise multiplier per epoch" fill="none" stroke="currentColor">'
        f'<line x1="{MARGIN}" y1="{base}" x2="{WIDTH - MARGIN}" y2="{base}" stroke-opacity="0.3"/>'
        f'<polyline points="{points}" stroke-width="2"/></svg>'
    )
