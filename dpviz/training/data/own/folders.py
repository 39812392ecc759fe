"""A folder of images per class, laid out for torchvision's ImageFolder, with or without train/ and test/ (or val/).

Images are opened one by one by Pillow, which ImageFolder reads with too, and brought to the size that was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dpviz.privacy.registry import InputError
from dpviz.training.data.catalog import MAX_CLASSES, MAX_NUMBERS
from dpviz.training.data.own.source import (
    CHUNK,
    SPLIT_SEED,
    Array,
    Batch,
    Options,
    Scaling,
    Source,
    public_words,
    readable,
    split_places,
)

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")  # ImageFolder's
FORMATS = ("PNG", "JPEG", "PPM", "BMP", "TIFF", "WEBP")  # no format that starts another program
MAX_PIXELS = 50_000_000
TESTS = ("test", "val")

Files = tuple[list[Path], Array]


def folder_source(path: Path, options: Options) -> Source:
    if options.image_size is None:
        raise InputError("say to which size the images are to be brought, for example --size 32x32 (height x width)")
    shape = (1 if options.grey else 3, *options.image_size)
    if not np.prod(shape) <= MAX_NUMBERS:
        raise InputError(f"images may have at most {MAX_NUMBERS:,} numbers; take a smaller size")
    with readable(path.name, "a folder of images", OSError):
        class_names, files, labels, train, places = _found(path.resolve(), options)
    test = len(files) - train

    def batches() -> Iterator[Batch]:
        step = max(1, CHUNK // int(np.prod(shape)))
        for first in range(0, len(files), step):
            some = slice(first, first + step)
            yield places[some], np.stack([_pixels(file, shape) for file in files[some]]), labels[some]

    return Source(
        train=train,
        test=test,
        shape=shape,
        class_names=class_names,
        dtype="float16",
        scaling=Scaling.asked(options, shape[0]) or Scaling.of_ranges([(0, 255)]),
        public=public_words(train, test, class_names, "the size of the images"),
        batches=batches,
    )


def _found(root: Path, options: Options) -> tuple[tuple[str, ...], list[Path], Array, int, Array]:
    """Class names, all files with their labels, how many are for training, and a place for each."""
    test_root = next((root / name for name in TESTS if (root / name).is_dir()), None)
    if not (root / "train").is_dir() or test_root is None:
        class_names = _classes(root)
        files, labels = _files(root, root, class_names)
        train, places = split_places(len(files), options.test_share)
        return class_names, files, labels, train, places
    class_names = _classes(root / "train")
    strange = sorted(set(_classes(test_root)) - set(class_names))
    if strange:
        raise InputError(f"{test_root.name}/ has a class {strange[0][:40]!r} that train/ has not")
    (files, labels), (test_files, test_labels) = (
        _files(root, part, class_names) for part in (root / "train", test_root)
    )
    order = np.random.default_rng(SPLIT_SEED).permutation(len(files))  # class by class, a short run would see one only
    places = np.concatenate([order, len(files) + np.arange(len(test_files))])
    return class_names, files + test_files, np.concatenate([labels, test_labels]), len(files), places


def _classes(folder: Path) -> tuple[str, ...]:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not 2 <= len(names) <= MAX_CLASSES:
        raise InputError(
            f"{folder.name[:40]} must hold one folder per class, 2 to {MAX_CLASSES:,} of them, got {len(names):,}"
        )
    return tuple(names)


def _files(root: Path, folder: Path, class_names: tuple[str, ...]) -> Files:
    files: list[Path] = []
    counts = []
    for name in class_names:
        images = sorted(path for path in (folder / name).rglob("*") if path.suffix.lower() in SUFFIXES)
        for path in (folder / name, *images):
            if not path.resolve().is_relative_to(root):
                raise InputError(f"{path.name[:40]!r} is a link that leads out of the folder; copy the images into it")
        files += images
        counts.append(len(images))
    return files, np.repeat(np.arange(len(class_names)), counts)


def _pixels(path: Path, shape: tuple[int, ...]) -> Array:
    from PIL import Image

    colours, height, width = shape
    try:
        with Image.open(path, formats=FORMATS) as image:
            if not image.width * image.height <= MAX_PIXELS:
                raise InputError(f"{path.name[:40]} has more than {MAX_PIXELS:,} pixels; bring it to a smaller size")
            converted = image.convert("L" if colours == 1 else "RGB")
            pixels: Array = np.asarray(converted.resize((width, height), Image.Resampling.BILINEAR))
    except InputError:
        raise
    except Exception as error:  # damaged images make decoders raise nearly anything
        raise InputError(
            f"{path.name[:40]} is not an image that can be read ({type(error).__name__}); repair it or leave it out"
        ) from None
    return pixels.reshape(height, width, colours).transpose(2, 0, 1)
