"""The progress bar: drawn over on a terminal, silent elsewhere."""

from __future__ import annotations

import io
import sys

from dpviz.training.data.readers import _download_bar
from dpviz.training.progress_bar import CLEAR, Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_at_its_pace_and_always_at_the_end(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    bar = Bar()
    for share in (0.25, 0.5, 1.0):
        bar.draw("run", share, f"{share:.0%}")
    assert terminal.getvalue() == f"{CLEAR}run [{'#' * 6:24}] 25%{CLEAR}run [{'#' * 24}] 100%"


def test_without_a_terminal_only_lines_that_stay_are_printed(capsys):
    bar = Bar()
    bar.draw("run", 1.0, "100%")
    bar.say("epoch 1")
    bar.clear()
    assert capsys.readouterr().err == "epoch 1\n"


def test_a_download_of_unknown_size_is_drawn_and_one_that_has_ended_is_cleared(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    draw = _download_bar()
    draw("train.gz", 2_500_000, 0)
    assert terminal.getvalue() == f"{CLEAR}train.gz [{'':24}] 2.5 MB"
    draw("train.gz", 9_000_000, 9_000_000)
    assert terminal.getvalue().endswith(f"9.0 MB{CLEAR}")
