"""A trainer's state as bytes and back: tensors and plain values only, so that loading one can run no code."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from dpviz.privacy.registry import InputError

MOST_PICKLED = 50_000_000  # bytes of a foreign checkpoint that are not tensors


def to_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


def from_bytes(data: bytes) -> dict[str, Any]:
    """The state; anything but tensors and plain values is refused."""
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make torch raise nearly anything
        raise InputError(
            f"the checkpoint cannot be read ({type(error).__name__}); delete it to start the run over"
        ) from None
    if not isinstance(state, dict):
        raise InputError("the checkpoint is not a trainer's state; delete it to start the run over")
    return state


def read_foreign(path: Path) -> Any:
    """What another program wrote with torch.save: plain values, and tensors that stay on the disk.

    Files that hold code, packed entries (a bomb could hide in one) and the format before PyTorch 1.6 are refused.
    """
    name = path.name
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise InputError(f"{name} has packed entries, which torch.save never writes; save it again with torch.save")
        if sum(entry.file_size for entry in entries if entry.filename.endswith(".pkl")) > MOST_PICKLED:
            raise InputError(
                f"{name} holds more than {MOST_PICKLED:,} bytes beside its tensors; save the accountant alone"
            )
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except InputError:
        raise
    except pickle.UnpicklingError:
        raise InputError(
            f"{name} holds more than tensors and plain values, and loading it could run code; save "
            "privacy_engine.accountant.state_dict() with torch.save"
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {name!r}: {error.strerror or type(error).__name__}") from None
    except Exception as error:  # damaged bytes make torch raise nearly anything
        raise InputError(f"{name} is not a file of torch.save ({type(error).__name__})") from None


def use_threads(count: int) -> None:
    """Set how many threads PyTorch uses for work that the calling thread starts."""
    torch.set_num_threads(max(1, count))
