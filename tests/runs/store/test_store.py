"""The store: nothing is lost, nothing is half written, nobody writes what another works on."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import time

import pytest

from dpviz.privacy.registry import InputError
from dpviz.runs.store import store as store_module
from dpviz.runs.store.lock import Lock
from dpviz.runs.store.run_files import read_summary
from dpviz.runs.store.store import Store


def finished(store, spec, record, epochs=1) -> str:
    run_id = store.create(spec)
    store.set_status(run_id, "running")
    for epoch in range(1, epochs + 1):
        store.append(run_id, record(epoch))
    store.set_status(run_id, "done")
    store.release(run_id)
    return run_id


def test_a_run_reads_back_as_it_was_written(store, spec, record):
    settings = spec(loss="focal", knobs=(("loss.gamma", 2.0),))
    run_id = store.create(settings, title="first try")
    store.set_status(run_id, "running")
    store.append(run_id, record(1, diagnostics={"norms": [1.0, 2.0]}))
    store.append(run_id, record(2, epsilon_sound=math.inf))
    run = Store(store.folder).get(run_id)
    assert (run.spec, run.status, run.title) == (settings, "running", "first try")
    assert run.epochs == (record(1, diagnostics={"norms": [1.0, 2.0]}), record(2, epsilon_sound=math.inf))


def test_files_are_strict_json_with_infinity_as_a_word(store, running, record):
    store.append(running, record(1, epsilon_claimed=None, epsilon_sound=math.inf))
    folder = store.folder / running
    for path in folder.glob("*.json*"):
        assert not re.search("NaN|Infinity", path.read_text())
        assert all(json.loads(line) for line in path.read_text().splitlines())
    assert json.loads((folder / "epochs.jsonl").read_text())["epsilon"] == {"claimed": None, "sound": "infinity"}
    (summary,) = store.list().runs
    assert (summary.epsilon_claimed, summary.epsilon_sound) == (None, math.inf)


def test_the_list_agrees_with_the_whole_runs(store, spec, record):
    ids = [finished(store, spec(seed=seed), record, epochs=seed + 1) for seed in range(3)]
    listing = store.list()
    assert [run.id for run in listing.runs] == ids
    assert listing.runs == tuple(store.get(run_id).summary for run_id in ids)
    assert listing.warnings == ()


def test_ids_sort_by_age_also_when_the_clock_goes_backwards(monkeypatch):
    clock = iter([5_000_000_000_000, 4_000_000_000_000, 4_000_000_000_000, 6_000_000_000_000])
    monkeypatch.setattr(store_module, "_last_moment", 0)
    monkeypatch.setattr(store_module.time, "time_ns", lambda: next(clock))
    ids = [store_module.new_id() for _ in range(4)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 4
    assert all(store_module.RUN_ID.fullmatch(run_id) for run_id in ids)


@pytest.mark.parametrize(
    "bad",
    ["", ".", "..", "../x", "a/b", "/etc", "a\\b", "A", "a\n", "a b", "a\0", "é", "-a", ".new-a", "a" * 41, 7, None],
)
@pytest.mark.parametrize("deed", ["get", "delete", "claim", "export", "read_checkpoint"])
def test_an_id_never_leads_out_of_the_store(store, bad, deed):
    (store.folder.parent / "x").mkdir(parents=True)
    with pytest.raises(InputError, match="is not a run id"):
        getattr(store, deed)(bad)


def test_a_link_out_of_the_store_is_not_followed(store, spec, record, tmp_path):
    inside = finished(store, spec(), record)
    outside = Store(tmp_path / "elsewhere")
    run_id = finished(outside, spec(), record)
    (store.folder / "linked").symlink_to(outside.folder / run_id)
    with pytest.raises(InputError, match="there is no run"):
        store.get("linked")
    listing = store.list()
    assert [run.id for run in listing.runs] == [inside]
    assert "'linked' is not a run's folder" in listing.warnings[0]


def test_a_finished_run_never_changes(store, spec, record):
    run_id = store.create(spec())
    store.set_status(run_id, "running")
    store.append(run_id, record(1))
    store.set_status(run_id, "done")
    before = store.get(run_id)
    for change in (
        lambda: store.append(run_id, record(2)),
        lambda: store.set_status(run_id, "running"),
        lambda: store.write_checkpoint(run_id, b"x"),
    ):
        with pytest.raises(InputError):
            change()
    store.release(run_id)
    with pytest.raises(InputError, match="not at work here"):
        store.append(run_id, record(2))
    with pytest.raises(InputError, match="a finished run never changes"):
        store.claim(run_id)
    assert store.get(run_id) == before


def test_a_title_is_a_label_that_finished_runs_take_too(store, spec, record):
    run_id = finished(store, spec(), record)
    store.rename(run_id, "  my\tbest  run ")
    assert store.get(run_id).title == store.list().runs[0].title == "my best run"
    with pytest.raises(InputError, match="at most 120"):
        store.rename(run_id, "x" * 121)


def test_epochs_follow_one_another_and_epsilon_never_falls(store, running, record):
    store.append(running, record(1))
    with pytest.raises(InputError, match="epoch 3 where 2 was due"):
        store.append(running, record(3))
    with pytest.raises(InputError, match="epsilon_sound must never fall"):
        store.append(running, record(2, epsilon_sound=0.4))
    with pytest.raises(InputError, match="epsilon_claimed must never fall"):
        store.append(running, record(2, epsilon_claimed=None))
    assert len(store.get(running).epochs) == 1


def test_an_epoch_with_a_number_that_is_not_finite_is_refused(store, running, record):
    with pytest.raises(InputError, match="epoch 1 has a number that is not finite"):
        store.append(running, record(1, test_loss=math.nan))
    assert store.get(running).epochs == ()


@pytest.mark.parametrize("cut", [1, 10, 100])
def test_a_torn_last_line_is_dropped_and_the_next_epoch_starts_clean(store, running, record, cut):
    store.append(running, record(1))
    store.append(running, record(2))
    path = store.folder / running / "epochs.jsonl"
    os.truncate(path, path.stat().st_size - cut)
    store.release(running)
    assert store.get(running).epochs == (record(1),)
    store.claim(running)
    store.set_status(running, "running")
    store.append(running, record(2, test_accuracy=0.8))
    assert store.get(running).epochs == (record(1), record(2, test_accuracy=0.8))


def test_a_last_line_of_zeros_from_a_power_cut_is_dropped(store, running, record):
    store.append(running, record(1))
    with open(store.folder / running / "epochs.jsonl", "ab") as file:
        file.write(b"\0" * 300 + b"\n")
    assert store.get(running).epochs == (record(1),)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda line: line[:20], "not valid JSON"),
        (lambda line: b"[]", "not an epoch of a run"),
        (lambda line: b"\xff\xfe", "not valid JSON"),
        (lambda line: line.replace(b'"epoch": 2', b'"epoch": 5'), "epoch 5 where 2 was due"),
        (lambda line: line.replace(b"0.9", b"NaN"), "not valid JSON"),
    ],
)
def test_damage_in_the_middle_names_the_file_and_the_line(store, running, record, damage, words):
    for epoch in (1, 2, 3):
        store.append(running, record(epoch))
    path = store.folder / running / "epochs.jsonl"
    lines = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join((lines[0], damage(lines[1]), lines[2], b"")))
    with pytest.raises(InputError, match=f"{running}/epochs.jsonl, line 2 is damaged: .*{words}"):
        store.get(running)
    store.release(running)
    with pytest.raises(InputError, match="line 2"):
        store.claim(running)
    assert path.read_bytes().splitlines()[0] == lines[0]


def test_bad_and_foreign_folders_are_skipped_with_a_warning(store, spec, record):
    good = finished(store, spec(), record)
    broken = {
        "empty": lambda folder: None,
        "not-json": lambda folder: (folder / "status.json").write_text("{"),
        "a-list": lambda folder: (folder / "status.json").write_text("[]"),
        "deep": lambda folder: (folder / "status.json").write_text("[" * 100_000),
        "other-status": lambda folder: (folder / "status.json").write_text(
            json.dumps({"status": "odd", "created": "", "error": "", "provenance": None, "summary": {}})
        ),
        "odd-types": lambda folder: (folder / "status.json").write_text(
            json.dumps(
                {"status": "done", "created": "", "error": "", "provenance": None, "summary": {"test_accuracy": "1"}}
            )
        ),
        "Photos 2019": lambda folder: (folder / "cat.jpg").write_bytes(b"\xff\xd8"),
        "a-folder": lambda folder: (folder / "status.json").mkdir(),
    }
    for name, breakage in broken.items():
        (store.folder / name).mkdir()
        breakage(store.folder / name)
    (store.folder / "notes.txt").write_text("a file is nobody's run")
    listing = store.list()
    assert [run.id for run in listing.runs] == [good]
    assert len(listing.warnings) == len(broken)
    assert all(any(name in warning for warning in listing.warnings) for name in broken)


def test_warnings_name_no_absolute_path(store):
    (store.folder / "empty").mkdir(parents=True)
    (warning,) = store.list().warnings
    assert str(store.folder) not in warning


def test_a_store_that_is_not_there_is_empty_and_is_not_made_by_looking(store):
    assert store.list().runs == ()
    assert not store.folder.exists()


def test_delete_removes_the_run_and_nothing_else(store, spec, record):
    keep, gone = finished(store, spec(), record), finished(store, spec(), record)
    store.delete(gone)
    assert [run.id for run in store.list().runs] == [keep]
    assert [path.name for path in store.folder.iterdir()] == [keep]
    with pytest.raises(InputError, match="there is no run"):
        store.delete(gone)


def test_a_folder_with_other_files_is_not_deleted(store, spec, record):
    run_id = finished(store, spec(), record)
    (store.folder / run_id / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"'thesis\.tex', which is not a run's file"):
        store.delete(run_id)
    assert (store.folder / run_id / "thesis.tex").exists()


def test_a_run_at_work_can_be_neither_deleted_nor_claimed_by_anyone_else(store, running):
    other = Store(store.folder)
    with pytest.raises(InputError, match="another process works on this run"):
        other.delete(running)
    with pytest.raises(InputError, match="another process works on this run"):
        other.claim(running)
    assert other.get(running).status == "running"


def test_a_lock_that_was_deleted_while_waiting_for_it_is_worth_nothing(tmp_path, monkeypatch):
    """Another run of that name has a lock of its own: with the old one two would work on it."""
    path = tmp_path / "lock"
    first = Lock(path)

    def replace_lock(seconds: float) -> None:  # while the other one sleeps
        path.unlink()
        path.touch()
        first.release()

    monkeypatch.setattr("dpviz.runs.store.lock.time.sleep", replace_lock)
    with pytest.raises(InputError, match="has just been deleted"):
        Lock(path)
    Lock(path).release()


@pytest.mark.parametrize("status", ["queued", "running"])
def test_a_live_run_whose_holder_is_gone_reads_as_interrupted(store, spec, status):
    run_id = store.create(spec())
    store.set_status(run_id, status)
    assert store.get(run_id).status == store.list().runs[0].status == status
    store.release(run_id)
    assert store.get(run_id).status == store.list().runs[0].status == "interrupted"


def test_kill_9_frees_the_run_for_others(store, python):
    code = (
        "import sys, time\nfrom conftest import small_spec, epoch_record\nfrom dpviz.runs.store.store import Store\n"
        "store = Store(sys.argv[1])\nrun_id = store.create(small_spec())\nstore.set_status(run_id, 'running')\n"
        "store.append(run_id, epoch_record(1))\nprint(run_id, flush=True)\ntime.sleep(60)"
    )
    process = python(code, store.folder)
    run_id = process.stdout.readline().strip()
    assert store.get(run_id).status == "running"
    with pytest.raises(InputError, match="another process works on this run"):
        store.claim(run_id)
    process.kill()
    process.wait()
    assert store.get(run_id).status == "interrupted"
    assert len(store.claim(run_id).epochs) == 1


def test_many_processes_on_one_store_claim_a_run_once_and_lose_nothing(store, spec, python):
    contested = store.create(spec())
    store.release(contested)
    code = (
        "import sys\nfrom conftest import small_spec, epoch_record\nfrom dpviz.runs.store.store import Store\n"
        "from dpviz.privacy.registry import InputError\nstore = Store(sys.argv[1])\n"
        "try:\n    store.claim(sys.argv[2]); print('mine', flush=True)\n"
        "except InputError as error:\n    print(error, flush=True)\n"
        "for seed in range(8):\n"
        "    run_id = store.create(small_spec(seed=seed)); store.set_status(run_id, 'running')\n"
        "    for epoch in (1, 2, 3):\n"
        "        store.append(run_id, epoch_record(epoch)); assert store.list().warnings == ()\n"
        "    store.set_status(run_id, 'done'); store.release(run_id)\n"
        "sys.stdin.readline()"
    )
    processes = [python(code, store.folder, contested) for _ in range(3)]
    answers = [process.stdout.readline() for process in processes]  # each holds what it claimed until it may end
    assert sorted("another process works" in answer for answer in answers) == [False, True, True]
    for process in processes:
        _, errors = process.communicate("end\n")
        assert process.returncode == 0, errors
    listing = store.list()
    assert len(listing.runs) == 25
    assert all(len(store.get(run.id).epochs) == 3 for run in listing.runs if run.id != contested)


def test_a_full_disk_refuses_the_epoch_keeps_the_rest_and_still_says_failed(small_disk, spec, record):
    store = Store(small_disk / "runs")
    run_id = store.create(spec())
    store.set_status(run_id, "running")
    store.append(run_id, record(1))
    fill(small_disk)
    with pytest.raises(OSError, match="No space"):
        append_forever(store, run_id, record)
    kept = store.get(run_id).epochs
    store.set_status(run_id, "failed", error="the disk is full")
    store.release(run_id)
    run = store.get(run_id)
    assert (run.status, run.error, run.epochs) == ("failed", "the disk is full", kept)
    assert len(kept) >= 1
    with pytest.raises(InputError, match="cannot be saved: the disk is full"):
        Store(small_disk / "runs").create(spec())
    assert [path.name for path in store.folder.iterdir()] == [run_id]
    store.delete(run_id)  # which is what a person does next
    assert store.list().runs == ()


def test_a_line_that_fits_only_in_part_is_taken_back(store, python):
    code = (
        "import resource, sys\nfrom conftest import small_spec, epoch_record\n"
        "from dpviz.runs.store.store import Store\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))\n"
        "store = Store(sys.argv[1])\nrun_id = store.create(small_spec())\nstore.set_status(run_id, 'running')\n"
        "for epoch in range(1, 1000):\n    store.append(run_id, epoch_record(epoch))"
    )
    _, errors = python(code, store.folder).communicate()
    assert "File too large" in errors
    (run,) = store.list().runs
    content = (store.folder / run.id / "epochs.jsonl").read_bytes()
    assert content.endswith(b"}\n")
    assert len(content) < 9_000
    assert content.count(b"\n") == len(store.get(run.id).epochs) == run.epochs_done > 10


def fill(folder) -> None:
    with open(folder / "ballast", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 512)


def append_forever(store, run_id, record) -> None:
    for epoch in itertools.count(2):
        store.append(run_id, record(epoch))


def test_a_read_only_store_can_be_read_and_says_so_when_written(store, spec, record, read_only):
    run_id = finished(store, spec(), record)
    interrupted = store.create(spec())
    store.release(interrupted)
    with read_only(store.folder):
        assert [run.status for run in store.list().runs] == ["done", "interrupted"]
        assert len(store.get(run_id).epochs) == 1
        for deed in (
            lambda: store.create(spec()),
            lambda: store.claim(interrupted),
            lambda: store.delete(run_id),
            lambda: store.rename(run_id, "x"),
        ):
            with pytest.raises(InputError, match="set DPVIZ_RUNS to another folder"):
                deed()
    assert len(store.list().runs) == 2


def test_five_thousand_runs_are_listed_within_a_second(store, spec, record):
    run_id = finished(store, spec(), record)
    files = {path.name: path.read_bytes() for path in (store.folder / run_id).iterdir() if path.name != "lock"}
    for number in range(5000):
        folder = store.folder / f"copy-{number:04d}"
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        assert len(store.list().runs) == 5001
        times.append(time.perf_counter() - started)
    assert min(times) < 1.0
    assert read_summary(str(store.folder / "copy-0042")).test_accuracy == 0.9
