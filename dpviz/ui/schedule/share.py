"""Share links: a schedule and its settings as a short text that fits a URL.

    2~<sigmas>~<one field per setting, in the order of FIELDS, empty where it is not set>

2 is the version; version 1 had fewer fields. Sigmas take two bytes per epoch in base64url: 0, or four significant
digits from 0.0001 to 1000. What the editor draws has four digits and survives unchanged; other sigmas are rounded by at
most 0.05 %, so it is the *decoded* schedule that is shared: price that one. Decoding accepts exactly the texts that
encoding writes or wrote.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dpviz.privacy.registry import InputError, Knob, Value
from dpviz.privacy.schedules import check_sigmas

VERSIONS = {"1": 9, "2": 11}  # version -> how many of FIELDS it has; the last one is written
MAX_EPOCHS = 1000
MAX_LENGTH = 4000
LEAST_SIGMA, MOST_SIGMA = 1e-4, 1e3

_LEAST_POWER = -4  # of ten, in LEAST_SIGMA
_MANTISSAS = 9000  # 1.000 ... 9.999


def encode(sigmas: Iterable[Any], settings: Mapping[str, Any], version: str = max(VERSIONS)) -> str:
    """The text of a link; settings that are None or left out stay unset."""
    unknown = [name for name in settings if name not in FIELDS]
    if unknown:
        raise InputError(f"a link has no setting {unknown[0]!r}; it has {', '.join(FIELDS)}")
    values = check_sigmas(sigmas)
    if values.size > MAX_EPOCHS:
        raise InputError(
            f"a link holds at most {MAX_EPOCHS:,} epochs, got {values.size:,}; download the schedule instead"
        )
    codes = np.array([_code(float(sigma), epoch) for epoch, sigma in enumerate(values, start=1)], dtype=">u2")
    packed = base64.urlsafe_b64encode(codes.tobytes()).decode().rstrip("=")
    given = {name: settings.get(name) for name in list(FIELDS)[: VERSIONS[version]]}
    fields = ["" if value is None else str(FIELDS[name](name, value)) for name, value in given.items()]
    return "~".join([version, packed, *fields])


def decode(text: str) -> tuple[list[float], dict[str, Value]]:
    """The schedule and the settings of a link."""
    if len(text) > MAX_LENGTH:
        raise InputError(f"a share link has at most {MAX_LENGTH:,} characters, got {len(text):,}; copy it again")
    version, *rest = text.split("~")
    if version not in VERSIONS:
        raise InputError(
            f"this share link has version {version[:10]!r}, but {max(VERSIONS)!r} is needed; make a new link"
        )
    if len(rest) != 1 + VERSIONS[version] or any(len(field) > 40 for field in rest[1:]):
        raise InputError("this share link is incomplete or damaged; copy it again from its first to its last character")
    sigmas = _unpack(rest[0])
    fields = zip(FIELDS.items(), rest[1:], strict=False)
    settings = {name: check(name, field) for (name, check), field in fields if field}
    if encode(sigmas, settings, version) != text:
        raise InputError("this share link was changed on its way; copy it again from where it was made")
    return sigmas, settings


def _code(sigma: float, epoch: int) -> int:
    """0 for no noise, else 1 + 9000 (power of ten, from -4) + (four-digit mantissa - 1000)."""
    if sigma == 0:
        return 0
    if not LEAST_SIGMA <= sigma <= MOST_SIGMA:
        raise InputError(
            f"a link holds sigmas of 0 or from {LEAST_SIGMA:g} to {MOST_SIGMA:g}, got {sigma:g} (epoch {epoch})"
        )
    mantissa, _, power = f"{sigma:.3e}".partition("e")
    return 1 + _MANTISSAS * (int(power) - _LEAST_POWER) + int(mantissa.replace(".", "")) - 1000


def _unpack(packed: str) -> list[float]:
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the schedule in this share link cannot be read; copy the link again") from None
    if len(data) % 2 or not data or len(data) > 2 * MAX_EPOCHS:
        raise InputError(f"the schedule in this share link must have 1 to {MAX_EPOCHS:,} epochs; copy the link again")
    codes = np.frombuffer(data, dtype=">u2").tolist()
    if max(codes) > _code(MOST_SIGMA, 1):
        raise InputError("the schedule in this share link holds an impossible sigma; copy the link again")
    return [_sigma(code) for code in codes]


def _sigma(code: int) -> float:
    if code == 0:
        return 0.0
    decade, digits = divmod(code - 1, _MANTISSAS)
    return float(f"{digits + 1000}e{decade + _LEAST_POWER - 3}")


def _word(name: str, value: Any) -> Value:
    """A name from one of the tables: its shape is checked here, its meaning where it is looked up."""
    if not (isinstance(value, str) and re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,39}", value)):
        raise InputError(f"{name} must be a short name such as zero-out, got {str(value)[:40]!r}")
    return value


# A new setting goes to the end and makes a new version.
FIELDS: dict[str, Callable[[str, Any], Value]] = {
    "dataset_size": Knob(1, 1, 1e9).check,
    "batch_size": Knob(1, 1, 1e9).check,
    "delta": Knob(1e-5, 1e-100, 0.999999).check,
    "target": Knob(1.0, 1e-6, 1e6).check,
    "adjacency": _word,
    "sampling": _word,
    "accountant": _word,
    "preset": _word,
    "dataset": _word,
    "measure": _word,
    "fpr": Knob(0.001, 1e-9, 0.999999).check,
}
