"""The settings under which a schedule is priced: the record, its widgets, and what a share link says of it.

The widgets' values live in the session under `schedule.<field>`, so that a callback sees what was typed last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import streamlit as st

from dpviz.privacy import (
    ACCOUNTANTS,
    ADJACENCIES,
    SAMPLINGS,
    Assumptions,
    Epsilon,
    Phase,
    epoch_phases,
    epsilon,
    nearest_adjacency,
    steps_per_epoch,
)
from dpviz.privacy.records import check_delta
from dpviz.privacy.registry import Entry, InputError
from dpviz.training.tables import DATASETS
from dpviz.ui.schedule.editor import MAX_EPOCHS
from dpviz.views.numbers import delta_text

OWN_DATA = "own"
MAX_SIZE = 1_000_000_000


@dataclass(frozen=True)
class Settings:
    """Everything but the curve that decides epsilon, and the target. `dataset` is a name or `own`."""

    dataset: str = "mnist"
    dataset_size: int = 60_000
    batch_size: int = 600
    epochs: int = 20
    delta: float = 1e-5
    target: float | None = 2.0
    accountant: str = "pld"
    adjacency: str | None = None  # None: what the sampling's price is about; always a name once made
    sampling: str = "poisson"

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not 1 <= self.epochs <= MAX_EPOCHS:
            raise InputError(f"the editor shows 1 to {MAX_EPOCHS} epochs, got {self.epochs}; take fewer epochs")
        if not 1 <= self.batch_size <= self.dataset_size:
            raise InputError(
                f"batch size must be from 1 to the {self.dataset_size:,} training examples, got {self.batch_size:,}"
            )
        object.__setattr__(self, "adjacency", self.assumptions.adjacency)

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

    def phases(self, sigmas: Sequence[float]) -> tuple[Phase, ...]:
        return epoch_phases(sigmas, self.sample_rate)

    def price(self, sigmas: Sequence[float]) -> Epsilon:
        """What a curve costs; remembered, since a page asks again on every rerun."""
        return _price(tuple(sigmas), self.sample_rate, self.delta, self.assumptions)

    def to_link(self) -> dict[str, Any]:
        """The fields of a share link."""
        data = asdict(self)
        del data["epochs"]  # the curve's length says it
        data["target_epsilon"] = data.pop("target")
        data["dataset"] = None if self.dataset == OWN_DATA else self.dataset
        return data

    @classmethod
    def from_link(cls, epochs: int, fields: Mapping[str, Any]) -> Settings:
        """The settings of a share link; fields that it leaves out take their defaults.

        Old links may hold add-remove with a fixed order, which has no price: they open with what the price is about.
        """
        data = {name: value for name, value in fields.items() if name not in ("target_epsilon", "preset")}
        known = DATASETS.get(str(data.get("dataset", "")))
        size = data.get("dataset_size", cls.dataset_size)
        # A known dataset of another size (a part of it, say) is somebody's own data.
        data["dataset"] = data["dataset"] if known and known.size == size else OWN_DATA
        if data.get("adjacency") in ADJACENCIES:
            data["adjacency"] = nearest_adjacency(data.get("sampling", cls.sampling), data["adjacency"])
        return cls(**data, epochs=epochs, target=fields.get("target_epsilon"))


@lru_cache(maxsize=512)
def _price(sigmas: tuple[float, ...], sample_rate: float, delta: float, assumptions: Assumptions) -> Epsilon:
    return epsilon(epoch_phases(sigmas, sample_rate), delta, assumptions)


def parse_delta(text: str) -> float:
    """Delta as typed, for example 1e-5 or 0.00001; nothing else is taken for a number."""
    if not re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", text, flags=re.ASCII):
        raise InputError(f"delta must be a number above 0 and below 1 such as 1e-5, got {text.strip()[:40]!r}")
    return check_delta(float(text))


def session_key(field: str) -> str:
    return f"schedule.{field}"


def write_settings(settings: Settings) -> None:
    """Put settings into the widgets: at the start of a session, or from a callback."""
    for field, value in asdict(settings).items():
        st.session_state[session_key(field)] = delta_text(value) if field == "delta" else value


def read_settings() -> Settings:
    """The settings as the widgets have them now."""
    values = {field: st.session_state[session_key(field)] for field in Settings.__dataclass_fields__}
    for field in ("dataset_size", "batch_size", "epochs"):
        if values[field] is None:
            raise InputError(f"{field.replace('_', ' ')} is empty; type a whole number")
    values["delta"] = parse_delta(values["delta"])
    return Settings(**values)


def settings_panel(on_epochs: Callable[[], None]) -> None:
    """The widgets, top to bottom; `on_epochs` is called when the number of epochs was changed."""
    names = [*DATASETS, OWN_DATA]
    st.selectbox(
        "Dataset",
        names,
        format_func=lambda name: "Own data" if name == OWN_DATA else DATASETS[name].title,
        on_change=_fill_in_size,
        **_stored("dataset"),
    )
    own = st.session_state[session_key("dataset")] == OWN_DATA
    st.number_input(
        "Training examples N",
        1,
        MAX_SIZE,
        step=1000,
        disabled=not own,
        help="Filled in by the dataset; choose “Own data” to type it.",
        **_stored("dataset_size"),
    )
    left, right = st.columns(2)
    left.number_input("Batch size", 1, MAX_SIZE, step=1, help="Expected examples a step.", **_stored("batch_size"))
    right.number_input("Epochs", 1, MAX_EPOCHS, step=1, on_change=on_epochs, **_stored("epochs"))
    left.text_input("δ", help="Typed exactly, for example 1e-5. It should be well under 1/N.", **_stored("delta"))
    right.number_input(
        "Target ε",
        1e-3,
        1e6,
        step=0.1,
        format="%.4g",
        placeholder="none",
        help="A line in the plot, and what “Fit to ε” aims at. Empty: none.",
        **_stored("target"),
    )
    _choice("Accountant", "accountant", ACCOUNTANTS)
    _choice("Batches", "sampling", SAMPLINGS, on_change=_keep_neighbours_possible)
    allowed = SAMPLINGS[st.session_state[session_key("sampling")]].adjacencies
    _choice("Neighbouring datasets", "adjacency", {name: ADJACENCIES[name] for name in allowed})


def settings_words(settings: Settings) -> str:
    """What the settings come to, with units."""
    return (
        f"Sampling rate q = {settings.sample_rate:.4g}, {settings.steps:,} steps per epoch, "
        f"{settings.steps * settings.epochs:,} steps in all."
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


def _keep_neighbours_possible() -> None:
    """Other batches may have no price for the neighbours that were chosen."""
    sampling, adjacency = (st.session_state[session_key(field)] for field in ("sampling", "adjacency"))
    st.session_state[session_key("adjacency")] = nearest_adjacency(sampling, adjacency)


def _fill_in_size() -> None:
    name = st.session_state[session_key("dataset")]
    if name != OWN_DATA:
        st.session_state[session_key("dataset_size")] = DATASETS[name].size
