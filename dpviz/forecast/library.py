"""Fitted forecasts as files, found by the settings that they are about.

`cached_runs/forecasts/<settings>.json` come with dpviz, `.forecasts/` of a runs folder holds a person's own. Beside
each of the latter, `<settings>.jsonl` has a line per fit: how many runs it rested on, and how far off it was; and
`<settings>.begun.jsonl` a line per run that was made to learn from or to check, written before it starts.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpviz.forecast.response import Response
from dpviz.papers import PAPERS, RECIPES
from dpviz.paths import cached_runs_folder
from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import Schedule
from dpviz.runs.store import run_files as files
from dpviz.runs.store.cached import FORECASTS
from dpviz.runs.store.journal import append, lines
from dpviz.runs.store.store import Store
from dpviz.training.limits import refuse_if_read_only
from dpviz.training.spec import RunSpec
from dpviz.training.tables import LOSSES, MODELS

OWN = ".forecasts"
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
    "streams": 2,  # names the files that are kept, so it stays whatever the version is
}


def settings_key(spec: RunSpec) -> str:
    """Runs of one key share a response: the same settings but for the noise schedule, the epochs and the seed."""
    if not spec.private:
        raise InputError(f"{spec.method} has no noise, so its accuracy does not follow a noise schedule")
    if {spec.learning_rate_schedule, spec.clip_norm_schedule} != {"constant"}:
        raise InputError("a forecast needs a constant learning rate and a constant clipping norm; set both to constant")
    return dataclasses.replace(spec, **FREE).key


def title_of(spec: RunSpec) -> str:
    return spec.recipe or f"{MODELS[spec.model].title or spec.model} on {spec.data.title or spec.dataset}"


@dataclass(frozen=True)
class Fit:
    """What was known after a fit: the runs that it rested on, and its error at the end of schedules left out."""

    runs: int
    held_out_error: float

    def __post_init__(self) -> None:
        if not (type(self.runs) is int and self.runs >= 1 and 0 <= self.held_out_error <= 1):
            raise InputError("a fit rests on a run or more, and its error is a share")


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
    for folder in _folders(store):
        for path in sorted(folder.glob("*.json")):
            try:
                response = read(path)
            except InputError as error:
                warnings.append(f"skipped: {path.name}: {error}")
                continue
            responses.setdefault(response.settings, response)
    return Shelf(tuple(responses.values()), tuple(warnings))


def response_to(spec: RunSpec, store: Store | None = None) -> Response | None:
    """The response of a spec's settings, a person's own before the one that comes with dpviz; None: there is none."""
    try:
        name = f"{settings_key(spec)}.json"
    except InputError:
        return None
    for path in (folder / name for folder in _folders(store)):
        with contextlib.suppress(InputError):  # what is damaged is named where all are listed
            if path.exists():
                return read(path)
    return None


def own_folder(store: Store) -> Path:
    """A person's own responses; where people sign in, each person has a folder."""
    return store.folder / OWN / store.owner if store.owner else store.folder / OWN


def _folders(store: Store | None) -> tuple[Path, ...]:
    return (*([own_folder(store)] if store else []), cached_runs_folder() / FORECASTS)


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


def keep(response: Response, store: Store) -> None:
    """Write a person's own response and, unless the last fit said the same, one more line of its history."""
    folder = own_folder(store)
    write(response, folder)
    line = Fit(len(response.runs), response.held_out_error)
    if history(response.settings, store)[-1:] == (line,):
        return
    append(folder / f"{response.settings}.jsonl", dataclasses.asdict(line))


def history(settings: str, store: Store) -> tuple[Fit, ...]:
    """The fits of a person's own response, oldest first; a line that cannot be read is left out."""
    path = own_folder(store) / f"{settings}.jsonl"
    if not path.is_file() or path.stat().st_size > MAX_FILE:
        return ()
    fits = []
    for line in path.read_bytes().splitlines():
        with contextlib.suppress(ValueError, TypeError):
            fits.append(Fit(**files.DECODER.decode(line.decode())))
    return tuple(fits)


def begin(specs: Iterable[RunSpec], store: Store) -> None:
    """Write down runs before they start: what they cost stays, also once they are deleted."""
    for spec in specs:
        own_folder(store).mkdir(parents=True, exist_ok=True)
        append(_begun_file(settings_key(spec), store), spec.to_json())


def begun(settings: str, store: Store) -> tuple[RunSpec, ...]:
    """The runs that were ever begun to learn a response or to check it."""
    return lines(_begun_file(settings, store), RunSpec.from_json) or ()


def _begun_file(settings: str, store: Store) -> Path:
    return own_folder(store) / f"{settings}.begun.jsonl"


def response_name(response: Response) -> str:
    """Whose response it is: a paper's network and loss, whatever the schedule was; or the name a person gave."""
    recipe = RECIPES.get(response.recipe)
    if recipe is None:
        return response.recipe
    model, loss = MODELS[recipe.spec.model].title, LOSSES[recipe.spec.loss].title
    return f"{PAPERS[recipe.paper].short_title}: {model}, {loss[:1].lower()}{loss[1:]}"
