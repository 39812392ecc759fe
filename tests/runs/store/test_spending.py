"""What a run has really spent, wherever it ended: stopped, failed, killed, or made before that was recorded."""

from __future__ import annotations

import json
import math

import pytest

from dpviz.privacy import InputError, Ledger, Phase, epsilon, guarantee
from dpviz.runs import QueueRunner
from dpviz.runs.store import run_files as files
from dpviz.runs.store.spending import Spending, at_most, spending, spent_phases
from dpviz.runs.store.store import Store
from dpviz.training import checkpoint
from dpviz.training.devices import Device
from tests.runs.conftest import Foreground, epoch_record, small_spec
from tests.views.made_runs import made_run


def sound(spec, steps: int, redone=()) -> float:
    return guarantee(spec.method, spec.curriculum, spent_phases(spec, steps, redone), spec.delta).sound.upper


def train(store: Store, spec, *, stop_at: int | None = None, fail_at: int | None = None, run_id: str = "") -> str:
    """Train a run, or go on with one, until it is done, stopped after a step or refused a file by the system there."""

    def watch(progress) -> None:
        if progress.step == stop_at:
            runner.stop(progress.run_id)
        if progress.step == fail_at:
            raise OSError("the cable was pulled")

    runner = Foreground(store, threads=1, on_progress=watch)
    if run_id:
        runner.resume(run_id)
        return run_id
    return runner.start(spec)


def saved(store: Store, run_id: str) -> dict:
    return checkpoint.from_bytes(store.read_checkpoint(run_id))["trainer"]


def test_a_stopped_run_has_spent_what_its_checkpoints_ledger_costs(store):
    run_id = train(store, small_spec(), stop_at=17)
    run = store.get(run_id)
    ledger = Ledger(Phase(*phase) for phase in saved(store, run_id)["spent"])
    assert (run.status, len(run.epochs), ledger.steps, run.spent.steps) == ("stopped", 1, 17, 17)
    assert run.spent.epsilon_sound == epsilon(ledger, run.spec.delta).upper > run.epochs[-1].epsilon_sound
    summary = store.list().runs[0]
    assert summary.spent == (run.spent.epsilon_claimed, run.spent.epsilon_sound)
    assert summary == run.summary
    assert store.export(run_id)["spent"] == run.spent.to_json()
    assert not summary.at_most


def test_a_run_that_is_stopped_before_its_first_epoch_is_over_has_spent_its_steps(store):
    run = store.get(train(store, small_spec(), stop_at=3))
    assert (run.epochs, run.spent.steps) == ((), 3)
    assert run.spent.epsilon_sound == sound(run.spec, 3) > 0
    assert run.summary.begun


def test_a_run_that_never_began_has_spent_nothing(store):
    run_id = store.create(small_spec())
    store.set_status(run_id, "stopped")
    store.release(run_id)
    run = store.get(run_id)
    assert (run.spent.steps, run.spent.epsilon_sound, run.summary.begun) == (0, 0.0, False)


def test_a_server_that_shuts_down_writes_down_the_steps_of_its_run(store):
    runner = QueueRunner(store, threads=1)
    run_id = runner.start(small_spec(epochs=500))
    while (progress := runner.progress(run_id)) is None or progress.step < 12:
        assert not runner.wait(run_id, 0.01)
    runner.close()
    run = store.get(run_id)
    assert run.status == "interrupted"
    assert run.spent.steps == sum(steps for _, _, steps in saved(store, run_id)["spent"]) >= 12
    assert not run.spent.at_most


def test_a_failed_run_has_spent_the_steps_after_its_checkpoint_too(store):
    run = store.get(train(store, small_spec(), fail_at=13))
    assert (run.status, len(run.epochs), run.spent.steps) == ("failed", 1, 13)
    assert run.spent.epsilon_sound == sound(run.spec, 13)


