"""DATASETS: what is known of each dataset before any of its files is opened. Imports no torch.

Data that a person added (`dpviz data add`, or the upload on Train) are entries like the others: each is a folder with a
`dataset.toml`, which is read anew when it changed.
"""

from __future__ import annotations

import functools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpviz.paths import own_data_folder
from dpviz.privacy.registry import Entry, InputError, Knob, Table

DESCRIPTION = "dataset.toml"
VERSION = 1  # of the description
MAX_CLASSES = 1000
MAX_EXAMPLES = 10_000_000
MAX_NUMBERS = 1_000_000  # per example
MAX_LETTERS = 80  # of a class's or a column's name
NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,39}", re.ASCII)  # as share links spell datasets
HASH = re.compile(r"[0-9a-f]{64}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Dataset(Entry):
    """Examples with classes. `build(dataset, folder)` reads its files: ((inputs, labels), (test inputs, test labels)).

    Inputs that are bytes are pixels; all others come as a model takes them. `mean` and `std` of each colour are
    published constants that everybody uses, so they cost no privacy; for a dataset of one's own they would have to be
    paid for, or guessed.
    """

    size: int
    shape: tuple[int, ...]  # colours, height, width; or features
    class_names: tuple[str, ...]
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    folder: str = ""
    files: Mapping[str, str] = field(default_factory=dict)  # name -> MD5, in a folder of the data directory
    torchvision: str = ""  # torchvision's class, which knows where to download the files; empty: nobody does
    archive: bool = False  # torchvision downloads one archive rather than file by file
    own: OwnData | None = None  # a person's own, and then what names it

    @property
    def classes(self) -> int:
        return len(self.class_names)

    @property
    def batch_size(self) -> int:
        """A batch to start from: a hundredth of the examples, within what trains well."""
        return min(self.size, max(32, min(4096, round(self.size / 100))))

    @property
    def delta(self) -> float:
        """A delta to start from: the largest power of ten that is at most 1/N."""
        return float(f"1e-{len(str(self.size - 1))}")


@dataclass(frozen=True)
class OwnData:
    """Own data as a run's settings name them: by name and content, and what prices and shows the run without them."""

    name: str
    content_hash: str
    size: int
    shape: tuple[int, ...]
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        check_name(self.name)
        for name in ("shape", "class_names"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not (isinstance(self.content_hash, str) and HASH.fullmatch(self.content_hash)):
            raise InputError("own data need their SHA-256 as content_hash")
        if not all(type(number) is int and number >= 1 for number in (self.size, *self.shape)):
            raise InputError("the size and shape of own data must be whole numbers >= 1")
        if not (self.size <= MAX_EXAMPLES and len(self.shape) in (1, 3) and math.prod(self.shape) <= MAX_NUMBERS):
            raise InputError(
                f"own data are up to {MAX_EXAMPLES:,} examples, features or images of up to {MAX_NUMBERS:,} numbers, "
                f"got {self.size:,} of shape {' x '.join(map(str, self.shape))}"
            )
        if not (2 <= len(self.class_names) <= MAX_CLASSES and all(map(_is_word, self.class_names))):
            raise InputError(
                f"own data need 2 to {MAX_CLASSES:,} classes with printable names of up to {MAX_LETTERS} letters, got "
                f"{len(self.class_names):,}"
            )

    @functools.cached_property
    def dataset(self) -> Dataset:
        colours = self.shape[0] if len(self.shape) == 3 else 0
        kind = f"{' x '.join(map(str, self.shape[1:]))} images" if colours else f"{self.shape[0]} features"
        return Dataset(
            self.name,
            f"Own data: {self.size:,} examples, {kind}, {len(self.class_names)} classes.",
            title=self.name,
            build="dpviz.training.data.own.store:read_arrays",
            size=self.size,
            shape=self.shape,
            class_names=self.class_names,
            mean=(0.5,) * colours,  # stored pixels go from -1 to 1
            std=(0.5,) * colours,
            own=self,
        )

    def to_json(self) -> dict[str, Any]:
        """Without the name, which a run's settings have as their dataset."""
        return {name: getattr(self, name) for name in SPEC_FIELDS}

    @classmethod
    def from_json(cls, name: Any, data: Any) -> OwnData:
        try:
            return cls(name, **data)
        except TypeError:
            raise InputError(f"own data are an object of {', '.join(SPEC_FIELDS)}") from None


SPEC_FIELDS = ("content_hash", "size", "shape", "class_names")


def _is_word(name: Any) -> bool:
    return isinstance(name, str) and 1 <= len(name) <= MAX_LETTERS and name.isprintable()


def check_name(name: Any) -> str:
    """A name that files, flags and links can carry."""
    if not (isinstance(name, str) and NAME.fullmatch(name)):
        raise InputError(
            "a dataset's name must be 1 to 40 small letters, digits, dots, dashes or underscores and begin with a "
            f"letter or digit, got {str(name)[:60]!r}"
        )
    return name


def read_description(folder: Path) -> dict[str, Any]:
    """What `dataset.toml` says; the file is parsed again only after it changed."""
    path = folder / DESCRIPTION
    try:
        stat = path.stat()
        return _parsed(path, stat.st_mtime_ns, stat.st_size)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise InputError(
            f"the own dataset {folder.name!r} has no readable {DESCRIPTION}; remove it and add it again"
        ) from None


@functools.lru_cache(maxsize=256)
def _parsed(path: Path, changed: int, size: int) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))


