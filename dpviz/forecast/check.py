"""Check a suggestion: train it and the constant noise of equal epsilon over new seeds, and compare.

.checks/<id>.json in the store's folder (where people sign in, in a folder per person) says what was expected and which
runs check it, so that a check outlives pages and servers. The runs are runs like any other.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpviz.forecast.designs import CHECK_SEEDS, TABULAR
from dpviz.forecast.library import begun, settings_key
from dpviz.forecast.response import Response
from dpviz.papers import RECIPES
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import epsilon_number
from dpviz.privacy.schedules import Schedule
from dpviz.runs.differences import Difference, paired_difference
from dpviz.runs.execution.runner import with_seeds
from dpviz.runs.store import run_files as files
from dpviz.runs.store.cached import FORECASTS, cached_runs
from dpviz.runs.store.records import Run
from dpviz.runs.store.store import Store
from dpviz.training.limits import refuse_if_read_only
from dpviz.training.spec import RunSpec

if TYPE_CHECKING:
    from dpviz.forecast.suggest import Suggestion

VERSION = 1
CHECKS = ".checks"
TITLE = "check of a suggestion"
RUN_ID = re.compile(r"[a-z0-9-]{1,40}")


def check_specs(spec: RunSpec, suggestion: Suggestion) -> tuple[RunSpec, ...]:
    """The runs of a check: the suggested schedule over all seeds, then the constant noise over the same."""
    plans = (suggestion.best, suggestion.constant)
    both = [
        dataclasses.replace(spec, schedule=Schedule.custom(plan.sigmas), epochs=len(plan.sigmas), recipe="")
        for plan in plans
    ]
    return tuple(run for each in both for run in with_seeds(each, CHECK_SEEDS))


def difference_of(runs: Sequence[Run]) -> Difference:
    """Points by which the suggested schedule really leads the constant; every run must have ended well."""
    for run in runs:
        if run.status != "done":
            raise InputError(f"the check did not end: run {run.id} {run.status} {run.error}".rstrip())
    accuracies = [100 * run.epochs[-1].accuracy for run in runs]
    half = len(CHECK_SEEDS)
    ours, constant = (dict(zip(CHECK_SEEDS, part, strict=True)) for part in (accuracies[:half], accuracies[half:]))
    return paired_difference(ours, constant)


@dataclass(frozen=True)
class Check:
    """What a forecast expected of a suggestion, in accuracy, and the runs that check it: suggested, then constant.

    `price` says what having looked at them costs; empty on public data.
    """

    gain: float
    uncertainty: float
    dataset: str
    runs: tuple[str, ...]
    price: str = ""

    def __post_init__(self) -> None:
        if len(self.runs) != 2 * len(CHECK_SEEDS) or not all(RUN_ID.fullmatch(run) for run in self.runs):
            raise InputError(f"a check has {2 * len(CHECK_SEEDS)} runs; this is none that dpviz wrote")

    @property
    def id(self) -> str:
        return self.runs[0]

    def words(self, difference: Difference) -> str:
        """What came out beside what was expected, in one sentence."""
        gain, uncertainty = 100 * self.gain, 100 * self.uncertainty
        side = "inside" if difference.low <= gain <= difference.high else "outside"
        return (
            f"Suggested against constant noise over {len(CHECK_SEEDS)} new seeds: {difference.words}; the forecast "
            f"expected {gain:.2f} points (give or take {uncertainty:.2f}), which lies {side} of that interval."
        )

    def save(self, store: Store) -> None:
        refuse_if_read_only()
        folder = _folder(store)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            files.replace(folder / f"{self.id}.json", files.dump({"version": VERSION} | asdict(self)))
        except OSError as error:
            raise InputError(f"the check cannot be saved: {files.reason(error)}") from None

    def forget(self, store: Store) -> None:
        """Its runs stay."""
        refuse_if_read_only()
        (_folder(store) / f"{self.id}.json").unlink(missing_ok=True)


def last_check(store: Store, dataset: str) -> Check | None:
    """The newest check on a dataset that can be read; run ids rise with time."""
    for path in sorted(_folder(store).glob("*.json"), reverse=True):
        try:
            check = _read(files.load(path))
        except InputError:
            continue
        if check.dataset == dataset:
            return check
    return None


def _read(data: Any) -> Check:
    if not isinstance(data, Mapping) or data.get("version") != VERSION:
        raise InputError(f"this is no check of version {VERSION}")
    try:
        return Check(
            float(data["gain"]),
            float(data["uncertainty"]),
            str(data["dataset"]),
            tuple(map(str, data["runs"])),
            str(data["price"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"this is no check that dpviz wrote: {error}") from None


def _folder(store: Store) -> Path:
    return store.folder / CHECKS / store.owner if store.owner else store.folder / CHECKS


# --- whose settings, and what it costs


def spec_behind(response: Response, store: Store) -> RunSpec:
    """Settings of the runs that a response rests on: of those made for it, a recipe's, or of a run that is there."""
    for spec in (*begun(response.settings, store), *(recipe.spec for recipe in RECIPES.values()), TABULAR):
        if _key(spec) == response.settings:
            return spec
    for run in store.list().runs:
        if run.key in response.runs:
            return store.get(run.id).own_spec
    for item in cached_runs(paper=FORECASTS).runs:
        if item.experiment == response.settings:
            return item.run.own_spec
    raise InputError("the runs that this forecast rests on are gone, and with them their settings; fit it again")


def _key(spec: RunSpec) -> str:
    try:
        return settings_key(spec)
    except InputError:
        return ""


def check_price(spec: RunSpec, specs: Sequence[RunSpec], response: Response, store: Store) -> str:
    """What looking at the runs of a check costs the people in one's own data; empty on public data."""
    if spec.own is None:
        return ""
    from dpviz.forecast.evidence import begun_like, charged_once, looked_at  # with scipy.optimize, as below

    behind = dataclasses.replace(spec, batch_size=response.batch_size)  # the page's may be another
    pilots = looked_at(behind, begun_like(behind, store), store)
    alone, whole = (_composition(runs, spec.delta) for runs in (tuple(specs), charged_once((*pilots, *specs))))
    if alone is None or whole is None:
        return "At least one of these runs has no guarantee, so there is no price for having looked at them."
    gone = len(set(response.runs) - {pilot.key for pilot in pilots})
    lost = f" {gone} more are gone from the runs folder and not in this number." if gone else ""
    return (
        f"The data are your own: to look at these {len(specs)} runs costs epsilon {epsilon_number(alone)}, with the "
        f"{len(pilots)} runs behind the forecast {epsilon_number(whole)} (composition, delta {spec.delta:g}); a final "
        f"run comes on top.{lost}"
    )


@functools.lru_cache(maxsize=16)
def _composition(specs: tuple[RunSpec, ...], delta: float) -> float | None:
    from dpviz.forecast.pilots import composition  # with scipy.optimize: a page looks for checks when it opens

    return composition(specs, delta)
