"""DATASETS as whole tensors in memory: where the files are, how they are checked, and what is done to the pixels.

Files lie as torchvision lays them out (`MNIST/raw/*.gz`, `cifar-10-batches-py/*`) and torchvision knows where to
download them. They are read here rather than by torchvision's classes for two reasons: nothing is unpacked beside
files that may be read-only or in use by another process, and what is verified is what is read. The CIFAR-10 files are
pickles: bytes whose MD5 does not match are not looked into, and `batches` builds nothing that a pickle names.

Finding files imports no torch, so `dpviz data` answers at once.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import http.client
import os
import tarfile
import urllib.request
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from dpviz.paths import PROJECT_DATA, cache_folder, own_data_folder
from dpviz.privacy.registry import InputError
from dpviz.training.data.catalog import DATASETS, Dataset
from dpviz.training.data.cifar_batches import read_batch
from dpviz.training.progress_bar import Bar

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SYSTEM_DATA = (Path("/usr/local/share/datasets"), Path("/usr/share/datasets"), Path("/datasets"))

Progress = Callable[[str, int, int], None]
"""Called while downloading with the file's name, the bytes so far and the bytes in all (0: not known)."""


@dataclass(frozen=True)
class Scale:
    """What makes numbers of bytes: pixels over 255, minus a colour's mean and over its standard deviation."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, pixels: Tensor) -> Tensor:
        mean, std = _constants(self, pixels.device)
        return pixels.float().div_(255).sub_(mean).div_(std)


@functools.lru_cache(maxsize=16)
def _constants(scale: Scale, device: torch.device) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation on a device, copied there once."""
    import torch

    mean, std = (torch.tensor(numbers).view(1, -1, 1, 1).to(device) for numbers in (scale.mean, scale.std))
    return mean, std


@dataclass(frozen=True)
class Data:
    """Examples, whole, as they are kept: bytes that have a scale, floats, or numbers of words; and class numbers."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int = 10
    scale: Scale | None = None

    def inputs(self, examples: Tensor) -> Tensor:
        """Some of the examples as a model takes them: floats, but for words, which stay the numbers that they are."""
        from dpviz.training.evaluation import as_inputs

        return self.scale(examples) if self.scale else as_inputs(examples)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.train_images.shape[1:])

    def arrays(self) -> dict[str, np.ndarray]:
        """The same as arrays that share the tensors' memory, to be handed to another process."""
        moments = (self.scale.mean, self.scale.std) if self.scale else ()
        numbers = {"classes": np.array(self.classes), "scale": np.array(moments)}
        return {name: getattr(self, name).numpy() for name in _TENSORS} | numbers

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Data:
        """Tensors on top of the arrays' memory, which may be read-only: nothing here ever writes into data."""
        import torch

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            images, labels, test_images, test_labels = (torch.from_numpy(arrays[name]) for name in _TENSORS)
        moments = (tuple(numbers.tolist()) for numbers in arrays["scale"])
        scale = Scale(*moments) if arrays["scale"].size else None
        return cls(images, labels.long(), test_images, test_labels.long(), int(arrays["classes"]), scale)

    def part(self, which: slice) -> Data:
        """The same test set, and only these training examples."""
        images, labels = self.train_images[which], self.train_labels[which]
        return dataclasses.replace(self, train_images=images, train_labels=labels)


_TENSORS = ("train_images", "train_labels", "test_images", "test_labels")


# --- where the files are ------------------------------------------------------------------------------------------


def places(data_dir: Path | None = None) -> tuple[Path, ...]:
    """Where data is looked for, in this order: the folder asked for, DPVIZ_DATA, the project's, the system's."""
    asked = (data_dir, os.environ.get("DPVIZ_DATA"))
    return (*(Path(place).expanduser() for place in asked if place), PROJECT_DATA, cache_folder(), *SYSTEM_DATA)


