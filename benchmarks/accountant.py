"""Pricing a schedule: dpviz beside Opacus (PRV, RDP), dp_accounting (PLD) and riskcal. Medians, in seconds.

Every dpviz figure includes both bounds in both directions. `cold` empties all caches first; `warm-100` moves one epoch
of a schedule that was priced before, which is what a hand on the curve does.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpviz.privacy import Ledger, Phase, Risk, epoch_phases, epsilon, risk
from dpviz.privacy import rdp as renyi
from dpviz.privacy.pld import loss_curves
from dpviz.privacy.pld import spectra as loss_rows

SAMPLE_RATE, STEPS, DELTA, FPR = 0.01, 100, 1e-5, 0.001


def rows() -> list[dict[str, Any]]:
    """cold-20, cold-100 and warm-100, with the band's width beside the speed, and the risk of 20 epochs."""
    _prepare_peers()
    return [
        _row("cold-20", 20, warm=False),
        _row("cold-100", 100, warm=False),
        _row("warm-100", 100, warm=True),
        _risk_row("risk-20", 20),
    ]


def _risk_row(case: str, epochs: int) -> dict[str, Any]:
    """TPR at FPR 0.001, advantage and the whole curve; riskcal on the interval that our own grid has."""
    phases = epoch_phases(np.linspace(5.0, 1.0, epochs), SAMPLE_RATE)
    found = risk(phases)
    interval = loss_curves.good_grid(loss_curves.merged(Ledger(phases)), "add-remove").interval

    def cold() -> Risk:
        loss_rows.clear()
        renyi.ROWS.clear()
        loss_curves.clear()
        return risk(phases)

    lower, upper = found.tpr(FPR)
    return {
        "case": case,
        "dpviz": _median(lambda: _timed(cold), 9),
        "riskcal": _median(lambda: _timed(lambda: _riskcal(phases, interval)), 3),
        "tpr_lower": lower,
        "tpr_upper": upper,
        "band_width_percent": 100 * (upper - lower) / upper,
    }


def _riskcal(phases: Sequence[Phase], interval: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution
    from riskcal import analysis

    total = None
    for phase in phases:
        step = privacy_loss_distribution.from_gaussian_mechanism(
            phase.noise_multiplier, sampling_prob=phase.sample_rate, value_discretization_interval=interval
        ).self_compose(phase.steps)
        total = total.compose(step) if total else step
    return float(analysis.get_advantage_from_pld(total)) + float(analysis.get_beta_from_pld(total, FPR))


def _row(case: str, epochs: int, warm: bool) -> dict[str, Any]:
    sigmas = np.linspace(5.0, 1.0, epochs)
    moved = np.random.default_rng(0)

    def curve() -> np.ndarray:
        """A new curve each time: one epoch moved, or the whole of it."""
        if not warm:
            return sigmas * moved.uniform(0.98, 1.02)
        changed = sigmas.copy()
        changed[moved.integers(epochs)] *= moved.uniform(0.95, 1.05)
        return changed

    found = epsilon(Ledger(epoch_phases(sigmas, SAMPLE_RATE)), DELTA)
    slow = 3 if epochs <= 20 else 1
    return {
        "case": case,
        "dpviz": _median(lambda: _dpviz(curve(), "pld", warm), 15),
        "dpviz_rdp": _median(lambda: _dpviz(curve(), "rdp", warm), 15),
        "opacus_prv": _median(lambda: _opacus_prv(curve()), slow),
        "opacus_rdp": _median(lambda: _opacus_rdp(curve()), 3),
        "dp_accounting_pld": _median(lambda: _dp_accounting_pld(curve()), slow),
        "band_lower": found.lower,
        "band_upper": found.upper,
        "band_width_percent": 100 * (found.upper - found.lower) / found.upper,
    }


def _median(work: Callable[[], float], repeats: int) -> float:
    return statistics.median(work() for _ in range(repeats))


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _dpviz(sigmas: np.ndarray, accountant: str, warm: bool) -> float:
    if not warm:
        loss_rows.clear()
        renyi.ROWS.clear()
    return _timed(lambda: epsilon(Ledger(epoch_phases(sigmas, SAMPLE_RATE)), DELTA, accountant=accountant))


def _prepare_peers() -> None:
    """Import the peers before any clock runs."""
    import dp_accounting.pld
    import opacus.accountants
    import riskcal

    _ = (dp_accounting.pld, opacus.accountants, riskcal)


def _opacus(kind: str, sigmas: np.ndarray) -> float:
    from opacus.accountants import create_accountant

    accountant = create_accountant(kind)
    accountant.history = [(float(sigma), SAMPLE_RATE, STEPS) for sigma in sigmas]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _timed(lambda: accountant.get_epsilon(DELTA))


def _opacus_prv(sigmas: np.ndarray) -> float:
    return _opacus("prv", sigmas)


def _opacus_rdp(sigmas: np.ndarray) -> float:
    return _opacus("rdp", sigmas)


def _dp_accounting_pld(sigmas: np.ndarray) -> float:
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    def work() -> float:
        accountant = PLDAccountant(value_discretization_interval=1e-4)
        for sigma in sigmas:
            event = dp_accounting.PoissonSampledDpEvent(SAMPLE_RATE, dp_accounting.GaussianDpEvent(float(sigma)))
            accountant.compose(event, STEPS)
        return float(accountant.get_epsilon(DELTA))

    return _timed(work)
