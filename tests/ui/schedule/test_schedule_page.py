"""The Schedule page: the hand, the number and the buttons, in a real Chromium; the sums behind them without one."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from streamlit.testing.v1 import AppTest

from dpviz.privacy import SCHEDULES, Assumptions, InputError, Schedule
from dpviz.training.data.readers import here
from dpviz.training.tables import DATASETS
from dpviz.ui.schedule.board import BOARD, MAX_PINS, as_json, handover, rounded_up, stretch
from dpviz.ui.schedule.page import TABS
from dpviz.ui.schedule.settings import LAST, OWN_DATA, Settings, delta_warning, parse_delta, session_key
from dpviz.ui.schedule.share import decode, encode
from dpviz.views.numbers import epsilon_text
from tests.browser import ROOT

PATIENCE = 20_000  # milliseconds; other work may share the machine


class Screen:
    """The page as a person sees and moves it."""

    def __init__(self, page: Page) -> None:
        expect.set_options(timeout=PATIENCE)
        self.page = page
        self.plot = page.locator("svg.plot")
        self.value = page.locator(".value")
        expect(page.locator(".meta")).to_contain_text("certified")

    def ask(self, expression: str, argument: Any = None) -> Any:
        """A JavaScript expression about `editor`, with `given` as its argument."""
        script = f"(svg, given) => {{ const editor = svg.getRootNode().scheduleEditor; return {expression}; }}"
        return self.plot.evaluate(script, argument)

    def sigmas(self) -> list[float]:
        return self.ask("Array.from(editor.sigmas)")

    def move(self, epoch: int, sigma: float, steps: int = 1) -> None:
        box = self.plot.bounding_box()
        x, y = self.ask("[editor.frame.x(given[0]), editor.frame.y(given[1])]", [epoch, sigma])
        self.page.mouse.move(box["x"] + x, box["y"] + y, steps=steps)

    def stroke(self, *points: tuple[int, float]) -> None:
        self.move(*points[0])
        self.page.mouse.down()
        for point in points[1:]:
            self.move(*point, steps=5)
        self.page.mouse.up()

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)

    def shows(self, settings: Settings) -> None:
        """The number on screen is Python's own for the curve on screen."""
        expect(self.value).to_have_text(epsilon_text(settings.price(self.sigmas())))


@pytest.fixture
def screen(dashboard: str, new_page: Callable[..., Page]) -> Callable[..., Screen]:
    return lambda path="/", **options: Screen(new_page(dashboard + path, **options))


# --- in the browser


def test_a_first_sight_names_the_product_says_what_epsilon_is_and_leads_to_the_guide(screen):
    it = screen()
    expect(it.page).to_have_title("Schedule · dpviz")
    expect(it.page.get_by_test_id("stHeaderLogo")).to_be_visible()
    expect(it.page.get_by_text("bounds how much a trained model can reveal")).to_be_visible()
    it.page.get_by_role("link", name="What ε means").click()
    expect(it.page.get_by_role("heading", name="What epsilon means")).to_be_visible()
    expect(it.page).to_have_title("Guide · dpviz")


def test_a_stroke_changes_epsilon_while_the_button_is_down_and_certified_after_release(screen):
    it = screen()
    it.shows(Settings())
    seen = []
    it.move(3, 0.7)
    it.page.mouse.down()
    for epoch in range(4, 9):
        it.move(epoch, 0.7)
        seen.append(it.value.inner_text())
    assert all(text.startswith("≈") for text in seen)
    assert len(set(seen)) == len(seen), "epsilon follows every move"
    it.page.mouse.up()
    it.shows(Settings())
    expect(it.page.locator(".meta")).to_have_text("certified · δ = 1e-5 · over target 2")


def test_a_preset_is_not_fought_and_its_knobs_redraw_it(screen):
    it = screen()
    it.stroke((2, 1.0), (10, 6.0))
    it.shows(Settings())
    it.page.get_by_role("combobox", name=re.compile("Preset")).click()
    it.page.get_by_role("option", name="Warm up").click()
    preset = Schedule.of("warm-up").sigmas(20).tolist()
    expect(it.page.get_by_text("warm up preset")).to_be_visible()
    it.page.wait_for_timeout(600)  # longer than any pause after which the editor sends
    assert it.sigmas() == pytest.approx(preset)
    it.shows(Settings())
    held = it.page.get_by_label("End", exact=True)
    held.fill("2.5")
    held.press("Enter")
    expect(it.page.locator(".place")).to_be_visible()
    it.page.wait_for_timeout(600)
    assert it.sigmas() == pytest.approx(Schedule.of("warm-up", end=2.5).sigmas(20))
    it.shows(Settings())


