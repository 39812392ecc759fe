"""What lies on the Schedule page's drawing board, and what its buttons do to it.

One `Board` per session. Buttons call `act`, which turns an InputError into a sentence on the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import streamlit as st

from dpviz.privacy import MEASURES, SCHEDULES, InputError, Schedule, calibrate, matching_constant
from dpviz.privacy.rounding import rounded_up
from dpviz.privacy.schedules import CUSTOM, check_sigmas, parse_csv
from dpviz.training.limits import refuse_if_read_only
from dpviz.training.local.parsing import check_size
from dpviz.ui.common.editor import MAX_EPOCHS, MAX_SIGMA, Curve, EditorState
from dpviz.ui.common.handover import ScheduleHandover
from dpviz.ui.common.knobs import knob_values
from dpviz.ui.schedule.settings import OWN_DATA, Settings, read_settings, session_key, write_settings
from dpviz.ui.schedule.share import decode, encode
from dpviz.views.numbers import epsilon_text, sigma_text

BOARD = "schedule.board"
PRESET = "schedule.preset"
MAX_PINS = 4


@dataclass(frozen=True)
class Origin:
    """Where a drawing started from, at any length: a preset follows its formula, any other curve is stretched."""

    name: str
    schedule: Schedule

    def sigmas(self, epochs: int) -> tuple[float, ...]:
        if self.schedule.name == CUSTOM:
            return stretch(self.schedule.values, epochs)
        return tuple(self.schedule.sigmas(epochs).tolist())


FIRST = Origin("linear preset", Schedule.of("linear"))


@dataclass
class Board:
    """The drawing, what it started from, the pinned curves, and what the last button had to say.

    `source` is the last curve that was not stretched: a change of length goes back to it, so that nothing is lost on
    the way from 20 epochs over 25 to 20, or from 25 over 20 to 25.
    """

    editor: EditorState
    origin: Origin
    source: tuple[float, ...] = ()
    pins: list[Curve] = field(default_factory=list)
    note: str = ""
    problem: str = ""
    place: str = ""  # of the sentences: under the board, or in the part of the page that asked
    link: str = ""

    @property
    def sigmas(self) -> tuple[float, ...]:
        return self.editor.sigmas

    @property
    def ghost(self) -> Curve:
        """The origin, drawn behind the curve."""
        return Curve(self.origin.name, self.origin.sigmas(len(self.sigmas)))

    @property
    def untouched(self) -> bool:
        return self.sigmas == self.ghost.sigmas

    def say(self, note: str = "", problem: str = "", place: str = "") -> None:
        self.note, self.problem, self.place, self.link = note, problem, place, ""

    def take(self, origin: Origin, epochs: int, note: str = "") -> None:
        """Start from another curve."""
        self.editor.push(origin.sigmas(epochs))
        self.origin, self.source = origin, self.sigmas
        self.say(note)

    def resize(self, epochs: int) -> None:
        """Another length: the origin at that length, or the drawing stretched from where it was drawn."""
        if self.sigmas != stretch(self.source, len(self.sigmas)):
            self.source = self.sigmas
        self.editor.push(self.origin.sigmas(epochs) if self.untouched else stretch(self.source, epochs))

    @property
    def name(self) -> str:
        """What a pin of the drawing is called: its origin while it is untouched."""
        taken = {pin.name for pin in self.pins}
        first = self.origin.name if self.untouched else "drawing"
        return next(name for name in (first, *(f"{first} {k}" for k in range(2, 99))) if name not in taken)


def current_board() -> Board:
    """The session's board. A new session opens the share link in the address, if there is one."""
    if BOARD not in st.session_state:
        new = Board(EditorState((), ""), FIRST)
        st.session_state[BOARD] = new
        write_settings(Settings())
        st.session_state.setdefault(PRESET, FIRST.schedule.name)
        new.take(FIRST, Settings.epochs)
        if "s" in st.query_params:
            act(open_link, st.query_params["s"])
    return st.session_state[BOARD]  # type: ignore[no-any-return]


def act(action: Callable[..., None], *arguments: Any, place: str = "") -> None:
    """Do what a button says; what a person has to correct is shown, not raised."""
    try:
        action(current_board(), *arguments)
    except InputError as error:
        current_board().say(problem=str(error), place=place)


