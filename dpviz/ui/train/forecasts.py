"""What the Train page knows of forecasts: the response of settings, the runs alike, and fitting it anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpviz.forecast.evidence import alike, may_be_alike, noise_of, unseen
from dpviz.forecast.fit import FEWEST
from dpviz.forecast.learner import Learner
from dpviz.forecast.library import response_to, settings_key
from dpviz.forecast.response import Forecast, Response
from dpviz.forecast.seen import updated
from dpviz.papers import RECIPES
from dpviz.privacy.registry import title_of
from dpviz.runs import Run
from dpviz.runs.store.cached import FORECASTS
from dpviz.training.spec import RunSpec
from dpviz.training.tables import DATASETS, MODELS
from dpviz.ui.common.actions import Action
from dpviz.ui.common.runs import cached, load_all, store, watch

MOMENT = 1.0  # seconds that a click may take: mostly enough for a fit, which goes on if it is not


def settings_name(spec: RunSpec) -> str:
    """Whose response it is: a paper's experiment, or what is trained on what."""
    if spec.recipe in RECIPES:
        return RECIPES[spec.recipe].title
    return f"{title_of(DATASETS, spec.dataset)}, {title_of(MODELS, spec.model)}"


def response_for(spec: RunSpec) -> Response | None:
    """What is known of how these settings respond to noise; None: nothing."""
    return response_to(spec, store())


def runs_alike(spec: RunSpec) -> tuple[Run, ...]:
    """Cached runs and those of the person at the page that share the response, finished or not."""
    own, _ = load_all([run for run in store().list().runs if may_be_alike(run, spec)])
    return alike(spec, [*(item.run for item in (*cached().runs, *cached(FORECASTS).runs)), *own])


@dataclass(frozen=True)
class RunForecast:
    """What was to be expected of a run, and what is now that some of its epochs were seen."""

    response: Response
    first: Forecast
    now: Forecast


def run_forecast(run: Run) -> RunForecast | None:
    """The forecast of a run from the noise that it had and will have; None where nothing is known of its settings.

    The course of a run under a filter is read anew: another tab or the command line may have changed it.
    """
    response = response_for(run.own_spec) if run.kind == "measured" else None
    if response is None:
        return None
    sigmas = noise_of(store().get(run.id) if run.course else run)
    seen = [record.accuracy for record in run.epochs]
    return RunForecast(response, response.forecast(sigmas), updated(response, sigmas, seen))


def fit_again(spec: RunSpec, runs: Sequence[Run]) -> list[Action]:
    """The button, where there are finished runs that the response does not rest on, and enough of them."""
    response = response_for(spec)
    new = unseen(response, runs)
    if not new or (response is None and len({noise_of(run) for run in new}) < FEWEST):
        return []
    count = f"{len(new)} new run{'s' if len(new) > 1 else ''}"
    help = "Learns the response from all finished runs of these settings, whatever they were made for."
    return [Action(f"Fit again with {count}", lambda: learn_again(spec), help, redraws=True)]


def learn_again(spec: RunSpec) -> None:
    learner = Learner(spec, (), store())
    learner.start()
    watch(settings_key(spec))
    learner.wait(MOMENT)
