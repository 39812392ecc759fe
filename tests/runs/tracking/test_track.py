"""dpviz.track around real Opacus loops: the same training, the same history, every epoch on the disk at once."""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from opacus.accountants import RDPAccountant
from opacus.accountants.utils import get_noise_multiplier
from opacus.utils.batch_memory_manager import BatchMemoryManager

import dpviz
from dpviz.privacy import Phase
from dpviz.runs import Store
from dpviz.runs.store.imported import guarantee_of
from dpviz.runs.tracking.epochs import added
from tests.runs.tracking.opacus_loop import BATCH, DELTA, SIGMA, SIZE, opacus_loop

pytestmark = pytest.mark.filterwarnings("ignore:Optimal order is the largest")  # Opacus, on its RDP
ROOT = Path(__file__).parents[3]
EXAMPLE = (ROOT / "examples" / "track_opacus.py").read_text()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "runs")


def tuples(phases):
    return [(phase.noise_multiplier, phase.sample_rate, phase.steps) for phase in phases]


def only(store):
    (summary,) = store.list().runs
    return store.get(summary.id)


# --- Opacus ---------------------------------------------------------------------------------------------------------


def outcome(loop, epochs, each=lambda: None):
    for _ in range(epochs):
        loop.train()
        each()
    return loop.history, [parameter.detach().clone() for parameter in loop.model.parameters()]


@pytest.mark.parametrize("source", ["engine", "accountant", "optimizer"])
def test_training_and_accounting_are_the_same_with_and_without_track(source, store):
    history, weights = outcome(opacus_loop(), 2)
    loop = opacus_loop()
    sources = {
        "engine": {"privacy_engine": loop.engine},
        "accountant": {"privacy_engine": loop.engine.accountant},
        "optimizer": {"optimizer": loop.optimizer, "sample_rate": BATCH / SIZE},
    }
    with dpviz.track(**sources[source], delta=DELTA, store=store, name="mine", dataset="hospital", model="line") as run:
        tracked = outcome(loop, 2, lambda: run.log(test_accuracy=loop.accuracy()))
    assert tracked[0] == history == [(SIGMA, BATCH / SIZE, 20)]
    assert all(map(torch.equal, tracked[1], weights))
    kept = only(store)
    assert (kept.id, kept.status, kept.kind, kept.title) == (run.id, "done", "imported", "mine")
    assert (kept.spec.dataset, kept.spec.model, kept.provenance.kind) == ("hospital", "line", "imported")
    assert tuples(kept.spec.phases) == [(SIGMA, BATCH / SIZE, 10)] * 2
    assert kept.epochs[-1].epsilon_sound == dpviz.epsilon(history, DELTA).upper
    assert kept.epochs[-1].test_accuracy == pytest.approx(float(loop.accuracy()))


def test_the_sound_epsilon_is_ours_and_the_claimed_one_is_what_the_loop_says(store):
    loop = opacus_loop()
    with dpviz.track(loop.engine, delta=DELTA, store=store) as run:
        for _ in range(2):
            loop.train()
            record = run.log(epsilon=loop.engine.get_epsilon(DELTA), grad_norm=3)
    rdp = RDPAccountant()
    rdp.history = loop.history
    assert record.epsilon_sound < record.epsilon_claimed == pytest.approx(rdp.get_epsilon(DELTA))
    assert (record.test_accuracy, record.train_loss, record.metrics) == (None, None, {"grad_norm": 3.0})
    card = guarantee_of(only(store).spec)
    assert card.uppers == (record.epsilon_claimed, record.epsilon_sound)
    assert any("dpviz did not see it" in words for words in card.assumptions)


def test_an_optimizers_own_hook_is_called_first_and_given_back(store):
    loop = opacus_loop()
    before = loop.optimizer.step_hook
    with dpviz.track(optimizer=loop.optimizer, sample_rate=0.1, delta=DELTA, store=store) as run:
        loop.train()
        run.log()
        assert loop.history  # accounting goes on
        loop.optimizer.attach_step_hook(before)  # and ours no longer counts: never a silent hole
        with pytest.raises(dpviz.InputError, match="steps are no longer counted"):
            run.log()
        loop.optimizer.attach_step_hook(lambda _: None)
    assert only(store).status == "failed"
    again = opacus_loop()
    hook = again.optimizer.step_hook
    with dpviz.track(optimizer=again.optimizer, sample_rate=0.1, delta=DELTA, store=store):
        pass
    assert again.optimizer.step_hook is hook


def test_steps_split_over_small_batches_count_once(store):
    loop = opacus_loop()
    whole, counted = loop.loader, 0
    with dpviz.track(optimizer=loop.optimizer, sample_rate=BATCH / SIZE, delta=DELTA, store=store) as run:
        with BatchMemoryManager(data_loader=whole, max_physical_batch_size=4, optimizer=loop.optimizer) as small:
            loop.loader = small
            loop.train()
        run.log()
        counted = sum(steps for _, _, steps in loop.history)
    assert tuples(only(store).spec.phases) == [(SIGMA, BATCH / SIZE, counted)]


