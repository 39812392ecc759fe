"""A sweep: many runs from one description. What it varies, and the runs that come of it.

    title = "Falling noise against constant noise"
    recipe = "losing-less/mnist-ce-t-cnn"    # where settings start from; left out: dpviz's own defaults
    seeds = [0, 1, 2]
    epsilon = 1.0                            # left out: every schedule costs what it costs

    [settings]                               # the same for all
    epochs = 5

    [[grid]]                                 # every combination; several grids are laid side by side
    schedule = "constant"

    [[grid]]
    schedule = ["linear", "cosine"]
    "schedule.start" = [3.0, 5.0]

Instead of grids a sweep may have a `[search]` with `trials` and a `[search.space]` of lists and { low, high, log }.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpviz.papers import recipe as recipe_named
from dpviz.privacy import SCHEDULES
from dpviz.privacy.registry import InputError, Value
from dpviz.runs.settings import DEFAULT, change
from dpviz.runs.store.store import check_title
from dpviz.runs.sweeps.equal_epsilon import at_epsilon, refuse_uncalibrated, shape_key
from dpviz.training.limits import check_spec
from dpviz.training.spec import RunSpec
from dpviz.training.tables import CHOICES

MAX_RUNS = 5000
TOML_KEYS = ("title", "recipe", "seeds", "epsilon", "settings", "grid", "search")

Settings = tuple[tuple[str, Value], ...]
Grid = tuple[tuple[str, tuple[Value, ...]], ...]


@dataclass(frozen=True)
class Range:
    """Numbers that a search may take; whole ones if both ends are."""

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise InputError(f"a range needs finite numbers low < high, got {self.low} and {self.high}")
        if self.log and not self.low > 0:
            raise InputError(f"a logarithmic range needs low > 0, got {self.low}")

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


@dataclass(frozen=True)
class Search:
    """So many candidates, each proposed from what those before it gave: accuracy against epsilon."""

    trials: int
    space: tuple[tuple[str, Range | tuple[Value, ...]], ...]

    def __post_init__(self) -> None:
        if not (isinstance(self.trials, int) and not isinstance(self.trials, bool) and 1 <= self.trials <= MAX_RUNS):
            raise InputError(f"trials must be a whole number from 1 to {MAX_RUNS:,}, got {self.trials!r}")
        if not self.space:
            raise InputError("a search needs a space: settings with a list of values or a range")


@dataclass(frozen=True)
class Candidate:
    """One choice of settings: a run for each seed. `error` says why these settings make no run."""

    settings: Settings
    specs: tuple[RunSpec, ...]
    error: str = ""

    @property
    def label(self) -> str:
        return words(self.settings)


@dataclass(frozen=True)
class Sweep:
    """What is varied around the settings `start`: grids, or a search; at equal epsilon if one is given."""

    start: RunSpec
    seeds: tuple[int, ...] = (0,)
    grids: tuple[Grid, ...] = ()
    search: Search | None = None
    epsilon: float | None = None
    title: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", check_title(self.title))
        if bool(self.grids) == (self.search is not None):
            raise InputError("a sweep needs either grids or a search, and not both")
        good = all(isinstance(seed, int) and not isinstance(seed, bool) for seed in self.seeds)
        if not (self.seeds and good and len(set(self.seeds)) == len(self.seeds)):
            raise InputError(f"seeds must be different whole numbers, for example [0, 1, 2]; got {list(self.seeds)}")
        if self.epsilon is not None and not 0 < self.epsilon < math.inf:
            raise InputError(f"epsilon must be a finite number > 0, got {self.epsilon}")
        for key in self.varied:
            if key in RESERVED:
                raise InputError(f"{key} cannot be varied: {RESERVED[key]}")
        if self.runs > MAX_RUNS:
            raise InputError(f"a sweep has at most {MAX_RUNS:,} runs, got {self.runs:,}; take fewer values or seeds")

    @property
    def varied(self) -> tuple[str, ...]:
        """The settings that differ among the candidates."""
        parts = self.search.space if self.search else tuple(itertools.chain(*self.grids))
        return tuple(dict.fromkeys(key for key, _ in parts))

    @property
    def size(self) -> int:
        """Candidates in all."""
        if self.search:
            return self.search.trials
        return sum(math.prod(len(values) for _, values in grid) for grid in self.grids)

    @property
    def runs(self) -> int:
        return self.size * len(self.seeds)

    @property
    def id(self) -> str:
        """Hash of what the sweep does: the same description, the same sweep, so that giving it again resumes it."""
        data = {key: value for key, value in self.to_json().items() if key != "title"}
        text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def combinations(self) -> Iterator[Settings]:
        """Every combination of every grid, in order; a search has none before it begins."""
        for grid in self.grids:
            names = tuple(key for key, _ in grid)
            for values in itertools.product(*(values for _, values in grid)):
                yield tuple(zip(names, values, strict=True))

    def candidate(self, settings: Settings) -> Candidate:
        """The runs of one choice of settings, calibrated if the sweep is at equal epsilon."""
        try:
            spec = self._spec(settings)
            if self.epsilon is not None:
                spec = at_epsilon(spec, self.epsilon)
        except InputError as error:
            return Candidate(settings, (), str(error))
        return Candidate(settings, tuple(dataclasses.replace(spec, seed=seed) for seed in self.seeds))

    def check(self) -> Sweep:
        """The sweep, if every combination of its grids, or each end of a search's ranges, makes a run of its own.

        Quick: nothing is calibrated yet.
        """
        seen: dict[str, Settings] = {}
        for settings in self.combinations():
            try:
                spec = self._spec(settings)
            except InputError as error:
                hint = "; settings that go with one choice only belong into a [[grid]] of their own"
                raise InputError(f"{words(settings)}: {error}{hint}") from None
            key = self._same(spec)
            if key in seen:
                raise InputError(f"{words(settings)} is the same run as {words(seen[key])}")
            seen[key] = settings
        if self.search:
            self._check_space(dict(self.search.space))
        return self

    def _check_space(self, space: dict[str, Range | tuple[Value, ...]]) -> None:
        """The first values together make a run, and so does the upper end of each range in place of the lower.

        Other combinations may fail: the search is told and goes on.
        """
        for key in space:
            _refuse_missing_knob(key, space)
        first = {key: values.low if isinstance(values, Range) else values[0] for key, values in space.items()}
        lowest = self._same(self._spec(tuple(first.items())))
        for key, high in ((key, values.high) for key, values in space.items() if isinstance(values, Range)):
            if self._same(self._spec(tuple((first | {key: high}).items()))) == lowest:
                raise InputError(f"{key} changes nothing at equal epsilon: the noise is scaled to meet it anyway")

    def _same(self, spec: RunSpec) -> str:
        """Equal for settings that would be one run in this sweep."""
        return shape_key(spec) if self.epsilon is not None else spec.key

    def _spec(self, settings: Settings) -> RunSpec:
        spec = check_spec(change(self.start, {key: str(value) for key, value in settings}))
        if spec.filter:
            raise InputError(f"filter_epsilon is not for sweeps: {FIXED_AHEAD}")
        if self.epsilon is not None:
            refuse_uncalibrated(spec)
        return spec

    def to_json(self) -> dict[str, Any]:
        search = self.search and {
            "trials": self.search.trials,
            "space": {key: _space_json(values) for key, values in self.search.space},
        }
        return {
            "title": self.title,
            "start": self.start.to_json(),
            "seeds": list(self.seeds),
            "epsilon": self.epsilon,
            "grid": [{key: list(values) for key, values in grid} for grid in self.grids],
            "search": search,
        }

    @classmethod
    def from_json(cls, data: Any) -> Sweep:
        """A sweep as it was saved."""
        if not (isinstance(data, Mapping) and set(data) == {"title", "start", "seeds", "epsilon", "grid", "search"}):
            raise InputError("not a sweep: its keys are others than a sweep's")
        if not (isinstance(data["grid"], list) and isinstance(data["seeds"], list)):
            raise InputError("not a sweep: grid and seeds must be lists")
        return cls(
            RunSpec.from_json(data["start"]),
            tuple(data["seeds"]),
            tuple(grid_of(grid) for grid in data["grid"]),
            search_of(data["search"]) if data["search"] is not None else None,
            None if data["epsilon"] is None else number_of("epsilon", data["epsilon"]),
            str(data["title"]),
        )


FIXED_AHEAD = "a sweep's schedules are fixed ahead; start a run that may be changed on the way by itself"
RESERVED = {
    "seed": "give the seeds as seeds = [0, 1, 2]",
    "delta": "epsilons of different deltas cannot be compared; set one delta for the whole sweep",
    "diagnostics": "looking inside changes no result; set it for the whole sweep",
    "filter_epsilon": FIXED_AHEAD,
}


# --- reading --------------------------------------------------------------------------------------------------------


def read_toml(text: str) -> Sweep:
    """The sweep that a TOML text describes, every combination checked. What it does not know is an error."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        hint = 'settings with a dot are written in quotes, "schedule.start" = 5'
        raise InputError(f"the sweep is not valid TOML: {error}; {hint}") from None
    return sweep_of(data)


