"""“Suggest” on the Schedule page: the best schedule at the target is searched for while the page stays free."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import streamlit as st

from dpviz.forecast.response import Response
from dpviz.privacy import InputError
from dpviz.ui.common.editor import Curve
from dpviz.ui.common.session import Slot
from dpviz.ui.schedule.board import MAX_PINS, Board, act
from dpviz.ui.schedule.check_panel import offer_check
from dpviz.ui.schedule.settings import Settings
from dpviz.views.numbers import epsilon_number

if TYPE_CHECKING:
    from dpviz.forecast.suggest import Suggestion

SUGGESTED = "suggested"
LIVE_SECONDS = 0.5


class Cancelled(Exception):
    """The person pressed Cancel."""


class Search:
    """A search in a thread of its own. Read `share`, `seconds`, then `suggestion` or `problem`; call `cancel`."""

    def __init__(self, response: Response, settings: Settings, target: float) -> None:
        self.response, self.settings, self.target = response, settings, target
        self.share, self.started, self.ended = 0.0, time.monotonic(), 0.0
        self.suggestion: Suggestion | None = None
        self.problem = ""
        self._cancel = threading.Event()
        self._thread = threading.Thread(target=self._search, name="suggest", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.started

    def cancel(self) -> None:
        """It ends at its next number of epochs, and nothing is kept."""
        self._cancel.set()

    def _progress(self, share: float) -> None:
        self.share = share
        if self._cancel.is_set():
            raise Cancelled

    def _search(self) -> None:
        from dpviz.forecast.suggest import suggest  # with scipy.optimize: nobody waits for it here

        settings = self.settings
        try:
            self.suggestion = suggest(
                self.response,
                self.target,
                settings.sample_rate,
                settings.delta,
                settings.assumptions,
                batch_size=settings.batch_size,
                on_progress=self._progress,
            )
        except Cancelled:
            self.problem = "Cancelled; nothing was pinned."
        except InputError as error:
            self.problem = str(error)
        self.ended = time.monotonic()


SEARCH: Slot[Search | None] = Slot("schedule.search", None)


def start_search(board: Board, settings: Settings, response: Response | None) -> None:
    """Begin to search for the best schedule at the target; an older search ends."""
    if response is None or settings.measure != "epsilon" or settings.target is None:
        raise InputError("a suggestion needs a target ε; choose ε as the number that follows the pen and type a target")
    _others(board)
    _cancel()
    board.say()
    SEARCH.set(Search(response, settings, settings.target))


def search_panel() -> None:
    """How far a search is and a way to cancel it; nothing where there is none."""
    search = SEARCH.get()
    if search is not None:
        st.fragment(_show, run_every=LIVE_SECONDS)(search)


def _show(search: Search) -> None:
    if SEARCH.get() is search and not search.running:
        SEARCH.set(None)
        act(_take, search)
    if SEARCH.get() is not search:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(search.share, f"Searching for a schedule, {search.seconds:.1f} s")
        st.button("Cancel", key="schedule.cancel", on_click=_cancel)


def _cancel() -> None:
    search = SEARCH.take()
    if search is not None:
        search.cancel()


def _take(board: Board, search: Search) -> None:
    """Pin what was found and offer to check it."""
    if search.suggestion is None:
        raise InputError(search.problem or "the search ended without a schedule; try another target")
    board.pins[:] = [*_others(board), Curve(SUGGESTED, search.suggestion.best.sigmas)]
    offer_check(search.suggestion, search.response, search.settings)
    best = search.suggestion.best
    board.say(
        f"Pinned as “{SUGGESTED}” after {search.seconds:.1f} s, use it from there: accuracy to expect "
        f"{100 * best.accuracy:.1f} % at ε {epsilon_number(best.epsilon)}. {search.suggestion.words}"
    )


def _others(board: Board) -> list[Curve]:
    """The pins that a suggestion stands beside; refused if there is no room."""
    others = [pin for pin in board.pins if pin.name != SUGGESTED]
    if len(others) >= MAX_PINS:
        raise InputError(f"{MAX_PINS} schedules are pinned; remove one before you ask for another")
    return others
