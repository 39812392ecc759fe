"""Renyi accountant: moments of the Poisson-sampled Gaussian, vectorised over the schedule, and their conversions.

One step with noise sigma and sample rate q is dominated by the pair P = (1-q) N(0, sigma^2) + q N(1, sigma^2) and
Q = N(0, sigma^2). With a = order, log A_a = log E_Q[(P/Q)^a] and one step costs RDP(a) = log A_a / (a - 1).
Mironov, Talwar & Zhang (2019), arXiv:1908.10530, Sec. 3.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln

from dpviz.privacy.gaussian import SMALLEST_SIGMA
from dpviz.privacy.pld.spectra import Cache, Step
from dpviz.privacy.records import Ledger, Phase

FloatArray = NDArray[np.float64]

# Fractional orders matter at low noise (sigma 0.5: 32.7 against 37.5 without them). The same set as Opacus' default.
ORDERS: FloatArray = np.array([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)), dtype=float)

# Small epsilons have larger orders still: these times the last order, again and again, and finer ones in between.
CLIMB: FloatArray = 8.0 ** (np.arange(-1, 9) / 8)
LARGEST_ORDER = float(ORDERS[-1] * CLIMB[-1] ** 5)

# Beyond these, rounding spoils moments. Clamping a large sigma or a small sample rate only raises them.
LARGEST_SIGMA, _SMALLEST_RATE = 1e8, 1e-100

# Above order 1 + 2 sigma^2 log(1/q) the moment is that of rare outcomes around x = a. If these are more than so many
# sigmas out, the order is the best one for no delta: e^(-40^2 / 2) is below every double.
_FAR = 40.0
_MOST = 2_000_000  # quadrature points times orders of one sigma; beyond that other orders win by far
_BLOCK = 100_000  # numbers in one temporary array of the quadrature: few enough to stay in the processor's cache


def log_moments(
    orders: FloatArray, sigmas: FloatArray, sample_rate: float, adjacency: str = "add-remove"
) -> FloatArray:
    """log A_a, one row per sigma, one column per order; infinite where sigma is 0, or where other orders win by far.

    Whole orders by the binomial sum; the others, large ones and replace-one neighbours by quadrature.
    """
    orders, sigmas = np.asarray(orders, float), np.asarray(sigmas, float)
    result = np.full((sigmas.size, orders.size), np.inf)
    noisy = np.flatnonzero(sigmas >= SMALLEST_SIGMA)
    if sample_rate == 1:
        shift = 2.0 if adjacency == "replace-one" else 1.0
        result[noisy] = orders * (orders - 1) / 2 * (shift / sigmas[noisy, None]) ** 2
        return result
    q, known = max(sample_rate, _SMALLEST_RATE), np.minimum(sigmas[noisy], LARGEST_SIGMA)
    large = orders > ORDERS[-1]
    whole = (orders == np.round(orders)) & (adjacency == "add-remove") & ~large
    for chosen, moments in ((whole, _binomial), (~whole & ~large, _quadrature), (large, _quadrature)):
        if chosen.any() and noisy.size:
            result[np.ix_(noisy, chosen)] = moments(orders[chosen], known, q, adjacency)
    return result


def _binomial(orders: FloatArray, sigmas: FloatArray, q: float, adjacency: str) -> FloatArray:
    """log1p of sum_(k>=2) C(a,k) (1-q)^(a-k) q^k (e^((k^2-k) / 2 sigma^2) - 1): A_a - 1 without cancellation."""
    a = orders[:, None]
    k = np.arange(2, int(orders.max()) + 1, dtype=float)
    inside = np.where(k <= a, a - k, 0.0)
    weights = gammaln(a + 1) - gammaln(k + 1) - gammaln(inside + 1) + inside * np.log1p(-q) + k * np.log(q)
    weights = np.where(k <= a, weights, -np.inf)
    power = (k * k - k) / (2 * sigmas[:, None] ** 2)
    log_expm1 = power + np.log(-np.expm1(-power))
    above_one = _log_sum(weights[None] + log_expm1[:, None, :])
    return np.logaddexp(0.0, above_one) if above_one.max() > 30 else np.log1p(np.exp(above_one))


def _quadrature(orders: FloatArray, sigmas: FloatArray, q: float, adjacency: str) -> FloatArray:
    """Trapezoid rule for A_a - 1 = E_Q[(P/Q)^a - 1 - a (P/Q - 1)], whose integrand is never negative.

    The integrand is smooth on the scale of sigma, but for singular points x* +- i pi sigma^2 (where P = 0). In the
    variable t = 2 (x - x*) / sigma + asinh((x - x*) / (pi sigma^2)) / 0.35 both are wide, so that unit steps converge.
    """
    result = np.full((sigmas.size, orders.size), np.inf)
    centre = 0.5 + sigmas**2 * (np.log1p(-q) - np.log(q))
    ends = orders if orders.min() > ORDERS[-1] else orders.max(keepdims=True)  # of small orders the largest reaches on
    peaks = _peaks(ends, sigmas[:, None], q, adjacency)
    rare = ends - 1 > -2 * sigmas[:, None] ** 2 * np.log(q)
    useful = (ends <= ORDERS[-1]) | ~rare | (peaks <= _FAR * sigmas[:, None])
    reach = np.where(useful, peaks, 0.0).max(axis=1)
    low = -12 * sigmas - (1.0 if adjacency == "replace-one" else 0.0)
    first = np.floor(_stretch(low - centre, sigmas))
    count = np.ceil(_stretch(reach + 14 * sigmas - centre, sigmas)) - first + 1
    points = np.minimum(count, _MOST + 1).astype(int)
    by_size = np.argsort(points)
    while by_size.size and points[by_size[0]] * orders.size <= _MOST:
        # As many sigmas at once as fit; the largest of a block sets its points.
        fits = max(1, np.count_nonzero(points[by_size] * np.arange(1, by_size.size + 1) * orders.size <= _BLOCK))
        block, by_size = by_size[:fits], by_size[fits:]
        sigma = sigmas[block, None]
        offset, spacing = _unstretch(first[block, None] + np.arange(points[block].max()), sigma)
        moments = _integrate(centre[block, None] + offset, spacing, orders[:, None], sigma, q, adjacency)
        result[block] = np.where(useful[block], moments, np.inf)
    return result


def _stretch(offset: FloatArray, sigma: FloatArray) -> FloatArray:
    return 2 * offset / sigma + np.arcsinh(offset / (np.pi * sigma**2)) / 0.35


def _unstretch(t: FloatArray, sigma: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The offset whose stretch is t, and d offset / dt. Newton's method from the inside: it never overshoots."""
    offset = np.zeros(np.broadcast_shapes(t.shape, sigma.shape))
    for _ in range(60):
        slope = 2 / sigma + 1 / (0.35 * np.hypot(offset, np.pi * sigma**2))
        step = (t - _stretch(offset, sigma)) / slope
        offset = offset + step
        if np.all(np.abs(step) <= 1e-13 * np.abs(offset)):
            break
    return offset, 1 / slope