def sweep_of(data: Mapping[str, Any]) -> Sweep:
    """The sweep in a mapping with the keys of a sweep's file, every combination checked."""
    for key in data:
        if key not in TOML_KEYS:
            raise InputError(f"a sweep has no {key!r}; it has {', '.join(TOML_KEYS)}")
    name = data.get("recipe")
    if name is not None and not isinstance(name, str):
        raise InputError(f"recipe must be a name such as losing-less/mnist-ce-t-cnn, got {name!r}")
    start = recipe_named(name).spec if name else DEFAULT
    settings = {key: _value(key, value) for key, value in _flat("settings", data.get("settings", {})).items()}
    if "seed" in settings:
        raise InputError("settings cannot hold the seed; give the seeds as seeds = [0, 1, 2]")
    grids = data.get("grid", [])
    seeds = data.get("seeds", [start.seed])
    if not isinstance(seeds, list):
        raise InputError(f"seeds must be a list such as [0, 1, 2], got {seeds!r}")
    sweep = Sweep(
        change(start, {key: str(value) for key, value in settings.items()}),
        tuple(seeds),
        tuple(grid_of(grid) for grid in (grids if isinstance(grids, list) else [grids])),
        search_of(data["search"]) if "search" in data else None,
        number_of("epsilon", data["epsilon"]) if "epsilon" in data else None,
        str(data.get("title", "")),
    )
    return sweep.check()