def test_a_seeded_run_that_goes_on_repeats_itself_and_pays_once(store):
    run_id = train(store, small_spec(), fail_at=13)
    train(store, None, run_id=run_id, stop_at=11)
    assert store.get(run_id).spent.steps == 13  # it was there before, and was looked at
    train(store, None, run_id=run_id)
    run = store.get(run_id)
    assert run.status == "done"
    assert run.spent == Spending(30, run.epochs[-1].epsilon_claimed, run.epochs[-1].epsilon_sound)


def test_a_secure_run_that_goes_on_pays_again_for_the_steps_that_it_lost(store):
    run_id = train(store, small_spec(secure=True), fail_at=13)
    train(store, None, run_id=run_id, fail_at=18)
    again = store.get(run_id).spent
    assert (again.steps, again.redone) == (18, ((10, 13),))
    assert again.epsilon_sound == sound(small_spec(), 18, ((10, 13),)) > sound(small_spec(), 18)
    train(store, None, run_id=run_id)
    run = store.get(run_id)
    assert (run.status, run.spent.redone) == ("done", ((10, 13), (10, 18)))
    assert run.spent.epsilon_sound == sound(run.spec, 30, run.spent.redone) > run.epochs[-1].epsilon_sound


def test_a_seeded_run_that_starts_over_on_another_kind_of_device_pays_again(store, monkeypatch):
    """Here the device is the CPU under another name: its checkpoint is refused, and without one the run begins anew."""
    run_id = train(store, small_spec(), fail_at=13)
    monkeypatch.setattr(Device, "model", "cuda (toy)")
    train(store, None, run_id=run_id)
    run = store.get(run_id)
    assert (run.status, run.spent.steps, run.spent.redone) == ("failed", 13, ())
    assert "drawn on cpu, and cuda (toy) would draw others" in run.error
    (store.folder / run_id / files.CHECKPOINT).unlink()
    train(store, None, run_id=run_id)
    run = store.get(run_id)
    assert (run.status, run.spent.redone, run.provenance.generators) == ("done", ((0, 13),), "cuda (toy)")
    assert run.spent.epsilon_sound == sound(run.spec, 30, ((0, 13),)) > run.epochs[-1].epsilon_sound


def test_a_run_under_a_filter_starts_over_on_the_same_kind_of_device_only(store, monkeypatch):
    run_id = train(store, small_spec(filter_epsilon=50.0), fail_at=13)
    monkeypatch.setattr(Device, "model", "cuda (toy)")
    (store.folder / run_id / files.CHECKPOINT).unlink()
    train(store, None, run_id=run_id)
    assert "a run under a filter needs the same" in store.get(run_id).error


def test_a_secure_run_that_was_stopped_goes_on_from_its_checkpoint_and_loses_nothing(store):
    run_id = train(store, small_spec(secure=True), stop_at=13)
    train(store, None, run_id=run_id)
    run = store.get(run_id)
    assert (run.status, run.spent.steps, run.spent.redone) == ("done", 30, ())


def test_screening_claims_accepted_updates_and_has_spent_every_candidate_when_it_is_stopped(store):
    spec = small_spec(method="screening", learning_rate=20.0, knobs=(("method.public_examples", 500),))
    run_id = train(store, spec, stop_at=17)
    accepted = saved(store, run_id)["screening"]["accepted"]
    price = guarantee("screening", "none", spent_phases(spec, 17), spec.delta, accepted=accepted)
    spent = store.get(run_id).spent
    assert 0 < sum(accepted) < 17
    assert spent.epsilon_sound == price.sound.upper == sound(spec, 17)
    assert spent.epsilon_claimed == price.claimed.upper < spent.epsilon_sound


# --- what nobody wrote down -------------------------------------------------------------------------------------------


def killed(store: Store, epochs: int, **changes) -> str:
    """A run whose process died after so many epochs."""
    run_id = store.create(small_spec(**changes))
    store.set_status(run_id, "running")
    for epoch in range(1, epochs + 1):
        store.append(run_id, epoch_record(epoch, epsilon_claimed=0.1, epsilon_sound=0.1))
    store.release(run_id)
    return run_id