def _integrate(
    x: FloatArray, spacing: FloatArray, a: FloatArray, sigma: FloatArray, q: float, adjacency: str
) -> FloatArray:
    log_weight = -0.5 * (x / sigma) ** 2 + np.log(spacing / (sigma * np.sqrt(2 * np.pi)))
    gain = _log_mixture((2 * x - 1) / (2 * sigma**2), q)
    if adjacency == "replace-one":  # Q is itself a mixture, around -1
        log_second = _log_mixture((-2 * x - 1) / (2 * sigma**2), q)
        log_weight, gain = log_weight + log_second, gain - log_second
    ratio, power = np.expm1(np.minimum(gain, 500.0))[:, None], a * gain[:, None]
    tiny = np.abs(a * ratio) < 1e-5
    excess = np.expm1(np.minimum(power, 600.0)) - a * ratio
    small = np.where(np.abs(ratio) < 1e-5, ratio, 0.0)
    excess = np.where(tiny, a * (a - 1) / 2 * small**2 * (1 + (a - 2) / 3 * small), excess)
    if power.max() < 500:
        return np.log1p(np.einsum("sax,sx->sa", excess, np.exp(log_weight)))
    log_excess = np.where(power < 500, np.log(np.maximum(excess, 1e-300)), power)
    total = _log_sum(log_excess + log_weight[:, None])
    return np.where(total > 30, total, np.log1p(np.exp(np.minimum(total, 30.0))))


def _log_sum(exponents: FloatArray) -> FloatArray:
    """log of the sum of e^exponent over the last axis. SciPy's logsumexp takes ten times as long here."""
    top = exponents.max(axis=-1, keepdims=True)
    exponents -= top
    return top[..., 0] + np.log(np.exp(exponents, out=exponents).sum(axis=-1))


def _log_mixture(exponent: FloatArray, q: float) -> FloatArray:
    """log(1 - q + q e^exponent), precise near 0 and without overflow."""
    small = np.log1p(q * np.expm1(np.minimum(exponent, 30.0)))
    large = exponent + np.log(q) + np.log1p((1 - q) / q * np.exp(-np.maximum(exponent, 30.0)))
    return np.where(exponent < 30.0, small, large)


def _peaks(orders: FloatArray, sigma: FloatArray, q: float, adjacency: str) -> FloatArray:
    """At or above the rightmost place where Q (P/Q)^a peaks, one row per sigma, one column per order.

    That is the largest x = a w(x) + (a - 1) v(x), with w the share of N(1) in P at x and v that of N(-1) in Q, which is
    none for add-remove and falls with x. With v(0) for v(x) the right side rises, so that steps from above stay above.
    """
    square, log_odds = sigma**2, np.log(q) - np.log1p(-q)
    second = (orders - 1) * expit(log_odds - 0.5 / square) if adjacency == "replace-one" else 0.0
    x = orders + second
    for _ in range(60):
        before, x = x, orders * expit(log_odds + (x - 0.5) / square) + second
        if np.all(before - x <= 0.01 * sigma):
            break
    return x