def drawn(board: Board) -> None:
    """A drawing arrived; one that was undone may have another length."""
    board.say()
    st.session_state[session_key("epochs")] = len(board.sigmas)


def open_link(board: Board, text: str) -> None:
    sigmas, fields = decode(text)
    settings = Settings.from_link(len(sigmas), fields)
    note = "This schedule and its settings come from the address."
    if fields.get("adjacency", settings.adjacency) != settings.adjacency:
        note += (
            f" It asked for {fields['adjacency']} neighbours, which have no price with {settings.sampling} batches; "
            f"the same epsilon holds for {settings.adjacency} neighbours, as shown here."
        )
    _take_list(board, "curve of the address", sigmas, note)
    write_settings(settings)


# --- other curves


def push_preset(board: Board) -> None:
    """The preset that is chosen, with its knobs as they are."""
    entry = SCHEDULES[st.session_state[PRESET]]
    schedule = Schedule.of(entry.name, **knob_values(entry, PRESET))
    board.take(Origin(f"{entry.title.lower()} preset", schedule), len(board.sigmas))


def change_epochs(board: Board) -> None:
    """Another number of epochs; one that cannot be used changes nothing."""
    epochs = read_settings().epochs
    if epochs != len(board.sigmas):
        board.resize(epochs)
        board.say()


def paste(board: Board, text: str) -> None:
    """A list of sigmas, from a text or a file; the number of epochs follows."""
    sigmas = parse_csv(text).values
    _take_list(board, "your list", sigmas, f"{len(sigmas)} epochs were read.")


def _take_list(board: Board, name: str, sigmas: Sequence[float], note: str = "") -> None:
    board.take(Origin(name, Schedule.custom(sigmas)), len(sigmas), note)
    st.session_state[session_key("epochs")] = len(sigmas)


def paste_bytes(board: Board, data: bytes) -> None:
    """A file that was uploaded."""
    refuse_if_read_only()
    check_size(len(data))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("the file is not text; give a CSV file with one sigma per line") from None
    paste(board, text)


# --- buttons


def fit(board: Board) -> None:
    """Keep the shape, meet the target."""
    settings = read_settings()
    measure = MEASURES[settings.measure]
    symbol = measure.symbol
    if settings.budget is None:
        raise InputError(f"there is no target; type one under Target {symbol} first")
    found = calibrate(board.sigmas, settings.sample_rate, settings.budget, settings.delta, settings.assumptions)
    board.editor.push([rounded_up(sigma) for sigma in found.sigmas])
    cost, risk = settings.price(board.sigmas), settings.live_risk(board.sigmas)
    price = f"ε {epsilon_text(cost)}"
    achieved = f"{symbol} {risk.text} at {price}" if risk else price
    share = (risk or cost).upper / settings.budget.value
    target = settings.budget.value
    goal = f"{target:g}" if measure.most == math.inf else f"{100 * target:g} %"
    board.say(f"Scaled by {found.factor:.4g}: {achieved}; its upper end is {100 * share:.2f} % of the target {goal}.")


def match(board: Board) -> None:
    """Pin the constant that costs the same."""
    settings = read_settings()
    found = matching_constant(board.sigmas, settings.sample_rate, settings.delta, settings.assumptions)
    constant = rounded_up(found.sigmas[0])
    curve = Curve(f"constant {constant:g}", (constant,) * len(board.sigmas))
    known = any(pin.name == curve.name for pin in board.pins)
    if not known and len(board.pins) < MAX_PINS:
        board.pins.append(curve)
    board.say(
        f"A constant σ = {sigma_text(constant)} costs the same: ε {epsilon_text(settings.price(curve.sigmas))}, "
        f"this curve {epsilon_text(settings.price(board.sigmas))}."
    )


def mirror(board: Board) -> None:
    """Turn the curve round."""
    settings = read_settings()
    before = settings.price(board.sigmas)
    board.editor.push(board.sigmas[::-1])
    after = settings.price(board.sigmas)
    board.say(
        f"Mirrored: ε was {epsilon_text(before)} and is {epsilon_text(after)}. The order of the epochs does not change "
        "epsilon; it may well change the accuracy."
    )


