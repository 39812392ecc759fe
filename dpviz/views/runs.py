"""A list of runs, and curves of single ones: a measure against epochs or epsilon, over the nearest baselines."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from dpviz.papers import RECIPES
from dpviz.privacy.audit import CANNOT_SHOW, Audit
from dpviz.privacy.registry import title_of
from dpviz.runs import Run, Summary
from dpviz.runs.store.imported import AnySpec, ImportedSpec
from dpviz.training.spec import EpochRecord
from dpviz.training.tables import DATASETS, MODELS
from dpviz.views.axes import AXES, COLOURS, EPOCH_COLUMNS, GREY, PERCENT, epoch_ticks, layout, tinted
from dpviz.views.numbers import epsilon_cell, epsilon_number

TEST, TRAINING = "test data", "training data, not covered by epsilon"
FORECAST, FORECAST_BAND = "forecast, with its band", "nine of ten runs"
NO_GUARANTEE = "no guarantee"
LEGEND_LINE = 20  # pixels
STATUS_WORDS = {
    "queued": "waiting",
    "running": "running",
    "done": "done",
    "stopped": "stopped",
    "failed": "failed",
    "interrupted": "interrupted",
}
MEASURES = {"accuracy": "Accuracy (%)", "loss": "Loss"}


def schedule_words(spec: AnySpec) -> str:
    """The noise in a few words: "constant 1.23", "linear 5 to 1", "own curve"."""
    if isinstance(spec, ImportedSpec):
        return _logged_noise([phase.noise_multiplier for phase in spec.phases])
    if not spec.private:
        return "no noise"
    knobs = dict(spec.schedule.knobs)
    if spec.schedule.name == "constant":
        return f"constant {knobs['sigma']:g}"
    if spec.schedule.name == "custom":
        return "own curve"
    ends = f" {knobs['start']:g} to {knobs['end']:g}" if {"start", "end"} <= set(knobs) else ""
    return spec.schedule.name.replace("-", " ") + ends


def _logged_noise(sigmas: Sequence[float]) -> str:
    if not sigmas:
        return "not logged yet"
    return f"constant {sigmas[0]:g}" if len(set(sigmas)) == 1 else f"{sigmas[0]:g} to {sigmas[-1]:g}"


def run_name(run: Run) -> str:
    """What a person calls the run: its title, its recipe's, or its settings in words."""
    if run.title:
        return run.title
    if run.spec.recipe in RECIPES:
        return RECIPES[run.spec.recipe].title
    names = (title_of(DATASETS, run.spec.dataset), title_of(MODELS, run.spec.model), schedule_words(run.spec))
    return ", ".join(name for name in names if name)  # an imported run may name neither


def epsilon_words(value: float | None, missing: str = NO_GUARANTEE) -> str:
    """The number, "∞", or what its absence means."""
    return missing if value is None or math.isnan(value) else epsilon_number(value)


def audited_words(lower: float | None, missing: str = "–") -> str:
    """A lower bound from an audit, rounded down."""
    return missing if lower is None or math.isnan(lower) else f"≥ {epsilon_number(lower, up=False)}"


def audited_of_proven(lower: float, proven: str, refuted: bool) -> str:
    """Both bounds on the epsilon of a whole run in a table's cell; empty where there was no audit."""
    if math.isnan(lower):
        return ""
    words = f"{audited_words(lower)} of {proven}"
    return f"refuted: {words}" if refuted else words


def audit_sentence(audit: Audit) -> str:
    """Both bounds on a run's epsilon, and what the lower one rests on."""
    step, one_run = audit.step, audit.one_run
    parts = [f"{step.trials:,} looks at its noise"] if step else []
    parts += [f"{one_run.correct} of {one_run.guesses} right guesses about canaries"] if one_run else []
    lower = epsilon_number(audit.lower, up=False)
    return f"Audited at least {lower}, proven at most {epsilon_number(audit.proven)} ({'; '.join(parts)})."