def test_fit_meets_the_target_that_was_typed_last_and_keeps_the_shape(screen):
    it = screen()
    before = np.array(it.sigmas())
    it.page.get_by_label("Target ε", exact=True).fill("0.8")
    it.button("Fit to ε").click()  # no Enter in between
    expect(it.page.get_by_text("of the target 0.8")).to_be_visible()
    achieved = Settings().price(it.sigmas())
    assert 0.8 * 0.995 <= achieved.upper <= 0.8
    ratio = np.array(it.sigmas()) / before
    assert ratio.max() / ratio.min() == pytest.approx(1, abs=2e-3)
    it.shows(Settings())


def test_a_share_link_reproduces_the_schedule_and_its_settings_in_a_new_session(screen):
    it = screen()
    size = it.page.get_by_label("Batch size", exact=True)
    size.fill("512")
    size.press("Enter")
    settings = Settings(batch_size=512)
    it.shows(settings)
    it.stroke((0, 4.0), (19, 0.9))
    it.shows(settings)
    shown = it.value.inner_text()
    it.button("Share link").click()
    expect(it.page).to_have_url(re.compile(r"\?s=2~"))
    other = screen(it.page.url[it.page.url.index("/?") :])
    assert other.sigmas() == it.sigmas()
    expect(other.value).to_have_text(shown)
    expect(other.page.get_by_label("Batch size", exact=True)).to_have_value("512")
    expect(other.page.get_by_text("come from the address")).to_be_visible()


def type_into(it: Screen, label: str, text: str) -> None:
    field = it.page.get_by_label(label, exact=True)
    field.fill(text)
    field.press("Enter")


def test_a_reload_keeps_the_drawing_even_of_another_page(screen):
    it = screen()
    it.stroke((0, 4.0), (19, 0.9))
    type_into(it, "Batch size", "512")
    it.shows(Settings(batch_size=512))
    it.page.get_by_role("button", name="Pin", exact=True).click()
    expect(it.page.locator(".legend")).to_contain_text("drawing")
    drawn, shown = it.sigmas(), it.value.inner_text()
    it.page.reload()
    expect(it.value).to_have_text(shown)
    assert it.sigmas() == drawn
    expect(it.page.locator(".legend")).to_contain_text("drawing")
    it.page.get_by_role("button", name="Undo", exact=True).click()  # so does what can be undone
    expect(it.value).not_to_have_text(shown)
    it.page.get_by_role("button", name="Redo", exact=True).click()
    expect(it.value).to_have_text(shown)
    expect(it.page.get_by_label("Batch size", exact=True)).to_have_value("512")
    it.stroke((3, 2.0), (5, 2.0))  # a later edit is in the address too
    it.shows(Settings(batch_size=512))
    drawn = it.sigmas()
    it.page.get_by_test_id("stTopNavLink").filter(has_text="Guide").click()
    expect(it.page.get_by_role("heading", name="Guide", exact=True)).to_be_visible()
    assert "s=" not in it.page.url
    it.page.reload()
    expect(it.page.get_by_role("heading", name="Guide", exact=True)).to_be_visible()
    it.page.get_by_test_id("stTopNavLink").filter(has_text="Schedule").click()
    expect(it.page.get_by_text("come from the address")).to_be_visible()
    assert it.sigmas() == drawn


