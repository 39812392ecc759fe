"""The schedule editor: a person draws one sigma per epoch, and epsilon, or the share of a budget, follows the pen.

An inline Streamlit component: no iframe, no build step, no request to any other host. The state of a drawing lives in
`st.session_state` as an `EditorState`, so it outlasts page switches; the component's own state is only ever read.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import streamlit as st

from dpviz.forecast.library import response_name
from dpviz.forecast.response import Response
from dpviz.forecast.seen import shifts
from dpviz.privacy.registry import InputError
from dpviz.privacy.schedules import check_sigmas
from dpviz.ui.common.svg_component import svg_component

MAX_EPOCHS = 300
MAX_SIGMA = 1000.0

_PARTS = (
    "editor.html",
    "editor.css",
    "geometry.js",
    "curves.js",
    "history.js",
    "memory.js",
    "address.js",
    "accounting.js",
    "picture.js",
    "readout.js",
    "forecast.js",
    "editor.js",
    "mount.js",
)

_mount = svg_component("dpviz_schedule_editor", Path(__file__).parent, _PARTS)


@dataclass(frozen=True)
class Curve:
    """A schedule shown beside the drawn one; `epsilon` is None where it is not known."""

    name: str
    sigmas: Sequence[float]
    epsilon: float | None = None


@dataclass(frozen=True)
class Certified:
    """Python's epsilon for the current drawing.

    `text` is the number as shown, for example 2.344 or 1.003–1.005; `kind` says what it is: certified, RDP upper bound.
    """

    lower: float
    upper: float
    text: str
    kind: str = "certified"


@dataclass(frozen=True)
class LiveRisk:
    """A risk that the editor shows in epsilon's place: Python's number for the current drawing, and how it moves.

    `mu` is the Gaussian mechanism's that has this risk: the browser scales it as the pen moves, and `shape` turns it
    into the risk again. `threshold` is where the attacker's false alarms are those accepted, `note` says how many.
    """

    symbol: str
    shape: str
    upper: float
    text: str
    kind: str
    mu: float
    threshold: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class LiveForecast:
    """What the browser needs to say which accuracy to expect: a response, and by how many doublings the batches differ
    from those that it was measured with; of a run at work also the accuracies seen, and what they change per epoch."""

    recipe: str
    parameters: Sequence[float]
    half_widths: Sequence[float]
    least_sigma: float
    most_sigma: float
    rests_on: int
    batch_doublings: float = 0.0
    seen: Sequence[float] = ()
    shifts: Sequence[float] = ()

    @classmethod
    def of(
        cls, response: Response, batch_size: int, sigmas: Sequence[float] = (), seen: Sequence[float] = ()
    ) -> LiveForecast:
        """`sigmas` and `seen` are of a run at work: one sigma per epoch, one accuracy per epoch that has ended."""
        return cls(
            recipe=response_name(response),
            parameters=response.parameters,
            half_widths=response.half_widths,
            least_sigma=response.least_sigma,
            most_sigma=response.most_sigma,
            rests_on=len(response.runs),
            batch_doublings=abs(math.log2(batch_size / response.batch_size)),
            seen=tuple(seen),
            shifts=tuple(shifts(response, sigmas, seen).tolist()) if seen else (),
        )


@dataclass(frozen=True)
class LiveBudget:
    """Of a run under a filter: what may be spent at its order, which the number follows; and its basis in words."""

    budget: float
    basis: str


@dataclass
class EditorState:
    """The one truth about a drawing. `rev` names what Python pushed last, `seq` counts the drawings since."""

    sigmas: tuple[float, ...]
    rev: str
    seq: int = 0

    def push(self, sigmas: Iterable[Any]) -> None:
        """Replace the drawing from Python: a preset, an upload, another number of epochs."""
        self.sigmas = _editable(sigmas)
        # A fresh name rather than a count: a browser tab may outlive the server's session and remember old counts.
        self.rev = uuid4().hex[:12]
        self.seq = 0

    def lock(self, begun: Sequence[float]) -> None:
        """The first epochs as they have begun, whatever was drawn there; the browser does the same."""
        self.sigmas = (*begun, *self.sigmas[len(begun) :])

    def accept(self, message: object) -> bool:
        """Take over a drawing that the browser sent; False if it is malformed or was overtaken by a push.

        What was undone may have another length.
        """
        match message:
            case {"rev": self.rev, "seq": int(seq), "sigmas": list(sigmas)} if all(
                type(sigma) in (int, float) for sigma in sigmas
            ):
                try:
                    self.sigmas, self.seq = _editable(sigmas), seq
                except InputError as error:
                    logging.getLogger(__name__).warning("ignored a drawing: %s", error)
                    return False
                return True
        return False


def schedule_editor(
    state: EditorState,
    *,
    key: str,
    table: Mapping[str, Any],
    steps_per_epoch: int,
    delta: float,
    ghost: Curve | None = None,
    pinned: Sequence[Curve] = (),
    target: float | None = None,
    certified: Certified | None = None,
    measure: LiveRisk | None = None,
    forecast: LiveForecast | None = None,
    low: float = 0.3,
    high: float = 10.0,
    height: int = 400,
    budget: LiveBudget | None = None,
    locked: Sequence[float] = (),
    slot: str = "schedule",
    draft: bool = False,
    link: str | None = None,
    kept: str = "",
    on_draw: Callable[[list[float]], None] | None = None,
    on_open: Callable[[str], None] | None = None,
    on_restore: Callable[[str], None] | None = None,
) -> None:
    """Mount the editor for `state`.

    `table` is `dpviz.privacy.rdp_table(sample_rate)`; `certified` and `measure` belong to `state.sigmas` as they are
    now; without `measure` the live number is epsilon, and `target` is in the measure that is shown; `forecast` adds a
    strip with the accuracy to expect. `low` and `high` are the least range of the noise axis. `on_draw` is called with
    the new sigmas after `state` has them. With `budget` the number is the share of it, and `table` has its order alone;
    `locked` are the sigmas of the first epochs, which cannot be drawn on.

    The address shows `link` as its parameter s (None: this drawing has none), and the browser's tab remembers it:
    `on_open` is called with what the tab remembers when a new page finds no link here. Under the name `slot` the tab
    also keeps what can be undone, and the text `kept`, which `on_restore` gets after a reload. A `draft` is kept by the
    tab alone, and drawn again after a reload.
    """

    def receive() -> None:
        message = st.session_state[key].get("draw")
        match message:
            case {"open": str(remembered)} if on_open is not None:
                on_open(remembered)
        match message:
            case {"restore": str(text)} if on_restore is not None:
                on_restore(text)
        if state.accept(message) and on_draw is not None:
            on_draw(list(state.sigmas))

    drawn = st.session_state[key].get("draw") if key in st.session_state else None
    data = {
        "rev": state.rev,
        "seq": state.seq,
        "sigmas": list(state.sigmas),
        "table": _table_data(table, drawn),
        "steps": steps_per_epoch,
        "delta": delta,
        "ghost": _curve_data(ghost) if ghost else None,
        "pinned": [_curve_data(curve) for curve in pinned],
        "target": target,
        "certified": _record_data(certified) if certified else None,
        "measure": _record_data(measure) if measure else None,
        "forecast": asdict(forecast) if forecast else None,
        "budget": asdict(budget) if budget else None,
        "basis": budget.basis if budget else "",
        "locked": list(locked),
        "slot": slot,
        "draft": draft,
        "kept": kept,
        "low": low,
        "high": high,
        "height": height,
        "link": link,
    }
    # In a list: Streamlit searches a mapping for data frames, and imports pandas for that.
    _mount(key=key, data=[data], on_draw_change=receive, width="stretch", height="content")


def _editable(sigmas: Iterable[Any]) -> tuple[float, ...]:
    values = tuple(check_sigmas(sigmas).tolist())
    if len(values) > MAX_EPOCHS:
        raise InputError(f"the editor shows at most {MAX_EPOCHS} epochs, got {len(values):,}; take fewer epochs")
    for epoch, sigma in enumerate(values, start=1):
        if sigma > MAX_SIGMA:
            raise InputError(f"the editor shows sigmas up to {MAX_SIGMA:g}, got {sigma:g} (epoch {epoch})")
    return values


def _table_data(table: Mapping[str, Any], drawn: object) -> Mapping[str, Any]:
    """The table, or its name alone if the browser's last message says that it is there: it is most of what is sent."""
    match drawn:
        case {"tables": list(held)} if table["name"] in held:
            return {"name": table["name"]}
    return table


def _curve_data(curve: Curve) -> dict[str, Any]:
    epsilon = None if curve.epsilon is None else _json_number(curve.epsilon)
    return {"name": curve.name, "sigmas": [float(sigma) for sigma in curve.sigmas], "epsilon": epsilon}


def _record_data(record: Certified | LiveRisk) -> dict[str, Any]:
    return {name: value if isinstance(value, str) else _json_number(value) for name, value in asdict(record).items()}


def _json_number(number: float) -> float | str:
    """JSON has no infinity; JavaScript reads this word as one."""
    return "Infinity" if number == math.inf else float(number)
