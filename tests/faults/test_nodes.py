"""A whole node of a Ray cluster killed while a sweep trains on it."""

from __future__ import annotations

import json
import time

import pytest

from dpviz.runs import Store
from tests.runs.execution import test_ray_runner as test_cluster
from tests.runs.execution.test_ray_runner import TEXT, curves, sweep_command

pytestmark = [*test_cluster.pytestmark, pytest.mark.faults]


def at_work(store: Store) -> int:
    """Runs that have sent an epoch and are not at their end."""
    return sum(run.status == "running" and run.epochs_done > 0 for run in store.list().runs)


def test_when_a_node_dies_the_sweep_finishes_on_the_other_with_the_same_curves(tmp_path):
    from benchmarks.scale import raylets

    file, store = tmp_path / "sweep.toml", Store(tmp_path / "ray")
    file.write_text(TEXT.replace("seeds = [0]", "seeds = [0, 1]").replace("epochs = 20", "epochs = 60"))
    with raylets(2) as made:
        process = sweep_command(file, store.folder, "--ray", made.address)
        deadline = time.monotonic() + 120
        while at_work(store) < 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert at_work(store) == 2
        made.remove_node(next(iter(made.worker_nodes)), allow_graceful=False)
        out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert b"died (1 of 3)" in err
    assert (json.loads(out)["done"], json.loads(out)["failed"]) == (4, 0)

    process = sweep_command(file, tmp_path / "queue")
    _, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert len(curves(store)) == 4
    assert curves(store) == curves(Store(tmp_path / "queue"))
