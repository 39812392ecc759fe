"""Fourier rows of steps' losses, tilted by e^(tilt L), in a cache: moving one epoch costs one row.

Cells are cached apart from their tilt, so a grid that differs in tilt or window alone makes no new ones. What is
missing is made together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpviz.privacy.pld.dominating_pairs import Direction, FloatArray, Steps
from dpviz.privacy.pld.loss_grid import NOTHING, Cells, Grid, Strip, lower_cells, reach, tail_cells, upper_cells

TOGETHER = 2**16  # slots that are worked on at once: few enough to stay in the processor's cache
CACHE_BYTES = 256 * 2**20
Step = tuple[float, float]  # sigma, q


@dataclass(frozen=True)
class Row:
    """One step's tilted loss distribution in Fourier space, and what is needed to undo the tilt and bound the rest."""

    spectrum: NDArray[np.complex128]
    anchor: float  # the loss at grid index 0
    log_mass: float  # log E[e^(tilt L)]
    log_mass_up: float  # the same at the upper tilt
    log_mass_down: float  # the same at the lower tilt
    infinite: float

    @property
    def nbytes(self) -> int:
        return self.spectrum.nbytes


Made = TypeVar("Made", Cells, Row, FloatArray)


def tilted_rows(cells: Sequence[Cells], grid: Grid) -> list[Row]:
    """Each step's cells, tilted, folded into the window and transformed."""
    strip = Strip.of(np.array([step.log_mass.size for step in cells]))
    start, anchor = np.array([step.start for step in cells]), np.array([step.anchor for step in cells])
    index = start[strip.owner] + strip.place
    losses = anchor[strip.owner] + grid.interval * index
    log_mass = np.concatenate([step.log_mass for step in cells])

    def log_sum(tilt: float) -> tuple[FloatArray, FloatArray]:
        exponents = log_mass + tilt * losses if tilt else log_mass
        top = np.maximum.reduceat(exponents, strip.begin)
        weights = np.exp(exponents - top[strip.owner])
        total = np.add.reduceat(weights, strip.begin)
        return top + np.log(total), weights / total[strip.owner]

    total, tilted = log_sum(grid.tilt)
    slot = strip.owner * grid.points + index % grid.points
    folded = np.bincount(slot, weights=tilted, minlength=len(cells) * grid.points).reshape(-1, grid.points)
    spectra = np.fft.rfft(folded, axis=1)
    up, down = log_sum(grid.tilt_up)[0], log_sum(grid.tilt_down)[0]
    return [
        Row(spectra[k], step.anchor, float(total[k]), float(up[k]), float(down[k]), step.infinite)
        for k, step in enumerate(cells)
    ]


class Cache(Generic[Made]):
    """What was made, by what it was made from; oldest out first once it takes too much memory."""

    def __init__(self, limit: int) -> None:
        self._made: OrderedDict[tuple[object, ...], Made] = OrderedDict()
        self._bytes, self._limit, self._lock = 0, limit, Lock()

    def all(
        self, steps: Sequence[Step], key: tuple[object, ...], make: Callable[[list[Step]], Iterable[Made]]
    ) -> dict[Step, Made]:
        """What belongs to these steps under this key; what is missing is made together."""
        with self._lock:
            found = {step: self._made[key, step] for step in steps if (key, step) in self._made}
            for step in found:
                self._made.move_to_end((key, step))
        missing = list(dict.fromkeys(step for step in steps if step not in found))
        for step, made in zip(missing, make(missing) if missing else (), strict=True):
            found[step] = made
            with self._lock:
                if (key, step) not in self._made:
                    self._made[key, step] = made
                    self._bytes += made.nbytes
                while self._bytes > self._limit:
                    self._bytes -= self._made.popitem(last=False)[1].nbytes
        return found

    def clear(self) -> None:
        with self._lock:
            self._made.clear()
            self._bytes = 0


CELLS: Cache[Cells] = Cache(CACHE_BYTES // 4)
ROWS: Cache[Row] = Cache(CACHE_BYTES)
KINDS = {"upper": upper_cells, "lower": lower_cells, "tail": tail_cells}


def rows(bound: str, direction: Direction, steps: Sequence[Step], grid: Grid) -> dict[Step, Row]:
    """The row of each step, by (sigma, q): a bound from above or from below."""
    found = _rows(bound, direction, steps, grid)
    useless = [step for step, row in found.items() if bound == "lower" and row.log_mass <= 0]
    if useless:
        tails = _rows("tail", direction, useless, grid)
        (nothing,) = tilted_rows([NOTHING], grid)
        found |= {step: max(nothing, tails[step], key=lambda row: row.log_mass) for step in useless}
    return found


def _rows(kind: str, direction: Direction, steps: Sequence[Step], grid: Grid) -> dict[Step, Row]:
    def make(missing: list[Step]) -> Iterator[Row]:
        cells = _cells_of(kind, direction, missing, grid)
        together = max(1, 4 * TOGETHER // grid.points)
        for at in range(0, len(missing), together):
            yield from tilted_rows([cells[step] for step in missing[at : at + together]], grid)

    return ROWS.all(steps, (kind, direction.name, grid), make)


def _cells_of(kind: str, direction: Direction, steps: Sequence[Step], grid: Grid) -> dict[Step, Cells]:
    def make(missing: list[Step]) -> Iterator[Cells]:
        sigma, q = np.array(missing).T
        every = Steps(sigma, q)
        first, last = reach(direction, every, np.zeros(sigma.size), grid)
        block = np.cumsum(last - first) // TOGETHER
        for number in np.unique(block):
            yield from KINDS[kind](direction, every[block == number], grid)

    return CELLS.all(steps, (kind, direction.name, grid.interval, grid.cut), make)


def clear() -> None:
    """Forget every row, as in a fresh process."""
    CELLS.clear()
    ROWS.clear()
