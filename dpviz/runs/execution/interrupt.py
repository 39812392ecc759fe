"""Ctrl-C while runs are at work: they end with a checkpoint first."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stopping_on(stop: Callable[[], None], *signals: signal.Signals) -> Iterator[threading.Event]:
    """Let these signals call `stop`, once; a second one interrupts at once. The event says whether one came.

    Otherwise a notebook, which lives on, would keep the run's lock, and the run would seem to be running.
    """
    came = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # signals come to the main thread alone
        yield came
        return

    def handler(number: int, frame: object) -> None:
        signal.signal(number, signal.default_int_handler)
        came.set()
        stop()

    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield came
    finally:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)
