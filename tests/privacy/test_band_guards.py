"""Each guard of the certified band, on a ledger or a grid where leaving it out would give a wrong bound.

Bounds must hold on every grid, also on one that is too narrow, too coarse or tilted the wrong way. Full batches are
the measure: their steps go through the same code, and their epsilon has a closed form.
"""

import dataclasses
import math

import numpy as np
import pytest
from mpmath import mp, mpf

from dpviz.privacy import Epsilon, Ledger, Phase, epsilon
from dpviz.privacy.accountants import settled
from dpviz.privacy.gaussian import composed_mu, gaussian_epsilon, log_delta
from dpviz.privacy.pld import bands, composition
from dpviz.privacy.pld.bands import bound_curve
from dpviz.privacy.pld.composition import delta_at, epsilon_at
from dpviz.privacy.pld.dominating_pairs import ADD, REMOVE, REPLACE, Direction, Masses, Steps
from dpviz.privacy.pld.grids import Shape, usual_moments
from dpviz.privacy.pld.loss_grid import Cells, Grid, GridTooLarge, Strip, _lend, lower_cells, upper_cells
from dpviz.privacy.pld.spectra import tilted_rows
from dpviz.privacy.prices import _rising


def band_on(
    grid: Grid, phase: Phase, question: composition.Question, direction: Direction = REMOVE
) -> tuple[float, float]:
    lower, upper = (bound_curve(bound, direction, grid, [phase], question, [0])[0] for bound in ("lower", "upper"))
    return lower, upper


def exact_mu(phase: Phase, direction: Direction) -> float:
    adjacency = "replace-one" if direction is REPLACE else "add-remove"
    return composed_mu([(phase.noise_multiplier, phase.steps)], adjacency)


def random_case(number: int) -> tuple[Grid, Phase, Direction, float]:
    """A full-batch ledger, a delta, and a grid that need not suit them."""
    rng = np.random.default_rng([7, number])
    direction = (REMOVE, ADD, REPLACE)[int(rng.integers(3))]
    phase = Phase(float(np.exp(rng.uniform(-1, 3))), 1.0, int(np.exp(rng.uniform(0, 7))))
    mu, delta = exact_mu(phase, direction), float(10.0 ** rng.uniform(-15, -0.5))
    centre = gaussian_epsilon(mu, delta)
    tilt = max(0.05, (centre / mu**2 - 0.5)) * float(np.exp(rng.uniform(-3, 0.5)))
    points = int(2 ** rng.integers(6, 12))
    width = mu * float(rng.uniform(1, 16))
    grid = Grid(
        interval=width / points,
        points=points,
        tilt=tilt,
        tilt_up=tilt * float(rng.uniform(1.1, 4)),
        tilt_down=tilt * float(rng.uniform(0, 0.9)),
        cut=float(10.0 ** rng.uniform(-2, 0)) * delta / phase.steps,
    )
    return grid, phase, direction, delta


@pytest.mark.parametrize("block", range(8))
def test_the_bounds_hold_on_any_grid(block: int) -> None:
    for number in range(60 * block, 60 * (block + 1)):
        grid, phase, direction, delta = random_case(number)
        mu = exact_mu(phase, direction)
        exact = gaussian_epsilon(mu, delta)
        lower, upper = band_on(grid, phase, epsilon_at(delta), direction)
        assert lower <= exact * (1 + 1e-12), number
        assert upper >= exact * (1 - 1e-12), number
        lower, upper = band_on(grid, phase, delta_at(exact), direction)
        true_delta = math.exp(log_delta(exact, mu))
        assert lower <= true_delta * (1 + 1e-9), number
        assert upper >= true_delta * (1 - 1e-9), number


