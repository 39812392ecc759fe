"""The settings under which a schedule is priced: the record, its widgets, and what a share link says of it.

The widgets' values live in the session under `schedule.<field>`, so that a callback sees what was typed last.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import streamlit as st
from scipy.special import ndtri

from dpviz.privacy import (
    ACCOUNTANTS,
    ADJACENCIES,
    MEASURES,
    SAMPLINGS,
    Assumptions,
    Epsilon,
    Phase,
    Risk,
    Target,
    epoch_phases,
    epsilon,
    nearest_adjacency,
    risk,
    steps_per_epoch,
)
from dpviz.privacy.records import check_delta
from dpviz.privacy.registry import Entry, InputError, Knob
from dpviz.privacy.rounding import epsilon_number, percent_text
from dpviz.training.data.readers import here
from dpviz.training.tables import DATASETS
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.editor import MAX_EPOCHS, LiveRisk
from dpviz.views.numbers import delta_text

OWN_DATA = "own"
MAX_SIZE = 1_000_000_000
# False-positive rates to choose from: 1 in n, with an n that makes a short decimal. About ten in each power of ten.
ONE_IN = (
    *(10_000, 8000, 6400, 5000, 4000, 3200, 2500, 2000, 1600, 1250, 1000, 800, 640, 500, 400, 320, 250, 200, 160, 125),
    *(100, 80, 64, 50, 40, 32, 25, 20, 16, 10, 8, 5, 4, 2),
)
FPRS = tuple(1 / n for n in ONE_IN)
LAST = "schedule.settings"  # in the session: the settings that the board was priced with last


@dataclass(frozen=True)
class Settings:
    """Everything but the curve that decides epsilon, and the target. `dataset` is a name or `own`.

    `measure` is the number that follows the pen and that the target is in; `fpr` the false alarms that are accepted.
    """

    dataset: str = "mnist"
    dataset_size: int = 60_000
    batch_size: int = 600
    epochs: int = 20
    delta: float = 1e-5
    target: float | None = 2.0
    accountant: str = "pld"
    adjacency: str | None = None  # None: what the sampling's price is about; always a name once made
    sampling: str = "poisson"
    measure: str = "epsilon"
    fpr: float = 0.001

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not 1 <= self.epochs <= MAX_EPOCHS:
            raise InputError(f"the editor shows 1 to {MAX_EPOCHS} epochs, got {self.epochs}; take fewer epochs")
        if not 1 <= self.batch_size <= self.dataset_size:
            raise InputError(
                f"batch size must be from 1 to the {self.dataset_size:,} training examples, got {self.batch_size:,}"
            )
        object.__setattr__(self, "adjacency", self.assumptions.adjacency)
        MEASURES[self.measure]  # refuses an unknown one
        if self.target is not None:
            Target(self.target, self.measure, self.fpr)  # refuses what its measure cannot be

    @property
    def sample_rate(self) -> float:
        return self.batch_size / self.dataset_size

    @property
    def steps(self) -> int:
        """Updates in one epoch."""
        return steps_per_epoch(self.sample_rate)

    @property
    def assumptions(self) -> Assumptions:
        return Assumptions(self.accountant, self.adjacency, self.sampling)

    @property
    def budget(self) -> Target | None:
        return None if self.target is None else Target(self.target, self.measure, self.fpr)

    def phases(self, sigmas: Sequence[float]) -> tuple[Phase, ...]:
        return epoch_phases(sigmas, self.sample_rate)

    def price(self, sigmas: Sequence[float]) -> Epsilon:
        """What a curve costs; remembered, since a page asks again on every rerun."""
        return _price(tuple(sigmas), self.sample_rate, self.delta, self.assumptions)

    def risk(self, sigmas: Sequence[float]) -> Risk:
        """What a curve reveals about one person; remembered like its price."""
        return _risk(tuple(sigmas), self.sample_rate, self.assumptions)

    def live_risk(self, sigmas: Sequence[float]) -> LiveRisk | None:
        """The number that follows the pen, if it is a risk."""
        measure = MEASURES[self.measure]
        if measure.of_risk is None:
            return None
        found = self.risk(sigmas)
        lower, upper = measure.of_risk(found, self.fpr)
        text = f"≤ {epsilon_number(upper)}" if measure.most == math.inf else percent_text(lower, upper)
        kind, threshold = found.kind.partition(", because")[0], -float(ndtri(self.fpr))
        note = f"{100 * self.fpr:g} % false alarms" if measure.at_fpr else ""
        return LiveRisk(measure.symbol, self.measure, upper, text, kind, measure.mu(upper, self.fpr), threshold, note)

    def to_link(self) -> dict[str, Any]:
        """The fields of a share link."""
        data = asdict(self)
        del data["epochs"]  # the curve's length says it
        data["dataset"] = None if self.dataset == OWN_DATA else self.dataset
        return data

    @classmethod
    def from_link(cls, epochs: int, fields: Mapping[str, Any]) -> Settings:
        """The settings of a share link; fields that it leaves out take their defaults.

        Old links may hold add-remove with a fixed order, which has no price: they open with what the price is about.
        """
        data = {name: value for name, value in fields.items() if name != "preset"}
        known = DATASETS.get(str(data.get("dataset", "")))
        size = data.get("dataset_size", cls.dataset_size)
        # A known dataset of another size (a part of it, say) is somebody's own data.
        data["dataset"] = data["dataset"] if known and known.size == size else OWN_DATA
        if data.get("adjacency") in ADJACENCIES:
            data["adjacency"] = nearest_adjacency(data.get("sampling", cls.sampling), data["adjacency"])
        data["fpr"] = min(FPRS, key=lambda fpr: abs(math.log(fpr / data.get("fpr", cls.fpr))))
        return cls(**{"target": None} | data, epochs=epochs)


@lru_cache(maxsize=512)
def _price(sigmas: tuple[float, ...], sample_rate: float, delta: float, assumptions: Assumptions) -> Epsilon:
    return epsilon(epoch_phases(sigmas, sample_rate), delta, assumptions)


@lru_cache(maxsize=64)
def _risk(sigmas: tuple[float, ...], sample_rate: float, assumptions: Assumptions) -> Risk:
    return risk(epoch_phases(sigmas, sample_rate), assumptions)


def parse_delta(text: str) -> float:
    """Delta as typed: 1e-5, 0.00001 or a fraction such as 1/60000; nothing else is taken for a number."""
    number = r"((?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)"
    match = re.fullmatch(rf"\s*{number}\s*(?:/\s*{number}\s*)?", text, flags=re.ASCII)
    if match is None:
        raise InputError(f"delta must be a number above 0 and below 1 such as 1e-5, got {text.strip()[:40]!r}")
    above, below = float(match[1]), float(match[2] or 1)
    return check_delta(above / below if below else math.inf)


def check_target(target: float | None) -> float | None:
    """None is no target."""
    return None if target is None else float(Knob(1.0, 1e-6, 1e6).check("target epsilon", target))


def _whole(noun: str, most: int) -> Callable[[int | None], int]:
    def check(value: int | None) -> int:
        if value is None or not 1 <= value <= most:
            got = "an empty field" if value is None else f"{value:,}"
            raise InputError(f"{noun} must be from 1 to {most:,}, got {got}")
        return value

    return check


# What a field must be by itself; the others are lists to choose from.
CHECKS: dict[str, Callable[[Any], Any]] = {
    "dataset_size": _whole("training examples", MAX_SIZE),
    "batch_size": _whole("batch size", MAX_SIZE),
    "epochs": _whole("epochs", MAX_EPOCHS),
    "delta": parse_delta,
    "target": check_target,
}


def session_key(field: str) -> str:
    return f"schedule.{field}"


def write_settings(settings: Settings) -> None:
    """Put settings into the widgets: at the start of a session, or from a callback."""
    st.session_state[LAST] = settings
    for field in Settings.__dataclass_fields__:
        st.session_state[session_key(field)] = _typed(settings, field)


def read_settings() -> Settings:
    """What the board is priced with: the widgets' values; a field that cannot be used keeps the last one that could."""
    return _read()[0]


