"""Where a run of this code is from: commit, versions, and the cores it may use."""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import platform
import subprocess

from dpviz.paths import PACKAGE

PACKAGES = ("torch", "torchvision", "opacus", "numpy", "scipy")


@functools.cache
def commit() -> str:
    """The project's commit, with a + if files were changed since; empty outside a git checkout."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD").strip()
        return head + ("+" if _git("status", "--porcelain", "--untracked-files=no").strip() else "")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(PACKAGE), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout


@functools.cache
def versions() -> dict[str, str]:
    installed = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            installed[package] = importlib.metadata.version(package)
    return installed


def cores() -> int:
    """Cores that this process may use; OMP_NUM_THREADS lowers it."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "")
    return min(allowed, int(wanted)) if wanted.isdigit() and int(wanted) else allowed
