"""A comparison as one page for a co-author: the answer, figures, table, guarantees, settings and where all is from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from dpviz.privacy.risk import FPRS
from dpviz.runs.differences import points
from dpviz.runs.store.imported import AnySpec, ImportedSpec, guarantee_of
from dpviz.training.pricing import planned_risk
from dpviz.views.comparison.answer import Answer, accuracy_words
from dpviz.views.comparison.scene import Scene
from dpviz.views.comparison.settings import differing_frame, paper_title
from dpviz.views.comparison.table import dataset_title
from dpviz.views.numbers import delta_text, epsilon_text, risk_sentence
from dpviz.views.runs import audited_words, epsilon_words

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
    specs: Mapping[str, AnySpec]
    origins: Mapping[str, str]
    link: str = ""


@dataclass(frozen=True)
class Format:
    """How the parts of a report are written: text may hold **bold**, everything else is as it was typed."""

    heading: Callable[[int, str], str]
    paragraph: Callable[[str, str], str]  # text, and its kind: "answer", "small" or ""
    table: Callable[[pd.DataFrame], str]
    figures: Callable[[Sequence[tuple[str, Any]]], list[str]]
    page: Callable[[str, str], str]  # title and body


def report_text(report: Report, scene: Scene, form: Format) -> str:
    """The whole report; it opens without a network."""
    groups = [group for group in scene.marks if group in scene.table.index]
    parts = [form.heading(1, report.title)]
    for answer in report.answers:
        parts += [form.paragraph(answer.headline, "answer"), form.paragraph(answer.details, "small")]
    parts += form.figures(report.figures)
    parts += [form.heading(2, "The curves in numbers"), form.table(_numbers(scene, groups))]
    names = list(scene.table["short"][groups])
    parts += [form.heading(2, "What differs"), form.table(differing_frame(scene.settings, groups, names))]
    parts.append(form.heading(2, "Guarantees and origins"))
    for group in groups:
        row = scene.table.loc[group]
        parts.append(form.heading(3, str(row["label"])))
        about = _about(row, report.specs.get(group), report.origins.get(group, ""))
        parts += [form.paragraph(text, kind) for text, kind in about if text]
    if report.link:
        parts.append(form.paragraph(f"This view on a dpviz server: /compare?{report.link}", "small"))
    return form.page(report.title, "\n\n".join(part for part in parts if part))


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
            "refuted" if row["refuted"] else audited_words(row["audited"]),
        )
        for (_, row), known in zip(rows.iterrows(), ready, strict=True)
    ]
    columns = ["Curve", "Dataset", f"Accuracy at ε ≤ {scene.budget:g}", "Difference", "How sure", "Sound ε there"]
    return pd.DataFrame(records, columns=[*columns, "Claimed ε there", "Sound ε of the whole run", "Audited ε"])


def _about(row: Any, spec: AnySpec | None, origin: str) -> list[tuple[str, str]]:
    """What a curve's guarantee rests on and where it is from; each text with its kind."""
    if spec is None:
        return [(f"Reported by {paper_title(row['paper']) or 'its source'}, {row['place']}.", "")]
    planned, what = guarantee_of(spec), "as logged" if isinstance(spec, ImportedSpec) else "as planned"
    costs = f"claimed ε {epsilon_text(planned.claimed)}, sound ε {epsilon_text(planned.sound)}"
    lists = (("It rests on", planned.assumptions), ("Not covered", planned.not_covered))
    risk = planned_risk(spec) if spec.phases else None
    return [
        (f"The whole run {what}: {costs}, δ = {delta_text(spec.delta)}.", ""),
        (f"What it means: {risk_sentence(risk, FPRS[0])}" if risk else "", ""),
        *((f"{name}: {'; '.join(lines)}.", "small") for name, lines in lists if lines),
        (origin, "small"),
    ]


def _cells(frame: pd.DataFrame) -> list[list[str]]:
    """Rows of text, the headings first; a named index is the first column."""
    named = not isinstance(frame.index, pd.RangeIndex)
    rows = [["", *frame.columns], *([name, *row] for name, *row in frame.itertuples())]
    return [[str(cell) for cell in (row if named else row[1:])] for row in rows]


# --- HTML


def _html_text(text: str) -> str:
    return re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", escape(text))


def _html_table(frame: pd.DataFrame) -> str:
    tags = ("th", *("td" for _ in range(len(frame))))
    lines = (
        "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) for tag, row in zip(tags, _cells(frame), strict=True)
    )
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _html_figures(figures: Sequence[tuple[str, Any]]) -> list[str]:
    return [
        f"<h2>{escape(title)}</h2>" + figure.to_html(full_html=False, include_plotlyjs=k == 0)
        for k, (title, figure) in enumerate(figures)
    ]


def _html_page(title: str, body: str) -> str:
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


# --- Markdown


def _markdown_text(text: str) -> str:
    """Bold as it is, everything else so that Markdown leaves it alone."""
    return "**".join(re.sub(r"([\\`*_\[\]<>#|~$&])", r"\\\1", part) for part in text.split("**"))


def _markdown_table(frame: pd.DataFrame) -> str:
    head, *rows = ("| " + " | ".join(map(_markdown_text, row)) + " |" for row in _cells(frame))
    return "\n".join([head, "|" + " --- |" * (head.count(" | ") + 1), *rows])


HTML = Format(
    heading=lambda level, text: f"<h{level}>{escape(text)}</h{level}>",
    paragraph=lambda text, kind: f'<p class="{kind}">{_html_text(text)}</p>' if text else "",
    table=_html_table,
    figures=_html_figures,
    page=_html_page,
)
MARKDOWN = Format(
    heading=lambda level, text: f"{'#' * level} {_markdown_text(text)}",
    paragraph=lambda text, kind: _markdown_text(text),
    table=_markdown_table,
    figures=lambda figures: [],  # one file of text holds no picture: PNG and SVG are files of their own
    page=lambda title, body: f"{body}\n",
)
