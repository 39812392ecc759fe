"""What one page leaves for the page it switches to: a record in the session, taken once."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import streamlit as st

from dpviz.privacy import Assumptions, InputError, Schedule
from dpviz.privacy.records import check_delta
from dpviz.training.spec import RunSpec
from dpviz.training.tables import DATASETS
from dpviz.ui.common.markdown import plain
from dpviz.ui.common.session import Slot

PLAIN = ("dp-sgd", "none")  # method and curriculum that the Schedule page prices


@dataclass(frozen=True)
class ScheduleHandover:
    """A schedule with everything that decides its epsilon, for the Train page."""

    schedule: Schedule
    epochs: int
    dataset: str
    dataset_size: int
    batch_size: int
    delta: float
    assumptions: Assumptions
    sweep: bool = False  # against the constant of the same epsilon

    def __post_init__(self) -> None:
        check_delta(self.delta)
        whole = DATASETS[self.dataset].size
        if not 1 <= self.batch_size <= self.dataset_size <= whole:
            raise InputError(
                f"{self.dataset} has {whole:,} training examples, of which a batch is a part; got batches of "
                f"{self.batch_size:,} of {self.dataset_size:,}"
            )
        self.schedule.sigmas(self.epochs)

    def is_of(self, spec: RunSpec) -> bool:
        """Whether the run would take these very steps, as plain DP-SGD: its epsilon differs by assumptions alone."""
        handed = (*PLAIN, self.schedule, self.epochs, self.dataset_size, self.batch_size, self.delta)
        run = (spec.schedule, spec.epochs, spec.size, spec.batch_size, spec.delta)
        return (spec.method, spec.curriculum, *run) == handed


@dataclass(frozen=True)
class RecipeHandover:
    """The name of a paper's experiment, for the page that runs it."""

    recipe: str


Handover = ScheduleHandover | RecipeHandover
HANDOFF: Slot[Handover | None] = Slot("handoff", None)


def hand_over(record: Handover) -> None:
    HANDOFF.set(record)


def handed_over(recipes: Container[str]) -> Handover | None:
    """What the last page left, or a paper's experiment by its address (?recipe=); a second look finds nothing."""
    record = HANDOFF.take()
    asked = st.query_params.pop("recipe", "")
    if asked in recipes:
        return RecipeHandover(asked)
    if asked:
        st.warning(f"No paper has an experiment {plain(asked)} for this page; the Papers page lists them.")
    return record
