"""What every format of own data is turned into before it is stored: sizes, constants of scaling, examples in batches.

Scaling uses constants that a person gives, or 0 to 255 for bytes. Nothing here looks at the data to find them: a mean
or a maximum of private data is a release of its own, which epsilon would leave out.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpviz.privacy.registry import InputError
from dpviz.training.data.catalog import MAX_EXAMPLES

Array = npt.NDArray[Any]
Batch = tuple[Array, Array, Array]
"""Places, inputs and labels of some examples; places count the training examples first, then the test examples."""

CHUNK = 1 << 22  # bytes that a batch of inputs takes, about
SPLIT_SEED = 0  # public, and the same for everybody


@dataclass(frozen=True)
class Options:
    """What a person says of a file: its label column, the size of its images, the test share, and public constants."""

    label: str = ""
    image_size: tuple[int, int] | None = None  # height, width
    grey: bool = False
    test_share: float = 0.2
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    value_range: tuple[float, float] | None = None
    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # column -> its own range
    leave_out: tuple[str, ...] = ()  # columns

    def __post_init__(self) -> None:
        if not 0 < self.test_share < 1:
            raise InputError(f"the test share must be above 0 and below 1, got {self.test_share}")
        if bool(self.mean) != bool(self.std):
            raise InputError("mean and std go together; give both, as public constants")
        if self.mean and self.value_range:
            raise InputError("a range and mean and std say the same thing twice; give one of them")
        if not (all(map(math.isfinite, self.mean)) and all(0 < value < math.inf for value in self.std)):
            raise InputError("mean must be finite numbers and std finite numbers > 0")
        for low, high in (*self.bounds.values(), *([self.value_range] if self.value_range else [])):
            if not (low < high and math.isfinite(high - low)):
                raise InputError(f"a range must be two finite numbers, the lower first, got {low:g},{high:g}")


@dataclass(frozen=True)
class Scaling:
    """(x - mean) / std, one constant per colour or feature or one for all; what came from a range stays in [-1, 1]."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    clipped: bool

    @classmethod
    def of_ranges(cls, ranges: Iterable[tuple[float, float]]) -> Scaling:
        pairs = tuple(ranges)
        return cls(tuple((high + low) / 2 for low, high in pairs), tuple((high - low) / 2 for low, high in pairs), True)

    @classmethod
    def asked(cls, options: Options, channels: int) -> Scaling | None:
        """By the constants that were given; None if there were none."""
        if options.value_range:
            return cls.of_ranges([options.value_range])
        for numbers in (options.mean, options.std):
            if len(numbers) not in (0, 1, channels):
                raise InputError(f"mean and std need 1 or {channels} numbers, got {len(numbers)}")
        return cls(options.mean, options.std, False) if options.mean else None

    def __call__(self, inputs: Array) -> Array:
        """Examples first, colours or features second."""
        shape = (1, -1) + (1,) * (inputs.ndim - 2)
        mean, std = (np.array(numbers).reshape(shape) for numbers in (self.mean, self.std))
        scaled: Array = (inputs - mean) / std
        return np.clip(scaled, -1, 1, out=scaled) if self.clipped else scaled


@dataclass(frozen=True)
class Source:
    """A file that was looked through: what it holds, what of it counts as public, and its examples in batches."""

    train: int
    test: int
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    dtype: str  # of the stored inputs
    scaling: Scaling
    public: tuple[str, ...]
    batches: Callable[[], Iterator[Batch]]  # inputs not yet scaled
    features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.train >= 1 and self.test >= 1 and self.train + self.test <= MAX_EXAMPLES):
            raise InputError(
                f"there must be training and test examples, up to {MAX_EXAMPLES:,} in all, got {self.train:,} and "
                f"{self.test:,}"
            )


def public_words(train: int, test: int, classes: Sequence[str], *more: str) -> tuple[str, ...]:
    """What is treated as public of any data."""
    return (
        f"the numbers of training examples ({train:,}) and test examples ({test:,})",
        f"the {len(classes)} classes and their names",
        "the constants of scaling, which were given or are fixed",
        *more,
    )


def split_places(examples: int, test_share: float) -> tuple[int, Array]:
    """How many examples are for training, and a place for each: an order by a public seed, of which the end is tested.

    In an order at random also the first so many examples, which short runs take, are of all classes.
    """
    test = round(examples * test_share)
    return examples - test, np.random.default_rng(SPLIT_SEED).permutation(examples)


@contextlib.contextmanager
def readable(name: str, kind: str, *errors: type[BaseException]) -> Iterator[None]:
    """A reader's own errors as one sentence that names the file."""
    try:
        yield
    except InputError:
        raise
    except errors as error:
        why = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{name[:60]} cannot be read as {kind} ({why}); export it again") from None


# --- options as people write them ---------------------------------------------------------------------------------


def parse_numbers(text: str, what: str) -> tuple[float, ...]:
    """Numbers with commas between."""
    try:
        return tuple(float(part) for part in text.split(",")) if text.strip() else ()
    except ValueError:
        raise InputError(f"{what} must be numbers with commas between, got {text[:40]!r}") from None


def parse_range(text: str, what: str = "the range") -> tuple[float, float] | None:
    """`0,255` as two numbers; nothing is none."""
    numbers = parse_numbers(text, what)
    if len(numbers) not in (0, 2):
        raise InputError(f"{what} must be two numbers such as 0,255, got {text[:40]!r}")
    return (numbers[0], numbers[1]) if numbers else None


def parse_bounds(lines: Iterable[str]) -> dict[str, tuple[float, float]]:
    """`age=0,120` per line: the range of one column."""
    bounds: dict[str, tuple[float, float]] = {}
    for line in lines:
        column, _, text = line.rpartition("=")
        limits = parse_range(text, f"the range of column {column.strip()[:40]!r}")
        if not column.strip() or limits is None:
            raise InputError(f"bounds are written column=low,high, for example age=0,120; got {line[:60]!r}")
        bounds[column.strip()] = limits
    return bounds


def parse_size(text: str) -> tuple[int, int] | None:
    """`20x24` as height and width; nothing is none."""
    if not text.strip():
        return None
    match = re.fullmatch(r"\s*([1-9]\d{0,3})\s*[x×]\s*([1-9]\d{0,3})\s*", text, re.ASCII)
    if match is None:
        raise InputError(f"the size must be height x width, for example 32x32, got {text[:40]!r}")
    return int(match[1]), int(match[2])