def test_undo_spans_lengths_presets_lists_and_fits_and_the_epochs_follow(screen):
    it = screen()
    epochs = it.page.get_by_label("Epochs", exact=True)
    it.stroke((0, 4.0), (19, 0.9))
    it.shows(Settings())
    curves = [it.sigmas()]

    def changed() -> None:
        expect(it.button("Undo")).to_be_enabled()
        curves.append(it.sigmas())

    type_into(it, "Epochs", "25")
    expect(it.page.locator(".place")).to_contain_text("of 25")
    changed()
    epochs.fill("")
    epochs.press("Enter")
    expect(it.page.get_by_text("got an empty field; the board stays at 25")).to_be_visible()
    assert it.sigmas() == curves[-1], "an empty field brings no preset back"
    it.page.get_by_role("combobox", name=re.compile("Preset")).click()
    it.page.get_by_role("option", name="Cosine").click()
    expect(it.page.get_by_text("cosine preset")).to_be_visible()
    changed()
    it.button("Fit to ε").click()
    expect(it.page.get_by_text("of the target 2")).to_be_visible()
    changed()
    for curve in curves[-2::-1]:
        it.button("Undo").click()
        expect(it.page.locator(".place")).to_contain_text(f"of {len(curve)}")
        assert it.sigmas() == curve
        expect(epochs).to_have_value(str(len(curve)))
    it.shows(Settings())
    expect(it.button("Undo")).to_be_enabled()  # the first stroke is left
    for curve in curves[1:]:
        it.button("Redo").click()
        assert it.sigmas() == curve
    expect(epochs).to_have_value("25")
    it.shows(Settings(epochs=25))


def test_an_error_in_a_pasted_list_is_told_in_the_popover_and_no_noise_is_drawn_as_zero(screen):
    it = screen()
    it.button("Paste or upload").click()
    popover = it.page.get_by_test_id("stPopoverBody")
    for text in ("3, -2", "3, 0, 2"):
        popover.get_by_role("textbox").fill(text)
        popover.get_by_role("button", name="Use this list").click()
        if "-" in text:
            expect(popover.get_by_text("got -2 (epoch 2)")).to_be_visible()
    expect(it.value).to_have_text("∞")
    expect(it.plot.get_by_text("no noise")).to_be_visible()
    bottom, *drawn = it.ask("[editor.frame.curveBottom, ...[3, 0, 2].map((sigma) => editor.frame.y(sigma))]")
    assert max(drawn[0], drawn[2]) < bottom < drawn[1]
    path = it.page.locator("svg.plot .curve").get_attribute("d")
    assert f",{drawn[1]:.1f}" in path


def test_an_rdp_bound_is_not_called_certified(dashboard, new_page):
    page = new_page(f"{dashboard}/?s={encode([2.0, 1.0], {'accountant': 'rdp'})}")
    expect(page.locator(".meta")).to_contain_text("RDP upper bound", timeout=PATIENCE)
    expect(page.locator(".meta")).not_to_contain_text("certified")
    expect(page.get_by_text("This number: RDP upper bound.")).to_be_visible()
    expect(page.get_by_text("Sound ε: RDP upper bound.")).to_be_visible()


def test_the_keyboard_alone_edits_the_schedule(screen):
    it = screen()
    before = it.sigmas()
    it.button("Reset").focus()
    for key in ("Tab", "End", "PageUp", "PageUp"):
        it.page.keyboard.press(key)
    expect(it.value).to_contain_text("≈")
    it.shows(Settings())
    assert it.sigmas()[:-1] == before[:-1]
    assert it.sigmas()[-1] == pytest.approx(1.5625, rel=1e-3)


