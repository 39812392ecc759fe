"""The papers' tables as frames: a row a reported number, with what was measured here beside it."""

from __future__ import annotations

import functools
import math
import textwrap
from collections.abc import Iterable, Mapping
from statistics import fmean, stdev

import pandas as pd
import plotly.graph_objects as go

from dpviz.papers import LOCAL_RECIPES, RECIPES, TITLES, LocalRecipe, Reported, reported_of
from dpviz.papers.gains import signed
from dpviz.papers.records import HEADLINES, Gain, headline
from dpviz.privacy import Phase, epsilon_path
from dpviz.privacy.local import METHODS as LOCAL_METHODS
from dpviz.runs.experiments import Experiment, Measured, epsilons, experiments
from dpviz.training.tables import METHODS
from dpviz.views.axes import COLOURS, GREY, layout
from dpviz.views.runs import audited_words, epsilon_words

COLUMNS = (
    "title",
    "place",
    "reported",
    "reported_spread",
    "ours",
    "spread",
    "seeds",
    "difference",
    "epsilon_reported",
    "epsilon_claimed",
    "epsilon_sound",
    "epsilon_audited",
    "note",
    "recipe",
)
NEAR = 1.0  # points: as close as seeds and what papers leave open allow
FROM_TEXT, OURS_ONLY = "From the text", "Without a reported number"
HEADINGS = {"text": FROM_TEXT, "cited": "As other papers report"}
NONE = "–"
NEAR_MARK, BETTER, WORSE = "≈", "▲", "▼"
MARKS_KEY = f"{NEAR_MARK} within {NEAR:g} point of the reported number, {BETTER} ours is better, {WORSE} ours is worse"
LABELS_ONLY = "its epsilon covers labels only"


def table_frames(paper: str, results: Mapping[str, Measured]) -> dict[str, pd.DataFrame]:
    """A frame for each table of the paper, one for numbers in its text, and one for what only dpviz ran."""
    rows: dict[str, list[tuple[object, ...]]] = {}
    for number in reported_of(paper):
        if number.quantity in HEADLINES:
            table, _, row = number.place.partition(", ")
            heading, place = (table, row) if number.source == "table" else (HEADINGS[number.source], number.place)
            rows.setdefault(heading, []).append(_reported_row(number, place, results.get(number.name)))
    alone = [row for row in experiments(results, paper) if row.reported is None]
    if alone:
        rows[OURS_ONLY] = [_own_row(row) for row in alone]
    ordered = sorted(rows, key=lambda heading: (heading == OURS_ONLY, heading == FROM_TEXT, heading[:5] != "Table"))
    return {heading: pd.DataFrame(rows[heading], columns=list(COLUMNS)) for heading in ordered}


def _reported_row(number: Reported, place: str, measured: Measured | None) -> tuple[object, ...]:
    recipe = RECIPES.get(number.name) or LOCAL_RECIPES.get(number.name)
    found = _values(number, measured)
    ours = 100 * fmean(found) if found else math.nan
    claimed, sound = NONE, epsilon_words(number.epsilon_sound, NONE)
    if recipe and _whole_run(number):
        ours_claimed, ours_sound = epsilons(recipe.spec, measured)
        claimed, sound = epsilon_words(ours_claimed, NONE), epsilon_words(ours_sound)
    cut_short = measured is not None and measured.shortened and _whole_run(number)
    difference = math.nan if cut_short else ours - 100 * number.value
    spread = 100 * stdev(found) if len(found) > 1 else math.nan
    labels_only = (
        LABELS_ONLY if isinstance(recipe, LocalRecipe) and LOCAL_METHODS[recipe.spec.method].flips_labels else ""
    )
    note = "; ".join(filter(None, (number.note, _shortened(measured), labels_only)))
    return (
        TITLES[number.name],
        place,
        100 * number.value,
        math.nan if number.spread is None else 100 * number.spread,
        ours,
        spread,
        len(found) or math.nan,
        difference,
        epsilon_words(number.epsilon, NONE),
        claimed,
        sound,
        audited_words(measured.audited if measured and _whole_run(number) else None, NONE),
        note,
        number.name if recipe else None,
    )


def _own_row(row: Experiment) -> tuple[object, ...]:
    ours = row.measured
    assert row.recipe is not None
    return (
        row.recipe.title,
        "",
        math.nan,
        math.nan,
        100 * ours.mean if ours else math.nan,
        100 * ours.std if ours and ours.std is not None else math.nan,
        len(ours.values) if ours else math.nan,
        math.nan,
        NONE,
        epsilon_words(row.claimed, NONE),
        epsilon_words(row.sound),
        audited_words(ours.audited if ours else None, NONE),
        _shortened(ours),
        row.name,
    )


def _shortened(measured: Measured | None) -> str:
    """A run that stopped early says so."""
    if measured is None or not measured.shortened:
        return ""
    run = min(measured.runs, key=lambda run: len(run.epochs))
    spent = epsilon_words(run.epochs[-1].epsilon_sound)
    return f"ours stopped after {measured.epochs} of {measured.planned_epochs} epochs, at a sound epsilon of {spent}"


