"""The schedule editor in a real Chromium: the hand, the number, and what Python hears of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from dpviz.privacy.rdp import ledger_rdp, smallest_epsilon
from dpviz.privacy.records import Ledger, epoch_phases
from dpviz.privacy.registry import InputError
from dpviz.privacy.rounding import epsilon_number
from dpviz.ui.common import editor as editor
from dpviz.ui.common.editor import MAX_EPOCHS, EditorState, _table_data

SAMPLE_RATE, DELTA = 0.01, 1e-5

# A page as an author would write it; the address chooses the case.
SCRIPT = """
import json, time
import streamlit as st
from dpviz.privacy.rdp import ledger_rdp, rdp_table, smallest_epsilon
from dpviz.privacy.records import Ledger, epoch_phases
from dpviz.privacy.schedules import Schedule
from dpviz.ui.common.editor import Certified, Curve, EditorState, schedule_editor

RATE, DELTA = 0.01, 1e-5
asked = st.session_state.setdefault("asked", st.query_params.to_dict())
epochs = int(asked.get("epochs", 20))
preset = Schedule.of("linear").sigmas(epochs)

def price(sigmas):
    return smallest_epsilon(ledger_rdp(Ledger(epoch_phases(sigmas, RATE))).sum(axis=0), DELTA)[0]

def certify(sigmas):
    time.sleep(float(asked.get("wait", 0)))
    epsilon = float(asked.get("tighter", 1)) * price(sigmas)
    return Certified(epsilon, epsilon, f"{epsilon:.4f}")

def hear(sigmas):
    st.session_state.heard = sigmas

@st.fragment
def editor(state):
    schedule_editor(
        state,
        key="editor",
        table=rdp_table(RATE),
        steps_per_epoch=100,
        delta=DELTA,
        ghost=Curve("linear preset", preset),
        pinned=[Curve("<b>pin</b>", [2.0] * epochs, 0.99), Curve("no noise", [1.0] * epochs, float("inf"))]
        if "pins" in asked else [],
        target=float(asked["target"]) if "target" in asked else None,
        certified=certify(state.sigmas) if "certify" in asked else None,
        on_draw=hear,
    )
    truth = {"sigmas": state.sigmas, "heard": st.session_state.get("heard"), "seq": state.seq}
    with st.container(key="truth"):
        st.text(json.dumps(truth))

def draw():
    if "drawing" not in st.session_state:
        st.session_state["drawing"] = EditorState((), "")
        st.session_state["drawing"].push(preset)
    state = st.session_state["drawing"]
    st.button("Push two", on_click=state.push, args=([2.0] * epochs,))
    st.button("Push zero", on_click=state.push, args=([0.0] * epochs,))
    editor(state)

def other():
    st.write("Nothing to draw here")

st.navigation([st.Page(draw, title="Draw", default=True), st.Page(other, title="Other")]).run()
"""


class Screen:
    """The editor on a page, as a person sees and moves it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.plot = page.locator("svg.plot")
        self.value = page.locator(".value")
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        expect(self.page.locator(".st-key-truth")).to_contain_text("seq")
        expect(self.value).not_to_be_empty()

    def ask(self, expression: str, argument: Any = None) -> Any:
        """A JavaScript expression about `editor`, with `given` as its argument."""
        script = f"(svg, given) => {{ const editor = svg.getRootNode().scheduleEditor; return {expression}; }}"
        return self.plot.evaluate(script, argument)

    def sigmas(self) -> list[float]:
        return self.ask("Array.from(editor.sigmas)")

    def place(self, epoch: int, sigma: float) -> tuple[float, float]:
        box = self.plot.bounding_box()
        assert box is not None
        x, y = self.ask("[editor.frame.x(given[0]), editor.frame.y(given[1])]", [epoch, sigma])
        return box["x"] + x, box["y"] + y

    def press(self, epoch: int, sigma: float) -> None:
        self.page.mouse.move(*self.place(epoch, sigma))
        self.page.mouse.down()

    def move(self, epoch: int, sigma: float, steps: int = 1) -> None:
        self.page.mouse.move(*self.place(epoch, sigma), steps=steps)

    def stroke(self, *points: tuple[int, float]) -> None:
        self.press(*points[0])
        for point in points[1:]:
            self.move(*point, steps=5)
        self.page.mouse.up()

    def truth(self) -> dict[str, Any]:
        return json.loads(self.page.locator(".st-key-truth").inner_text())

    def wait_for_drawing(self, seq: int) -> dict[str, Any]:
        """What Python has once it took over this drawing; Streamlit may skip those before it."""
        expect(self.page.locator(".st-key-truth")).to_contain_text(f'"seq": {seq}}}')
        return self.truth()

    def button(self, name: str) -> Any:
        return self.page.get_by_role("button", name=name, exact=True)


