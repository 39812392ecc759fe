"""Where people sign in, a person's sweeps and their runs are that person's; read-only forbids them."""

import pytest

from dpviz.privacy import InputError
from dpviz.runs import Store
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.sweeps.driver import SweepDriver
from dpviz.runs.sweeps.folder import SweepFolder, sweep_ids
from dpviz.runs.sweeps.spec import Sweep
from tests.runs.conftest import small_spec

ANN, BEN = "a" * 32, "b" * 32
SWEEP = Sweep(small_spec(epochs=1), grids=((("learning_rate", (0.1, 0.2)),),))


def test_a_persons_sweep_and_its_runs_are_not_there_for_others(tmp_path):
    ann = Store(tmp_path, owner=ANN)
    runner = QueueRunner(Store(tmp_path))
    drive = SweepDriver(SWEEP, ann, runner)
    drive.run()
    assert not drive.problem
    assert len(ann.list().runs) == 2
    assert {run.owner for run in ann.list().runs} == {ANN}
    assert sweep_ids(ann) == (SWEEP.id,)
    assert sweep_ids(Store(tmp_path, owner=BEN)) == ()
    assert Store(tmp_path, owner=BEN).list().runs == ()


def test_a_read_only_dashboard_starts_and_forgets_no_sweep(tmp_path, monkeypatch):
    store = Store(tmp_path)
    SweepFolder(store, SWEEP.id).save(SWEEP)
    monkeypatch.setenv("DPVIZ_READ_ONLY", "1")
    with pytest.raises(InputError, match="read-only"):
        SweepDriver(SWEEP, store, QueueRunner(store))
    with pytest.raises(InputError, match="read-only"):
        SweepFolder(store, SWEEP.id).delete()
    assert sweep_ids(store) == (SWEEP.id,)
