"""Objects that live as long as the process, also through Streamlit's hot reload."""

from __future__ import annotations

import sys
import threading
import types
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
MODULE = "dpviz_process_wide"


def process_wide(name: str, make: Callable[[], T]) -> T:
    """The process's one object of this name, made on first use.

    It hangs on a module without a file: a hot reload drops the modules whose files changed, and everything in them, but
    not that one, so runs go on and are found again.
    """
    module = sys.modules.setdefault(MODULE, types.ModuleType(MODULE))
    with module.__dict__.setdefault("guard", threading.RLock()):
        objects: dict[str, T] = module.__dict__.setdefault("objects", {})
        if name not in objects:
            objects[name] = make()
        return objects[name]