def true_delta(eps: mpf, sigma: float, q: float, direction: Direction) -> mpf:
    """delta(eps) = first(x > x*) - e^eps second(x > x*) of one step; at x* the loss is eps. To a hundred digits."""
    sigma, q, square, level = mpf(sigma), mpf(q), mpf(sigma) ** 2, mp.exp(eps)
    if direction is REMOVE:
        odds = (level - 1 + q) / q
        x = mpf(1) / 2 + square * mp.log(odds) if odds > 0 else -mp.inf
    elif direction is ADD:
        odds = (1 / level - 1 + q) / q
        x = -mpf(1) / 2 - square * mp.log(odds) if odds > 0 else mp.inf
    else:  # q c u^2 + (1 - q)(1 - e^eps) u - e^eps q c = 0 for u = e^(x / sigma^2), c = e^(-1 / (2 sigma^2))
        a, b = q * mp.exp(-1 / (2 * square)), (1 - q) * (1 - level)
        x = square * mp.log((-b + mp.sqrt(b * b + 4 * a * a * level)) / (2 * a))

    def above(shift: int) -> mpf:
        return (1 - q) * mp.erfc(x / (sigma * mp.sqrt(2))) / 2 + q * mp.erfc((x - shift) / (sigma * mp.sqrt(2))) / 2

    return above(direction.first) - level * above(direction.second)


def cell_deltas(cells: Cells, interval: float) -> list[tuple[mpf, mpf]]:
    """(loss, delta) of discretised losses at each of their grid points."""
    h, size = mpf(interval), cells.log_mass.size
    delta, discounted, pairs = mpf(cells.infinite), mpf(0), []
    for k in range(size - 1, -1, -1):
        pairs.append((mpf(cells.anchor) + h * (cells.start + k), delta))
        discounted = (mp.exp(mpf(float(cells.log_mass[k]))) + discounted) * mp.exp(-h)
        delta += mp.expm1(h) * discounted
    return pairs


UNIT = 1e-14  # of rounding in a stored mass, which the composition allows for; it shows where cells are coarse
# (sigma, q, interval over the spread of the loss, tolerance): usual steps, losses so small that rounding rivals them,
# large losses and coarse grids.
STEPS = [
    (1.0, 0.01, 0.1, 0.0),
    (0.4, 0.3, 0.1, 0.0),
    (2.0, 1.0, 0.02, 0.0),
    (5.0, 0.999999, 0.05, 0.0),
    (20.0, 1e-4, 0.05, 0.0),
    (1000.0, 3e-8, 0.1, 0.0),
    (1000.0, 1e-6, 0.02, 0.0),
    (300.0, 1.0, 0.01, 0.0),
    (0.1, 1.0, 0.05, UNIT),
    (0.5, 0.05, 5.0, UNIT),
    (1.0, 0.001, 3.0, UNIT),
    (0.3, 0.01, 30.0, UNIT),
]


@pytest.mark.parametrize("direction", [REMOVE, ADD, REPLACE], ids=lambda direction: direction.name)
@pytest.mark.parametrize(("sigma", "q", "share", "tolerance"), STEPS)
def test_cells_lie_on_their_side_of_the_true_loss(
    sigma: float, q: float, share: float, tolerance: float, direction: Direction
) -> None:
    """Rounding included: ten million steps would add it up."""
    interval = share * q / sigma
    grid = Grid(interval, 64, 1.0, 2.0, 0.0, cut=1e-9)
    steps = Steps(np.array([sigma]), np.array([q]))
    with mp.workdps(100):
        for make, side in ((upper_cells, 1), (lower_cells, -1)):
            (cells,) = make(direction, steps, grid)
            pairs = cell_deltas(cells, interval)
            for loss, delta in pairs[:: max(1, len(pairs) // 300)]:
                truth = true_delta(loss, sigma, q, direction)
                if truth > 1e-12 * q:
                    assert side * (delta - truth) >= -tolerance * truth, (
                        make.__name__,
                        float(loss),
                        float(delta / truth - 1),
                    )


@pytest.mark.parametrize("doubt", [0.0, 0.01], ids=["exact", "doubtful"])
def test_lending_between_cells_only_lowers_delta(doubt: float) -> None:
    """Cells whose log ratios lie anywhere around their grid points, and whose excess is told too high by its doubt."""
    rng, h, size = np.random.default_rng(1), 0.1, 12
    strip, losses = Strip.of(np.array([size + 1])), h * (np.arange(size + 1) - size / 2)
    asked = h * np.arange(-2, size) + losses[0]  # below the first cell too: it has no neighbour to be merged into
    for number in range(500):
        first = np.append(rng.dirichlet(np.ones(size)), 0.0)
        second = first * np.exp(-losses - h * rng.uniform(-1, 1, size + 1))
        doubts = doubt * first
        told = Masses(first, second, first - second + doubts, doubts, np.zeros(size + 1))
        mass = _lend(told, losses, strip, h)
        assert (mass >= 0).all(), number
        for at in asked:
            truth = np.maximum(first - math.exp(at) * second, 0.0).sum()
            assert (mass * -np.expm1(np.minimum(at - losses, 0.0))).sum() <= truth + 1e-13, number


def compose_cells(bound: str, cells: Cells, grid: Grid, count: int) -> composition.Composed:
    (row,) = tilted_rows([cells], grid)
    tally = composition.Tally(grid)
    tally.add(row, count)
    return composition.compose(bound, tally)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 100])