def test_a_schedule_can_be_uploaded_and_downloaded(screen, tmp_path):
    it = screen()
    it.button("Paste or upload").click()
    file = it.page.locator("input[type=file]")
    file.set_input_files({"name": "mine.csv", "mimeType": "text/csv", "buffer": b"\xef\xbb\xbfsigma\n3\n2\n1.5\n"})
    expect(it.page.get_by_text("3 epochs were read")).to_be_visible()
    expect(it.page.get_by_label("Epochs", exact=True)).to_have_value("3")
    assert it.sigmas() == [3, 2, 1.5]
    file.set_input_files({"name": "photo.csv", "mimeType": "text/csv", "buffer": b"\xff\xd8\xff\xe0"})
    expect(it.page.get_by_text("The file is not text")).to_be_visible()
    it.page.keyboard.press("Escape")
    it.page.get_by_role("tab", name="Files and code").click()
    for label, name in (("Schedule as CSV", "schedule.csv"), ("Schedule as JSON", "schedule.json")):
        with it.page.expect_download() as download:
            it.button(label).click()
        download.value.save_as(tmp_path / name)
    cost = Settings(epochs=3).price((3.0, 2.0, 1.5))
    lines = (tmp_path / "schedule.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "epoch,sigma,epsilon_lower,epsilon_upper"
    assert [line.split(",")[1] for line in lines[1:]] == ["3.0", "2.0", "1.5"]
    assert float(lines[-1].split(",")[3]) == pytest.approx(cost.upper, rel=1e-9)
    kept = json.loads((tmp_path / "schedule.json").read_text(encoding="utf-8"))
    assert kept["schedule"] == {"name": "custom", "sigmas": [3.0, 2.0, 1.5]}
    assert kept["epsilon"]["upper"] == pytest.approx(cost.upper, rel=1e-9)


def test_train_this_schedule_goes_to_train_at_the_same_epsilon(screen):
    it = screen()
    here = it.value.inner_text()
    it.button("Train this schedule").click()
    expect(it.page).to_have_url(re.compile(r"/train$"))
    sound = it.page.get_by_test_id("stMetric").filter(has_text="Sound ε").first
    expect(sound).to_contain_text(here)
    expect(it.page.get_by_role("heading", level=1)).not_to_have_text("Draw a noise schedule")
    expect(it.page.get_by_text("rests on other assumptions")).to_have_count(0)
    expect(it.page.get_by_test_id("stException")).to_have_count(0)


def test_train_says_what_it_changes_of_the_assumptions_and_both_epsilons(screen):
    it = screen()
    settings = Settings(sampling="fixed-order")
    link = encode(it.sigmas(), settings.to_link())
    it = screen(f"/?s={link}")
    it.shows(settings)
    there, here = it.value.inner_text(), epsilon_text(Settings().price(it.sigmas()))
    it.button("Train this schedule").click()
    words = it.page.get_by_text("rests on other assumptions")
    expect(words).to_contain_text("batches: Poisson instead of Fixed order")
    expect(words).to_contain_text(f"its ε is {here}; on the Schedule page it was {there}.")
    expect(it.page.get_by_test_id("stMetric").filter(has_text="Sound ε").first).to_contain_text(here)


def test_a_visit_to_another_page_keeps_drawing_undo_and_settings_and_the_guide_uses_them(screen):
    it = screen()
    size = it.page.get_by_label("Batch size", exact=True)
    size.fill("512")
    size.press("Enter")
    it.stroke((0, 3.0), (19, 1.2))
    it.shows(Settings(batch_size=512))
    drawn = it.sigmas()
    links = it.page.get_by_test_id("stTopNavLink")
    links.filter(has_text="Guide").click()
    expect(it.page.get_by_text("batch size 512 of 60,000 examples")).to_be_visible()
    expect(it.page.get_by_role("combobox", name=re.compile("Worked out for"))).to_have_value("Your drawing")
    links.filter(has_text="Schedule").click()
    expect(it.page.locator(".meta")).to_contain_text("certified")
    expect(it.page.get_by_label("Batch size", exact=True)).to_have_value("512")
    assert it.sigmas() == drawn
    it.shows(Settings(batch_size=512))
    it.button("Undo").click()  # what was drawn before the visit can still be undone
    assert it.sigmas() != drawn


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_narrow_screen_in_light_and_dark(screen, scheme):
    it = screen(viewport={"width": 390, "height": 900}, color_scheme=scheme)
    assert it.page.evaluate("document.documentElement.scrollWidth") <= 390
    parts = (it.plot, it.page.get_by_label("Batch size", exact=True), it.page.get_by_text("Sound ε"))
    heights = [part.first.bounding_box()["y"] for part in parts]
    assert heights == sorted(heights), "the board, its settings, then what they come to"
    brightness = [
        sum(float(part) for part in it.page.evaluate(script).strip("rgba()").split(",")[:3]) / (3 * 255)
        for script in (
            "getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor",
            "getComputedStyle(document.querySelector('h1')).color",
        )
    ]
    assert (brightness[0] < 0.2 and brightness[1] > 0.7) if scheme == "dark" else (brightness[0] > 0.9 > brightness[1])
    expect(it.page.get_by_test_id("stException")).to_have_count(0)


# --- the page without a browser


@pytest.fixture
def at() -> AppTest:
    return AppTest.from_file(str(ROOT / "app.py"), default_timeout=30).run()


def field(at: AppTest, name: str) -> Any:
    key = session_key(name)
    return next(
        widget for kind in ("selectbox", "number_input", "text_input") for widget in at.get(kind) if widget.key == key
    )


def click(at: AppTest, label: str) -> None:
    next(button for button in at.button if button.label == label).click().run()


def board(at: AppTest) -> Any:
    return at.session_state[BOARD]


def test_every_preset_of_the_table_can_be_chosen_with_its_knobs(at):
    preset = at.selectbox(key="schedule.preset")
    assert len(preset.options) == len(SCHEDULES) - 1  # all but the drawn one
    for name in (name for name in SCHEDULES if name != "custom"):
        at.selectbox(key="schedule.preset").set_value(name).run()
        assert not at.exception
        assert board(at).sigmas == pytest.approx(Schedule.of(name).sigmas(20))
        shown = {widget.key for widget in at.number_input}
        assert {f"schedule.preset.{name}.{knob}" for knob in SCHEDULES[name].knobs} <= shown


def test_a_dataset_fills_in_its_size_batch_epochs_and_delta(at):
    field(at, "epochs").set_value(7).run()
    for entry in map(DATASETS.__getitem__, reversed(here())):
        field(at, "dataset").set_value(entry.name).run()
        assert any(caption.value.startswith(f"{entry.size:,} training examples") for caption in at.caption)
        assert field(at, "batch_size").value == entry.batch_size <= entry.size
        assert field(at, "epochs").value == len(board(at).sigmas) == 20
        assert float(field(at, "delta").value) == entry.delta <= 1 / entry.size
    field(at, "dataset").set_value(OWN_DATA).run()
    assert field(at, "dataset_size").value == entry.size


def test_delta_is_typed_exactly_and_warned_of_above_one_over_n(at):
    field(at, "delta").set_value("0.001").run()
    assert [warning.value[:9] for warning in at.warning] == ["δ = 0.001"]
    for text in ("1e-5x", "", "2", "0", "nan"):
        field(at, "delta").set_value(text).run()
        assert not at.exception
        assert len(at.error) == 1
        assert at.error[0].value.startswith("Delta must be")
        assert at.error[0].value.endswith("the board stays at 0.001.")
    field(at, "delta").set_value("1e-6").run()
    assert not at.error


def test_a_bound_that_stands_in_for_a_band_is_named_beside_the_number_and_on_the_card(at):
    field(at, "delta").set_value("1e-300").run()
    told = [caption.value for caption in at.caption]
    assert any(text.startswith("This number: RDP upper bound, because delta 1e-300") for text in told)
    assert any(text.startswith("Sound ε: RDP upper bound, because delta 1e-300") for text in told)
    assert as_json(board(at), Settings(delta=1e-300))["epsilon"]["fallback"].startswith("RDP upper bound")
    field(at, "delta").set_value("1e-5").run()
    assert not any("upper bound, because" in caption.value for caption in at.caption)


def test_a_batch_larger_than_the_dataset_is_one_readable_sentence(at):
    field(at, "batch_size").set_value(60_001).run()
    assert not at.exception
    assert [error.value for error in at.error] == [
        "Batch size must be from 1 to the 60,000 training examples, got 60,001; the board stays as it was."
    ]


def test_more_epochs_redraw_a_preset_and_stretch_a_drawing(at):
    field(at, "epochs").set_value(40).run()
    assert board(at).sigmas == pytest.approx(Schedule.of("linear").sigmas(40))
    board(at).editor.push([4.0] * 20 + [1.0] * 20)
    field(at, "epochs").set_value(10).run()
    assert board(at).sigmas == pytest.approx([4.0] * 5 + [1.0] * 5)
    assert not at.exception


def test_a_curve_comes_back_unchanged_from_another_length(at):
    drawn = tuple(float(f"{sigma:.4g}") for sigma in np.geomspace(5, 0.7, 20))[::-1]
    board(at).editor.push(drawn)
    for epochs in (25, 7, 300, 20):
        field(at, "epochs").set_value(epochs).run()
        assert len(board(at).sigmas) == epochs
    assert board(at).sigmas == drawn


@pytest.mark.parametrize(
    ("name", "typed", "told"),
    [
        ("epochs", None, "Epochs must be from 1 to 300, got an empty field; the board stays at 20."),
        ("epochs", 1000, "Epochs must be from 1 to 300, got 1,000; the board stays at 20."),
        ("batch_size", None, "Batch size must be from 1 to 1,000,000,000, got an empty field; the board stays at 600."),
        ("delta", "0", "Delta must be above 0 and below 1, got 0; 1e-5 is a common choice; the board stays at 1e-5."),
        ("target", 0.0, "Target epsilon must be a number from 1e-06 to 1e+06, got 0.0; the board stays at 2.0."),
    ],
)
def test_what_a_field_cannot_use_is_told_at_the_field_and_the_board_stays(at, name, typed, told):
    board(at).editor.push([3.0] * 20)
    field(at, name).set_value(typed).run()
    assert [error.value for error in at.error] == [told]
    assert board(at).sigmas == (3.0,) * 20
    assert at.get("bidi_component")
    assert at.session_state[LAST] == Settings()
    assert not at.exception


def test_an_empty_target_is_none(at):
    field(at, "target").set_value(None).run()
    assert at.session_state[LAST].target is None
    assert not at.error
    click(at, "Fit to ε")
    assert "there is no target" in at.error[0].value.lower()


def test_match_pins_the_constant_of_the_same_tight_epsilon(at):
    click(at, "Match")
    (pin,) = board(at).pins
    assert len(set(pin.sigmas)) == 1
    assert pin.sigmas[0] == pytest.approx(1.837, abs=0.005)  # FACTS: the PLD-matched constant of the linear schedule
    assert Settings().price(pin.sigmas).upper == pytest.approx(Settings().price(board(at).sigmas).upper, rel=2e-3)


def test_mirror_turns_the_curve_round_and_epsilon_stays(at):
    before = board(at).sigmas
    click(at, "Mirror")
    assert board(at).sigmas == before[::-1]
    text = epsilon_text(Settings().price(before))
    assert f"ε was {text} and is {text}" in at.info[0].value


def test_at_most_four_schedules_are_pinned_and_each_can_be_used_again(at):
    for sigma in range(1, MAX_PINS + 1):
        board(at).editor.push([float(sigma)] * 20)
        click(at, "Pin")
    assert [pin.name for pin in board(at).pins] == ["drawing", "drawing 2", "drawing 3", "drawing 4"]
    click(at, "Pin")
    assert len(board(at).pins) == MAX_PINS
    assert "remove one" in at.error[0].value
    at.button(key="use 1").click().run()
    assert board(at).sigmas == (2.0,) * 20
    at.button(key="remove 0").click().run()
    assert [pin.sigmas[0] for pin in board(at).pins] == [2.0, 3.0, 4.0]


def test_a_pasted_list_becomes_the_schedule(at):
    at.text_area(key="schedule.pasted").set_value("epoch,sigma\n1,3\n2,2\n3,1").run()
    click(at, "Use this list")
    assert board(at).sigmas == (3.0, 2.0, 1.0)
    assert field(at, "epochs").value == 3
    at.text_area(key="schedule.pasted").set_value("3, -2").run()
    click(at, "Use this list")
    assert "got -2 (epoch 2)" in at.error[0].value
    assert board(at).sigmas == (3.0, 2.0, 1.0)


@pytest.mark.parametrize("tab", TABS)
@pytest.mark.parametrize("sigmas", [(1.5,), (2.0, 0.0, 1.0)])
def test_every_tab_holds_for_one_epoch_and_for_an_epoch_without_noise(at, tab, sigmas):
    at.session_state["schedule.tab"] = tab
    at.session_state[session_key("epochs")] = len(sigmas)
    board(at).editor.push(sigmas)
    at.run()
    assert not at.exception
    assert not at.error


def test_a_damaged_link_is_one_sentence_and_the_page_still_works():
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    at.query_params["s"] = "1~nonsense"
    at.run()
    assert not at.exception
    assert "share link" in at.error[0].value
    assert len(board(at).sigmas) == 20


def test_train_hands_over_the_curve_and_its_settings(at):
    settings = Settings(accountant="rdp", sampling="shuffled")
    handed = handover(board(at), settings)
    assert handed.schedule.values == board(at).sigmas
    assert (handed.epochs, handed.dataset, handed.dataset_size, handed.batch_size) == (20, "mnist", 60_000, 600)
    assert (handed.delta, handed.assumptions) == (1e-5, Assumptions("rdp", "zero-out", "shuffled"))
    kept = as_json(board(at), Settings())
    assert kept["epsilon"]["upper"] == Settings().price(board(at).sigmas).upper
    assert json.loads(json.dumps(kept, allow_nan=False)) == kept


# --- records and small sums


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        Settings(dataset="cifar10", dataset_size=50_000, target=None),
        Settings(OWN_DATA, 1234, 100, 3, 1e-6, 4.0, "rdp", "replace-one", "shuffled"),
    ],
)
def test_settings_survive_a_link(settings):
    sigmas, fields = decode(encode([1.5] * settings.epochs, settings.to_link()))
    assert Settings.from_link(len(sigmas), fields) == settings


