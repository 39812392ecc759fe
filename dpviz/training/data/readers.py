"""DATASETS as whole tensors in memory: where the files are, how they are checked, and what is done to the pixels.

Files lie as torchvision lays them out (`MNIST/raw/*.gz`, `cifar-10-batches-py/*`) and torchvision knows where to
download them. They are read here rather than by torchvision's classes for two reasons: nothing is unpacked beside
files that may be read-only or in use by another process, and what is verified is what is read. The CIFAR-10 files are
pickles: bytes whose MD5 does not match are not looked into, and `batches` builds nothing that a pickle names.

Finding files imports no torch, so `dpviz data` answers at once.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.client
import os
import sys
import tarfile
import urllib.request
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from dpviz.paths import PROJECT_DATA, cache_folder
from dpviz.privacy.registry import InputError
from dpviz.training.data.cifar_batches import read_batch
from dpviz.training.spec import DATASETS

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SYSTEM_DATA = (Path("/usr/local/share/datasets"), Path("/usr/share/datasets"), Path("/datasets"))

Progress = Callable[[str, int, int], None]
"""Called while downloading with the file's name, the bytes so far and the bytes in all (0: not known)."""


@dataclass(frozen=True)
class Source:
    """One dataset's files (name -> MD5) in a folder of the data directory, and torchvision's name for it."""

    torchvision: str
    folder: str
    files: Mapping[str, str]


@dataclass(frozen=True)
class Data:
    """Inputs as a model takes them, whole: float tensors (examples first) and class numbers."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor
    classes: int = 10

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.train_images.shape[1:])

    def arrays(self) -> dict[str, np.ndarray]:
        """The same as arrays that share the tensors' memory, to be handed to another process."""
        return {name: getattr(self, name).numpy() for name in _TENSORS} | {"classes": np.array(self.classes)}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Data:
        """Tensors on top of the arrays' memory, which may be read-only: nothing here ever writes into data."""
        import torch

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
            images, labels, test_images, test_labels = (torch.from_numpy(arrays[name]) for name in _TENSORS)
        return cls(images, labels, test_images, test_labels, int(arrays["classes"]))

    def first(self, examples: int) -> Data:
        """The same test set, and only the first so many training examples."""
        return Data(
            self.train_images[:examples], self.train_labels[:examples], self.test_images, self.test_labels, self.classes
        )


_TENSORS = ("train_images", "train_labels", "test_images", "test_labels")
_IDX = ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz")
_IDX_TEST = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
_CIFAR_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))