@pytest.fixture(scope="module")
def address(serve: Callable[..., str], tmp_path_factory: pytest.TempPathFactory) -> str:
    script = tmp_path_factory.mktemp("editor") / "app.py"
    script.write_text(SCRIPT, encoding="utf-8")
    return serve(script)


@pytest.fixture
def screen(address: str, new_page: Callable[..., Page]) -> Callable[..., Screen]:
    return lambda query="", **options: Screen(new_page(f"{address}/?{query}", **options))


def price(sigmas: Iterable[float]) -> float:
    return smallest_epsilon(ledger_rdp(Ledger(epoch_phases(sigmas, SAMPLE_RATE))).sum(axis=0), DELTA)[0]


def test_the_editor_writes_epsilons_as_python_does(new_page):
    source = (Path(editor.__file__).parent / "readout.js").read_text(encoding="utf-8")
    values = [0.0, 0.0004, 1.1, 9.9996, 28.381, 999_999.5, *np.geomspace(1e-12, 1e9, 2000).tolist()]
    page = new_page("about:blank")
    assert page.evaluate(f"(given) => {{ {source}\n return given.map(epsilonText); }}", values) == [
        epsilon_number(value) for value in values
    ]
    targets = page.evaluate(f"(given) => {{ {source}\n return given.map(targetText); }}", [2, 0.05, 20, 2000, 1.005])
    assert targets == ["2", "0.05", "20", "2,000", "1.005"]


def number(text: str) -> float:
    return float(text.removeprefix("≈").replace(",", ""))


def test_a_stroke_changes_epsilon_while_the_button_is_down_and_certified_after_release(screen):
    it = screen("certify=1&target=3")
    expect(it.value).to_have_text(f"{price(it.sigmas()):.4f}")
    seen = []
    it.press(4, 0.6)
    for epoch in range(5, 12):
        it.move(epoch, 0.6)
        seen.append(it.value.inner_text())
    assert all(text.startswith("≈") for text in seen)
    assert [number(text) for text in seen] == sorted({number(text) for text in seen}), "less noise must cost more"
    assert it.truth()["seq"] == 0, "Python hears of a stroke when it ends"
    it.page.mouse.up()
    truth = it.wait_for_drawing(1)
    assert truth["sigmas"] == truth["heard"] == it.sigmas()
    assert truth["sigmas"][5:12] == pytest.approx([0.6] * 7, rel=0.02)
    expect(it.value).to_have_text(f"{price(truth['sigmas']):.4f}")
    expect(it.page.locator(".meta")).to_have_text("certified · δ = 1e-5 · over target 3")
    expect(it.page.locator(".announcer")).to_contain_text("certified")


def test_epsilon_in_the_browser_is_pythons_rdp(screen):
    it = screen()
    rng = np.random.default_rng(4)
    walks = [np.exp(np.interp(np.linspace(0, 1, 30), np.linspace(0, 1, 6), rng.uniform(-0.7, 2, 6))) for _ in range(12)]
    for sigmas in [np.full(1, 0.5), np.full(300, 2.0), np.linspace(5, 1, 20), *walks]:
        spend = "(() => { const path = new Float64Array(given.length); editor.accountant.spend(given, path);"
        path = it.ask(f"{spend} return Array.from(path); }})()", sigmas.tolist())
        assert path[-1] == pytest.approx(price(sigmas), rel=2e-3)
        assert path == sorted(path), "epsilon spent never falls"
    assert number(it.value.inner_text()) == pytest.approx(price(it.sigmas()), rel=2e-3)