def test_an_old_link_with_a_fixed_order_and_add_remove_opens_as_zero_out_at_the_same_price():
    settings = Settings.from_link(3, {"adjacency": "add-remove", "sampling": "fixed-order"})
    assert (settings.sampling, settings.adjacency) == ("fixed-order", "zero-out")
    at = AppTest.from_file(str(ROOT / "app.py"), default_timeout=30)
    at.query_params["s"] = encode([2.0, 1.0], {"adjacency": "add-remove", "sampling": "fixed-order"})
    at.run()
    assert not at.exception
    assert not at.error
    assert "asked for add-remove neighbours, which have no price with fixed-order batches" in at.info[0].value
    assert field(at, "adjacency").value == "zero-out"


def test_the_form_offers_only_neighbours_that_the_batches_have_a_price_for(at):
    assert field(at, "adjacency").options == ["Add or remove one", "Zero out one", "Replace one"]
    field(at, "sampling").set_value("shuffled").run()
    assert field(at, "adjacency").options == ["Zero out one", "Replace one"]
    assert field(at, "adjacency").value == "zero-out"
    field(at, "adjacency").set_value("replace-one").run()
    field(at, "sampling").set_value("poisson").run()
    assert field(at, "adjacency").value == "replace-one"
    assert not at.exception
    with pytest.raises(InputError, match="choose zero-out or replace-one"):
        Settings(adjacency="add-remove", sampling="shuffled")