def _read() -> tuple[Settings, dict[str, str]]:
    """The settings, and by field why its value is not among them."""
    last: Settings = st.session_state[LAST]
    values, problems = {}, {}
    for field in Settings.__dataclass_fields__:
        check = CHECKS.get(field, lambda value: value)
        try:
            values[field] = check(st.session_state[session_key(field)])
        except InputError as error:
            values[field] = getattr(last, field)
            kept = _typed(last, field)
            problems[field] = f"{error}; the board stays at {'none' if kept is None else kept}"
    try:
        if values["target"] is not None:
            Target(values["target"], values["measure"], values["fpr"])
    except InputError as error:
        values["target"], problems["target"] = None, f"{error}; the board has no target"
    try:
        settings = Settings(**values)
    except InputError as error:  # a batch larger than the dataset
        settings, problems["batch_size"] = last, f"{error}; the board stays as it was"
    st.session_state[LAST] = settings
    return settings, problems


def _typed(settings: Settings, field: str) -> Any:
    """A setting as its widget holds it."""
    value = getattr(settings, field)
    return delta_text(value) if field == "delta" else value


def settings_panel(on_epochs: Callable[[], None]) -> None:
    """The widgets, top to bottom, each with what is wrong in it; `on_epochs` is called when the epochs were changed.

    Numbers have no limits in the browser: beyond one it would turn red and say nothing.
    """
    settings, problems = _read()

    def show_problems(*fields: str) -> None:
        for field in fields:
            if field in problems:
                input_error(InputError(problems[field]))

    names = [*here(), OWN_DATA]
    if st.session_state[session_key("dataset")] not in names:  # own data that were removed
        st.session_state[session_key("dataset")] = OWN_DATA
    st.selectbox(
        "Dataset",
        names,
        format_func=lambda name: "Other data" if name == OWN_DATA else DATASETS[name].title,
        on_change=_take_dataset,
        args=(on_epochs,),
        help="Fills in examples, batch size, epochs and δ. Add your own data on the Train page.",
        **_stored("dataset"),
    )
    if st.session_state[session_key("dataset")] == OWN_DATA:
        st.number_input("Training examples N", value=None, step=1000, **_stored("dataset_size"))
        show_problems("dataset_size")
    st.number_input("Batch size", value=None, step=1, help="Expected examples per step.", **_stored("batch_size"))
    show_problems("batch_size")
    left, right = st.columns([3, 2])
    left.number_input(
        "Epochs", value=None, step=1, help=f"1 to {MAX_EPOCHS}.", on_change=on_epochs, **_stored("epochs")
    )
    right.text_input(
        "δ", help="Typed exactly: 1e-5, or a fraction such as 1/60000. It should be well under 1/N.", **_stored("delta")
    )
    show_problems("epochs", "delta")
    st.selectbox(
        "Number that follows the pen",
        list(MEASURES),
        format_func=lambda name: MEASURES[name].title,
        help="ε, or what the best attack can do: its advantage, the members that it finds at the false alarms of the "
        "Risk tab, or μ of Gaussian differential privacy.",
        on_change=_take_usual_target,
        **_stored("measure"),
    )
    measure = MEASURES[settings.measure]
    st.number_input(
        f"Target {measure.symbol}",
        value=None,
        step=0.1 if measure.most == math.inf else 0.01,
        format="%.4g",
        placeholder="none",
        help=f"What “Fit to {measure.symbol}” aims at, and a line in the plot where it is an ε. Empty: none."
        + ("" if measure.most == math.inf else " A share: 0.1 is 10 %."),
        **_stored("target"),
    )
    show_problems("target")
    _choice("Accountant", "accountant", ACCOUNTANTS)
    _choice("Batches", "sampling", SAMPLINGS, on_change=_keep_neighbours_possible)
    allowed = SAMPLINGS[st.session_state[session_key("sampling")]].adjacencies
    _choice("Neighbouring datasets", "adjacency", {name: ADJACENCIES[name] for name in allowed})
    st.caption(settings_words(settings))
    warning = delta_warning(settings)
    if warning:
        st.warning(warning)