def test_the_table_is_sent_once_and_the_pen_goes_on_with_it(screen):
    it = screen("certify=1")
    assert it.ask("'values' in editor.data.table")
    it.stroke((4, 0.6), (8, 0.6))
    it.wait_for_drawing(1)
    expect(it.value).to_have_text(f"{price(it.sigmas()):.4f}")
    assert it.ask("Object.keys(editor.data.table)") == ["name"]
    before = it.value.inner_text()
    it.press(10, 0.6)
    it.move(14, 0.6, steps=4)
    assert number(it.value.inner_text()) > number(before)
    it.page.mouse.up()


def test_an_editor_without_its_table_asks_for_it(screen):
    it = screen()
    asked = it.ask(
        "(() => { let asked; editor.update({...editor.data, table: {name: 'other'}}, (m) => (asked = m));"
        " return asked; })()"
    )
    assert "other" not in asked["tables"]
    assert asked["sigmas"] == it.sigmas()
    assert asked["rev"] == it.ask("editor.rev")


@pytest.mark.parametrize("drawn", [None, {}, {"tables": "0.01 289"}, {"tables": []}, {"tables": [["0.01 289"]]}, 7])
def test_whatever_a_browser_says_it_gets_the_table_unless_it_names_it(drawn):
    table = {"name": "0.01 289", "values": "..."}
    assert _table_data(table, drawn) == table
    assert _table_data(table, {"tables": ["else", "0.01 289"]}) == {"name": "0.01 289"}


def test_the_estimate_starts_from_the_number_of_a_tighter_accountant(screen):
    it = screen("certify=1&tighter=0.8")
    before = it.sigmas()
    expect(it.value).to_have_text(f"{0.8 * price(before):.4f}")
    it.press(0, before[0])
    it.move(1, before[1])
    assert it.value.inner_text().startswith("≈")
    assert number(it.value.inner_text()) == pytest.approx(0.8 * price(before), rel=0.01)
    it.page.mouse.up()
    expect(it.value).to_have_text(f"{0.8 * price(it.sigmas()):.4f}")


def test_skipped_epochs_lie_on_a_straight_line_on_screen(screen):
    it = screen()
    for scale, straight in (("Log", np.geomspace), ("Linear", np.linspace)):
        it.button(scale).click()
        it.press(2, 1.0)
        it.move(12, 6.0)
        it.page.mouse.up()
        assert it.sigmas()[2:13] == pytest.approx(straight(1.0, 6.0, 11), rel=0.02)


def test_the_point_tool_and_shift_move_one_epoch_only(screen):
    it = screen()
    before = it.sigmas()
    it.page.keyboard.down("Shift")
    it.stroke((3, 2.0), (9, 0.8))
    it.page.keyboard.up("Shift")
    it.button("Point").click()
    it.stroke((15, 2.0), (4, 7.0))
    changed = [epoch for epoch, (a, b) in enumerate(zip(before, it.sigmas(), strict=True)) if a != b]
    assert changed == [3, 15]
    assert it.wait_for_drawing(2)["sigmas"] == it.sigmas()


def test_a_preset_pushed_by_python_is_not_fought_and_can_be_undone(screen):
    it = screen("certify=1")
    it.stroke((2, 1.0), (10, 6.0))
    drawn = it.wait_for_drawing(1)["sigmas"]
    it.button("Push two").click()
    expect(it.value).to_have_text(f"{price([2.0] * 20):.4f}")
    it.page.wait_for_timeout(600)  # longer than any pause after which the editor sends
    assert it.sigmas() == it.truth()["sigmas"] == [2.0] * 20
    assert it.truth()["seq"] == 0
    it.button("Undo").click()
    assert it.wait_for_drawing(1)["sigmas"] == it.sigmas() == drawn


