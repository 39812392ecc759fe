"""Sweeps on the Train page: the form's parts, what is shown of a finished one, and a real one in a real browser."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from dpviz.privacy import InputError
from dpviz.runs import QueueRunner, Store, Summary
from dpviz.runs.settings import DEFAULT, change
from dpviz.runs.sweeps.driver import SweepDriver
from dpviz.runs.sweeps.folder import sweep_ids
from dpviz.runs.sweeps.result import result, result_of
from dpviz.runs.sweeps.spec import Candidate, Range, Search, Sweep, read_toml
from dpviz.ui.common.markdown import sentence
from dpviz.ui.train import sweep_panel
from dpviz.ui.train.sweep_form import (
    candidate_title,
    first_range,
    knob_of,
    named_values,
    parse_values,
    setting_title,
    value_title,
    variable,
)
from dpviz.views.sweeps import front_figure, front_frame, progress_text, sweep_frame, verdict_words
from tests.browser import ROOT
from tests.runs.conftest import small_spec
from tests.ui.train.test_train_page import WAIT, button, fill_in_quick_logistic, folder, open_page, type_number

__all__ = ["folder"]  # a fixture


def test_values_are_typed_with_commas_as_numbers_or_words():
    assert parse_values("learning_rate", "0.5, 1,2e-1") == (0.5, 1, 0.2)
    assert parse_values("model.activation", "tanh, relu") == ("tanh", "relu")


@pytest.mark.parametrize("text", ["", " , ", "1, 1"])
def test_other_values_are_refused_in_a_sentence(text):
    with pytest.raises(InputError, match="Learning rate needs different values"):
        parse_values("learning_rate", text)


def test_everything_that_decides_a_run_can_be_varied_and_its_seed_and_delta_cannot():
    names = variable(small_spec())
    assert {"schedule", "schedule.sigma", "loss", "optimizer.momentum", "learning_rate", "epochs"} <= set(names)
    assert not {"seed", "delta", "diagnostics"} & set(names)
    assert len(names) == len(set(names))
    assert not [name for name in variable(change(small_spec(), {"schedule": "3,2,1"})) if name.startswith("schedule.")]
    assert setting_title("schedule.start") == "Noise: start"


STARTS = (
    {},
    {"schedule": "exponential-decay", "schedule.rate": "-0.1", "optimizer.momentum": "0", "epochs": "1"},
    {"model": "cnn-curricula", "loss": "tailored", "curriculum": "masked", "optimizer": "adam", "subset": "600"},
    {"method": "screening", "schedule": "piecewise", "learning_rate_schedule": "step", "clipping": "auto-s"},
)


@pytest.mark.parametrize("changes", STARTS)
def test_every_setting_has_names_or_a_first_range_that_can_be_searched_as_it_is(changes):
    spec = change(DEFAULT, changes)
    for key in variable(spec):
        if named_values(key, spec):
            continue
        found, knob = first_range(key, spec), knob_of(key, spec)
        assert knob.low <= found.low < found.high <= knob.high
        assert found.whole == isinstance(knob.default, int)
        assert Sweep(spec, search=Search(3, ((key, found),))).check()


def drive(folder, sweep: Sweep) -> Sweep:
    store = Store(folder)
    runner = QueueRunner(store, threads=1)
    SweepDriver(sweep, store, runner, width=1).run()
    runner.close()
    return sweep


@pytest.fixture
def finished(folder) -> Sweep:
    return drive(folder, Sweep(small_spec(epochs=1), (0, 1), ((("learning_rate", (0.5, 2.0)),),), title="Rates"))


@pytest.fixture
def searched(folder) -> Sweep:
    space = (("learning_rate", Range(0.1, 4.0, log=True)), ("schedule.sigma", Range(0.8, 3.0)))
    return drive(folder, Sweep(small_spec(epochs=1), search=Search(4, space), title="Sought"))


def test_the_table_has_a_row_a_candidate_the_best_first_and_names_the_winner(finished, folder):
    found = result(Store(folder), finished.id)
    frame = sweep_frame(found, value_title, running=False)
    assert list(frame["learning_rate"]) == ["2", "0.5"]
    assert list(frame["note"]) in (["winner", ""], ["highest", ""])
    assert frame["accuracy"].is_monotonic_decreasing
    assert (frame["spread"] >= 0).all()
    assert progress_text(found, running=False) == "4 of 4 runs done"


def judged(*accuracies: tuple[float, ...]):
    """A sweep over learning rates whose runs are made up: one tuple of accuracies by seed per candidate."""
    rates, seeds = tuple(float(rate) for rate in range(1, len(accuracies) + 1)), tuple(range(len(accuracies[0])))
    sweep = Sweep(small_spec(), seeds, ((("learning_rate", rates),),))
    candidates = [sweep.candidate(settings) for settings in sweep.combinations()]
    runs = [
        Summary("a", "done", "", key=spec.key, seed=spec.seed, epochs=1, epochs_done=1, test_accuracy=value)
        for candidate, values in zip(candidates, accuracies, strict=True)
        for spec, value in zip(candidate.specs, values, strict=False)
    ]
    return result_of(sweep, candidates, runs)


def test_a_winner_is_named_only_where_the_seeds_can_tell():
    clear = judged((0.80, 0.81, 0.82), (0.90, 0.91, 0.92))
    assert verdict_words(clear, candidate_title)[0] == "Winner: Learning rate 2"
    assert list(sweep_frame(clear, value_title, running=False)["note"]) == ["winner", ""]
    close = judged((0.7580, 0.7543, 0.7578), (0.7552, 0.7576, 0.7564))
    verdict, difference = verdict_words(close, candidate_title)
    assert verdict == "No winner, too close to call"
    assert difference.startswith("Learning rate 1 is highest. Against Learning rate 2: 0.03 points above, too close to")
    assert list(sweep_frame(close, value_title, running=False)["note"]) == ["highest", ""]
    assert verdict_words(judged((0.8,), (0.9,)), candidate_title)[0] == "No winner, too few seeds to judge chance"
    assert verdict_words(judged((0.8, 0.9)), candidate_title)[0] == "Learning rate 1 is the only candidate that is done"


def test_a_winner_has_to_be_ahead_of_all_others():
    three = judged((0.10, 0.11, 0.12), (0.90, 0.93, 0.92), (0.91, 0.92, 0.91))
    verdict, difference = verdict_words(three, candidate_title)
    assert verdict == "No winner, too close to call"
    assert difference.endswith("widened for 2 comparisons. 1 of the 2 others may be as good.")


def test_a_sweep_that_was_stopped_says_so():
    half = judged((0.8, 0.9), (0.7,))
    assert progress_text(half, running=True) == "3 of 4 runs done"
    assert progress_text(half, running=False) == "3 of 4 runs done, stopped"
    assert list(sweep_frame(half, value_title, running=True)["note"])[1] == "in progress"
    assert list(sweep_frame(half, value_title, running=False)["note"])[1] == "stopped"


def test_candidates_are_named_as_people_write_them():
    settings = (("schedule", "exponential-decay"), ("schedule.rate", 0.05), ("model.activation", "relu"))
    settings += (("subset", 60_000), ("optimizer.nesterov", True), ("optimizer", "sgd"))
    assert candidate_title(Candidate(settings, ())) == (
        "Noise Exponential decay, Noise rate 0.05, Model activation ReLU, Subset 60,000, Optimizer nesterov Yes, "
        "Optimizer SGD"
    )


def test_a_finished_sweep_shows_its_winner_and_what_choosing_costs_and_can_be_forgotten(finished, folder):
    at = open_page()
    texts = [markdown.value for markdown in at.markdown]
    assert any("Learning rate 2" in text and "Against Learning rate 0.5: " in text for text in texts)
    assert any("All 4 runs composed" in text and "not a guarantee" in text for text in texts)
    assert not [one for one in at.button if one.label in ("Stop sweep", "Resume sweep")]
    assert [link for link in at.get("page_link") if link.proto.label == "Compare these"]
    assert "Forget" not in [one.label for one in at.button], "it asks first"
    button(at, "Yes, forget it").click().run()
    assert not at.exception
    assert sweep_ids(Store(folder)) == ()
    assert len(Store(folder).list().runs) == 4


def test_a_sweep_is_counted_before_it_is_launched_and_a_read_only_server_launches_none(folder, monkeypatch):
    monkeypatch.setenv("DPVIZ_READ_ONLY", "1")
    at = open_page(**{"sweep.keys": ["learning_rate", "loss"], "sweep.values.learning_rate": "0.5, 1, 2"})
    at.multiselect(key="sweep.values.loss").set_value(["cross-entropy", "sse"]).run()
    assert any("6 candidates, 6 runs" in markdown.value for markdown in at.markdown)
    assert button(at, "Launch sweep").disabled


def test_settings_that_cannot_be_calibrated_are_a_sentence_and_no_launch(folder):
    keys = {"sweep.keys": ["schedule.sigma"], "sweep.values.schedule.sigma": "0", "sweep.equal": True}
    at = open_page(**keys)
    assert any("costs infinity" in markdown.value for markdown in at.markdown)
    assert "Launch sweep" not in [one.label for one in at.button]


def test_the_front_holds_whom_nobody_beats_in_both_and_the_page_draws_it(searched, folder):
    frame = front_frame(result(Store(folder), searched.id), candidate_title)
    assert len(frame) == 4
    assert frame["epsilon_sound"].is_monotonic_increasing
    best = frame[frame["front"]]
    assert best["test_accuracy"].is_monotonic_increasing
    for _, other in frame[~frame["front"]].iterrows():
        assert (
            (best["epsilon_sound"] <= other["epsilon_sound"]) & (best["test_accuracy"] >= other["test_accuracy"])
        ).any()
    points = [len(trace.x) for trace in front_figure(frame).data]
    assert points == [4 - len(best), len(best)]
    at = open_page()
    assert [chart for chart in at.get("plotly_chart") if f"sweep.front.{searched.id}" in chart.proto.id]
    assert any("no cheaper bound than composition" in markdown.value for markdown in at.markdown)


def test_a_front_without_candidates_is_axes_with_labels():
    nothing = Sweep(small_spec(), search=Search(1, (("learning_rate", Range(0.1, 1.0)),)))
    figure = front_figure(front_frame(result_of(nothing, (), {}), candidate_title))
    assert figure.layout.xaxis.title.text == "Epsilon spent (sound)"
    assert figure.layout.yaxis.title.text == "Test accuracy (%)"


# --- the form of a search ---------------------------------------------------------------------------------------------

SEARCH = """
seeds = [0, 1]
[search]
trials = 12
[search.space]
learning_rate = { low = 0.1, high = 4.0, log = true }
batch_size = { low = 128, high = 400 }
loss = ["cross-entropy", "sse"]
optimizer.nesterov = [false, true]
"""


def number(at: AppTest, label: str):
    return next(one for one in at.number_input if one.label == label)


def open_search(*keys: str) -> AppTest:
    return open_page(**{"sweep.kind": "Search", "sweep.keys": list(keys)})


def test_the_form_of_a_search_makes_the_sweep_that_the_file_makes(folder, monkeypatch):
    made: list[Sweep] = []
    monkeypatch.setattr(sweep_panel, "start", made.append)
    at = open_search("learning_rate", "batch_size", "loss", "optimizer.nesterov")
    at.text_input(key="train.seeds").set_value("0, 1")
    number(at, "Learning rate: low").set_value(0.1)
    number(at, "Learning rate: high").set_value(4.0)
    number(at, "Batch size: high").set_value(400)
    number(at, "Trials").set_value(12)
    at.multiselect(key="sweep.values.loss").set_value(["cross-entropy", "sse"])
    at.multiselect(key="sweep.values.optimizer.nesterov").set_value([False, True]).run()
    assert any("12 candidates, 24 runs" in markdown.value for markdown in at.markdown)
    button(at, "Launch sweep").click().run()
    assert not at.exception
    assert made == [read_toml(SEARCH)]


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ({"Learning rate: low": 3.0}, "Learning rate: a range needs finite numbers low < high, got 3.0 and 2.0."),
        ({"Noise: sigma: low": 0.0}, "Noise: sigma: a logarithmic range needs low > 0, got 0.0."),
        ({"Batch size: high": 65_536}, "Batch size must be at most the 60,000 training examples, got 65,536."),
        ({"Trials": 101}, "From here at most 200 runs, got 202; dpviz sweep takes more."),
    ],
)
def test_a_range_or_a_number_of_trials_that_cannot_be_is_a_sentence_and_no_launch(folder, numbers, words):
    at = open_search("learning_rate", "schedule.sigma", "batch_size")
    at.text_input(key="train.seeds").set_value("0, 1")
    for label, value in numbers.items():
        number(at, label).set_value(value)
    refused(at.run(), words)


def test_a_search_without_values_or_with_a_knob_that_a_choice_lacks_is_a_sentence_and_no_launch(folder):
    at = open_search("optimizer", "optimizer.momentum")
    refused(at, "Choose at least one value for Optimizer.")
    at.multiselect(key="sweep.values.optimizer").set_value(["sgd", "adam"]).run()
    refused(at, "Adam has no knob 'momentum', so no trial with both would run; search one of the two.")
    refused(open_search(), "Choose at least one setting to vary.")


def test_at_equal_epsilon_a_search_over_the_size_of_the_noise_alone_is_refused(folder):
    at = open_search("schedule.sigma")
    at.toggle(key="sweep.equal").set_value(True).run()
    refused(at, "Schedule.sigma changes nothing at equal epsilon: the noise is scaled to meet it anyway.")


def refused(at: AppTest, words: str) -> None:
    assert not at.exception
    assert f":small[{sentence(words)}]" in [markdown.value for markdown in at.markdown]
    assert "Launch sweep" not in [one.label for one in at.button]


# --- a real sweep in a real browser -----------------------------------------------------------------------------------


def vary(page: Page, label: str) -> None:
    box, options = page.get_by_role("combobox", name="What to vary"), page.get_by_role("option")
    deadline = time.monotonic() + WAIT / 1000
    while not options.count() and time.monotonic() < deadline:  # a rerun of the page may close the list again
        box.click()
        page.wait_for_timeout(1000)
    box.fill(label)
    options.filter(has_text=re.compile(f"^{label}$")).click()
    page.keyboard.press("Escape")


def type_values(page: Page, label: str, values: str) -> None:
    field = page.get_by_role("textbox", name=label)
    field.fill(values)
    field.press("Enter")


def test_a_sweep_of_two_by_two_is_launched_watched_to_its_end_and_folded(serve, new_page, tmp_path):
    runs = tmp_path / "runs"
    url = serve(ROOT / "app.py", {"DPVIZ_RUNS": str(runs), "OMP_NUM_THREADS": "1"})
    page = new_page(f"{url}/train", viewport={"width": 1500, "height": 1400})
    fill_in_quick_logistic(page)
    page.get_by_text("Sweep: many runs at once").click()
    vary(page, "Learning rate")
    type_values(page, "Learning rate", "0.5, 2")
    vary(page, "Noise: sigma")
    type_values(page, "Noise: sigma", "1, 2")
    expect(page.get_by_text("4 candidates, 4 runs.")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Launch sweep").click()
    expect(page.get_by_text("4 of 4 runs done").first).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("All 4 runs composed")).to_be_visible(timeout=WAIT)
    expect(page.get_by_test_id("stDataFrame").first).to_be_visible(timeout=WAIT)
    store = Store(runs)
    found = result(store, sweep_ids(store)[0])
    assert (found.done, found.failed) == (4, 0)
    expect(page.get_by_text("No winner, too few seeds to judge chance.")).to_be_visible(timeout=WAIT)


def test_a_search_of_three_trials_is_launched_watched_to_its_end_and_its_front_is_drawn(serve, new_page, tmp_path):
    runs = tmp_path / "runs"
    url = serve(ROOT / "app.py", {"DPVIZ_RUNS": str(runs), "OMP_NUM_THREADS": "1"})
    page = new_page(f"{url}/train", viewport={"width": 1500, "height": 1400})
    fill_in_quick_logistic(page)
    page.get_by_text("Sweep: many runs at once").click()
    page.get_by_role("radiogroup", name="Candidates").get_by_text("Search").click()
    vary(page, "Learning rate")
    type_number(page, "Learning rate: high", "1.5")
    vary(page, "Noise: sigma")
    type_number(page, "Trials", "3")
    expect(page.get_by_text("3 candidates, 3 runs.")).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Launch sweep").click()
    expect(page.get_by_text("3 of 3 runs done").first).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("front: no other is better in both").first).to_be_visible(timeout=WAIT)
    expect(page.get_by_text("All 3 runs composed")).to_be_visible(timeout=WAIT)
    store = Store(runs)
    found = result(store, sweep_ids(store)[0])
    assert (found.done, found.failed) == (3, 0)
    assert dict(found.sweep.search.space)["learning_rate"] == Range(0.125, 1.5, log=True)
    assert len({row.candidate.settings for row in found.rows}) == 3
