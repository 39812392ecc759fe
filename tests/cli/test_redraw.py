"""A run that may be changed on the way, on the command line: started, changed from another process, resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from tests.cli.test_training import ROOT, SMALL, dpviz, store  # noqa: F401


def test_a_training_run_is_redrawn_from_another_process_and_resumed(dpviz, store):  # noqa: F811
    settings = (*SMALL, "--set", "schedule.sigma=9", "--epochs", "200", "--filter-epsilon", "9")
    command = [sys.executable, "-m", "dpviz", "train", *settings, "--json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process.stderr.readline()  # the first epoch has ended
    (run,) = store.list().runs
    code, out, _ = dpviz("runs", "redraw", run.id, "--sigmas", "8.9,8.8", "--json")
    changed = json.loads(out)
    assert (code, changed["run_id"], changed["sigmas"][-3:]) == (0, run.id, [9.0, 8.9, 8.8])
    assert 0 < changed["budget"]["used"] <= 1
    assert changed["budget"]["epsilon"] == 9
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    code, out, _ = dpviz("runs", "resume", run.id, "--json")
    (resumed,) = json.loads(out)["runs"]
    assert (code, resumed["status"]) == (0, "done")
    assert [epoch["noise_multiplier"] for epoch in resumed["epochs"]][-3:] == [9.0, 8.9, 8.8]
    assert {epoch["epsilon"]["sound"] for epoch in resumed["epochs"]} == {9.0}
    assert resumed["course"]["begun"] == 200
    code, out, _ = dpviz("runs", "show", run.id)
    assert "All epochs have begun; they use" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("runs", "redraw", "abc"), "--sigmas"),
        (("runs", "show", "abc", "--sigmas", "1"), "--sigmas goes with"),
        (("runs", "redraw", "abc", "--sigmas", "1"), "there is no run"),
        (("train", "--filter-epsilon", "nan"), "filter_epsilon"),
        (("train", "--filter-epsilon", "much"), "must be a number"),
        (("train", "--filter-epsilon", "0.01"), "needs a budget of"),
        (("train", "--filter-epsilon", "9", "--set", "filter_epsilon=3"), "twice, by --filter-epsilon"),
        (("train", "--filter-epsilon", "9", "--set", "curriculum=sample"), "has no guarantee"),
    ],
)
def test_what_cannot_be_changed_gives_one_line_and_exit_code_2(dpviz, arguments, words):  # noqa: F811
    code, out, err = dpviz(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