SOURCES: dict[str, Source] = {
    "mnist": Source(
        "MNIST",
        "MNIST/raw",
        {
            _IDX[0]: "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            _IDX[1]: "d53e105ee54ea40749a09fcbcd1e9432",
            _IDX_TEST[0]: "9fb629c4189551a2d022fa330f9573f3",
            _IDX_TEST[1]: "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": Source(
        "FashionMNIST",
        "FashionMNIST/raw",
        {
            _IDX[0]: "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            _IDX[1]: "25c81989df183df01b3e8a0aad5dffbe",
            _IDX_TEST[0]: "bef4ecab320f06d8554ea6380940ec79",
            _IDX_TEST[1]: "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cifar10": Source(
        "CIFAR10",
        "cifar-10-batches-py",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
}

# Mean and standard deviation of each colour over the training set. They are published constants that everybody uses,
# so they cost no privacy here; for a dataset of one's own they would have to be paid for, or guessed.
STATISTICS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion-mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
}


# --- where the files are ------------------------------------------------------------------------------------------


def places(data_dir: Path | None = None) -> tuple[Path, ...]:
    """Where data is looked for, in this order: the folder asked for, DPVIZ_DATA, the project's, the system's."""
    asked = (data_dir, os.environ.get("DPVIZ_DATA"))
    return (*(Path(place).expanduser() for place in asked if place), PROJECT_DATA, cache_folder(), *SYSTEM_DATA)


def find(name: str, data_dir: Path | None = None) -> Path | None:
    """The first place that has every file of the dataset, or None."""
    DATASETS[name]
    source = SOURCES[name]
    for place in places(data_dir):
        if all(_existing(place / source.folder / file) for file in source.files):
            return place
    return None


def available(data_dir: Path | None = None) -> list[tuple[str, Path | None]]:
    """Every dataset and where it was found."""
    return [(name, find(name, data_dir)) for name in DATASETS]


def _existing(path: Path) -> Path | None:
    """The file itself, or for a .gz also its unpacked twin, which torchvision leaves beside it."""
    candidates = (path, path.with_suffix("")) if path.suffix == ".gz" else (path,)
    return next((candidate for candidate in candidates if candidate.is_file()), None)


# --- reading ------------------------------------------------------------------------------------------------------


def load(name: str, data_dir: Path | None = None, subset: int = 0, *, on_download: Progress | None = None) -> Data:
    """A dataset's pixels, minus the mean and over the standard deviation of STATISTICS; `subset` keeps the first few.

    Kept in memory for the next caller (the two used last). Downloads what is not found; if that fails too, the error
    says which files to put where.
    """
    where = find(name, data_dir) or download(name, data_dir, on_download or draw_progress)
    whole = _load(name, where)
    return whole.first(subset) if subset else whole


@functools.lru_cache(maxsize=2)
def _load(name: str, where: Path) -> Data:
    import torch

    read = _read_cifar if name == "cifar10" else _read_idx
    mean, std = (torch.tensor(numbers).view(1, -1, 1, 1) for numbers in STATISTICS[name])

    def tensors(pixels: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
        return torch.from_numpy(pixels).float().div_(255).sub_(mean).div_(std), torch.from_numpy(labels).long()

    train, test = read(SOURCES[name], where)
    return Data(*tensors(*train), *tensors(*test), classes=int(DATASETS[name].facts["classes"]))


Arrays = tuple[np.ndarray, np.ndarray]


def _read_idx(source: Source, where: Path) -> tuple[Arrays, Arrays]:
    def arrays(images: str, labels: str) -> Arrays:
        pixels = _parse_idx(_verified(source, where, images), images, 3)
        return pixels[:, None], _parse_idx(_verified(source, where, labels), labels, 1)

    return arrays(*_IDX), arrays(*_IDX_TEST)


def _parse_idx(content: bytes, file: str, dimensions: int) -> np.ndarray:
    """The array in an IDX file: two zero bytes, type 8 (unsigned byte), the number of dimensions, sizes, values."""
    header = 4 + 4 * dimensions
    sizes = np.frombuffer(content[4:header], ">u4").astype(int)
    if content[:4] != bytes((0, 0, 8, dimensions)) or len(content) != header + int(np.prod(sizes)):
        raise InputError(f"{file} is not the file it should be; delete it, so that it can be downloaded again")
    return np.frombuffer(content, np.uint8, offset=header).reshape(tuple(sizes)).copy()


def _read_cifar(source: Source, where: Path) -> tuple[Arrays, Arrays]:
    def arrays(files: tuple[str, ...]) -> Arrays:
        batches = [read_batch(_verified(source, where, file), file, 3 * 32 * 32) for file in files]
        pixels, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        return pixels.reshape(-1, 3, 32, 32), labels

    return arrays(_CIFAR_TRAIN), arrays(("test_batch",))


def _verified(source: Source, where: Path, file: str) -> bytes:
    """A file's content after its MD5 was checked. An unpacked IDX file has no MD5; its header is checked instead."""
    path = _existing(where / source.folder / file)
    if path is None:
        raise InputError(f"{source.folder}/{file} is gone; put it back or choose another data folder")
    content = path.read_bytes()
    if path.name != file:
        return content
    if hashlib.md5(content, usedforsecurity=False).hexdigest() != source.files[file]:
        raise InputError(
            f"{source.folder}/{file} is damaged (its MD5 does not match); delete it, so that it can be downloaded again"
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
    source = SOURCES[name]
    asked = data_dir or os.environ.get("DPVIZ_DATA")
    target = Path(asked).expanduser() if asked else cache_folder()
    folder = target / source.folder
    known = getattr(import_torchvision(), source.torchvision)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if name == "cifar10":
            archive = target / known.filename
            _fetch((known.url,), archive, known.tgz_md5, on_download)
            with tarfile.open(archive) as content:
                for file in source.files:
                    content.extract(f"{source.folder}/{file}", target, filter="data")
            archive.unlink()
        else:
            for file, md5 in known.resources:
                _fetch(tuple(mirror + file for mirror in known.mirrors), folder / file, md5, on_download)
    except OSError as error:
        files = ", ".join(source.files)
        raise InputError(
            f"{DATASETS[name].facts['title']} was not found and could not be downloaded ({error}); "
            f"put the files {files} into {source.folder} of a data folder and name that folder with DPVIZ_DATA"
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


def draw_progress(file: str, done: int, total: int) -> None:
    """A progress bar on the terminal; says nothing where there is none."""
    if sys.stderr.isatty():
        share = done / total if total else 0.0
        bar = "#" * int(30 * share)
        print(f"\r{file} [{bar:30}] {done / 1e6:6.1f} MB", end="\n" if done == total else "", file=sys.stderr)


# --- augmentation -------------------------------------------------------------------------------------------------


def augment(images: Tensor, generator: torch.Generator, padding: int = 4) -> Tensor:
    """Each image flipped left to right with probability 1/2 and cropped at random from itself padded with zeros.

    Zero is the mean colour after normalisation. One draw per example and step, so an example still counts once.
    """
    import torch

    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (padding,) * 4)
    top, left = (torch.randint(2 * padding + 1, (count, 1), generator=generator) for _ in range(2))
    flipped = torch.rand(count, 1, generator=generator) < 0.5
    rows = top + torch.arange(height)
    columns = left + torch.where(flipped, torch.arange(width - 1, -1, -1), torch.arange(width))
    picked = padded[torch.arange(count)[:, None, None], :, rows[:, :, None], columns[:, None, :]]
    return picked.permute(0, 3, 1, 2)
