"""Random ledgers over the whole range that the accountant promises to handle."""

from __future__ import annotations

import numpy as np

from dpviz.privacy import Ledger, Phase

KINDS = ("drawn", "sorted", "spiky", "constant")


def random_ledger(rng: np.random.Generator, kind: str, usual: bool) -> tuple[Ledger, float]:
    """A ledger and a delta. `usual`: sigma >= 0.7 and sample rate >= 0.001, where the band must be narrow."""
    epochs = int(rng.integers(1, 31))
    low, high = (0.7, 20.0) if usual else (0.05, 1000.0)
    sample_rate = float(np.exp(rng.uniform(np.log(1e-3 if usual else 1e-6), 0.0)))
    steps = int(np.exp(rng.uniform(0.0, np.log(5_000 if usual else 1e7 / epochs))))
    sigmas = {
        "drawn": lambda: np.exp(
            np.interp(np.arange(epochs), np.linspace(0, epochs, 5), rng.uniform(np.log(low), np.log(high), 5))
        ),
        "sorted": lambda: np.sort(np.exp(rng.uniform(np.log(low), np.log(high), epochs)))[::-1],
        "spiky": lambda: np.where(
            rng.random(epochs) < 0.2, low * rng.uniform(1, 2), high * rng.uniform(0.2, 1, epochs)
        ),
        "constant": lambda: np.full(epochs, np.exp(rng.uniform(np.log(low), np.log(high)))),
    }[kind]()
    delta = float(10.0 ** rng.uniform(-12, -3))
    return Ledger(Phase(float(np.round(sigma, 6)), sample_rate, max(1, steps)) for sigma in sigmas), delta
