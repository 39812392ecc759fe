"""Renyi accountant: moments of the Poisson-sampled Gaussian, vectorised over the schedule, and their conversions.

One step with noise sigma and sample rate q is dominated by the pair P = (1-q) N(0, sigma^2) + q N(1, sigma^2) and
Q = N(0, sigma^2). With a = order, log A_a = log E_Q[(P/Q)^a] and one step costs RDP(a) = log A_a / (a - 1).
Mironov, Talwar & Zhang (2019), arXiv:1908.10530, Sec. 3.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpviz.privacy.records import Ledger
from dpviz.privacy.special import gammaln

FloatArray = NDArray[np.float64]

# Fractional orders matter at low noise (sigma 0.5: 32.7 against 37.5 without them). The same set as Opacus' default.
ORDERS: FloatArray = np.array([1 + x / 10 for x in range(1, 100)] + list(range(12, 64)), dtype=float)

_MOST = 2_000_000  # quadrature points times orders of one sigma; beyond that other orders win by far
_BLOCK = 100_000  # numbers in one temporary array of the quadrature: few enough to stay in the processor's cache


def log_moments(
    orders: FloatArray, sigmas: FloatArray, sample_rate: float, adjacency: str = "add-remove"
) -> FloatArray:
    """log A_a, one row per sigma, one column per order; infinite where sigma is 0.

    Whole orders by the binomial sum, the others and replace-one neighbours by quadrature.
    """
    orders, sigmas = np.asarray(orders, float), np.asarray(sigmas, float)
    result = np.full((sigmas.size, orders.size), np.inf)
    noisy = np.flatnonzero(sigmas > 0)
    if sample_rate == 1:
        shift = 2.0 if adjacency == "replace-one" else 1.0
        result[noisy] = shift**2 * orders * (orders - 1) / (2 * sigmas[noisy, None] ** 2)
        return result
    whole = (orders == np.round(orders)) & (adjacency == "add-remove") & (orders <= 1024)
    for columns, moments in ((np.flatnonzero(whole), _binomial), (np.flatnonzero(~whole), _quadrature)):
        if columns.size and noisy.size:
            result[np.ix_(noisy, columns)] = moments(orders[columns], sigmas[noisy], sample_rate, adjacency)
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
    centre = 0.5 + sigmas**2 * np.log((1 - q) / q)
    reach = np.array([_peak(float(orders.max()), float(sigma), q) for sigma in sigmas])
    low = -12 * sigmas - (reach if adjacency == "replace-one" else 0.0)
    first = np.floor(_stretch(low - centre, sigmas))
    points = (np.ceil(_stretch(reach + 12 * sigmas - centre, sigmas)) - first).astype(int) + 1
    by_size = np.argsort(points)
    while by_size.size and points[by_size[0]] * orders.size <= _MOST:
        # As many sigmas at once as fit; the largest of a block sets its points.
        fits = max(1, np.count_nonzero(points[by_size] * np.arange(1, by_size.size + 1) * orders.size <= _BLOCK))
        block, by_size = by_size[:fits], by_size[fits:]
        sigma = sigmas[block, None]
        offset, spacing = _unstretch(first[block, None] + np.arange(points[block].max()), sigma)
        result[block] = _integrate(centre[block, None] + offset, spacing, orders[:, None], sigma, q, adjacency)
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
    tiny = np.abs(a * ratio) < 1e-3
    excess = np.expm1(np.minimum(power, 600.0)) - a * ratio
    small = np.where(np.abs(ratio) < 1e-3, ratio, 0.0)
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


def _peak(order: float, sigma: float, q: float) -> float:
    """The rightmost place where Q (P/Q)^a peaks: the largest x = a w(x), with w the share of N(1) in P at x."""
    x = order
    for _ in range(60):
        exponent = min((2 * x - 1) / (2 * sigma**2), 700.0)
        x_next = order * q * np.exp(exponent) / (1 - q + q * np.exp(exponent)) if exponent < 700 else order
        if abs(x_next - x) < 0.01 * sigma:
            break
        x = x_next
    return float(max(x, 0.0)) + 2 * sigma


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
    """RDP of all steps of each phase: one row per phase, one column per order."""
    key = (orders.tobytes(), adjacency)
    wanted = {(phase.sample_rate, phase.noise_multiplier) for phase in ledger.phases}
    missing = sorted(pair for pair in wanted if (*pair, *key) not in ROWS)
    for q in dict.fromkeys(pair[0] for pair in missing):
        sigmas = np.array([sigma for rate, sigma in missing if rate == q])
        for sigma, row in zip(sigmas, log_moments(orders, sigmas, q, adjacency) / (orders - 1), strict=True):
            ROWS[(q, float(sigma), *key)] = row
    rows = np.stack([phase.steps * ROWS[(phase.sample_rate, phase.noise_multiplier, *key)] for phase in ledger.phases])
    while len(ROWS) > MOST_ROWS:
        ROWS.pop(next(iter(ROWS)))
    return rows


MOST_ROWS = 20_000
ROWS: dict[tuple[float, float, bytes, str], FloatArray] = {}


def smallest_epsilon(
    rdp: FloatArray, delta: float, conversion: str = "improved", orders: FloatArray = ORDERS
) -> tuple[float, float]:
    """The smallest epsilon over the orders, and the order that gives it."""
    epsilons = CONVERSIONS[conversion](rdp, orders, delta)
    best = int(np.argmin(epsilons))
    return max(0.0, float(epsilons[best])), float(orders[best])


@lru_cache(maxsize=16)
def rdp_table(sample_rate: float, rows: int = 289) -> dict[str, Any]:
    """What the browser interpolates: log RDP of one step over a log grid of sigmas, one column per order.

    JSON-ready: values are little-endian float32, rows x orders, in base64. Tables of one name are equal.
    """
    low, high = 0.1, 20.0
    # Epsilon is flat around its best order unless moments explode just above it, as they do for orders up to 24.
    orders = np.concatenate([ORDERS[:70], ORDERS[70:99:2], ORDERS[99:112], ORDERS[:111:-3][::-1]])
    values = np.log(log_moments(orders, np.geomspace(low, high, rows), sample_rate) / (orders - 1))
    packed = base64.b64encode(values.astype("<f4").tobytes()).decode()
    name = f"{sample_rate!r} {rows}"
    return {"name": name, "orders": orders.tolist(), "low": low, "high": high, "rows": rows, "values": packed}
