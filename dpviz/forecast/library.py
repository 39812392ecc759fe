"""Fitted forecasts as files, found by the settings that they are about.

`cached_runs/forecasts/<settings>.json` come with dpviz, `.forecasts/` of a runs folder holds a person's own.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpviz.forecast.response import Response
from dpviz.papers import PAPERS, RECIPES
from dpviz.paths import cached_runs_folder
from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import Schedule
from dpviz.runs.store import run_files as files
from dpviz.runs.store.store import Store
from dpviz.training.limits import refuse_if_read_only
from dpviz.training.spec import STREAMS, RunSpec
from dpviz.training.tables import LOSSES, MODELS

CACHED, OWN = "forecasts", ".forecasts"
MAX_FILE = 1_000_000
# What may differ between runs of one response: what the forecast follows, chance, and labels.
FREE: dict[str, Any] = {
    "schedule": Schedule.of("constant", sigma=1.0),
    "epochs": 1,
    "seed": 0,
    "delta": 1e-5,
    "secure": False,
    "diagnostics": False,
    "filter_epsilon": None,
    "filter_order": None,
    "recipe": "",
    "streams": STREAMS,
}


def settings_key(spec: RunSpec) -> str:
    """Runs of one key share a response: the same settings but for the noise schedule, the epochs and the seed."""
    if not spec.private:
        raise InputError(f"{spec.method} has no noise, so its accuracy does not follow a noise schedule")
    if {spec.learning_rate_schedule, spec.clip_norm_schedule} != {"constant"}:
        raise InputError("a forecast needs a constant learning rate and a constant clipping norm; set both to constant")
    return dataclasses.replace(spec, **FREE).key


def title_of(spec: RunSpec) -> str:
    return spec.recipe or f"{spec.method} with {spec.model} on {spec.dataset}"


@dataclass(frozen=True)
class Shelf:
    """The responses that can be read, and one sentence for each that cannot."""

    responses: tuple[Response, ...]
    warnings: tuple[str, ...]

    def of(self, spec: RunSpec) -> Response:
        key = settings_key(spec)
        for response in self.responses:
            if response.settings == key:
                return response
        known = ", ".join(response.recipe for response in self.responses) or "none"
        raise InputError(
            f"nothing is known yet of how {title_of(spec)} responds to noise (fitted: {known}); "
            "dpviz forecast fit learns it"
        )


def shelf(store: Store | None = None) -> Shelf:
    """A person's own responses, then those that come with dpviz; one per settings."""
    responses: dict[str, Response] = {}
    warnings = []
    for folder in (*([store.folder / OWN] if store else []), cached_runs_folder() / CACHED):
        for path in sorted(folder.glob("*.json")):
            try:
                response = read(path)
            except InputError as error:
                warnings.append(f"skipped: {path.name}: {error}")
                continue
            responses.setdefault(response.settings, response)
    return Shelf(tuple(responses.values()), tuple(warnings))


def read(path: Path) -> Response:
    try:
        too_large = path.stat().st_size > MAX_FILE
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {files.reason(error)}") from None
    if too_large:
        raise InputError(f"{path.name} is larger than any forecast")
    response = Response.from_json(files.load(path))
    if path.stem != response.settings:
        raise InputError(f"{path.name} holds the forecast of other settings, {response.settings}; name it so")
    return response


def write(response: Response, folder: Path) -> Path:
    """Keep a response, whole or not at all; an older one of the same settings is replaced."""
    refuse_if_read_only()
    path = folder / f"{response.settings}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files.replace(path, files.dump(response.to_json()))
    except OSError as error:
        raise InputError(f"the forecast cannot be saved: {files.reason(error)}") from None
    return path


def response_name(response: Response) -> str:
    """Whose response it is: a paper's network and loss, whatever the schedule was; or the name a person gave."""
    recipe = RECIPES.get(response.recipe)
    if recipe is None:
        return response.recipe
    model, loss = MODELS[recipe.spec.model].title, LOSSES[recipe.spec.loss].title
    return f"{PAPERS[recipe.paper].short_title}: {model}, {loss[:1].lower()}{loss[1:]}"
