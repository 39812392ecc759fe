"""The command line: any flags give an answer and exit code 0, or one line on standard error and exit code 2."""

from __future__ import annotations

import contextlib
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpviz.cli import main
from tests.fuzz.inputs import fuzzed

NUMBERS = ["1", "2", "5", "0", "-1", "0.5", "1e-5", "nan", "inf", "1e400", "x", "", "1_0", "0x1", " 3", "٣"]
FLAGS = {
    "--schedule": ["linear", "cosine", "custom", "cosin", ""],
    "--start": NUMBERS,
    "--end": NUMBERS,
    "--sigma": NUMBERS,
    "--levels": NUMBERS,
    "--sigmas": ["5,4,3", "1", "", ",", "1,nan", "0,1", "1,,2", "a,b"],
    "--csv": ["nowhere.csv", "", "."],
    "--epochs": [*NUMBERS, "100001"],
    "--dataset-size": ["1000", "60000", *NUMBERS],
    "--batch-size": ["100", "60000", *NUMBERS],
    "--delta": NUMBERS,
    "--sample-rate": ["0.01", *NUMBERS],
    "--steps": ["100", *NUMBERS],
    "--steps-per-epoch": ["round", "ceil", "100", *NUMBERS],
    "--at-epsilon": NUMBERS,
    "--tolerance": ["0.1", *NUMBERS],
    "--adjacency": ["replace-one", "add-remove", "zero-out", "x"],
    "--sampling": ["poisson", "shuffled", "fixed-order", "x"],
    "--accountant": ["pld", "rdp", "x"],
    "--target-epsilon": ["1.0", *NUMBERS],
    "--target-tpr": ["0.1", *NUMBERS],
    "--fpr": ["0.01", *NUMBERS],
    "--prior": ["0.5", *NUMBERS],
    "--solve": ["scale", "match", "epochs", "x"],
    "--path": None,
    "--unknown": ["1"],
}
RUNS = ["list", "show", "export", "delete", "resume", "x"]
IDS = ["", "..", "../x", "/etc/passwd", "a", "a b", "\0", "x" * 500, "-a"]
SETTINGS = ["epochs=3", "epochs=x", "optimizer=adam", "optimizer=x", "a=b", "=", "schedule=1,2", "batch_size=nan", "x"]
OWNERLESS = ["losing-less/mnist-ce-t-cnn", "x", "../x", ""]


@st.composite
def accounting(draw):
    words = [draw(st.sampled_from(["epsilon", "calibrate", "schedules", "risk"]))]
    for flag in draw(st.lists(st.sampled_from(list(FLAGS)), max_size=5, unique=True)):
        words += [flag] if FLAGS[flag] is None else [flag, draw(st.sampled_from(FLAGS[flag]))]
    return words


others = (
    st.builds(lambda action, run_id: ["runs", action, run_id], st.sampled_from(RUNS), st.sampled_from(IDS))
    | st.builds(
        lambda recipe, pairs: ["train", "--recipe", recipe, *(w for pair in pairs for w in ("--set", pair))],
        st.sampled_from(OWNERLESS),
        st.lists(st.sampled_from(SETTINGS), max_size=2),
    )
    | st.builds(
        lambda data, budgets, repeats: ["local", "--data", data, "--budgets", budgets, "--repeats", repeats],
        st.sampled_from(["nowhere.csv", "mnist39", "", "."]),
        st.sampled_from(["1", "x", ""]),
        st.sampled_from(NUMBERS),
    )
    | st.lists(st.text(max_size=8), max_size=3).map(lambda words: ["papers", *words])
    | st.lists(st.sampled_from(["--json", "epsilon", "bench", "x", "", "-", "--", "-x"]), max_size=3)
)


@pytest.fixture(scope="module", autouse=True)
def empty_store(tmp_path_factory):
    """A store of its own in which nothing may be started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPVIZ_RUNS", str(tmp_path_factory.mktemp("runs")))
        patch.setenv("DPVIZ_READ_ONLY", "1")
        yield


def called(words: list[str]) -> tuple[int, str, str]:
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            code = main(words)
        except SystemExit as end:  # --help
            code = int(end.code or 0)
    return code, out.getvalue(), errors.getvalue()


@fuzzed("flags", 0.6)
@given(accounting())
def test_accounting_answers_or_says_in_a_line_what_is_wrong(words):
    code, out, errors = called([*words, "--json"])
    if code == 2:
        assert (out, errors.count("\n"), errors[:7]) == ("", 1, "dpviz: ")
        return
    assert code == 0
    found = json.loads(out)
    if words[0] == "epsilon":
        bounds = [found["pld"]["lower"], found["pld"]["upper"], found["rdp"]["improved"], found["rdp"]["classic"]]
        bounds = [float(bound) for bound in bounds]
        assert bounds == sorted(bounds)


@fuzzed("flags", 0.4)
@given(others)
def test_every_other_command_answers_or_says_in_a_line_what_is_wrong(words):
    code, _, errors = called(words)
    assert code in (0, 2)
    assert code == 0 or (errors.count("\n") == 1 and errors.startswith("dpviz: "))
