"""Own data as people bring them: images of three kinds of faint bars, 20 x 24, and a small table of people."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from PIL import Image

TRAIN, TEST = 1200, 300
HEIGHT, WIDTH = 20, 24
KINDS = ("high", "low", "middle")


@functools.cache
def bars(seed: int = 3) -> dict[str, np.ndarray]:
    """Grey images with a faint bright bar at one of three heights."""
    generator = np.random.default_rng(seed)
    arrays = {}
    for part, count in (("train", TRAIN), ("test", TEST)):
        labels = generator.integers(0, 3, count)
        images = generator.integers(0, 200, (count, HEIGHT, WIDTH))
        for image, label in zip(images, labels, strict=True):
            image[6 * label + 2 : 6 * label + 5] += 25
        arrays |= {f"x_{part}": images.astype(np.uint8), f"y_{part}": labels}
    return arrays


def as_npz(path: Path, **changes) -> Path:
    """The images as an archive; a change of None leaves an array out."""
    arrays = {name: array for name, array in (bars() | changes).items() if array is not None}
    np.savez(path, **arrays)
    return path


def as_folder(root: Path, *, parts: tuple[str, ...] = ("train", "test"), most: int = 10_000) -> Path:
    """The same images as PNG files, a folder per class."""
    arrays = bars()
    for part in ("train", "test"):
        where = root / part if len(parts) == 2 else root
        for number, (image, label) in enumerate(zip(arrays[f"x_{part}"][:most], arrays[f"y_{part}"], strict=False)):
            folder = where / KINDS[label]
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(folder / f"{part}-{number}.png")
    return root


PEOPLE = [
    ("age", "town", "smoker", "ill"),
    *(
        (18 + n % 60, ("north", "south", "west")[n % 3], ("yes", "no")[n % 2], ("well", "ill")[n % 60 > 30])
        for n in range(240)
    ),
]


def as_csv(path: Path, rows=PEOPLE, separator: str = ",") -> Path:
    path.write_text("\n".join(separator.join(map(str, row)) for row in rows) + "\n", encoding="utf-8")
    return path


def as_parquet(path: Path, rows=PEOPLE) -> Path:
    import pyarrow
    import pyarrow.parquet

    names, *values = rows
    columns = dict(zip(names, map(list, zip(*values, strict=True)), strict=True))
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path