def test_undo_redo_reset_and_smooth(screen):
    it = screen()
    preset = it.sigmas()
    expect(it.button("Undo")).to_be_disabled()
    it.stroke((5, 0.5), (5, 0.5))
    spiked = it.sigmas()
    assert spiked[5] == pytest.approx(0.5, rel=0.02)
    it.button("Smooth").click()
    smooth = it.sigmas()
    roughness = [np.abs(np.diff(np.log(sigmas), 2)).sum() for sigmas in (smooth, spiked)]
    assert roughness[0] < 0.6 * roughness[1]
    it.button("Undo").click()
    assert it.sigmas() == spiked
    it.button("Redo").click()
    assert it.sigmas() == smooth
    it.button("Reset").click()
    assert it.wait_for_drawing(5)["sigmas"] == it.sigmas() == preset
    expect(it.button("Redo")).to_be_disabled()


def test_a_dropped_stroke_and_a_click_under_the_curve_change_nothing(screen):
    it = screen()
    before = it.sigmas()
    it.press(5, 0.5)
    it.move(9, 0.5)
    it.page.keyboard.press("Escape")
    assert it.sigmas() == before
    it.page.mouse.up()
    box = it.plot.bounding_box()
    it.page.mouse.click(box["x"] + 200, box["y"] + box["height"] - 50)
    it.page.wait_for_timeout(300)
    assert it.sigmas() == before
    assert it.truth()["seq"] == 0


def test_the_keyboard_alone_edits_the_schedule(screen):
    it = screen("certify=1")
    before = it.sigmas()
    it.button("Reset").focus()
    it.page.keyboard.press("Tab")
    expect(it.plot).to_be_focused()
    for key in ("End", "ArrowLeft", "Shift+ArrowLeft", "ArrowUp", "ArrowUp", "PageDown"):
        it.page.keyboard.press(key)
    expect(it.value).to_contain_text("≈")
    changed = before[8] * 1.01 * 1.01 / 1.25
    assert it.wait_for_drawing(1)["sigmas"] == it.sigmas(), "a burst of keys is one drawing"
    assert it.sigmas()[8] == pytest.approx(changed, rel=1e-3)
    assert it.plot.get_attribute("aria-valuetext").startswith("epoch 9 of 20, sigma ")
    assert it.plot.evaluate("svg => getComputedStyle(svg).outlineStyle") == "solid"
    it.page.keyboard.press("Control+z")
    assert it.wait_for_drawing(2)["sigmas"] == before
    it.page.keyboard.press("Control+Shift+z")
    assert it.wait_for_drawing(3)["sigmas"][8] == pytest.approx(changed, rel=1e-3)
    it.page.keyboard.press("Control+z")
    it.page.keyboard.press("Control+y")
    assert it.wait_for_drawing(5)["sigmas"] == it.sigmas()


PHONE = {"viewport": {"width": 390, "height": 600}, "has_touch": True, "is_mobile": True}


def swipe(it: Screen, *places: tuple[float, float]) -> None:
    touch = it.page.context.new_cdp_session(it.page)
    for kind, place in (("touchStart", places[0]), *(("touchMove", place) for place in places[1:]), ("touchEnd", None)):
        points = [dict(zip("xy", place, strict=True))] if place else []
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def test_a_finger_draws_across_without_scrolling_the_page(screen):
    it = screen("pins=1", **PHONE)
    it.plot.scroll_into_view_if_needed()
    top = it.plot.bounding_box()["y"]
    swipe(it, it.place(3, 3.0), it.place(9, 1.5))
    truth = it.wait_for_drawing(1)
    assert truth["sigmas"][3:10] == pytest.approx(np.geomspace(3, 1.5, 7), rel=0.03)
    swipe(it, it.place(12, 2.0))
    assert it.wait_for_drawing(2)["sigmas"][12] == pytest.approx(2, rel=0.03), "a tap sets an epoch"
    assert it.plot.bounding_box()["y"] == top
    assert it.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_finger_that_swipes_up_scrolls_the_page_and_draws_nothing(screen):
    it = screen("pins=1", **PHONE)
    before, top = it.sigmas(), it.plot.bounding_box()["y"]
    x, y = it.place(9, 1.0)
    swipe(it, *((x + step / 20, y - step) for step in range(0, 200, 10)))
    it.page.wait_for_timeout(300)
    assert it.plot.bounding_box()["y"] < top - 50
    assert it.sigmas() == before
    assert it.truth()["seq"] == 0
    it.button("Point").click()
    x, y = it.place(9, 2.0)
    swipe(it, *((x, y - step) for step in range(0, 60, 10)))
    assert it.wait_for_drawing(1)["sigmas"][9] > 2.5, "the Point tool moves an epoch up and down"