def test_opacus_knows_our_accountant_and_it_is_tighter_than_rdp(tmp_path):
    dpviz.register_with_opacus()
    dpviz.register_with_opacus()  # twice is no error
    ours, rdp = opacus_loop("dpviz"), opacus_loop("rdp")
    assert ours.engine.get_epsilon(DELTA) == 0.0
    ours.train()
    rdp.train()
    accountant = ours.engine.accountant
    assert accountant.history == rdp.history
    assert len(accountant) == 10
    assert ours.engine.get_epsilon(DELTA) == dpviz.epsilon(rdp.history, DELTA).upper < rdp.engine.get_epsilon(DELTA)
    fresh = opacus_loop("dpviz").engine.accountant
    fresh.load_state_dict(accountant.state_dict())
    assert fresh.get_epsilon(DELTA) == accountant.get_epsilon(DELTA)
    fresh.step(noise_multiplier=2.0, sample_rate=0.1)
    assert fresh.history[-1] == (2.0, 0.1, 1)
    wanted = {"target_epsilon": 2.0, "target_delta": DELTA, "sample_rate": 0.01, "steps": 1000}
    sigma = get_noise_multiplier(**wanted, accountant="dpviz")
    assert 1.98 < dpviz.epsilon([(sigma, 0.01, 1000)], DELTA).upper <= 2.0
    assert sigma < get_noise_multiplier(**wanted, accountant="rdp")


def test_opacus_example_prints_the_same_without_its_three_lines(tmp_path, monkeypatch, capsys):
    assert len(re.findall(r"  # [123]$", EXAMPLE, re.MULTILINE)) == 3
    bare = re.sub(r"^    with dpviz.track.*$", "    if True:", EXAMPLE, flags=re.MULTILINE)
    bare = "\n".join(line for line in bare.splitlines() if not line.endswith(("# 1", "# 3")))
    assert "dpviz.track" not in bare
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["track_opacus.py", "--epochs", "1"])
    printed = []
    for text in (EXAMPLE, bare):
        exec(compile(text, "track_opacus.py", "exec"), {"__name__": "__main__"})
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    run = only(Store(tmp_path))
    assert f"history {[(1.0, 0.1, 10)]}" in printed[0]
    assert tuples(run.spec.phases) == [(1.0, 0.1, 10)]
    assert all(record.epsilon_sound <= record.epsilon_claimed for record in run.epochs)


# --- other ledgers, ends, refusals ----------------------------------------------------------------------------------


def test_a_ledger_may_be_a_list_that_grows_or_a_function(store):
    steps = []
    for ledger in (steps, lambda: steps):
        steps.clear()
        with dpviz.track(ledger=ledger, delta=DELTA, store=store) as run:
            steps.append((2.0, 0.1, 5))
            run.log()
            steps[-1] = (2.0, 0.1, 8)
            steps.append((1.0, 0.1, 2))
            last = run.log()
        assert tuples(last.phases) == [(2.0, 0.1, 3), (1.0, 0.1, 2)]
        assert last.epsilon_sound == dpviz.epsilon([(2.0, 0.1, 8), (1.0, 0.1, 2)], DELTA).upper


def test_what_was_spent_after_the_last_log_counts(store):
    steps = [(1.0, 0.1, 10)]
    with dpviz.track(ledger=steps, delta=DELTA, store=store) as run:
        run.log(test_accuracy=0.5)
        steps[0] = (1.0, 0.1, 15)
    kept = only(store)
    assert kept.spent.steps == 15
    assert kept.spent.epsilon_sound == dpviz.epsilon(steps, DELTA).upper > kept.epochs[-1].epsilon_sound


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (KeyboardInterrupt(), "stopped", ""),
        (SystemExit(0), "stopped", ""),
        (ValueError(f"no file {Path.cwd()}/secret.csv"), "failed", "ValueError: no file .../secret.csv"),
    ],
)
def test_a_loop_that_ends_early_leaves_its_epochs_and_says_how_it_ended(error, status, words, store):
    def loop():
        with dpviz.track(ledger=[(1.0, 0.1, 10)], delta=DELTA, store=store) as run:
            run.log(test_accuracy=0.5)
            raise error

    with pytest.raises(type(error)):
        loop()
    kept = only(store)
    assert (kept.status, kept.error, len(kept.epochs)) == (status, words, 1)
    with pytest.raises(dpviz.InputError, match="neither resumed nor trained again"):
        store.claim(kept.id)
    store.delete(kept.id)  # nobody holds it


KILLED = """
import dpviz
steps = []
with dpviz.track(ledger=steps, delta=1e-5, epochs=9) as run:
    for epoch in range(2):
        steps.append((1.0 + epoch, 0.1, 10))
        run.log(test_accuracy=0.5)
    print(run.id, flush=True)
    input()
"""


