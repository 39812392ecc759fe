"""docs/forecasts.md: how good the forecasts are on schedules that no fit has seen."""

from __future__ import annotations

import math

from dpviz.forecast.checked import check_row, published_checks
from dpviz.forecast.designs import DESIGNED
from dpviz.forecast.evidence import curves, runs_like
from dpviz.forecast.fit import HeldOut, held_out, left_out
from dpviz.forecast.library import Shelf, title_of
from dpviz.forecast.response import Response
from dpviz.privacy.registry import InputError
from dpviz.runs.store.store import Store

ENOUGH = 12  # schedules held out; with fewer, every schedule is left out of one fit instead
OUTER_FOLDS = 4

HEAD = """\
# How good the forecasts are

Made by `dpviz forecast table`. Every number is about schedules that the fit had not seen: runs with odd shapes (saw
teeth, spikes, steps, late bursts) that are kept away from every fit, or, where fewer than {enough} of those exist,
every schedule left out of one of {folds} fits, its band included. Errors are in points of test accuracy at the end of
a schedule, against the mean of its seeds: *by seeds alone* is the error that a perfect forecast would have, since runs
of one schedule differ by their seeds, short ones most. The band should hold 90 % of the epochs. The rank correlation is
over pairs of schedules that differ by more than a seed's scatter: the share whose order was forecast less the share
whose order was not, epoch by epoch, of which the median is shown; seeds limit it, too.

| recipe | fitted to | held out | mean error | by seeds alone | in the band | rank correlation |
| --- | --- | --- | --- | --- | --- | --- |
"""

CHECKS = """
## Suggestions that were checked

Made by `dpviz suggest --recipe NAME --target-epsilon E --check --publish`: the schedule that the forecast suggests at a
budget and the best constant noise of equal tight epsilon, trained over three new seeds each. Accuracies are means over
seeds in percent; the difference is paired, in points, with its 95 % interval. *Expected* is the gain that the forecast
claimed before, give or take what one run of each may differ; the last column says whether that gain lies in the
interval that was measured. By chance alone one interval in twenty does not hold the true difference.

| recipe | ε | epochs | suggested | constant | expected | measured | inside |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def report(shelf: Shelf, store: Store) -> str:
    """The document, in Markdown."""
    rows, missing = [], []
    for spec in DESIGNED:
        try:
            response = shelf.of(spec)
        except InputError:
            missing.append(f"`{title_of(spec)}`")
            continue
        runs = runs_like(spec, store)
        kept_away = curves(runs, held_out=True)
        if len({curve.sigmas for curve in kept_away}) >= ENOUGH:
            rows.append(_row(response, held_out(response, kept_away), "kept away"))
        else:
            rows.append(_row(response, left_out(curves(runs), OUTER_FOLDS), "left out once"))
    text = HEAD.format(enough=ENOUGH, folds=OUTER_FOLDS) + "\n".join(rows) + "\n"
    checks = [check_row(*check) for check in published_checks()]
    if checks:
        text += CHECKS + "\n".join(checks) + "\n"
    if missing:
        text += f"\nNot fitted yet, for want of runs: {', '.join(missing)}.\n"
    return text


def _row(response: Response, result: HeldOut, how: str) -> str:
    cells = (
        f"`{response.recipe}`",
        f"{len(response.runs)} runs of {response.schedules} schedules",
        f"{result.runs} runs of {result.schedules} schedules, {how}",
        f"{100 * result.error:.2f}",
        "not measured" if math.isnan(result.seeds_error) else f"{100 * result.seeds_error:.2f}",
        f"{result.coverage:.1%}",
        f"{result.rank_correlation:.2f}",
    )
    return f"| {' | '.join(cells)} |"