@pytest.mark.parametrize(("epochs", "steps"), [(0, 10), (1, 20), (3, 30)])
def test_a_killed_run_has_spent_at_most_one_more_epoch(store, epochs, steps):
    run = store.get(killed(store, epochs))
    assert run.status == "interrupted"
    assert (run.spent.steps, run.written.at_most) == (steps, True)
    assert run.spent.epsilon_sound == (sound(run.spec, steps) if epochs < 3 else 0.1)
    assert store.list().runs[0] == run.summary


def test_what_a_killed_run_may_have_spent_is_kept_when_it_is_claimed_and_not_begun(store):
    run_id = killed(store, 1)
    before = store.get(run_id).spent
    store.claim(run_id)
    store.set_status(run_id, "stopped")
    store.release(run_id)
    assert store.get(run_id).spent == before
    assert before.at_most


def test_a_killed_secure_run_pays_for_the_epoch_that_it_may_have_lost(store):
    run = store.get(killed(store, 1, secure=True))
    assert (run.spent.steps, run.spent.redone) == (10, ((10, 20),))
    assert run.spent.epsilon_sound == pytest.approx(sound(run.spec, 20))


def forget_record(store: Store, run_id: str) -> None:
    """Make a run's files those of the time before steps were recorded."""
    path = store.folder / run_id / files.STATUS
    data = json.loads(path.read_text())
    del data["spent"]
    path.write_text(json.dumps(data))


def test_a_stopped_run_of_the_old_format_is_read_and_has_spent_at_most_one_more_epoch(store):
    run_id = train(store, small_spec(), stop_at=17)
    real = store.get(run_id).spent
    forget_record(store, run_id)
    run = store.get(run_id)
    assert (run.spent.steps, run.spent.at_most) == (20, True)
    assert run.spent.epsilon_sound == sound(run.spec, 20) > real.epsilon_sound
    assert store.list().runs[0].spent == (run.spent.epsilon_claimed, run.spent.epsilon_sound)
    train(store, None, run_id=run_id)
    assert store.get(run_id).spent.steps == 30
    assert not store.get(run_id).spent.at_most


def test_a_finished_run_of_the_old_format_has_spent_what_its_last_epoch_says(store):
    run_id = train(store, small_spec(epochs=1))
    forget_record(store, run_id)
    run = store.get(run_id)
    assert (run.written, run.spent.epsilon_sound) == (None, run.epochs[-1].epsilon_sound)
    assert store.list().runs[0].spent[1] == run.epochs[-1].epsilon_sound


# --- the record -------------------------------------------------------------------------------------------------------


def test_steps_are_cut_out_of_the_plan_epoch_by_epoch():
    spec = small_spec()
    assert [phase.steps for phase in spent_phases(spec, 17, ((8, 12),))] == [10, 7, 2, 2]
    assert spent_phases(spec, 0) == ()


def test_no_guarantee_stays_none_and_no_noise_costs_infinity():
    assert spending(small_spec(curriculum="sample"), 5).epsilon_sound is None
    assert spending(small_spec(sigma=0.0), 5).epsilon_sound == math.inf
    assert at_most(small_spec(method="sgd", sigma=0.0), 0, None, None).epsilon_sound is None


def test_a_record_is_the_same_after_saving():
    for record in (Spending(7, None, math.inf, ((1, 3), (2, 4)), True), Spending(0, 0.0, 1.5)):
        assert Spending.from_json(json.loads(json.dumps(record.to_json()))) == record


@pytest.mark.parametrize(
    "bad", [{}, None, {"steps": -1}, {"steps": 1.5}, {"redone": [[1]]}, {"epsilon": {"sound": -1}}]
)
def test_a_damaged_record_is_refused_in_a_sentence(bad):
    whole = Spending(7, 1.0, 1.0).to_json()
    with pytest.raises(InputError):
        Spending.from_json(whole | bad if bad else bad)


def test_an_export_states_no_risk_where_steps_were_taken_again():
    """The risk of the planned steps would be too small."""
    assert made_run(secure=True).to_json()["risk"]
    again = Spending(6, 1.0, 1.5, redone=((2, 4),))
    assert made_run(secure=True, written=again).to_json()["risk"] is None