def test_a_killed_script_is_live_until_then_and_leaves_the_epochs_that_were_logged(tmp_path):
    env = os.environ | {"PYTHONPATH": str(ROOT), "DPVIZ_RUNS": str(tmp_path)}
    script = subprocess.Popen(
        [sys.executable, "-c", KILLED], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        run_id = script.stdout.readline().strip()
        live = Store(tmp_path).get(run_id)
        assert (live.status, len(live.epochs), live.spec.epochs) == ("running", 2, 9)
        with pytest.raises(dpviz.InputError, match="another process works on this run"):
            Store(tmp_path).delete(run_id)
        script.send_signal(signal.SIGKILL)
        script.wait()
        dead, (summary,) = Store(tmp_path).get(run_id), Store(tmp_path).list().runs
        assert (dead.status, dead.epochs) == ("interrupted", live.epochs)
        assert (summary.status, summary.kind, summary.resumable) == ("interrupted", "imported", False)
        assert dead.spent.epsilon_sound == summary.spent[1] == live.epochs[-1].epsilon_sound
    finally:
        script.kill()
        script.communicate()


@pytest.mark.parametrize(
    ("about", "words"),
    [
        ({}, "one source of steps"),
        ({"ledger": [(1, 0.1, 5)], "privacy_engine": 1}, "one source of steps"),
        ({"privacy_engine": "rdp"}, "PrivacyEngine or accountant is needed, got str"),
        ({"optimizer": torch.optim.SGD([torch.zeros(1)], 0.1), "sample_rate": 0.1}, "DPOptimizer, got SGD"),
        ({"optimizer": 1}, "needs sample_rate="),
        ({"ledger": [(1, 2)]}, "a history is a list of"),
        ({"ledger": [(math.nan, 0.1, 5)]}, "noise_multiplier must be a finite number"),
        ({"ledger": [], "delta": 0}, "delta must be above 0"),
        ({"ledger": [], "dataset": "<b>x"}, "dataset must be a name"),
        ({"ledger": [], "name": "x" * 121}, "a title is one line"),
        ({"ledger": [], "model": math.nan}, "model must be a text or a finite number"),
        ({"ledger": [], "epochs": -1}, "epochs must be a whole number"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_written(about, words, tmp_path):
    with pytest.raises(dpviz.InputError, match=words), dpviz.track(**{"delta": DELTA, "store": tmp_path / "r"} | about):
        raise AssertionError("it began")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize(
    ("logged", "words"),
    [
        ({"test_accuracy": 97.3}, "fractions from 0 to 1, got 97.3"),
        ({"test_loss": math.nan}, "test_loss must be a finite number, got nan"),
        ({"train_loss": "low"}, "train_loss must be a finite number, got low"),
        ({"epsilon": -1}, "epsilon must be >= 0"),
        ({"other": math.inf}, "other must be a finite number"),
        ({f"m{k}": k for k in range(101)}, "at most 100 numbers"),
    ],
)
def test_a_wrong_number_is_refused_and_the_run_goes_on(logged, words, store):
    with dpviz.track(ledger=[(1.0, 0.1, 10)], delta=DELTA, store=store) as run:
        with pytest.raises(dpviz.InputError, match=words):
            run.log(**logged)
        run.log(test_accuracy=0.5)
    assert [record.epoch for record in only(store).epochs] == [1]


def test_a_log_before_any_step_and_a_history_that_was_replaced_are_refused(store):
    steps = []
    with dpviz.track(ledger=steps, delta=DELTA, store=store) as run:
        with pytest.raises(dpviz.InputError, match="no private step was taken"):
            run.log(test_accuracy=0.1)
        steps.append((1.0, 0.1, 10))
        run.log(epsilon=5.0)
        with pytest.raises(dpviz.InputError, match="in every epoch or in none"):
            run.log()
        assert run.log(epsilon=4.9).epsilon_claimed == 5.0  # an estimate that dips; nothing comes back
        steps[0] = (1.0, 0.1, 4)
        with pytest.raises(dpviz.InputError, match="no longer begins with"):
            run.log(epsilon=5.0)
        steps[0] = (1.0, 0.1, 10)
    assert only(store).status == "done"


@pytest.mark.parametrize(
    "now", [[], [(1.0, 0.1, 5)], [(2.0, 0.1, 20)], [(1.0, 0.2, 20)], [(3.0, 0.1, 1), (1.0, 0.1, 20)]]
)
def test_only_a_history_that_grew_has_new_steps(now):
    with pytest.raises(dpviz.InputError, match="no longer begins with"):
        added((Phase(1.0, 0.1, 10),), tuple(Phase(*phase) for phase in now))


@pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")
def test_the_documented_blocks_run(tmp_path, monkeypatch):
    text = (ROOT / "docs" / "tracking.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 2
    monkeypatch.setenv("DPVIZ_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    exec("\n".join(blocks), {})
    assert {run.title for run in Store(tmp_path / "runs").list().runs} == {"my line", "from a file"}
