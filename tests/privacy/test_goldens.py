"""Published numbers, one test per row of goldens.csv: each names the file, table or issue it was read from.

kind exact, pld, prv: the true epsilon up to the tolerance, so our band must hold it. kind rdp_classic, rdp_improved: an
upper bound, so our lower end may not exceed it, and our own RDP of that conversion equals it.
"""

import csv
from pathlib import Path

import pytest

from dpviz.privacy import Ledger, Phase, epsilon

ROWS = list(csv.DictReader((Path(__file__).parent / "goldens.csv").read_text(encoding="utf-8").splitlines()))
ACCOUNTANT = {"rdp_classic": "rdp-classic", "rdp_improved": "rdp"}
# Numbers that are larger than ours for want of orders: there ours must only be below.
FEWER_ORDERS = {
    "tensorflow_privacy/privacy/analysis/compute_dp_sgd_privacy_test.py:44": "no order near 1, which low noise needs",
    "issue #17 (RDP line, q=0.00033)": "no order above 63, which tiny deltas need: log(1/delta) / 62 alone is 0.667",
}
PRINTED = 5e-12  # of epsilon: what the twelfth digit of a printed delta is worth


def _ledger(row: dict[str, str]) -> Ledger:
    columns = (row[name].split(";") for name in ("sigma", "q", "steps"))
    return Ledger(Phase(float(s), float(q), int(n)) for s, q, n in zip(*columns, strict=True))


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['source']}-{number}" for number, row in enumerate(ROWS, start=2)])
def test_a_published_number_holds(row: dict[str, str]) -> None:
    ledger, delta = _ledger(row), float(row["delta"])
    golden, tolerance = float(row["epsilon_golden"]), max(float(row["tolerance"]), PRINTED)
    found = epsilon(ledger, delta, adjacency=row["adjacency"])
    assert found.lower <= golden + tolerance
    if row["kind"] in ACCOUNTANT:
        ours = epsilon(ledger, delta, accountant=ACCOUNTANT[row["kind"]], adjacency=row["adjacency"]).upper
        assert ours <= golden + tolerance
        assert (ours < golden - tolerance) == (row["place"] in FEWER_ORDERS)
    else:
        assert golden - tolerance <= found.upper


def test_no_row_was_lost() -> None:
    assert len(ROWS) == 109
    assert {row["kind"] for row in ROWS} == {"exact", "pld", "prv", *ACCOUNTANT}