@pytest.mark.parametrize("tilt", [0.01, 0.3, 3.0])
def test_rounding_is_bounded(count: int, tilt: float) -> None:
    """Against plain convolution, which adds up positive numbers only and so keeps the precision of each."""
    rng = np.random.default_rng(count)
    masses = rng.random(40) * np.exp(-0.5 * np.linspace(-4, 4, 40) ** 2)
    masses /= masses.sum()
    exact = np.ones(1)
    for _ in range(count):
        exact = np.convolve(exact, masses)
    grid = Grid(interval=0.05, points=2**13, tilt=tilt, tilt_up=tilt + 1.0, tilt_down=tilt - 1.0, cut=1e-12)
    composed = compose_cells("upper", Cells(np.log(masses), -20, 0.0, 0.0), grid, count)
    losses = 0.05 * (np.arange(exact.size) - 20 * count)
    seen = np.flatnonzero((composed.losses >= losses[0]) & (composed.losses < losses[-1]))[:: max(1, exact.size // 200)]
    off = [
        abs(composed.curve[k] - (exact * -np.expm1(np.minimum(composed.losses[k] - losses, 0.0))).sum()) for k in seen
    ]
    assert (np.array(off) <= composed.rounding * composed.scale(composed.losses[seen])).all()


def drowning_case(number: int) -> tuple[Grid, Phase, float]:
    """A fine grid and a wide window, tilted so little that the mass at epsilon is about what rounding leaves there."""
    rng = np.random.default_rng([3, number])
    steps = int(2 ** rng.integers(0, 10))
    phase = Phase(math.sqrt(steps) * float(np.exp(rng.uniform(-1.5, 1))), 1.0, steps)
    mu, delta = exact_mu(phase, REMOVE), float(10.0 ** -rng.uniform(16, 20))
    tilt = float(rng.uniform(0.05, 0.2)) * gaussian_epsilon(mu, delta) / mu**2
    points, apart = 2**15, 11 / mu
    return Grid(26 * mu / points, points, tilt, tilt + apart, tilt - apart, 1e-9 * delta / steps), phase, delta


@pytest.mark.parametrize("number", range(60))
def test_a_tilt_that_drowns_in_rounding_gives_no_false_bound(number: int) -> None:
    grid, phase, delta = drowning_case(number)
    exact = gaussian_epsilon(exact_mu(phase, REMOVE), delta)
    lower, upper = band_on(grid, phase, epsilon_at(delta))
    assert lower <= exact * (1 + 1e-9)
    assert upper >= exact * (1 - 1e-9)
    lower, upper = band_on(grid, phase, delta_at(exact))
    assert lower <= delta * (1 + 1e-6)
    assert upper >= delta * (1 - 1e-6)


def test_what_the_window_misses_is_counted_on_both_sides() -> None:
    """A tenth of the tilted mass lies just below the window and a tenth just above it."""
    grid = Grid(interval=0.01, points=64, tilt=1.0, tilt_up=31.0, tilt_down=-29.0, cut=1e-9)
    losses = 0.01 * np.arange(-33, 33)
    tilted = np.full(losses.size, 1e-300)
    tilted[[0, 33, -1]] = 0.1, 0.8, 0.1
    composed = compose_cells("lower", Cells(np.log(tilted) - losses, -33, 0.0, 0.0), grid, 1)
    assert losses[0] < composed.losses[0] - 0.005
    assert losses[-1] > composed.losses[-1] + 0.005
    assert composed.outside >= 0.2


def test_what_may_have_wrapped_around_is_taken_off_the_lower_epsilon() -> None:
    """As little of it as is allowed at all: 1/2,000 of delta, where 1/1,000 gives no lower bound."""
    interval, losses = 0.01, 0.01 * np.arange(100)
    discounted = composition._discounted(np.full(losses.size, 0.001), interval)
    curve = np.cumsum(math.expm1(interval) * discounted[::-1])[::-1]
    composed = composition.Composed(losses, curve, discounted, 0.0, 0.0, 0.0, 0.0, 1.0)
    delta = float(curve[40])
    outside = delta / 2000 / float(composed.scale(losses[40])) / composition._peak(1.0)
    lower = epsilon_at(delta).lower
    assert lower(composed) == pytest.approx(losses[40])
    assert lower(dataclasses.replace(composed, outside=outside)) <= composed.epsilon(delta * (1 + 1 / 2001))
    assert lower(dataclasses.replace(composed, outside=3 * outside)) == 0.0


def test_every_direction_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """`remove` is the worst on every ledger that was tried, but nobody has proved that it always is."""
    ledger, delta = Ledger([Phase(0.6, 0.3, 20)]), 1e-6
    usual = bands.band(ledger, delta)
    monkeypatch.setitem(bands.DIRECTIONS, "add-remove", (ADD, REMOVE))
    bands._band.cache_clear()
    swapped = bands.band(ledger, delta)
    bands._band.cache_clear()
    assert swapped == pytest.approx(usual, rel=1e-3)
    assert band_on(pld_grid(ledger, delta), ledger.phases[0], epsilon_at(delta), ADD)[1] < 0.9 * usual[0]


def pld_grid(ledger: Ledger, delta: float) -> Grid:
    return Shape.of(ledger, delta, usual_moments(ledger, "add-remove")).grid(0.003)


def test_bounds_that_contradict_each_other_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, delta = Ledger([Phase(1.1, 0.0123, 100)]), 1e-5
    monkeypatch.setattr(bands, "bound_curve", lambda bound, *_: [2.0] if bound == "lower" else [1.0])
    found = epsilon(ledger, delta)
    bands._band.cache_clear()
    bound = epsilon(ledger, delta, accountant="rdp").upper
    assert (found.lower, found.upper) == (0.0, bound)
    assert found.fallback == "RDP upper bound, because its lower and upper bounds contradict each other"


@pytest.mark.parametrize(
    ("found", "bound", "expected", "says"),
    [
        ((1.0, 2.0), 3.0, (1.0, 2.0), None),
        ((1.0, 2.0), 1.5, (1.0, 1.5), "RDP upper bound, because it is smaller"),
        ((1.0, 2.0), 0.5, (0.0, 2.0), "PLD upper bound alone, because the RDP bound lies below"),
        (GridTooLarge("it is large"), 3.0, (0.0, 3.0), "RDP upper bound, because it is large"),
    ],
)
def test_the_upper_end_says_where_it_comes_from(found, bound: float, expected, says: str | None) -> None:
    *ends, fallback = settled(found, bound)
    assert tuple(ends) == expected
    assert fallback is None if says is None else fallback.startswith(says)


def test_a_path_whose_bounds_contradict_each_other_keeps_its_upper_ends() -> None:
    path = [Epsilon(1.0, 2.0, 1e-5, "pld"), Epsilon(3.0, 4.0, 1e-5, "pld"), Epsilon(1.5, 2.5, 1e-5, "pld")]
    before, between, end = _rising(path)
    assert (before, end) == (path[0], path[2])
    assert (between.lower, between.upper) == (0.0, 2.5)
    assert "contradict" in str(between.fallback)


def test_a_path_never_falls_though_its_bounds_may() -> None:
    path = [Epsilon(0.5, upper, 1e-5, "pld") for upper in (2.0, 1.0, 3.5, 3.0)]
    assert [point.upper for point in _rising(path)] == [2.0, 2.0, 3.0, 3.0]