def find(name: str, data_dir: Path | None = None) -> Path | None:
    """The first place that has every file of the dataset, or None."""
    dataset = DATASETS[name]
    for place in (own_data_folder(),) if dataset.own else places(data_dir):
        if all(_existing(place / dataset.folder / file) for file in dataset.files):
            return place
    return None


def available(data_dir: Path | None = None) -> list[tuple[str, Path | None]]:
    """Every dataset and where it was found."""
    return [(name, find(name, data_dir)) for name in DATASETS]


def here(data_dir: Path | None = None) -> list[str]:
    """The datasets that can be trained on: found, or downloaded when a run needs them."""
    return [name for name, place in available(data_dir) if place or DATASETS[name].torchvision]


def _existing(path: Path) -> Path | None:
    """The file itself, or for a .gz also its unpacked twin, which torchvision leaves beside it."""
    candidates = (path, path.with_suffix("")) if path.suffix == ".gz" else (path,)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


# --- reading ------------------------------------------------------------------------------------------------------


def load(
    dataset: str | Dataset, data_dir: Path | None = None, subset: int = 0, *, on_download: Progress | None = None
) -> Data:
    """A dataset as a model takes it; `subset` keeps the first few examples.

    Kept in memory for the next caller (the two used last); own data stay on disk. Downloads what is not found; if that
    fails too, the error says which files to put where.
    """
    entry = DATASETS[dataset] if isinstance(dataset, str) else dataset
    if entry.own:
        whole = _read(entry, own_data_folder())
    else:
        whole = _load(
            entry.name, find(entry.name, data_dir) or download(entry.name, data_dir, on_download or _download_bar())
        )
    return whole.part(slice(subset)) if subset else whole


@functools.lru_cache(maxsize=2)
def _load(name: str, where: Path) -> Data:
    return _read(DATASETS[name], where)


def _read(dataset: Dataset, where: Path) -> Data:
    (images, labels), (test_images, test_labels) = dataset.function(dataset, where)
    moments = (dataset.mean, dataset.std) if images.dtype == np.uint8 else ()
    arrays = dict(zip(_TENSORS, (images, labels, test_images, test_labels), strict=True))
    return Data.of_arrays(arrays | {"classes": np.array(dataset.classes), "scale": np.array(moments)})


Arrays = tuple[np.ndarray, np.ndarray]


def read_idx(dataset: Dataset, where: Path) -> tuple[Arrays, Arrays]:
    def arrays(images: str, labels: str) -> Arrays:
        pixels = parse_idx(verified(dataset, where, images), images, 3)
        return pixels[:, None], parse_idx(verified(dataset, where, labels), labels, 1)

    images, labels, test_images, test_labels = dataset.files
    return arrays(images, labels), arrays(test_images, test_labels)


def parse_idx(content: bytes, file: str, dimensions: int) -> np.ndarray:
    """The array in an IDX file: two zero bytes, type 8 (unsigned byte), the number of dimensions, sizes, values."""
    header = 4 + 4 * dimensions
    sizes = np.frombuffer(content[4:header], ">u4").astype(int)
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) != header + int(np.prod(sizes)):
        raise InputError(f"{file} is not the file it should be; delete it, so that it can be downloaded again")
    return np.frombuffer(content, np.uint8, offset=header).reshape(tuple(sizes)).copy()


def read_cifar(dataset: Dataset, where: Path) -> tuple[Arrays, Arrays]:
    def arrays(files: Sequence[str]) -> Arrays:
        batches = [read_batch(verified(dataset, where, file), file, 3 * 32 * 32) for file in files]
        pixels, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        return pixels.reshape(-1, 3, 32, 32), labels

    *train, test = dataset.files
    return arrays(train), arrays([test])