def pin(board: Board) -> None:
    if len(board.pins) >= MAX_PINS:
        raise InputError(f"{MAX_PINS} schedules are pinned; remove one before you pin another")
    board.pins.append(Curve(board.name, board.sigmas))
    board.say()


def unpin(board: Board, index: int) -> None:
    del board.pins[index]
    board.say()


def use_pin(board: Board, index: int) -> None:
    _take_list(board, board.pins[index].name, board.pins[index].sigmas)


def pins_text(board: Board) -> str:
    """The pins for the browser's tab to keep, so that a reload does not lose them; empty: there are none."""
    return json.dumps([[pin.name, list(pin.sigmas)] for pin in board.pins]) if board.pins else ""


def restore_pins(board: Board, text: str) -> None:
    """The pins that the tab kept; it may be anybody's text, so whatever is odd about it is refused."""
    try:
        pairs = json.loads(text)
        pins = [Curve(str(name)[:60], check_sigmas(sigmas).tolist()) for name, sigmas in pairs]
    except (ValueError, TypeError, RecursionError):
        raise InputError("the pinned curves that this tab kept cannot be read") from None
    if not board.pins:
        board.pins = [pin for pin in pins if len(pin.sigmas) <= MAX_EPOCHS and max(pin.sigmas) <= MAX_SIGMA][:MAX_PINS]


def address(board: Board, settings: Settings) -> str:
    """What the address says of the board, so that a reload keeps it; empty for a new board.

    Empty as well for sigmas that a link cannot hold: what is in the address is what lies on the board.
    """
    if (board.sigmas, settings) == (FIRST.sigmas(Settings.epochs), Settings()):
        return ""
    try:
        return encode(board.sigmas, settings.to_link())
    except InputError:
        return ""


def share(board: Board) -> None:
    """Show the address of the schedule and its settings."""
    settings = read_settings()
    text = encode(board.sigmas, settings.to_link())
    held, _ = decode(text)
    board.say(
        f"The address holds this schedule (four digits of each σ: ε {epsilon_text(settings.price(held))}). Copy it:"
    )
    board.link = f"{(st.context.url or '').partition('?')[0].rstrip('/')}/?s={text}"


# --- out of the page


def no_sweep(board: Board) -> str:
    """Why the curve has no constant to be compared with; empty if it has one."""
    if 0 in board.sigmas:
        return "An epoch without noise costs infinity: there is no constant of the same ε."
    return "A flat curve is its own constant." if len(set(board.sigmas)) == 1 else ""


def handover(board: Board, settings: Settings, *, sweep: bool = False) -> ScheduleHandover:
    """What the Train page needs to fill in its form, and to say what it changes."""
    return ScheduleHandover(
        Schedule.custom(board.sigmas),
        len(board.sigmas),
        settings.dataset,
        settings.dataset_size,
        settings.batch_size,
        settings.delta,
        settings.assumptions,
        sweep,
    )


def as_json(board: Board, settings: Settings) -> dict[str, Any]:
    """The schedule, its settings, its epsilon and what that means, to keep."""
    cost = settings.price(board.sigmas)
    ends = {"lower": cost.lower, "upper": cost.upper}
    return {
        "schedule": Schedule.custom(board.sigmas).to_json(),
        "dataset": None if settings.dataset == OWN_DATA else settings.dataset,
        "dataset_size": settings.dataset_size,
        "batch_size": settings.batch_size,
        "epochs": settings.epochs,
        "delta": settings.delta,
        **asdict(settings.assumptions),
        "epsilon": {
            **{name: "infinity" if math.isinf(end) else end for name, end in ends.items()},
            "wide": cost.wide,
            "fallback": cost.fallback,
        },
        "risk": settings.risk(board.sigmas).to_json(),
    }


# --- small sums


def stretch(sigmas: Sequence[float], epochs: int) -> tuple[float, ...]:
    """The same curve over another number of epochs: straight between its points, in ratios where there is noise."""
    if len(sigmas) == epochs:
        return tuple(sigmas)
    values = np.asarray(sigmas, dtype=float)
    old, new = np.linspace(0, 1, values.size), np.linspace(0, 1, epochs)
    between = np.exp(np.interp(new, old, np.log(values))) if (values > 0).all() else np.interp(new, old, values)
    return tuple(float(f"{sigma:.4g}") for sigma in between)
