"""docs/forecasts.md: how good the forecasts are on schedules that no fit has seen."""

from __future__ import annotations

from dpviz.forecast.evidence import curves, runs_like
from dpviz.forecast.fit import HeldOut, held_out, left_out
from dpviz.forecast.library import Shelf
from dpviz.forecast.response import Response
from dpviz.papers import RECIPES
from dpviz.privacy.registry import InputError
from dpviz.runs.store.store import Store

DESIGNED = ("losing-less/mnist-ce-t-cnn", "losing-less/fashion-ce-t-cnn", "curricula/constant-1.54")
ENOUGH = 12  # schedules held out; with fewer, every schedule is left out of one fit instead
OUTER_FOLDS = 4

HEAD = """\
# How good the forecasts are

Made by `dpviz forecast table`. Every number is about schedules that the fit had not seen: runs with odd shapes (saw
teeth, spikes, steps, late bursts) that are kept away from every fit, or, where fewer than {enough} of those exist,
every schedule left out of one of {folds} fits, its band included. Errors are in points of test accuracy at the end of
a run, against single runs, so a seed's scatter is part of them. The band should hold 90 % of the epochs.

| recipe | fitted to | held out | mean error | a seed's standard deviation | in the band | rank correlation |
| --- | --- | --- | --- | --- | --- | --- |
"""


def report(shelf: Shelf, store: Store) -> str:
    """The document, in Markdown."""
    rows, missing = [], []
    for name in DESIGNED:
        spec = RECIPES[name].spec
        try:
            response = shelf.of(spec)
        except InputError:
            missing.append(f"`{name}`")
            continue
        runs = runs_like(spec, store)
        kept_away = curves(runs, held_out=True)
        if len({curve.sigmas for curve in kept_away}) >= ENOUGH:
            rows.append(_row(response, held_out(response, kept_away), "kept away"))
        else:
            rows.append(_row(response, left_out(curves(runs), OUTER_FOLDS), "left out once"))
    text = HEAD.format(enough=ENOUGH, folds=OUTER_FOLDS) + "\n".join(rows) + "\n"
    if missing:
        text += f"\nNot fitted yet, for want of runs: {', '.join(missing)}.\n"
    return text


def _row(response: Response, result: HeldOut, how: str) -> str:
    scatter = f"{100 * response.seed_scatter[-1]:.2f}" if response.seed_scatter else "not measured"
    cells = (
        f"`{response.recipe}`",
        f"{len(response.runs)} runs of {response.schedules} schedules",
        f"{result.runs} runs of {result.schedules} schedules, {how}",
        f"{100 * result.error:.2f}",
        scatter,
        f"{result.coverage:.1%}",
        f"{result.rank_correlation:.2f}",
    )
    return f"| {' | '.join(cells)} |"