def audit_remark(audit: Audit) -> str:
    """The sentence, what its canaries did, and, where nothing was found, what that cannot show."""
    canaries = " Its canaries' gradients are part of what was trained." if audit.one_run else ""
    return f"{audit_sentence(audit)}{canaries}{'' if audit.failures else f' {CANNOT_SHOW}'}"


def spent_words(value: float | None, at_most: bool, missing: str = NO_GUARANTEE) -> str:
    """An epsilon that was spent; "at most 1.235" where it is not on record how far the run came."""
    words = epsilon_words(value, missing)
    return f"at most {words}" if at_most and value is not None and math.isfinite(value) else words


def curve(run: Run) -> list[tuple[float, ...]]:
    """One row per epoch, in the order of EPOCH_COLUMNS: accuracies in percent, time added up, no guarantee as NaN."""
    rows, seconds = [], 0.0
    for record in run.epochs:
        seconds += record.seconds
        rows.append(tuple(_number(record, column, seconds) for column in EPOCH_COLUMNS))
    return rows


def _number(record: EpochRecord, column: str, seconds: float) -> float:
    if column == "minutes":
        return seconds / 60
    value: float | None = getattr(record, column)
    if value is None:
        return math.nan
    return 100 * value if column in PERCENT else value


def run_frame(runs: Iterable[Run]) -> pd.DataFrame:
    """One row per epoch of every run."""
    rows = [(run.id, run_name(run), *row) for run in runs for row in curve(run)]
    return pd.DataFrame(rows, columns=["run", "name", *EPOCH_COLUMNS])


# --- what is behind a run's curve


def nearest_baselines(run: Run, epsilon: float | None, others: Iterable[Run], most: int = 3) -> list[Run]:
    """Finished runs of the same dataset and model whose epsilon is closest to this one's, one per experiment.

    Other seeds of the same settings are the same experiment, so they are no baseline. The model of an imported run has
    a name of its own, so any model on its dataset will do.
    """
    alike = [
        other
        for other in others
        if other.spec.dataset == run.spec.dataset
        and (other.spec.model == run.spec.model or run.kind == "imported")
        and other.status == "done"
    ]
    nearest = sorted(alike, key=lambda other: _distance(epsilon, other))
    experiments: dict[AnySpec, Run] = {_any_seed(run): run}
    for other in nearest:
        if len(experiments) <= most:
            experiments.setdefault(_any_seed(other), other)
    return list(experiments.values())[1:]


def _any_seed(run: Run) -> AnySpec:
    spec = run.spec
    return spec if isinstance(spec, ImportedSpec) else dataclasses.replace(spec, seed=0, diagnostics=False)


def _distance(epsilon: float | None, other: Run) -> float:
    """How far apart two budgets are, as a ratio; what has no budget is furthest from what has one."""
    there = other.spent.epsilon_sound if other.spent else None
    if epsilon is None or there is None:
        return 0.0 if epsilon is there else math.inf
    return abs(math.log(epsilon / there)) if 0 < epsilon < math.inf and 0 < there < math.inf else math.inf


def baseline_name(run: Run, source: str) -> str:
    """A baseline in the legend: "full-length run: Linear decreasing (ε 1.40)"."""
    spent = run.spent.epsilon_sound if run.spent else None
    name = html.escape(run_name(run), quote=False)  # Plotly takes tags in a legend for markup
    return f"{source}: {name}" + ("" if spent is None else f" (ε {epsilon_number(spent)})")


# --- figures


