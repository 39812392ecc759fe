"""DATASETS: what is known of each dataset before any of its files is opened. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dpviz.privacy.registry import Entry, Knob, Table


@dataclass(frozen=True, kw_only=True)
class Dataset(Entry):
    """Images with classes. `build(dataset, folder)` reads its files: ((pixels, labels), (test pixels, test labels)).

    `mean` and `std` of each colour are published constants that everybody uses, so they cost no privacy; for a dataset
    of one's own they would have to be paid for, or guessed.
    """

    size: int
    shape: tuple[int, ...]  # colours, height, width
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    folder: str = ""
    files: Mapping[str, str] = field(default_factory=dict)  # name -> MD5, in a folder of the data directory
    torchvision: str = ""  # torchvision's class, which knows where to download the files; empty: nobody does
    archive: bool = False  # torchvision downloads one archive rather than file by file

    @property
    def classes(self) -> int:
        return len(self.class_names)


DATASETS = Table(
    "dataset",
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
)