def classic_conversion(rdp: FloatArray, orders: FloatArray, delta: float) -> FloatArray:
    """epsilon = RDP(a) + log(1/delta) / (a - 1). Mironov (2017), arXiv:1702.07476, Prop. 3."""
    return rdp - np.log(delta) / (orders - 1)


def improved_conversion(rdp: FloatArray, orders: FloatArray, delta: float) -> FloatArray:
    """epsilon = RDP(a) + log((a-1)/a) - (log delta + log a) / (a-1). Balle et al. (2020), arXiv:1905.09982, Thm. 21."""
    return rdp + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)


CONVERSIONS: dict[str, Callable[[FloatArray, FloatArray, float], FloatArray]] = {
    "classic": classic_conversion,
    "improved": improved_conversion,
}


def ledger_rdp(ledger: Ledger, orders: FloatArray = ORDERS, adjacency: str = "add-remove") -> FloatArray:
    """RDP of all steps of each phase of a ledger: one row per phase, one column per order."""
    return phase_rdp(ledger.phases, orders, adjacency)


def phase_rdp(phases: Sequence[Phase], orders: FloatArray = ORDERS, adjacency: str = "add-remove") -> FloatArray:
    """RDP of all steps of each phase: one row per phase, one column per order. Moments are cached by step."""

    def make(missing: list[Step]) -> list[FloatArray]:
        made: dict[Step, FloatArray] = {}
        for q in dict.fromkeys(rate for _, rate in missing):
            sigmas = [sigma for sigma, rate in missing if rate == q]
            moments = log_moments(orders, np.array(sigmas), q, adjacency) / (orders - 1)
            made |= {(sigma, q): row for sigma, row in zip(sigmas, moments, strict=True)}
        return [made[step] for step in missing]

    steps = [(phase.noise_multiplier, phase.sample_rate) for phase in phases]
    rows = ROWS.all(steps, (orders.tobytes(), adjacency), make)
    return np.stack([phase.steps * rows[step] for phase, step in zip(phases, steps, strict=True)])


ROWS: Cache[FloatArray] = Cache(24 * 2**20)


def smallest_epsilon(
    rdp: FloatArray, delta: float, conversion: str = "improved", orders: FloatArray = ORDERS
) -> tuple[float, float]:
    """The smallest epsilon over the orders, and the order that gives it."""
    epsilons = CONVERSIONS[conversion](rdp, orders, delta)
    best = int(np.argmin(epsilons))
    return max(0.0, float(epsilons[best])), float(orders[best])


def least_epsilon(
    rdp: Callable[[FloatArray], FloatArray], delta: float, conversion: str = "improved", finer: bool = True
) -> tuple[float, float]:
    """The smallest epsilon over ORDERS and, where the last of them is the best, larger ones; and the order.

    Both conversions divide a convex function of the order a by a - 1, so epsilon falls up to the best order and rises
    after it: no larger order need be tried unless the last one is the best, and the best lies between the neighbours
    of the best one tried.
    """
    orders = ORDERS
    epsilon, order = smallest_epsilon(rdp(orders), delta, conversion)
    while epsilon > 0 and order == orders[-1] < LARGEST_ORDER:
        orders = order * CLIMB
        epsilon, order = smallest_epsilon(rdp(orders), delta, conversion, orders)
    if orders is ORDERS or epsilon == 0 or order == LARGEST_ORDER or not finer:
        return epsilon, order
    for _ in range(2):
        best = int(np.searchsorted(orders, order))
        orders = np.geomspace(orders[max(best - 1, 0)], orders[min(best + 1, orders.size - 1)], 17)
        epsilon, order = smallest_epsilon(rdp(orders), delta, conversion, orders)
    return epsilon, order


@lru_cache(maxsize=16)
def rdp_table(sample_rate: float, rows: int = 225, order: float | None = None) -> dict[str, Any]:
    """What the browser interpolates: log RDP of one step over a log grid of sigmas, one column per order, or one order.

    JSON-ready: values are little-endian float32, rows x orders, in base64. Tables of one name are equal.
    """
    low, high = 0.1, 20.0
    # Epsilon is flat around its best order unless moments explode just above it, as they do for orders up to 24.
    eight, twelve, after = np.searchsorted(ORDERS, [8.05, 12, 25])
    usual = (ORDERS[:eight], ORDERS[eight:twelve:2], ORDERS[twelve:after], ORDERS[after + 1 :: 2])
    orders = np.concatenate([*usual, np.round(np.geomspace(64, 4000, 34))])
    if order is not None:
        orders = np.array([order])
    moments = log_moments(orders, np.geomspace(low, high, rows), sample_rate)
    values = np.minimum(np.log(moments / (orders - 1)), 80.0)  # between rows there is no slope to infinity
    packed = base64.b64encode(values.astype("<f4").tobytes()).decode()
    name = f"{sample_rate!r} {rows} {order or ''}".rstrip()
    return {"name": name, "orders": orders.tolist(), "low": low, "high": high, "rows": rows, "values": packed}