def test_a_page_switch_brings_the_drawing_back(screen):
    it = screen("certify=1")
    it.stroke((2, 1.0), (10, 6.0))
    drawn = it.wait_for_drawing(1)["sigmas"]
    it.page.get_by_role("link", name="Other").click()
    expect(it.page.get_by_text("Nothing to draw here")).to_be_visible()
    it.page.get_by_role("link", name="Draw").click()
    it.wait_until_ready()
    expect(it.value).to_have_text(f"{price(drawn):.4f}")
    assert it.sigmas() == drawn
    it.stroke((15, 3.0), (17, 3.0))
    assert it.wait_for_drawing(2)["sigmas"] == it.sigmas()


def test_an_answer_to_an_older_drawing_never_replaces_the_number_under_the_pen(screen):
    it = screen("certify=1&wait=0.5")
    expect(it.value).not_to_contain_text("≈")
    it.stroke((2, 1.0), (10, 6.0))
    it.press(12, 0.5)
    it.move(14, 0.5)
    it.wait_for_drawing(1)  # Python has answered the first stroke
    expect(it.value).to_contain_text("≈")
    it.page.mouse.up()
    expect(it.value).to_have_text(f"{price(it.sigmas()):.4f}")


@pytest.mark.parametrize("epochs", [1, 300])
def test_one_epoch_and_three_hundred_can_be_drawn(screen, epochs):
    it = screen(f"epochs={epochs}&certify=1&target=3")
    it.stroke((0, 2.0), (epochs - 1, 0.7))
    sigmas = it.wait_for_drawing(1)["sigmas"]
    assert len(sigmas) == epochs
    assert sigmas[-1] == pytest.approx(0.7, rel=0.02)
    expect(it.value).to_have_text(f"{price(sigmas):.4f}")


def test_no_noise_costs_infinity_and_can_be_raised(screen):
    it = screen()
    it.button("Push zero").click()
    expect(it.value).to_have_text("∞")
    assert "NaN" not in it.plot.inner_html()
    it.stroke((0, 1.0), (19, 1.0))
    assert number(it.value.inner_text()) == pytest.approx(price(it.sigmas()), rel=2e-3)


def test_a_bad_message_from_the_browser_is_ignored(screen):
    it = screen()
    before = it.truth()
    for sigmas in ("'x'", "[]", "Array(20).fill('1')", "Array(20).fill(-1)", "Array(20).fill(null)"):
        it.ask(f"editor.send({{ rev: editor.rev, seq: 1, sigmas: {sigmas} }})")
        it.page.wait_for_timeout(150)
    assert it.truth() == before
    it.stroke((2, 1.0), (10, 6.0))
    assert it.wait_for_drawing(1)["sigmas"] == it.sigmas()
    expect(it.page.get_by_test_id("stException")).to_have_count(0)


def test_other_curves_are_named_with_their_epsilons(screen):
    it = screen("pins=1&target=3")
    items = it.page.locator(".legend li")
    expect(items).to_have_text(["your curve", "linear preset", "<b>pin</b>ε 0.990", "no noiseε ∞"])
    expect(it.plot.get_by_text("target 3")).to_be_visible()
    expect(it.page.locator("#description")).to_contain_text("20 epochs. Sigma starts at 5 and ends at 1")


