"""One run over several processes of this machine: started together, listened to, stopped together."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from pathlib import Path

from dpviz.runs.execution.job import PULSE, Assignment, Ended, Sink
from dpviz.runs.execution.local_worker import Share

START = """
import sys
from multiprocessing.connection import Connection
from dpviz.runs.execution.local_worker import main
sys.exit(main(Connection(int(sys.argv[1]))))
"""
LEAVING = 20.0  # seconds that workers are given to end by themselves


def train_together(assignment: Assignment, sink: Sink, should_stop: Callable[[], bool]) -> Ended | None:
    """Train a run by several processes and pass on what the first reports; how it ended, or None if a worker died."""
    with tempfile.TemporaryDirectory(prefix="dpviz-team-") as folder:
        shares = [Share(rank, Path(folder) / "meeting", assignment) for rank in range(assignment.options.workers)]
        workers: list[Worker] = []
        try:
            for share in shares:
                workers.append(Worker())
                workers[-1].give(share)
            return _listen(workers, sink, should_stop)
        finally:
            for worker in workers:
                worker.end()


class Worker:
    """A process that waits for its share of a run, and the line to it; closing the line tells it to stop."""

    def __init__(self) -> None:
        self.line, theirs = Pipe()
        paths = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", START, str(theirs.fileno())],  # -P: nothing comes from the folder it starts in
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the process that started them, which tells them
        )
        theirs.close()

    def give(self, share: Share) -> None:
        with contextlib.suppress(ConnectionError):  # it is gone, which is seen when it is listened to
            self.line.send(share)

    @property
    def died(self) -> bool:
        return self.process.poll() not in (None, 0)

    def last_words(self) -> Ended | None:
        """How its work ended, if it said so and nobody has listened yet."""
        with contextlib.suppress(EOFError, ConnectionError):
            return self.line.recv() if self.line.poll() else None
        return None

    def end(self) -> None:
        self.line.close()
        try:
            self.process.wait(LEAVING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _listen(workers: list[Worker], sink: Sink, should_stop: Callable[[], bool]) -> Ended | None:
    line: Connection = workers[0].line
    told = False
    try:
        while not any(worker.died for worker in workers) or line.poll():
            if line.poll(PULSE):
                report = line.recv()
                if isinstance(report, Ended):
                    return report
                sink(report)
            if should_stop() and not told:
                told = True
                line.send("stop")
    except (EOFError, ConnectionError):
        pass  # the first worker is gone
    for worker in workers:  # one is dead, and the others wait for it
        worker.process.kill()
    # The first worker also ends where another one failed, which says why.
    return next(filter(None, (worker.last_words() for worker in workers[1:])), None)
