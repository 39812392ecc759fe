"""`dpviz bench`: the checkout's benchmarks, wherever the command is called."""

import subprocess
import sys
import types

from dpviz.cli import main


def test_the_command_finds_its_own_benchmarks_and_not_those_of_opacus(tmp_path):
    """A console script has the checkout behind the installed packages; `-P` leaves the folder out as it does."""
    command = [sys.executable, "-P", "-m", "dpviz", "bench", "training", "--sessions", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "dpviz: --sessions goes with bench load only\n")


def test_rows_of_the_same_columns_share_a_table(monkeypatch, capsys):
    rows = [{"case": "a", "p50": 1.0}, {"case": "b", "p50": 2.5}, {"case": "memory", "MB": {"ours": 3, "theirs": 4}}]
    monkeypatch.setitem(sys.modules, "benchmarks.training", types.SimpleNamespace(rows=lambda: rows))
    assert main(["bench", "training"]) == 0
    first, second = capsys.readouterr().out.strip().split("\n\n")
    assert [line.split() for line in first.splitlines()] == [["case", "p50"], ["a", "1"], ["b", "2.5"]]
    heads, values = second.splitlines()
    assert (heads.split(), values.split()) == (["case", "MB", "ours", "MB", "theirs"], ["memory", "3", "4"])
