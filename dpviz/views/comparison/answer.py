"""The answer of a comparison in words: the best at one epsilon, how sure that is, and what it is ahead of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from dpviz.runs.differences import TOO_CLOSE, points
from dpviz.views.comparison.experiments import STORED
from dpviz.views.comparison.settings import paper_title
from dpviz.views.comparison.table import MEASURED, dataset_title, difference, seed_values


@dataclass(frozen=True)
class Answer:
    """One sentence that answers, and what else to know before trusting it."""

    headline: str
    details: str = ""


def answers(table: pd.DataFrame, base: Mapping[str, str], budget: float, kind: str = "sound") -> list[Answer]:
    """One per dataset: the best at this epsilon, how sure that is, and what it is ahead of."""
    return [
        answer(table[table["dataset"] == dataset], base.get(dataset, ""), budget, kind)
        for dataset in table["dataset"].unique()
        if dataset
    ]


def answer(table: pd.DataFrame, baseline: str, budget: float, kind: str = "sound") -> Answer:
    """The best measured row of one dataset against the baseline, in plain words."""
    claimed = "a claimed " if kind == "claimed" else ""
    where = f"At {claimed}ε ≤ {budget:g} on {dataset_title(table['dataset'].iloc[0])}"
    ready = table[table["accuracy"].notna()]
    measured = ready[ready["source"].isin(MEASURED)]
    if measured.empty:
        return Answer(f"{where} no run has an epoch within the budget.", _sentences(_reported_best(ready)))
    best, several = measured.index[0], measured.index[measured["seeds"] > 1]
    details = [_allowing(measured, best, baseline)]
    if len(several) and several[0] not in (best, baseline):
        details.append(
            f"The best with several seeds is {_named(measured, several[0])}{_lead(measured, several[0], baseline)}"
        )
        details.append(_allowing(measured, several[0], baseline))
    elif best in several:
        details.append(_close(measured, best))
    best_words = "the best is" if len(measured) > 1 else "the only run is"
    headline = f"{where} {best_words} {_named(measured, best)}{_lead(measured, best, baseline)}."
    return Answer(headline, _sentences(*details, _reported_best(ready)))


def _sentences(*sentences: str) -> str:
    return " ".join(f"{sentence.rstrip('.')}." for sentence in sentences if sentence)


def _named(table: pd.DataFrame, group: str) -> str:
    return f"**{who(table.loc[group])}**, {accuracy_words(table.loc[group])}"


def _lead(table: pd.DataFrame, group: str, baseline: str) -> str:
    """ ", 0.90 points above X (95 % interval ...)"."""
    others = table.index[table.index != group]
    if group == baseline:
        return f"; it is the baseline itself, next is {_named(table, others[0])}" if len(others) else ""
    record = difference(seed_values(table), group, baseline)
    if record is None:
        return ""
    close = f"{TOO_CLOSE}, " if record.judged and not record.decided else ""
    lead = f"{points(abs(record.mean))} points {record.side}" if points(record.mean) != "0.00" else "equal to"
    return f", {lead} {who(table.loc[baseline])} ({close}{record.interval})"


def _allowing(table: pd.DataFrame, group: str, baseline: str) -> str:
    """The best of many is ahead by luck too; named, with the interval that allows for it (Bonferroni)."""
    rivals = len(table) - 1
    record = difference(seed_values(table), group, baseline, rivals) if rivals > 1 else None
    if record is None or not record.judged:
        return ""
    verdict = "still not 0" if record.decided else TOO_CLOSE
    interval = f"{points(record.low)} to {points(record.high)}"
    return f"Allowing for its choice among {rivals + 1}, the interval is {interval}: {verdict}"


def who(row: Any) -> str:
    """A row in a sentence: its short name and whose it is."""
    name = f"“{row['short']}”"
    if row["source"] in STORED:
        return f"your {'imported ' * (row['source'] == 'imported')}run {name}"
    return f"{name} of {paper_title(row['paper']) or 'several papers'}" + (f", {row['place']}" if row["place"] else "")


def _close(measured: pd.DataFrame, best: str) -> str:
    """How many rows the seeds cannot tell from the best."""
    values = seed_values(measured)
    records = [difference(values, group, best) for group in measured.index if group != best]
    close = sum(record is not None and record.judged and not record.decided for record in records)
    alone = sum(record is not None and not record.judged for record in records)
    parts = [
        f"{close} of {len(records)} others {'is' if close == 1 else 'are'} too close to it to call" if close else "",
        f"{alone} {'has' if alone == 1 else 'have'} one seed only and cannot be judged" if alone else "",
    ]
    return "; ".join(part for part in parts if part)


def _reported_best(ready: pd.DataFrame) -> str:
    reported = ready[ready["source"] == "reported"]
    return f"Papers report up to {reported['accuracy'].iloc[0]:.2f} %: {who(reported.iloc[0])}" if len(reported) else ""


def accuracy_words(row: Any) -> str:
    """ "86.70 % ± 0.31 (3 seeds)"; one seed has no deviation."""
    if row["source"] not in MEASURED:
        return f"{row['accuracy']:.2f} %"
    if row["seeds"] == 1:
        return f"{row['accuracy']:.2f} % (one seed)"
    unit = "runs" if "/by/" in str(row.name) else "seeds"  # of curves merged by a setting
    return f"{row['accuracy']:.2f} % ± {row['deviation']:.2f} ({row['seeds']:.0f} {unit})"
