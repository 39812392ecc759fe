"""A paper's table as HTML: names and notes are wrapped, and on a narrow screen each row is a card."""

from __future__ import annotations

import html
import math
from urllib.parse import quote

import pandas as pd

from dpviz.papers.gains import signed
from dpviz.views.papers import NONE, mark

STYLE = """<style>
.results { width: 100%; border-collapse: collapse; font-size: 0.875rem; }
.results th, .results td {
  border: 0; border-top: 1px solid rgba(128, 128, 128, 0.35); padding: 0.35rem 0.6rem; text-align: left;
  vertical-align: top;
}
.results th { border-top: 0; font-weight: 600; }
.results a { color: inherit; text-decoration: underline; text-underline-offset: 0.2em; }
.results .number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
@media (max-width: 640px) {
  .results thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  .results tr {
    display: grid; grid-template-columns: repeat(3, 1fr); padding: 0.5rem 0;
    border-top: 1px solid rgba(128, 128, 128, 0.35);
  }
  .results td, .results .number { border: 0; padding: 0.1rem 0.3rem 0.1rem 0; text-align: left; }
  .results td:empty { display: none; }
  .results td.words { grid-column: 1 / -1; }
  .results td.number::before { content: attr(data-label); display: block; font-size: 0.75rem; }
}
</style>"""
WORDS = {"title": "Experiment", "place": "Place", "note": "Note"}
NUMBERS = {
    "reported": "Reported (%)",
    "ours": "Ours (%)",
    "difference": "Difference",
    "seeds": "Seeds",
    "epsilon_reported": "Reported ε",
    "epsilon_claimed": "Claimed ε",
    "epsilon_sound": "Sound ε",
    "epsilon_audited": "Audited ε",
}
SPREADS = {"reported": "reported_spread", "ours": "spread"}
ORDER = ("title", "place", *NUMBERS, "note")


def results_table(frame: pd.DataFrame, *, error: bool) -> str:
    """The columns that say something; a name leads to the page that runs the experiment."""
    cells = pd.DataFrame({name: [_cell(name, row, error) for _, row in frame.iterrows()] for name in ORDER})
    shown = [name for name in ORDER if name == "title" or cells[name].str.strip(NONE).any()]
    labels = WORDS | NUMBERS | ({"seeds": "Repeats", "reported": "Reported error (%)"} if error else {})
    head = "".join(f'<th scope="col" class="{_kind(name)}">{labels[name]}</th>' for name in shown)
    rows = (
        "".join(f'<td class="{_kind(name)}" data-label="{labels[name]}">{row[name]}</td>' for name in shown)
        for _, row in cells.iterrows()
    )
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'{STYLE}<table class="results"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _kind(name: str) -> str:
    return "number" if name in NUMBERS else "words"


def _cell(name: str, row: pd.Series, error: bool) -> str:
    value = row[name]
    if name == "title" and isinstance(row["recipe"], str):
        page = "local" if error else "train"
        return f'<a href="{page}?recipe={quote(row["recipe"])}">{html.escape(value)}</a>'
    if isinstance(value, str):
        return html.escape(value)
    if math.isnan(value):
        return NONE
    if name == "seeds":
        return f"{value:.0f}"
    if name == "difference":
        return f"{mark(value, error=error)} {signed(value)}"
    spread = row[SPREADS[name]]
    return f"{value:.2f}" if math.isnan(spread) else f"{value:.2f} ± {spread:.2f}"