def grid_of(data: Any) -> Grid:
    """Settings with the values that each of them takes; a value alone counts as a list of one."""
    flat = _flat("grid", data)
    if not flat:
        raise InputError("a grid needs at least one setting with its values")
    return tuple((key, _values(key, values if isinstance(values, list) else [values])) for key, values in flat.items())


def search_of(data: Any) -> Search:
    if not isinstance(data, Mapping) or set(data) != {"trials", "space"}:
        raise InputError("a search has trials and space, and nothing else")
    flat = _flat("search.space", data["space"])
    return Search(data["trials"], tuple((key, _space(key, value)) for key, value in flat.items()))


def _space(key: str, value: Any) -> Range | tuple[Value, ...]:
    if isinstance(value, Mapping):
        if not isinstance(value.get("log", False), bool):
            raise InputError(f"{key}: log must be true or false")
        low, high = (number_of(f"{key}.{end}", value.get(end)) for end in ("low", "high"))
        return Range(low, high, value.get("log", False))
    if not isinstance(value, list):
        raise InputError(f"{key} must be a list of values or a range such as {{ low = 0.1, high = 4.0, log = true }}")
    return _values(key, value)


def _flat(what: str, data: Any) -> dict[str, Any]:
    """Nested tables as dotted keys: schedule.start may be written with or without quotes. A range stays whole."""
    if not isinstance(data, Mapping):
        raise InputError(f"{what} must be a table of settings")
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and not {"low", "high"} <= set(value):
            flat |= {f"{key}.{name}": item for name, item in _flat(f"{what}.{key}", value).items()}
        else:
            flat[key] = value
    return flat


def _values(key: str, values: list[Any]) -> tuple[Value, ...]:
    settings = tuple(_value(key, value) for value in values)
    if not settings or len(set(map(str, settings))) != len(settings):
        raise InputError(f"{key} needs different values, at least one; got {values}")
    return settings


def _value(key: str, value: Any) -> Value:
    """A setting's value; a list of sigmas as the text that a schedule is made of."""
    if key == "schedule" and isinstance(value, list):
        return ",".join(str(number_of(key, sigma)) for sigma in value)
    if isinstance(value, bool | str):
        return value
    return number_of(key, value)


def number_of(key: str, value: Any) -> float:
    """A finite number; a whole one stays whole."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{key} must be a finite number or a word, got {value!r}")
    return value


def _refuse_missing_knob(key: str, space: Mapping[str, Any]) -> None:
    """A knob can be searched only if every choice that is searched along with it has that knob."""
    choice, _, knob = key.partition(".")
    table, names = {"schedule": SCHEDULES, **CHOICES}.get(choice), space.get(choice, ())
    if not knob or table is None or isinstance(names, Range):
        return
    for name in names:
        if knob not in table[name].knobs:
            raise InputError(f"{name} has no knob {knob!r}, so no trial with both would run; search one of the two")


def _space_json(values: Range | tuple[Value, ...]) -> Any:
    return dataclasses.asdict(values) if isinstance(values, Range) else list(values)


def words(settings: Settings) -> str:
    """The settings in one line: schedule=linear, schedule.start=5."""
    return ", ".join(f"{key}={short(value)}" for key, value in settings)


def short(value: Value) -> str:
    """A value in a few digits: a search proposes 0.34864712093."""
    return str(float(f"{value:.6g}") if isinstance(value, float) else value)
