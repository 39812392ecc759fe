"""A trainer's state as bytes and back: tensors and plain values only, so that loading one can run no code."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch

from dpviz.privacy.registry import InputError


def to_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    """The state; anything but tensors and plain values is refused."""
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise InputError(
            f"the checkpoint cannot be read ({type(error).__name__}); delete it to start the run over"
        ) from None
    if not isinstance(state, dict):
        raise InputError("the checkpoint is not a trainer's state; delete it to start the run over")
    return state


def use_threads(count: int) -> None:
    """Set how many threads PyTorch uses for work that the calling thread starts."""
    torch.set_num_threads(max(1, count))
