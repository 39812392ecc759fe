"""A run's lock: held by the one process that works on it, freed by the system however that process dies."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from dpviz.privacy.registry import InputError

RESERVE = 8192  # bytes kept back on the disk, so that a run that fills it up can still say so
PATIENCE = 0.5  # seconds; a reader that looks whether a run lives holds its lock for an instant


class Lock:
    """The lock file of one run, locked. `flock` belongs to the open file, so threads and other stores see it too."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        deadline = time.monotonic() + PATIENCE
        try:
            while True:
                try:
                    fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise InputError("another process works on this run; stop it there first") from None
                    time.sleep(0.01)
            if os.stat(path).st_ino != os.fstat(self._file).st_ino:
                raise InputError("the run has just been deleted")
        except (InputError, OSError):
            os.close(self._file)
            raise

    def reserve(self) -> None:
        """Keep some bytes back on the disk; random ones, since a compressing disk would keep nothing for zeros."""
        os.pwrite(self._file, os.urandom(RESERVE), 0)

    def free_reserve(self) -> None:
        """Give the reserved bytes back to the disk."""
        os.ftruncate(self._file, 0)

    def release(self) -> None:
        self.free_reserve()
        os.close(self._file)


def held(path: Path) -> bool:
    """Whether a living process holds the lock. Needs no right to write."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        os.close(file)
