"""CIFAR-10's batch files, which are pickles, read without building anything that they name.

A pickle may name any function and have it called. These need two kinds of things besides plain values: an array and its
number type. Both are given an inert stand-in that only keeps what it is handed, and every other name ends the reading.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np

from dpviz.privacy.registry import InputError


class Kept:
    """In place of an array or a number type: keeps the arguments and the state, does nothing."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


# How old and new versions of NumPy name the maker of an array, the array's class, and its number type.
NAMES = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
}


class Reader(pickle.Unpickler):
    """Reads plain values and NAMES; refuses every other name, and objects kept outside of the file."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in NAMES:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return Kept

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("nothing outside of the file is allowed")


def read_batch(content: bytes, file: str, numbers: int) -> tuple[np.ndarray, np.ndarray]:
    """(bytes of each image in a row, labels) of one file; `numbers` is how many bytes an image has."""
    wrong = InputError(f"{file} is not the file it should be; delete it, so that it can be downloaded again")
    try:
        found = Reader(io.BytesIO(content), encoding="latin1").load()
        _, shape, kind, columns_first, values = found["data"].state
        labels = np.array(found["labels"])
        raw = values if isinstance(values, bytes) else values.encode("latin1")
        plain = kind.arguments[0] == "u1" and not columns_first
        pixels = np.frombuffer(raw, np.uint8).reshape(len(labels), numbers)
    # A made-up pickle can go wrong in any of the ways in which Python can.
    except Exception:
        raise wrong from None
    if not (plain and shape == pixels.shape and labels.dtype.kind == "i" and labels.ndim == 1):
        raise wrong
    return pixels, labels