def own_data(folder: Path) -> OwnData:
    """The dataset in a folder of its own."""
    data = read_description(folder)
    if data.get("version") != VERSION:
        raise InputError(f"{folder.name}/{DESCRIPTION} has version {data.get('version')!r}, but {VERSION} is needed")
    return OwnData.from_json(folder.name, {name: data.get(name) for name in SPEC_FIELDS})


def own_names() -> list[str]:
    """Folders of own data, damaged ones included."""
    folder = own_data_folder()
    return sorted(path.name for path in folder.iterdir() if NAME.fullmatch(path.name)) if folder.is_dir() else []


class Datasets(MutableMapping[str, Dataset]):
    """The entries below and a person's own, which are looked up in their folder each time. Own ones come last."""

    noun = "dataset"

    def __init__(self, *entries: Dataset) -> None:
        self._table = Table(self.noun, *entries)

    def __getitem__(self, name: str) -> Dataset:
        if name in self._table:
            return self._table[name]
        if not (isinstance(name, str) and NAME.fullmatch(name) and (own_data_folder() / name).is_dir()):
            raise Unknown(f"unknown {self.noun} {name!r}; choose one of {', '.join(self)}")
        try:
            return own_data(own_data_folder() / name).dataset
        except InputError as error:
            raise Unknown(str(error)) from None

    def __setitem__(self, name: str, entry: Dataset) -> None:
        self._table[name] = entry

    def __delitem__(self, name: str) -> None:
        del self._table[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._table
        yield from (name for name in own_names() if name not in self._table and name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @property
    def titles(self) -> dict[str, str]:
        return {name: entry.title for name, entry in self.items()}

    def add(self, entry: Dataset) -> Dataset:
        return self._table.add(entry)


class Unknown(InputError, KeyError):
    """No such entry: a KeyError, so that `get` and `in` answer, and a sentence for everybody else."""

    __str__ = InputError.__str__


DATASETS = Datasets(
    Dataset(
        "mnist",
        "Handwritten digits, 28 x 28 grey.",
        title="MNIST",
        build="dpviz.training.data.readers:read_idx",
        size=60_000,
        shape=(1, 28, 28),
        class_names=tuple("0123456789"),
        mean=(0.1307,),
        std=(0.3081,),
        torchvision="MNIST",
        folder="MNIST/raw",
        files={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    Dataset(
        "fashion-mnist",
        "Pictures of clothing, 28 x 28 grey.",
        title="Fashion-MNIST",
        build="dpviz.training.data.readers:read_idx",
        size=60_000,
        shape=(1, 28, 28),
        class_names=("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
        mean=(0.2860,),
        std=(0.3530,),
        torchvision="FashionMNIST",
        folder="FashionMNIST/raw",
        files={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    Dataset(
        "cifar10",
        "Ten kinds of objects, 32 x 32 in colour.",
        {"augment": Knob(False, help="random flips and crops of each batch")},
        title="CIFAR-10",
        build="dpviz.training.data.readers:read_cifar",
        size=50_000,
        shape=(3, 32, 32),
        class_names=("plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
        mean=(0.4914, 0.4822, 0.4465),
        std=(0.2470, 0.2435, 0.2616),
        torchvision="CIFAR10",
        archive=True,
        folder="cifar-10-batches-py",
        files={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
    Dataset(
        "breast-cancer",
        "Wisconsin breast cancer: 30 measurements of a biopsy, over their published maxima (comes with scikit-learn).",
        title="Breast cancer",
        build="dpviz.training.local.tabular:read_breast_cancer",
        size=455,
        shape=(30,),
        class_names=("benign", "malignant"),
    ),
    Dataset(
        "a7a",
        "Adult census, LIBSVM's a7a: 123 yes-or-no features of a person, income up to or above 50,000 dollars.",
        title="Adult (a7a)",
        build="dpviz.training.local.tabular:read_classes",
        size=16_100,
        shape=(123,),
        class_names=("up to 50,000", "above 50,000"),
        folder="libsvm-adult",
        files={"a7a": "3285a272a2f5c5e343c74c9394cbac6c", "a7a.t": "469c6e0a99efaac458e59106dade2311"},
    ),
    Dataset(
        "diabetes130",
        "Diabetes-130: 531 features of a hospital stay, readmitted or not, at 1 : 1.",
        title="Diabetes-130",
        build="dpviz.training.local.tabular:read_classes",
        size=17_288,
        shape=(531,),
        class_names=("not readmitted", "readmitted"),
        folder="diabetes130",
        files={"diabetic_data.csv": "502f0cc004e4cf71536ec2e61596e42f"},
    ),
)
