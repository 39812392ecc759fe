"""“Check it” on the Schedule page: a suggestion and its constant are trained in the background, and compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from dpviz.forecast.check import TITLE, Check, check_price, check_specs, difference_of, last_check, spec_behind
from dpviz.forecast.library import begin
from dpviz.forecast.response import Response
from dpviz.privacy import InputError
from dpviz.runs import Run
from dpviz.runs.store.records import LIVE, RESUMABLE
from dpviz.training.limits import read_only
from dpviz.training.pricing import AS_TRAINED
from dpviz.training.spec import RunSpec
from dpviz.ui.common.actions import Action, action_buttons, progress_bar, show_problem
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.runs import resume, runner, start, stop, store
from dpviz.ui.common.session import Keys, Slot
from dpviz.ui.schedule.settings import Settings

if TYPE_CHECKING:
    from dpviz.forecast.suggest import Suggestion

CHECK = Keys("check")
LIVE_SECONDS = 1.0


@dataclass(frozen=True)
class Offer:
    """A suggestion that may be checked, by these runs at this price; or the reason why not."""

    suggestion: Suggestion
    dataset: str
    specs: tuple[RunSpec, ...] = ()
    price: str = ""
    reason: str = ""

    def launch(self) -> None:
        begin(self.specs, store())  # what looking costs stays, also once they are deleted
        ids = start(self.specs, TITLE)
        Check(self.suggestion.gain, self.suggestion.uncertainty, self.dataset, ids, self.price).save(store())
        OFFER.set(None)


OFFER: Slot[Offer | None] = Slot(CHECK("offer"), None)  # the last suggestion, until it is checked


def offer_check(suggestion: Suggestion, response: Response, settings: Settings) -> None:
    """Let the page offer to check what was suggested under these settings."""
    reason = _refusal(suggestion, settings)
    try:
        spec = check_spec(response, settings)
        specs = check_specs(spec, suggestion)
        offer = Offer(suggestion, settings.dataset, specs, check_price(spec, specs, response, store()), reason)
    except InputError as error:
        offer = Offer(suggestion, settings.dataset, reason=str(error))
    OFFER.set(offer)


def check_panel(settings: Settings) -> None:
    """The button under a suggestion, and the newest check on the dataset: its progress, then what came out."""
    show_problem()
    offer = OFFER.get()
    if offer and offer.dataset == settings.dataset:
        _button(offer)
    check = last_check(store(), settings.dataset)
    if check:
        live = any(run.status in LIVE for run in _runs(check))
        st.fragment(_show, run_every=LIVE_SECONDS if live else None)(check, live)


def _button(offer: Offer) -> None:
    help = "Trains the suggested schedule and the constant of equal ε over three new seeds each, in the background."
    with st.container(horizontal=True, vertical_alignment="center"):
        buttons = [Action("Check it", offer.launch, offer.reason or help, disabled=bool(offer.reason))]
        action_buttons(CHECK, "offer", buttons)
        if offer.price or offer.reason:
            st.caption(offer.reason or offer.price)


def check_spec(response: Response, settings: Settings) -> RunSpec:
    """The settings that a check trains with: the response's, at the page's batch size and delta."""
    behind = spec_behind(response, store())
    spec = dataclasses.replace(behind, batch_size=settings.batch_size, delta=settings.delta, recipe="")
    if spec.sample_rate != settings.sample_rate:
        raise InputError(
            f"the runs behind this forecast have {spec.size:,} examples, the page {settings.dataset_size:,}; a check "
            "needs the same sample rate"
        )
    return spec


def _refusal(suggestion: Suggestion, settings: Settings) -> str:
    if suggestion.best.sigmas == suggestion.constant.sigmas:
        return "The suggestion is constant noise: there is nothing to compare it with."
    if settings.assumptions != AS_TRAINED:
        return "Runs are priced by PLD with Poisson batches and add-remove neighbours; suggest under these to check it."
    return ""


def _runs(check: Check) -> list[Run]:
    """Its runs that are still there."""
    runs = []
    for run_id in check.runs:
        try:
            runs.append(store().get(run_id))
        except InputError:
            continue
    return runs


def _show(check: Check, live_before: bool) -> None:
    runs = _runs(check)
    live = [run for run in runs if run.status in LIVE]
    if bool(live) != live_before or last_check(store(), check.dataset) != check:
        st.rerun()  # a fragment can change neither its own rhythm nor the check that it shows
    with st.container(border=True):
        st.markdown("**Check of a suggestion**")
        show_problem()
        if len(runs) < len(check.runs):
            input_error(InputError("some of the runs of this check were deleted; check the suggestion again"))
        elif all(run.status == "done" for run in runs):
            st.markdown(check.words(difference_of(runs)))
        else:
            _progress(runs)
        if check.price:
            st.caption(check.price)
        with st.container(horizontal=True, vertical_alignment="center"):
            action_buttons(CHECK, check.id, _actions(check, runs))
            if runs:
                from dpviz.ui.compare.link import link_to

                query = link_to(runs)
                st.page_link(
                    "pages/compare.py", label="Compare these runs", icon=":material/balance:", query_params=query
                )


def _progress(runs: list[Run]) -> None:
    failed = [run for run in runs if run.status == "failed"]
    if failed:
        input_error(InputError(f"run {failed[0].id} failed: {failed[0].error}"))
    done = sum(run.status == "done" for run in runs)
    shares = [_share(run) for run in runs]
    waits = "" if any(run.status in LIVE for run in runs) else ", stopped"
    progress_bar(sum(shares) / len(shares), "Suggested and constant", f"{done} of {len(runs)} runs done{waits}")


def _share(run: Run) -> float:
    progress = runner().progress(run.id)
    if progress and progress.steps:
        return progress.step / progress.steps
    return len(run.epochs) / run.own_spec.epochs


def _actions(check: Check, runs: list[Run]) -> list[Action]:
    here = runner().live()
    at_work = [run.id for run in runs if run.id in here]
    idle = [run.id for run in runs if run.status in RESUMABLE]
    actions = []
    if at_work:
        actions.append(Action("Stop", lambda: _each(stop, reversed(at_work)), "It can be resumed."))
    elif idle:
        actions.append(Action("Resume", lambda: _each(resume, idle), "Goes on from the checkpoints."))
    if not at_work:
        actions.append(Action("Dismiss", lambda: check.forget(store()), "Takes this box away; the runs stay."))
    return [] if read_only() else actions


def _each(act: Callable[[str], object], ids: Iterable[str]) -> None:
    for run_id in ids:
        act(run_id)