def run_figure(
    frame: pd.DataFrame,
    x: str = "epoch",
    measure: str = "accuracy",
    baselines: Mapping[str, pd.DataFrame] | None = None,
    reach: float = math.inf,
    forecast: pd.DataFrame | None = None,
) -> go.Figure:
    """Test and training curve of one run over its baselines, by their names in the legend, as far as the run reaches.

    A forecast of its accuracy (`forecast_frame`) lies behind all of them. An epoch whose epsilon is missing or infinite
    has no place in it.
    """
    lines = 2 + len(baselines or {}) + (forecast is not None)
    figure = go.Figure(layout=layout(AXES[x].title, MEASURES[measure], height=300 + LEGEND_LINE * lines))
    shown = frame[frame[x].map(math.isfinite).astype(bool)]
    if x == "epoch" and len(shown):
        figure.update_xaxes(**epoch_ticks(max(shown[x].max(), reach if math.isfinite(reach) else 0)))
    if forecast is not None:
        _add_forecast(figure, forecast)
    for (name, rows), colour in zip((baselines or {}).items(), COLOURS[1:], strict=False):
        line = {"color": tinted(colour, 0.6), "width": 1.5, "dash": "dash"}
        near = rows[rows[x] <= reach]
        if len(near):
            _add_curve(figure, near, (x, f"test_{measure}"), name, "lines", line)
    for part, name, colour, dash, width in (
        ("test", TEST, COLOURS[0], "solid", 2.5),
        ("train", TRAINING, GREY, "dot", 1.5),
    ):
        line = {"color": colour, "dash": dash, "width": width}
        _add_curve(figure, shown, (x, f"{part}_{measure}"), name, "lines+markers", line)
    # Names of baselines are long: below the plot they take no height from it.
    below = {"y": -0.25, "yanchor": "top", "yref": "paper", "orientation": "v"}
    return figure.update_layout(legend=below, margin={"t": 12})


def _add_forecast(figure: go.Figure, rows: pd.DataFrame) -> None:
    """A pale band that nine of ten runs should stay in, and the accuracy to expect in its middle."""
    figure.add_scatter(
        x=[*rows["epoch"], *rows["epoch"][::-1]],
        y=[*rows["upper"], *rows["lower"][::-1]],
        name=FORECAST_BAND,
        fill="toself",
        fillcolor=tinted(COLOURS[2], 0.15),
        line={"width": 0},
        hoverinfo="skip",
        mode="lines",
        legendgroup="forecast",
        showlegend=False,
    )
    figure.add_scatter(
        x=rows["epoch"],
        y=rows["accuracy"],
        name=FORECAST,
        mode="lines",
        line={"color": tinted(COLOURS[2], 0.55), "width": 2},
        legendgroup="forecast",
        hovertemplate=f"{AXES['epoch'].hovered('x')}<br>%{{y:.2f}} % to expect<extra>{FORECAST}</extra>",
    )


def _add_curve(
    figure: go.Figure, rows: pd.DataFrame, axes: tuple[str, str], name: str, mode: str, line: dict[str, Any]
) -> None:
    x, y = axes
    figure.add_scatter(
        x=rows[x],
        y=rows[y],
        name=name,
        mode=mode,
        line=line,
        marker={"size": 2 * line["width"] + 1},
        hovertemplate=f"{AXES[x].hovered('x')}<br>{AXES[y].hovered('y')}<extra>{name}</extra>",
    )


# --- a list of runs

LIST_COLUMNS = ("name", "status", "accuracy", "epsilon", "minutes", "seed", "started")


def list_frame(summaries: Sequence[Summary], names: Sequence[str], minutes: Mapping[str, float]) -> pd.DataFrame:
    """One row per run: accuracy in percent, sound epsilon of all that was spent; NaN where there is none yet."""
    rows = [
        (
            name + (" (imported)" if run.kind == "imported" else ""),
            STATUS_WORDS[run.status],
            math.nan if run.test_accuracy is None else 100 * run.test_accuracy,
            math.nan if run.spent[1] is None else epsilon_cell(run.spent[1]),
            minutes.get(run.id, math.nan),
            run.seed,
            run.created[:16].replace("T", " "),
        )
        for run, name in zip(summaries, names, strict=True)
    ]
    return pd.DataFrame(rows, columns=list(LIST_COLUMNS))
