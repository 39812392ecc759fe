"""Figures of jax_privacy's one-run audit on made-up scores, kept in tests/privacy/one_run_goldens.csv.

pip install jax_privacy==2.0.0   # in an environment of its own
python benchmarks/one_run_oracle.py > tests/privacy/one_run_goldens.csv
"""

from __future__ import annotations

import numpy as np

# canaries, guesses, how far apart in and out are (in standard deviations), delta
CASES = [
    (canaries, canaries // 10, distance, delta)
    for canaries in (100, 1000, 5000)
    for distance in (0.0, 0.5, 1.0, 2.0, 4.0)
    for delta in (1e-5, 1e-8)
]
COLUMNS = "canaries,guesses,distance,delta,epsilon"


def coins_and_scores(canaries: int, distance: float) -> tuple[np.ndarray, np.ndarray]:
    """Which canaries are in, and a score for each: the same wherever it is called."""
    random = np.random.default_rng(canaries)
    included = random.random(canaries) < 0.5
    return included, random.standard_normal(canaries) + distance * included


def main() -> None:
    from jax_privacy.auditing import CanaryScoreAuditor, Explicit

    print(COLUMNS)
    for canaries, guesses, distance, delta in CASES:
        included, scores = coins_and_scores(canaries, distance)
        threshold = Explicit(np.sort(scores)[-guesses])
        auditor = CanaryScoreAuditor(scores[included], scores[~included])
        epsilon = auditor.epsilon_one_run(0.05, delta, threshold_strategy=threshold)
        print(f"{canaries},{guesses},{distance},{delta},{epsilon:.6f}")


if __name__ == "__main__":
    main()