def settings_words(settings: Settings) -> str:
    """What the settings come to, with units."""
    return (
        f"{settings.dataset_size:,} training examples, sample rate q = {settings.sample_rate:.4g}, "
        f"{settings.steps:,} steps per epoch, {settings.steps * settings.epochs:,} steps in all."
    )


def delta_warning(settings: Settings) -> str | None:
    """Why this delta is too large, if it is."""
    if settings.delta <= 1 / settings.dataset_size:
        return None
    return (
        f"δ = {delta_text(settings.delta)} is above 1/N = {1 / settings.dataset_size:.2g}: to publish one person's "
        "record in full would count as private."
    )


def _stored(field: str) -> dict[str, Any]:
    return {"key": session_key(field), "persist_state": "session"}


def _choice(
    label: str,
    field: str,
    entries: Mapping[str, Entry],
    on_change: Callable[[], None] | None = None,
) -> None:
    st.selectbox(
        label,
        list(entries),
        format_func=lambda name: entries[name].title,
        help="  \n".join(f"**{entry.title}**: {entry.help}" for entry in entries.values()),
        on_change=on_change or "rerun",
        **_stored(field),
    )


def _take_usual_target() -> None:
    """A target in one measure means nothing in another."""
    st.session_state[session_key("target")] = MEASURES[st.session_state[session_key("measure")]].usual


def _keep_neighbours_possible() -> None:
    """Other batches may have no price for the neighbours that were chosen."""
    sampling, adjacency = (st.session_state[session_key(field)] for field in ("sampling", "adjacency"))
    st.session_state[session_key("adjacency")] = nearest_adjacency(sampling, adjacency)


def _take_dataset(on_epochs: Callable[[], None]) -> None:
    """What suits the dataset that was chosen: all of its examples, a hundredth of them per batch, delta below 1/N."""
    name = st.session_state[session_key("dataset")]
    if name == OWN_DATA:
        return
    data = DATASETS[name]
    fields = {"dataset_size": data.size, "batch_size": data.batch_size, "epochs": Settings.epochs}
    for field, value in (fields | {"delta": delta_text(data.delta)}).items():
        st.session_state[session_key(field)] = value
    on_epochs()