def _whole_run(number: Reported) -> bool:
    """Whether a number is of the whole run; some are of the epoch at which a smaller epsilon was spent."""
    first = headline(other for other in reported_of(number.paper) if other.name == number.name)
    return number.epsilon is None or first is None or number.epsilon == first.epsilon


def _values(number: Reported, measured: Measured | None) -> tuple[float, ...]:
    """Ours, one per seed, where the number was taken: at the end, or at the last epoch within its epsilon.

    The epsilons printed by the way come from the classic conversion, so that decides which epoch it is; what
    screening's accepted updates cost by that conversion is not kept.
    """
    if measured is None:
        return ()
    if _whole_run(number):
        return measured.values
    spec = measured.runs[0].own_spec
    epochs = (
        _epochs_within(spec.phases, spec.delta, number.epsilon or 0.0)
        if spec.private and not METHODS[spec.method].screened
        else 0
    )
    return tuple(run.epochs[epochs - 1].accuracy for run in measured.runs if 1 <= epochs <= len(run.epochs))


@functools.cache
def _epochs_within(phases: tuple[Phase, ...], delta: float, budget: float) -> int:
    """Epochs that a budget pays for; none if it is larger than all of them cost: the paper's run was longer."""
    path = epsilon_path(phases, delta, accountant="rdp-classic")
    return sum(point.upper <= budget for point in path) if budget <= path[-1].upper else 0


def mark(points: float, *, error: bool = False) -> str:
    """Sign before a difference: near enough, or ours is better, or worse; less error is better."""
    if abs(points) <= NEAR:
        return NEAR_MARK
    return BETTER if (points < 0) == error else WORSE


def agreement(frames: Iterable[pd.DataFrame]) -> str:
    """How many of our results lie near the reported ones, in a sentence."""
    tables = [frame for frame in frames if len(frame)]
    known = pd.concat(tables)["difference"].dropna() if tables else pd.Series(dtype=float)
    if known.empty:
        return "No full-length run of this paper is cached yet, so no difference is drawn."
    near = int((known.abs() <= NEAR).sum())
    return (
        f"{near} of {len(known)} reported numbers that were run here are met within {NEAR:g} point; the mean "
        f"difference is {signed(known.mean())} points, the largest {signed(max(known, key=abs))}."
    )


# --- pairs of experiments -----------------------------------------------------------------------------------------

OURS, CLOSE_CALL, PAPER = "ours", "ours, may be chance", "paper"
MARKS = {  # in the key and in the figure: colour and marker
    OURS: (COLOURS[0], "circle"),
    CLOSE_CALL: (COLOURS[0], "circle-open"),
    PAPER: (COLOURS[1], "diamond-open"),
}
FOREST_TOP, FOREST_LINE = 110, 24  # pixels: key and axis, and each line of a title
TITLE_WIDTH = 24  # characters: on a phone half of the width is left for the bars


def pairs_frame(pairs: Iterable[Gain]) -> pd.DataFrame:
    """A row per pair and source: points gained, and half the bar that may be chance (the paper's has none)."""
    rows: list[tuple[object, ...]] = []
    for pair in pairs:
        rows.append((pair.title, OURS if pair.won or pair.lost else CLOSE_CALL, pair.points, pair.chance, pair.seeds))
        if pair.reported is not None:
            rows.append((pair.title, PAPER, pair.reported, math.nan, math.nan))
    return pd.DataFrame(rows, columns=["title", "source", "points", "chance", "seeds"])


def forest_figure(frame: pd.DataFrame) -> go.Figure:
    """Points gained, a line per pair; a bar that crosses 0 is no difference."""
    wrapped = frame["title"].map(lambda title: "<br>".join(textwrap.wrap(title, TITLE_WIDTH)))
    titles = list(dict.fromkeys(wrapped))
    lines = len(titles) * max((title.count("<br>") + 1 for title in titles), default=1)
    figure = go.Figure(layout=layout("Points gained", "", height=FOREST_TOP + FOREST_LINE * lines))
    for source, (colour, symbol) in MARKS.items():
        rows = frame[frame["source"] == source]
        if len(rows):
            figure.add_scatter(
                x=rows["points"],
                y=wrapped[rows.index],
                error_x={"array": rows["chance"].fillna(0.0), "thickness": 1.5, "visible": source != PAPER},
                name=source,
                mode="markers",
                marker={"color": colour, "symbol": symbol, "size": 9, "line": {"width": 2, "color": colour}},
                hovertemplate="%{y}: %{x:+.2f} points<extra>" + source + "</extra>",
            )
    figure.add_vline(x=0, line={"color": GREY, "width": 1})
    figure.update_yaxes(categoryorder="array", categoryarray=titles[::-1], automargin=True, showgrid=False)
    figure.update_layout(margin_l=8)
    return figure


def pairs_words(pairs: Iterable[Gain]) -> str:
    """The figure for those who do not see it."""
    return "; ".join(
        f"{pair.title} {signed(pair.points)}, {pair.chance:.2f} may be chance"
        + ("" if pair.reported is None else f", paper {signed(pair.reported)}")
        for pair in pairs
    )
