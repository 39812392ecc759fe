"""Apply each mutant to a copy of the project and run its tests: `python -m tests.mutants [NAME ...]`."""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.mutants import ROOT, Mutant, mutants

WORKERS = 2
LINKED = ("cached_runs", "data")  # large, and only read
SECONDS = 600  # a mutant that never ends is noticed too


def copy_project(folder: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, tracked.split("\0")):
        if not name.startswith(LINKED) and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, folder / name)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)


def passes(folder: Path, tests: tuple[str, ...], told: bool = False) -> bool:
    """Whether these tests pass in the folder. No byte code is kept: it is told from the source by whole seconds."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
    environment = os.environ | {
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "DPVIZ_RUNS": str(folder / "runs"),
    }
    try:
        return (
            subprocess.run(command, cwd=folder, env=environment, capture_output=not told, timeout=SECONDS).returncode
            == 0
        )
    except subprocess.TimeoutExpired:
        return False


def survives(folder: Path, mutant: Mutant) -> bool:
    path = folder / mutant.file
    sound = path.read_text()
    path.write_text(mutant.applied(sound))
    try:
        return passes(folder, mutant.tests)
    finally:
        path.write_text(sound)


def in_parallel(work: list[Mutant]) -> list[Mutant]:
    """The mutants that survive, each worker with a copy of its own."""
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in work:
        waiting.put(mutant)
    found: list[Mutant] = []

    def run(folder: Path) -> None:
        copy_project(folder)
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            started = time.monotonic()
            alive = survives(folder, mutant)
            if alive:
                found.append(mutant)
            print(
                f"{'SURVIVED' if alive else 'killed':9} {time.monotonic() - started:4.0f} s  {mutant.name}", flush=True
            )

    with tempfile.TemporaryDirectory() as folder:
        threads = [threading.Thread(target=run, args=(Path(folder, str(k)),)) for k in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in mutants() if not names or mutant.name in names]
    with tempfile.TemporaryDirectory() as folder:
        copy_project(Path(folder))
        if not passes(
            Path(folder), tuple(dict.fromkeys(test for mutant in chosen for test in mutant.tests)), told=True
        ):
            print("the tests fail without any mutant; mend that first")
            return 2
    survivors = in_parallel(chosen)
    print(f"{len(chosen)} mutants, {len(survivors)} survivors")
    for mutant in survivors:
        print(f"  {mutant.name}: {mutant.file}: {mutant.old!r} -> {mutant.new!r}")
    return bool(survivors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
