"""A comparison as one page for a co-author: the answer, figures, table, guarantees, settings and where all is from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from dpviz.privacy.records import Guarantee
from dpviz.runs.differences import points
from dpviz.training.pricing import planned_guarantee
from dpviz.training.spec import RunSpec
from dpviz.views.comparison.answer import Answer, accuracy_words
from dpviz.views.comparison.scene import Scene
from dpviz.views.comparison.settings import differing_frame, paper_title
from dpviz.views.comparison.table import dataset_title
from dpviz.views.numbers import delta_text, epsilon_text
from dpviz.views.runs import epsilon_words

STYLE = """
body { font: 16px/1.5 sans-serif; color: #1c2430; max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 14px; display: block; overflow-x: auto; }
th, td { border-bottom: 1px solid #dbe1ea; padding: 4px 10px; text-align: left; vertical-align: top; }
.answer { font-size: 18px; } .small { color: #4b5768; font-size: 14px; }
"""


@dataclass(frozen=True)
class Report:
    """What the page says beside the scene; figures are ready to print."""

    title: str
    answers: Sequence[Answer]
    figures: Sequence[tuple[str, Any]]
    specs: Mapping[str, RunSpec]
    origins: Mapping[str, str]
    link: str = ""


def report_html(report: Report, scene: Scene) -> str:
    """Self-contained: it opens without a network."""
    groups = [group for group in scene.marks if group in scene.table.index]
    parts = [f"<h1>{escape(report.title)}</h1>"]
    for answer in report.answers:
        parts += [f'<p class="answer">{_bold(answer.headline)}</p>', f'<p class="small">{_bold(answer.details)}</p>']
    for k, (title, figure) in enumerate(report.figures):
        parts += [f"<h2>{escape(title)}</h2>", figure.to_html(full_html=False, include_plotlyjs=k == 0)]
    parts += ["<h2>The curves in numbers</h2>", _table(_numbers(scene, groups))]
    parts += [
        "<h2>What differs</h2>",
        _table(differing_frame(scene.settings, groups, list(scene.table["short"][groups]))),
    ]
    parts.append("<h2>Guarantees and origins</h2>")
    parts += [
        _about(scene.table.loc[group], report.specs.get(group), report.origins.get(group, "")) for group in groups
    ]
    if report.link:
        parts.append(f'<p class="small">This view on a dpviz server: <code>/compare?{escape(report.link)}</code></p>')
    body = "\n".join(parts)
    head = f'<meta charset="utf-8"><title>{escape(report.title)}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def _bold(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))


def _numbers(scene: Scene, groups: Sequence[str]) -> pd.DataFrame:
    rows = scene.table.loc[list(groups)]
    ready = rows["accuracy"].notna()
    records = [
        (
            row["short"],
            dataset_title(row["dataset"]),
            accuracy_words(row) if known else f"nothing within ε ≤ {scene.budget:g}",
            points(row["difference"]) if row["difference"] == row["difference"] else "",
            row["judged"],
            epsilon_words(row["sound"]),
            epsilon_words(row["claimed"], "none"),
            row["whole_run"],
        )
        for (_, row), known in zip(rows.iterrows(), ready, strict=True)
    ]
    columns = ["Curve", "Dataset", f"Accuracy at ε ≤ {scene.budget:g}", "Difference", "How sure", "Sound ε there"]
    return pd.DataFrame(records, columns=[*columns, "Claimed ε there", "Sound ε of the whole run"])


def _table(frame: pd.DataFrame) -> str:
    named = not isinstance(frame.index, pd.RangeIndex)
    heads = ([""] if named else []) + [str(name) for name in frame.columns]
    lines = ["".join(f"<th>{escape(head)}</th>" for head in heads)]
    for name, row in zip(frame.index, frame.itertuples(index=False), strict=True):
        lines.append("".join(f"<td>{escape(str(cell))}</td>" for cell in (*([name] if named else []), *row)))
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _about(row: Any, spec: RunSpec | None, origin: str) -> str:
    heading = f"<h3>{escape(row['label'])}</h3>"
    if spec is None:
        paper = paper_title(row["paper"]) or "its source"
        return f"{heading}<p>Reported by {escape(paper)}, {escape(row['place'])}.</p>"
    return heading + _guarantee(planned_guarantee(spec), spec.delta) + f'<p class="small">{escape(origin)}</p>'


def _guarantee(planned: Guarantee, delta: float) -> str:
    costs = (
        f"Claimed ε {epsilon_text(planned.claimed)}, sound ε {epsilon_text(planned.sound)}, δ = {delta_text(delta)}."
    )
    lists = [("It rests on", planned.assumptions), ("Not covered", planned.not_covered)]
    words = "".join(f"<p class='small'>{name}: {escape('; '.join(lines))}.</p>" for name, lines in lists if lines)
    return f"<p>The whole run as planned: {escape(costs)}</p>{words}"