def verified(dataset: Dataset, where: Path, file: str) -> bytes:
    """A file's content after its MD5 was checked. An unpacked IDX file has no MD5; its header is checked instead."""
    path = _existing(where / dataset.folder / file)
    if path is None:
        raise InputError(f"{dataset.folder}/{file} is gone; put it back or choose another data folder")
    content = path.read_bytes()
    if path.name != file:
        return content
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != dataset.files[file]:
        raise InputError(
            f"{dataset.folder}/{file} is damaged (its MD5 does not match); delete it, so that it can be downloaded "
            "again"
        )
    return gzip.decompress(content) if file.endswith(".gz") else content


# --- downloading --------------------------------------------------------------------------------------------------


def import_torchvision() -> ModuleType:
    """torchvision.datasets, also where torch is a CPU-only build and torchvision's compiled operators cannot load.

    The import then stops because `torchvision::nms` has no schema. None of the operators is needed for datasets, so
    declaring the two schemas is enough.
    """
    import torch

    try:
        import torchvision.datasets
    except RuntimeError:
        for operator in ("nms", "qnms"):
            _schemas.append(torch.library.Library("torchvision", "FRAGMENT"))
            _schemas[-1].define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision.datasets
    datasets: ModuleType = torchvision.datasets
    return datasets


_schemas: list[torch.library.Library] = []
"""Declarations hold as long as they are kept."""


def download(name: str, data_dir: Path | None = None, on_download: Progress | None = None) -> Path:
    """Fetch a dataset from the addresses that torchvision knows and return the folder it is in now."""
    dataset = DATASETS[name]
    asked = data_dir or os.environ.get("DPVIZ_DATA")
    target = Path(asked).expanduser() if asked else cache_folder()
    folder = target / dataset.folder
    try:
        if not dataset.torchvision:
            raise OSError("no address is known")
        known = getattr(import_torchvision(), dataset.torchvision)
        folder.mkdir(parents=True, exist_ok=True)
        if dataset.archive:
            archive = target / known.filename
            _fetch((known.url,), archive, known.tgz_md5, on_download)
            with tarfile.open(archive) as content:
                for file in dataset.files:
                    content.extract(f"{dataset.folder}/{file}", target, filter="data")
            archive.unlink()
        else:
            for file, md5 in known.resources:
                _fetch(tuple(mirror + file for mirror in known.mirrors), folder / file, md5, on_download)
    except OSError as error:
        files = ", ".join(dataset.files)
        raise InputError(
            f"{dataset.title} was not found and could not be downloaded ({error}); "
            f"put the files {files} into {dataset.folder} of a data folder and name that folder with DPVIZ_DATA"
        ) from None
    return target


def _fetch(addresses: tuple[str, ...], path: Path, md5: str, on_download: Progress | None) -> None:
    """The file from the first address that gives it whole; it appears under its name only once its MD5 matches."""
    failure = OSError("no address is known")
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    for address in addresses:
        try:
            if _stream(address, part, path.name, on_download) == md5:
                os.replace(part, path)
                return
            failure = OSError(f"{address} sent something else than {path.name}")
        except (OSError, http.client.HTTPException) as error:
            failure = OSError(f"{address}: {error}")
        finally:
            part.unlink(missing_ok=True)
    raise failure


def _download_bar() -> Progress:
    bar = Bar()

    def draw(file: str, done: int, total: int) -> None:
        bar.draw(file, done / total if total else 0.0, f"{done / 1e6:.1f} MB")
        if done == total:
            bar.clear()

    return draw


def _stream(address: str, part: Path, file: str, on_download: Progress | None) -> str:
    """Write what the address sends and return its MD5. A server that falls silent for 30 s counts as failed."""
    digest, done = hashlib.md5(usedforsecurity=False), 0
    with urllib.request.urlopen(address, timeout=30) as answer, part.open("wb") as output:
        total = int(answer.headers.get("Content-Length") or 0)
        while block := answer.read(1 << 16):
            output.write(block)
            digest.update(block)
            done += len(block)
            if on_download:
                on_download(file, done, total)
    return digest.hexdigest()
