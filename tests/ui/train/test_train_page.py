"""The Train page: its form, what it says before a launch, and real runs watched in a real browser."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import subprocess
import sys
from urllib.parse import parse_qsl

import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from dpviz.papers import RECIPES
from dpviz.privacy import Assumptions, InputError, Schedule, epoch_phases, epsilon, guarantee
from dpviz.privacy.audit import Audit, Guesses, StepBound
from dpviz.runs import Store, Summary, server_runner
from dpviz.runs.execution.work import failure_words
from dpviz.runs.settings import DEFAULT, parse_seeds
from dpviz.runs.store import run_files as files
from dpviz.runs.store.records import Progress
from dpviz.runs.store.spending import Spending
from dpviz.training.pricing import AS_TRAINED
from dpviz.training.tables import CHOICES, DATASETS, MODELS
from dpviz.ui.common.handover import RecipeHandover, ScheduleHandover
from dpviz.ui.compare.link import parse_link
from dpviz.ui.schedule.settings import Settings
from dpviz.ui.train.run_form import MOST_SEEDS, fitting_models, quick, recipe_of, suggested_model
from dpviz.ui.train.run_panel import share_done
from dpviz.ui.train.runs_list import selected_places
from dpviz.views.comparison.experiments import group_of
from dpviz.views.numbers import epsilon_number, epsilon_text
from tests.browser import ROOT, choose, start_server, stop_server
from tests.views.made_runs import keep, made_run, made_spec

# --- small parts ------------------------------------------------------------------------------------------------------


def test_seeds_are_typed_as_a_list_of_whole_numbers():
    assert parse_seeds("0") == (0,)
    assert parse_seeds(" 1, 2 3 ") == (1, 2, 3)


@pytest.mark.parametrize("text", ["", "a", "1.5", "-1", "1;2", ",", "0," * 21, "٣"])
def test_other_seeds_are_refused_in_a_sentence(text):
    with pytest.raises(InputError, match="seeds"):
        parse_seeds(text, MOST_SEEDS)


def test_every_dataset_has_models_that_fit_it():
    for dataset in DATASETS:
        assert set(fitting_models(dataset)) <= set(MODELS)
        assert {"mlp", "logistic"} <= set(fitting_models(dataset))


def test_another_dataset_keeps_a_model_for_any_shape_and_else_suggests_one_for_its_own():
    assert suggested_model("cifar10", "cnn-mnist") == "cnn-cifar10"
    assert suggested_model("fashion-mnist", "cnn-mnist") == "cnn-mnist"
    assert suggested_model("cifar10", "mlp") == "mlp"


def test_settings_are_a_recipes_until_something_but_seed_or_length_changes():
    name = "curricula/linear-decreasing"
    spec = RECIPES[name].spec
    assert recipe_of(type(spec)(**{**vars(spec), "seed": 5, "epochs": 3}), name) == name
    assert recipe_of(type(spec)(**{**vars(spec), "learning_rate": 0.2}), name) == ""
    assert recipe_of(type(spec)(**{**vars(spec), "schedule": Schedule.of("constant")}), name) == ""


def test_progress_counts_steps_and_without_them_epochs():
    summary = Summary("a", "running", "", epochs=4, epochs_done=1)
    assert share_done(summary, None) == 0.25
    assert share_done(summary, Progress("a", 30, 40, 1.0, 1.0)) == 0.75


def test_the_page_imports_no_torch():
    code = (
        "import sys, dpviz.ui.train.run_panel, dpviz.ui.train.launch, dpviz.ui.compare.page, dpviz.ui.gradients.page\n"
        "assert not {'torch', 'opacus', 'torchvision'} & set(sys.modules), 'heavy'"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# --- the page without a browser ---------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("DPVIZ_CACHED_RUNS", str(tmp_path / "cached"))
    return tmp_path / "runs"


def open_page(**state) -> AppTest:
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    for name, value in state.items():
        at.session_state[name] = value
    at.switch_page("pages/train.py").run()
    assert not at.exception
    return at


def metrics(at: AppTest) -> dict[str, str]:
    return {metric.label: metric.value for metric in reversed(at.metric)}  # the guarantee card repeats some


def button(at: AppTest, label: str):
    return next(button for button in at.button if button.label == label)


def test_without_runs_the_page_says_what_to_do(folder):
    at = open_page()
    assert any("No runs yet" in info.value for info in at.info)
    assert metrics(at)["Sound ε"] == metrics(at)["Claimed ε"]
    assert not folder.exists()


def test_every_choice_of_a_run_is_on_the_form(folder):
    at = open_page()
    keys = {box.key for box in at.selectbox}
    assert {f"train.{choice}" for choice in CHOICES} <= keys
    for table, entry in ((CHOICES["optimizer"], DEFAULT.optimizer), (CHOICES["model"], DEFAULT.model)):
        assert table[entry].knobs
    assert at.number_input(key="train.optimizer.sgd.momentum").value == 0.9


def test_a_recipe_fills_in_the_whole_form(folder):
    at = open_page()
    at.selectbox(key="train.start").set_value("losing-less/fashion-o-t-cnn").run()
    assert not at.exception
    spec = RECIPES["losing-less/fashion-o-t-cnn"].spec
    assert at.selectbox(key="train.dataset").value == "fashion-mnist"
    assert at.number_input(key="train.size.batch_size").value == spec.batch_size
    assert at.number_input(key="train.loss.tailored.beta").value == spec.knobs_of("loss")["beta"]


def test_a_recipe_tells_what_its_paper_reports_and_leaves_open(folder):
    at = open_page()
    at.selectbox(key="train.start").set_value("curricula/linear-decreasing").run()
    assert [caption.value for caption in at.caption] == [
        "The paper reports 94.63 % test accuracy at a claimed ε of 1.4 (curricula, Table 2)."
    ]
    assert any("What the paper leaves open" in expander.label for expander in at.expander)


PHASES = epoch_phases([4.0, 3.0, 2.0, 1.0], 600 / 50_000)


def handed(*, delta: float = 1e-6, assumptions: Assumptions = AS_TRAINED) -> ScheduleHandover:
    return ScheduleHandover(Schedule.custom([4.0, 3.0, 2.0, 1.0]), 4, "cifar10", 50_000, 600, delta, assumptions)


def notes(at: AppTest) -> str:
    return "\n".join(info.value for info in at.info)


def test_a_schedule_that_was_handed_over_is_taken_with_its_settings(folder):
    at = open_page(handoff=handed())
    assert at.selectbox(key="train.schedule").value == "custom"
    assert at.number_input(key="train.size.epochs").value == 4
    assert at.number_input(key="train.size.batch_size").value == 600
    assert at.number_input(key="train.examples").value == 50_000
    assert at.text_input(key="train.delta").value == "1e-6"
    assert MODELS[at.selectbox(key="train.model").value].home == (3, 32, 32)
    assert "handoff" not in at.session_state
    assert metrics(at)["Sound ε"] == epsilon_text(epsilon(PHASES, 1e-6))
    assert "other assumptions" not in notes(at)


def test_workers_are_asked_for_only_where_a_cluster_has_them(monkeypatch):
    assert "train.workers" not in [field.key for field in open_page().number_input]
    monkeypatch.setenv("DPVIZ_RAY", "127.0.0.1:9")
    at = open_page()
    at.number_input(key="train.workers").set_value(2).run()
    button(at, "Launch").click().run()
    assert "No Ray cluster could be joined" in " ".join(error.value for error in at.error)


@pytest.mark.parametrize(
    ("assumptions", "changes"),
    [
        (Assumptions("rdp"), ["accountant: PLD (tight) instead of RDP, improved"]),
        (Assumptions(adjacency="replace-one"), ["neighbours: Add or remove one instead of Replace one"]),
        (
            Assumptions(sampling="shuffled"),
            ["batches: Poisson instead of Shuffled", "neighbours: Add or remove one instead of Zero out one"],
        ),
    ],
)
def test_what_a_run_does_not_keep_is_told_with_both_epsilons_until_the_run_is_another(folder, assumptions, changes):
    at = open_page(handoff=handed(assumptions=assumptions))
    there, here = (epsilon_text(epsilon(PHASES, 1e-6, each)) for each in (assumptions, AS_TRAINED))
    assert there != here == metrics(at)["Sound ε"]
    words = f"({'; '.join(changes)}): its ε is {here}; on the Schedule page it was {there}."
    assert words in notes(at)
    at.selectbox(key="train.loss").set_value("sse").run()
    assert words in notes(at), "epsilon is still another one than on the Schedule page"
    at.number_input(key="train.size.batch_size").set_value(500).run()
    assert "other assumptions" not in notes(at)


def test_the_walk_from_schedule_to_train_keeps_epsilon_or_says_so(folder):
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    at.text_input(key="schedule.delta").set_value("0.0000123456789").run()
    at.selectbox(key="schedule.sampling").set_value("fixed-order").run()
    button(at, "Train this schedule").click().run()
    assert not at.exception
    assert at.title[0].value == "Train"
    sigmas = Schedule.of("linear").sigmas(20).tolist()
    settings = Settings(delta=1.23456789e-5, sampling="fixed-order")
    there, here = (
        settings.price(sigmas),
        dataclasses.replace(settings, sampling="poisson", adjacency=None).price(sigmas),
    )
    assert at.text_input(key="train.delta").value == "1.23456789e-5"
    assert metrics(at)["Sound ε"] == epsilon_text(here)
    assert f"its ε is {epsilon_text(here)}; on the Schedule page it was {epsilon_text(there)}." in notes(at)


def test_a_curriculum_of_an_earlier_recipe_does_not_take_the_guarantee_from_a_drawn_schedule(folder):
    at = open_page(handoff=RecipeHandover("curricula/sample-linear-decreasing"))
    assert at.selectbox(key="train.curriculum").value == "sample"
    at.session_state["handoff"] = handed()
    at.run()
    assert not at.exception
    assert at.selectbox(key="train.curriculum").value == "none"
    assert metrics(at)["Sound ε"] == epsilon_text(epsilon(PHASES, 1e-6))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"dataset": "own"}, "unknown dataset"),
        ({"dataset_size": 50_001}, "cifar10 has 50,000 training examples"),
        ({"batch_size": 0}, "got batches of 0 of 50,000"),
        ({"delta": float("nan")}, "delta must be"),
        ({"epochs": 3}, "epochs"),
    ],
)
def test_what_no_run_can_take_over_is_refused_when_it_is_handed_over(wrong, words):
    with pytest.raises(InputError, match=words):
        dataclasses.replace(handed(), **wrong)


def test_quick_look_launches_a_small_run_at_once_and_leaves_the_form_alone(folder):
    at = open_page()
    button(at, "Quick look").click().run()
    assert not at.exception
    run = Store(folder).get(Store(folder).list().runs[0].id)
    server_runner(Store(folder)).close()
    assert (run.spec.size, run.spec.epochs, run.spec.batch_size, run.title) == (2000, 3, 200, "Quick look")
    assert at.number_input(key="train.examples").value == 60_000
    assert shown_title(at) == "Quick look"


def test_a_quick_look_keeps_the_length_of_a_drawn_curve_and_is_never_larger_than_the_settings():
    drawn = quick(dataclasses.replace(made_spec(epochs=5), schedule=Schedule.custom([4.0, 3.0, 2.0, 1.0, 1.0])))
    assert (drawn.epochs, len(drawn.schedule.values)) == (5, 5)
    small = quick(made_spec(epochs=2, subset=100, batch_size=50))
    assert (small.size, small.epochs, small.batch_size) == (100, 2, 50)


def test_the_drawing_is_taken_over_from_its_card_with_its_settings(folder):
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60).run()
    at.number_input(key="schedule.batch_size").set_value(500).run()
    at.switch_page("pages/train.py").run()
    assert at.selectbox(key="train.schedule").value != "custom"
    button(at, "Use my drawing").click().run()
    assert not at.exception
    assert at.selectbox(key="train.schedule").value == "custom"
    assert at.number_input(key="train.size.batch_size").value == 500


def test_without_a_drawing_its_card_leads_to_the_schedule_page(folder):
    assert "Draw a schedule" in [link.proto.label for link in open_page().get("page_link")]


def test_settings_that_do_not_go_together_are_one_sentence_and_no_launch(folder):
    at = open_page()
    at.selectbox(key="train.method").set_value("screening").run()
    at.selectbox(key="train.curriculum").set_value("sample").run()
    assert [error.value for error in at.error] == [
        "Screening judges random batches; a sorted curriculum has none, so choose curriculum none or masked."
    ]
    assert "Launch" not in [button.label for button in at.button]


def test_a_method_without_a_guarantee_shows_no_epsilon(folder):
    at = open_page()
    at.selectbox(key="train.method").set_value("sgd").run()
    assert metrics(at)["Sound ε"] == "no guarantee"
    assert metrics(at)["Claimed ε"] == "none"


def test_a_run_without_a_guarantee_shows_no_epsilon_either(folder):
    keep(folder, made_run(method="sgd"))
    at = open_page()
    assert metrics(at)["Sound ε spent"] == "no guarantee"
    assert any("nothing to draw against" in info.value for info in at.info)


def test_a_finished_run_shows_its_numbers_with_units(folder):
    keep(folder, made_run())
    shown = metrics(open_page())
    assert shown["Test accuracy"] == "77.50 %"
    assert shown["Sound ε spent"] == "2.000"
    assert shown["Epochs"] == "4 of 4"
    assert shown["Training time"] == "2 min 0 s"


def test_a_stopped_run_shows_what_it_really_spent_and_why_that_is_more_than_its_last_epoch_says(folder):
    keep(folder, made_run(status="stopped", count=2, written=Spending(27, 1.15, 1.25)))
    at = open_page()
    assert (metrics(at)["Sound ε spent"], metrics(at)["Claimed ε spent"]) == ("1.250", "1.150")
    assert "ε counts also 7 steps after its last epoch." in [caption.value for caption in at.caption]


def test_a_stopped_run_of_the_old_format_shows_the_most_it_can_have_spent(folder):
    keep(folder, made_run(status="stopped", count=2))
    at = open_page()
    most = guarantee("dp-sgd", "none", epoch_phases([1.0] * 3, 0.1), 1e-5).sound.upper
    assert metrics(at)["Sound ε spent"] == f"at most {epsilon_number(most)}"
    assert any("not on record how far the run came" in caption.value for caption in at.caption)


def test_the_time_to_expect_comes_from_a_run_alike(folder):
    keep(folder, made_run(model="cnn-mnist", subset=0, batch_size=512))
    # 4 epochs of 10 recorded steps and 30 s: 3 s a step; the form asks for 5 epochs of 117 steps.
    assert metrics(open_page())["Expected time"] == "about 29 min 15 s"


def test_rename_duplicate_and_delete_do_what_they_say(folder):
    run_id = keep(folder, made_run(learning_rate=0.25))
    at = open_page()
    at.text_input(key=f"train.title.{run_id}").set_value("Better name").run()
    button(at, "Save title").click().run()
    assert Store(folder).get(run_id).title == "Better name"
    button(at, "Duplicate").click().run()
    assert at.number_input(key="train.rate.learning_rate").value == 0.25
    assert at.selectbox(key="train.model").value == "logistic"
    button(at, "Yes, delete it").click().run()
    assert not at.exception
    assert Store(folder).list().runs == ()
    assert any("No runs yet" in info.value for info in at.info)


def shown_title(at: AppTest) -> str:
    """The title of the run whose curves are shown."""
    return next(one.value for one in at.markdown if "-badge[" in one.value).lstrip("# ").partition(" :")[0]


def select_rows(at: AppTest, *places: int) -> AppTest:
    """Rows of the list of runs, counted from the newest."""
    at.session_state[runs_list(at).key] = {"selection": {"rows": list(places), "columns": [], "cells": []}}
    return at.run()


def runs_list(at: AppTest):
    return next(table for table in at.dataframe if (table.key or "").startswith("train.runs."))


def test_the_list_has_a_row_per_run_with_status_accuracy_epsilon_and_time_the_newest_first(folder):
    keep(folder, made_run(title="First", status="stopped", count=2, written=Spending(27, 1.15, 1.25)))
    keep(folder, made_run(title="Second", method="sgd"))
    rows = runs_list(open_page()).value
    assert list(rows["name"]) == ["Second", "First"]
    assert list(rows["status"]) == ["done", "stopped"]
    assert list(rows["accuracy"].round(2)) == [77.5, 65.0]
    assert list(rows["minutes"]) == [2.0, 1.0]
    assert math.isnan(rows["epsilon"][0])
    assert rows["epsilon"][1] == 1.25


def test_several_runs_are_stopped_resumed_deleted_and_compared_at_once(folder):
    for title, status, count in (("A", "done", 4), ("B", "stopped", 2), ("C", "done", 4)):
        keep(folder, made_run(title=title, status=status, count=count, dataset="fashion-mnist"))
    at = select_rows(open_page(), 0, 1)
    assert shown_title(at) == "C"
    labels = [one.label for one in at.button]
    assert "Resume 1 run" in labels
    assert "Stop 1 run" not in labels
    links = {link.proto.label: link.proto.query_string for link in at.get("page_link")}
    assert "dataset=fashion-mnist" in links["Compare 2 runs"]
    button(at, "Yes, delete 2 runs").click().run()
    assert not at.exception
    assert [run.title for run in Store(folder).list().runs] == ["A"]
    assert shown_title(at) == "A"


def test_what_is_selected_stays_selected_when_a_run_comes_or_goes():
    assert selected_places(["new", "b", "a"], ["a", "b"], None) == [1, 2]
    assert selected_places(["new", "b"], ["a", "b"], None) == [1]
    assert selected_places(["b", "a"], None, "a") == [1]
    assert selected_places(["b", "a"], (), "a") == []


def test_compare_opens_on_the_dataset_of_a_run_with_its_curve_in_colour(folder):
    keep(folder, made_run(dataset="fashion-mnist"))
    link = next(one.proto for one in open_page().get("page_link") if one.proto.label == "Compare")
    shown = parse_link(dict(parse_qsl(link.query_string)))
    assert shown.dataset == "fashion-mnist"
    assert shown.highlight == (group_of(made_run(dataset="fashion-mnist")),)


def test_an_audit_is_shown_beside_epsilon_with_what_it_cannot_show(folder):
    keep(folder, made_run(audit=Audit(2.0, StepBound(1.9, (Guesses(1.0, 40, 4000, 1200, 2700),)))))
    at = open_page()
    assert metrics(at)["Audited ε"] == "≥ 1.900"
    (words,) = [caption.value for caption in at.caption if "Audited at least" in caption.value]
    assert "Audited at least 1.900, proven at most 2.000 (4,000 looks at its noise)." in words
    assert "is no proof" in words
    keep(folder, made_run(curriculum="sample"))
    assert any("No audit: the order comes from a model" in caption.value for caption in open_page().caption)


def test_an_audit_that_failed_is_loud_and_names_the_likely_causes_once(folder):
    audit = Audit(1.5, StepBound(2.0, (Guesses(1.0, 10, 940, 100, 840),), ("noise *twice*",)))
    run_id = keep(folder, made_run(status="failed", audit=audit))
    for error in ("", failure_words(audit)):
        place = folder / run_id / files.STATUS
        place.write_text(json.dumps(json.loads(place.read_text()) | {"error": error}))
        at = open_page()
        (alarm,) = at.error
        assert "**The audit failed: the proven ε does not hold.**" in alarm.value
        assert "- the step audit shows an epsilon of at least 2.000, above the proven 1.500" in alarm.value
        assert "- noise \\*twice\\*" in alarm.value
        assert alarm.value.count("- gradients that are longer than the clipping norm") == 1
        assert not any("is no proof" in caption.value for caption in at.caption)


def test_a_run_with_canaries_says_so_and_is_duplicated_with_them(folder):
    keep(folder, made_run(canaries=300))
    at = open_page()
    assert any("2,000 examples and 300 canaries" in caption.value for caption in at.caption)
    button(at, "Duplicate").click().run()
    assert at.number_input(key="train.size.canaries").value == 300


def test_a_run_in_the_address_is_the_one_that_is_shown(folder):
    first = keep(folder, made_run(title="First"))
    keep(folder, made_run(title="Second"))
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
    at.query_params["run"] = first
    at.switch_page("pages/train.py").run()
    assert shown_title(at) == "First"


def test_a_launched_run_is_shown_whatever_was_chosen_before(folder):
    keep(folder, made_run(title="First"))
    keep(folder, made_run(title="Second"))
    at = select_rows(open_page(), 1)
    assert shown_title(at) == "First"
    button(at, "Repeat with diagnostics").click().run()
    assert not at.exception
    server_runner(Store(folder)).close()
    newest = Store(folder).list().runs[-1]
    assert at.session_state["train.selected"] == (newest.id,)


def test_a_folder_that_is_no_run_is_named_and_the_others_are_shown(folder):
    keep(folder, made_run())
    damaged = keep(folder, made_run(title="Damaged"))
    (folder / damaged / "epochs.jsonl").write_text("{broken}\n{}\n")
    (folder / "Not A Run").mkdir()
    at = open_page()
    assert len(at.error) == 1
    assert damaged in at.error[0].value.lower()
    assert any("could not be read" in expander.label for expander in at.expander)


def test_read_only_launches_and_deletes_nothing_and_says_why(folder, monkeypatch):
    keep(folder, made_run(status="stopped", count=2))
    monkeypatch.setenv("DPVIZ_READ_ONLY", "1")
    at = open_page()
    for label in ("Launch", "Resume", "Yes, delete it", "Save title"):
        assert button(at, label).disabled
        assert "read-only" in button(at, label).help


# --- real runs in a real browser --------------------------------------------------------------------------------------


WAIT = 90_000  # a busy machine is no reason to fail


class Lab:
    """A server with a store of its own that can be started again."""

    def __init__(self, folder):
        self.folder, self.servers = folder, 0
        self.process = None
        self.start()

    def start(self):
        self.stop()
        self.servers += 1
        env = {"DPVIZ_RUNS": str(self.folder / "runs"), "OMP_NUM_THREADS": "1"}
        self.process, self.url = start_server(ROOT / "app.py", env, self.folder / f"log-{self.servers}.txt")

    def stop(self):
        if self.process is not None:
            stop_server(self.process)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    lab = Lab(tmp_path_factory.mktemp("lab"))
    yield lab
    lab.stop()


def fill_in_quick_logistic(page: Page) -> None:
    """Logistic regression on 2,000 digits: a run of a few seconds."""
    choose(page, "Model", "Logistic regression")
    for label, value in (("Epochs", "3"), ("Batch size", "200"), ("Training examples", "2000")):
        type_number(page, label, value)


def make_it_longer(page: Page) -> None:
    """Sixty epochs of three hundred short steps: long enough to be stopped, also behind two reloads."""
    for label, value in (("Training examples", "60000"), ("Epochs", "60")):
        type_number(page, label, value)


def type_number(page: Page, label: str, value: str) -> None:
    field = page.get_by_role("spinbutton", name=label)
    field.fill(value)
    field.press("Enter")
    expect(field).to_have_value(value, timeout=WAIT)


def launch(page: Page, title: str) -> None:
    page.get_by_role("textbox", name="Title").fill(title)
    page.get_by_role("button", name="Launch").click()
    expect(heading(page, title)).to_be_visible(timeout=WAIT)


def heading(page: Page, title: str):
    return page.get_by_role("heading", name=re.compile(title))


def test_a_launched_run_is_watched_to_its_end_and_is_there_after_a_reload_and_a_restart(lab, new_page):
    page = new_page(f"{lab.url}/train")
    fill_in_quick_logistic(page)
    launch(page, "Watched")
    expect(heading(page, "Watched")).to_contain_text("done", timeout=WAIT)
    expect(page.get_by_text("3 of 3")).to_be_visible(timeout=WAIT)
    expect(page.locator(".js-plotly-plot")).to_have_count(2, timeout=WAIT)
    page.reload()
    expect(heading(page, "Watched")).to_contain_text("done", timeout=WAIT)
    lab.start()
    page = new_page(f"{lab.url}/train")
    expect(heading(page, "Watched")).to_contain_text("done", timeout=WAIT)
    expect(page.locator(".js-plotly-plot")).to_have_count(2, timeout=WAIT)


def test_a_run_is_stopped_and_resumed_from_where_it_was(lab, new_page):
    page = new_page(f"{lab.url}/train")
    fill_in_quick_logistic(page)
    make_it_longer(page)
    launch(page, "Long")
    expect(page.get_by_text(re.compile(r"step [\d,]+ of 18,000, .* left"))).to_be_visible(timeout=WAIT)
    page.get_by_role("button", name="Stop").click()
    expect(heading(page, "Long")).to_contain_text("stopped", timeout=WAIT)
    store = Store(lab.folder / "runs")
    stopped = store.list().runs[-1]
    assert 0 <= stopped.epochs_done < 60
    page.get_by_role("button", name="Resume").click()
    expect(heading(page, "Long")).to_contain_text("running", timeout=WAIT)
    expect(page.get_by_text(re.compile(rf"^{stopped.epochs_done} of 60"))).to_have_count(0, timeout=WAIT)
    page.get_by_role("button", name="Stop").click()
    expect(heading(page, "Long")).to_contain_text("stopped", timeout=WAIT)
    resumed = store.get(stopped.id)
    assert len(resumed.epochs) > stopped.epochs_done
    assert [record.epoch for record in resumed.epochs] == list(range(1, len(resumed.epochs) + 1))


def test_the_same_run_is_seen_and_stopped_from_two_tabs(lab, new_page):
    first, second = new_page(f"{lab.url}/train"), new_page(f"{lab.url}/train")
    expect(second.get_by_role("button", name="Launch")).to_be_visible(timeout=WAIT)
    fill_in_quick_logistic(first)
    make_it_longer(first)
    launch(first, "Shared")
    # The other tab was idle and finds the run by itself.
    expect(second.get_by_text(re.compile(r"Shared — step"))).to_be_visible(timeout=WAIT)
    second.get_by_role("button", name="Stop").click()
    expect(heading(first, "Shared")).to_contain_text("stopped", timeout=WAIT)
    expect(second.get_by_text("Shared — ")).to_have_count(0, timeout=WAIT)


def test_a_quick_look_is_launched_at_once_and_several_runs_are_selected_in_the_list(lab, new_page):
    keep(lab.folder / "runs", made_run())
    page = new_page(f"{lab.url}/train", viewport={"width": 1400, "height": 1400})
    fill_in_quick_logistic(page)
    page.get_by_role("button", name="Quick look").click()
    expect(heading(page, "Quick look")).to_contain_text("done", timeout=WAIT)
    page.wait_for_timeout(3000)  # its progress bar is gone, and the table stays where it is
    table = page.get_by_test_id("stDataFrame").first.bounding_box()
    # The run itself is selected, in the first row; the boxes before the names are drawn on a canvas.
    page.mouse.click(table["x"] + 18, table["y"] + 35 * 2 + 18)
    expect(page.get_by_role("link", name="Compare 2 runs")).to_be_visible(timeout=WAIT)
    expect(page.get_by_role("button", name="Delete 2 runs")).to_be_visible()