def test_a_link_with_an_unknown_word_is_refused():
    with pytest.raises(InputError, match="unknown accountant 'magic'"):
        Settings.from_link(3, {"accountant": "magic"})


@pytest.mark.parametrize("text", ["1e-5", " 0.00001 ", "1E-5", ".00001", "1e-05", "1/100000", "1 / 1e5"])
def test_the_ways_to_type_a_delta(text):
    assert parse_delta(text) == 1e-5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1e",
        "1,5",
        "1e-5 or so",
        "inf",
        "nan",
        "-0.1",
        "1",
        "0",
        "0x1",
        "1_0e-6",
        "١e-5",
        "1/0",
        "0/5",
        "5/1",
        "1/2/3",
        "/5",
    ],
)
def test_nothing_else_is_taken_for_a_delta(text):
    with pytest.raises(InputError, match="delta must be"):
        parse_delta(text)


def test_a_small_delta_brings_no_warning():
    assert delta_warning(Settings()) is None
    assert "1/N" in delta_warning(Settings(delta=1e-4))


def test_stretching_keeps_the_ends_and_rounding_up_never_takes_noise_away():
    curve = (5.0, 3.0, 1.0)
    assert stretch(curve, 3) == curve
    assert stretch(curve, 9)[::4] == pytest.approx(curve)
    assert stretch((2.0,), 4) == (2.0,) * 4
    assert stretch((0.0, 2.0), 3) == (0.0, 1.0, 2.0)
    for sigma in np.geomspace(1e-3, 900, 200):
        assert sigma * (1 - 1e-12) <= rounded_up(sigma) <= sigma * 1.0011
        assert math.isclose(float(f"{rounded_up(sigma):.4g}"), rounded_up(sigma))