def test_the_editor_follows_dark_mode(screen, tmp_path):
    def brightness(it: Screen, selector: str, what: str) -> float:
        script = f"getComputedStyle(editor.root.querySelector('{selector}')).{what}"
        return sum(float(part) for part in it.ask(script).strip("rgba()").split(",")[:3]) / (3 * 255)

    for scheme in ("light", "dark"):
        it = screen("pins=1&target=3", color_scheme=scheme)
        panel, text = brightness(it, ".panel", "backgroundColor"), brightness(it, ".place", "color")
        assert (panel < 0.2 and text > 0.7) if scheme == "dark" else (panel > 0.9 and text < 0.4)
        it.page.screenshot(path=tmp_path / f"{scheme}.png")


@pytest.mark.speed
def test_a_pointer_move_at_a_hundred_epochs_takes_at_most_four_milliseconds(screen):
    it = screen("epochs=100&pins=1&target=3")
    slow = []
    for _ in range(5):  # other tests run beside this one: the least disturbed stroke counts
        before = len(it.ask("editor.stats.moves"))
        it.press(5, 2.0)
        for turn in range(4):
            it.move(95 if turn % 2 == 0 else 5, 0.6 + turn, steps=32)
        it.page.mouse.up()
        moves = it.ask("editor.stats.moves")[before:]
        assert len(moves) >= 100
        slow.append(float(np.quantile(moves, 0.95)))
    assert min(slow) <= 4.0


# --- the state, without a browser


def pushed(sigmas: Iterable[float]) -> EditorState:
    state = EditorState((), "")
    state.push(sigmas)
    return state


def test_a_drawing_is_accepted_once_it_answers_the_last_push():
    state = pushed([1.0, 2.0])
    stale = state.rev
    assert state.accept({"rev": state.rev, "seq": 1, "sigmas": [3.0, 4]})
    assert (state.sigmas, state.seq) == ((3.0, 4.0), 1)
    state.push([5.0, 6.0])
    assert state.rev != stale
    assert not state.accept({"rev": stale, "seq": 2, "sigmas": [7.0, 8.0]})
    assert (state.sigmas, state.seq) == ((5.0, 6.0), 0)


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        "draw",
        {},
        {"seq": 1, "sigmas": [1.0, 2.0]},
        {"rev": "", "seq": 1, "sigmas": [1.0, 2.0]},
        {"rev": "now", "seq": "1", "sigmas": [1.0, 2.0]},
        {"rev": "now", "seq": 1, "sigmas": 3},
        {"rev": "now", "seq": 1, "sigmas": []},
        {"rev": "now", "seq": 1, "sigmas": [1.0] * (MAX_EPOCHS + 1)},
        {"rev": "now", "seq": 1, "sigmas": [1.0, "2"]},
        {"rev": "now", "seq": 1, "sigmas": [1.0, True]},
        {"rev": "now", "seq": 1, "sigmas": [1.0, math.nan]},
        {"rev": "now", "seq": 1, "sigmas": [1.0, math.inf]},
        {"rev": "now", "seq": 1, "sigmas": [1.0, 10**400]},
        {"rev": "now", "seq": 1, "sigmas": [1.0, -1.0]},
        {"rev": "now", "seq": 1, "sigmas": [1.0, 1001.0]},
    ],
)
def test_a_malformed_drawing_leaves_the_state_alone(message):
    state = EditorState((1.0, 2.0), "now")
    assert not state.accept(message)
    assert state == EditorState((1.0, 2.0), "now")


@pytest.mark.parametrize("sigmas", [[], [1.0] * (MAX_EPOCHS + 1), [math.nan], [2000.0]])
def test_a_push_that_the_editor_cannot_show_is_refused(sigmas):
    with pytest.raises(InputError):
        pushed(sigmas)


def test_every_part_of_the_component_is_shipped():
    folder = Path(editor.__file__).parent
    text = (folder / "__init__.py").read_text(encoding="utf-8")
    parts = [path.name for path in folder.iterdir() if path.suffix in (".js", ".css", ".html")]
    assert [part for part in parts if f'"{part}"' not in text] == []
