"""Two-class data for linear models: MNIST 3 against 8, breast cancer, a7a, Diabetes-130, and files that people bring.

Every row ends up with length at most 1, which bounds its gradient. No torch in here.
"""

from __future__ import annotations

import csv
import functools
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpviz.privacy.registry import Entry, InputError, Table
from dpviz.training.data.catalog import DATASETS, Dataset
from dpviz.training.data.readers import Arrays, find, parse_idx, places, verified
from dpviz.training.limits import LIMITS
from dpviz.training.local.parsing import check_content, check_size, parse_csv, parse_libsvm

FloatArray = npt.NDArray[np.float64]

MIN_ROWS = 20
TEST_SHARE = 0.2
SCALED = "features were centred and scaled by their mean and deviation over the training rows, which epsilon leaves out"
UNIT = "each row was divided by its own length, which a person can do alone"


@dataclass(frozen=True)
class Tabular:
    """Rows of length at most 1 with labels -1 and +1, split into training and test; `notes` say what was done."""

    name: str
    train_rows: FloatArray
    train_labels: FloatArray
    test_rows: FloatArray
    test_labels: FloatArray
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for rows, labels in ((self.train_rows, self.train_labels), (self.test_rows, self.test_labels)):
            if not (np.all(np.isin(labels, (-1.0, 1.0))) and np.all(np.vecdot(rows, rows) <= 1 + 1e-9)):
                raise ValueError("rows must have length <= 1 and labels must be -1 or +1")

    @property
    def people(self) -> int:
        return len(self.train_labels)

    @property
    def dimension(self) -> int:
        return int(self.train_rows.shape[1])


@dataclass(frozen=True, kw_only=True)
class TabularEntry(Entry):
    """Two-class data. `build(data_dir)` loads it; it is there if `present(data_dir)`."""

    present: Callable[[Path | None], bool] = lambda data_dir: True


def load_tabular(name: str, data_dir: Path | None = None, label: str | None = None) -> Tabular:
    """A dataset by its name, or the CSV or LIBSVM file at that path."""
    if name in TABULARS:
        data: Tabular = TABULARS[name].function(data_dir)
        return data
    path = Path(name)
    if not path.suffix and not path.exists():
        TABULARS[name]
    return read_file(path, label)


def unit_rows(rows: FloatArray) -> FloatArray:
    """Each row over its own length; a row of zeros stays."""
    lengths = np.sqrt(np.vecdot(rows, rows))[:, None]
    return np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


# --- datasets -----------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def _mnist38(data_dir: Path | None) -> Tabular:
    where = find("mnist", data_dir)
    if where is None:
        raise InputError(f"MNIST was not found; put its .gz files into {places(data_dir)[0] / 'MNIST' / 'raw'}")
    mnist = DATASETS["mnist"]
    train_images, train_digits, test_images, test_digits = mnist.files

    def part(images: str, digits: str) -> tuple[FloatArray, FloatArray]:
        pixels = parse_idx(verified(mnist, where, images), images, 3)
        labels = parse_idx(verified(mnist, where, digits), digits, 1)
        keep = (labels == 3) | (labels == 8)
        return unit_rows(pixels[keep].reshape(-1, 784).astype(float)), np.where(labels[keep] == 8, 1.0, -1.0)

    train, test = part(train_images, train_digits), part(test_images, test_digits)
    return Tabular("mnist38", *train, *test, notes=("3 is -1, 8 is +1", UNIT))


@functools.lru_cache(maxsize=1)
def _breast_cancer(data_dir: Path | None) -> Tabular:
    from sklearn.datasets import load_breast_cancer

    rows, malignant = load_breast_cancer(return_X_y=True)
    data = split("breast-cancer", rows, np.where(malignant == 0, 1.0, -1.0))
    return Tabular(**vars(data) | {"notes": ("benign is -1, malignant is +1", *data.notes)})


PICTURE_FEATURES = ("worst concave points", "worst texture")


@functools.lru_cache(maxsize=1)
def picture_data(people: int = 48) -> Tabular:
    """Two measurements of some breast-cancer records, for a picture in the plane: centred, the farthest at length 1."""
    from sklearn.datasets import load_breast_cancer

    found = load_breast_cancer()
    columns = [list(found.feature_names).index(name) for name in PICTURE_FEATURES]
    rows, labels = found.data[:, columns], np.where(found.target == 0, 1.0, -1.0)
    order = np.stack([np.flatnonzero(labels == label)[:people] for label in (-1.0, 1.0)], axis=1).reshape(-1)
    rows, labels = rows[order], labels[order]  # classes in turn
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    rows = rows / np.linalg.norm(rows, axis=1).max()
    return Tabular("picture", rows[:people], labels[:people], rows[people:], labels[people:])


def available(data_dir: Path | None = None) -> tuple[str, ...]:
    """The datasets whose files are there."""
    return tuple(name for name, entry in TABULARS.items() if entry.present(data_dir))


def _has_file(data_dir: Path | None, *parts: str) -> bool:
    return any(place.joinpath(*parts).is_file() for place in places(data_dir))


def _file(data_dir: Path | None, *parts: str) -> Path:
    """The first place that has the file; else say where to put it."""
    for place in places(data_dir):
        if place.joinpath(*parts).is_file():
            return place.joinpath(*parts)
    raise InputError(
        f"{'/'.join(parts)} was not found; put it into {places(data_dir)[0].joinpath(*parts[:-1])} "
        "or name the folder that holds it with --data-dir or DPVIZ_DATA"
    )


@functools.lru_cache(maxsize=1)
def _a7a(data_dir: Path | None) -> Tabular:
    def part(file: str) -> tuple[FloatArray, FloatArray]:
        rows, labels = parse_libsvm(_file(data_dir, "libsvm-adult", file).read_bytes(), features=123)
        return unit_rows(rows), np.where(labels > 0, 1.0, -1.0)

    return Tabular("a7a", *part("a7a"), *part("a7a.t"), notes=("at most 50,000 dollars a year is -1, more is +1", UNIT))


DIABETES_NUMBERS = {
    "time_in_hospital": 14,
    "num_lab_procedures": 132,
    "num_procedures": 6,
    "num_medications": 81,
    "number_outpatient": 10,
    "number_emergency": 10,
    "number_inpatient": 10,
    "number_diagnoses": 16,
}
DIABETES_LEFT_OUT = ("encounter_id", "patient_nbr", "weight", "payer_code", "readmitted")
DIABETES_SIZES = (17_288, 5_327)  # as many as the paper's own diabetes data had


@functools.lru_cache(maxsize=1)
def _diabetes130(data_dir: Path | None) -> Tabular:
    """One hospital stay a patient (the first), readmitted or not at 1 : 1; words as yes-or-no columns."""
    text = _file(data_dir, "diabetes130", "diabetic_data.csv").read_text(encoding="utf-8")
    records: dict[str, dict[str, str]] = {}
    for record in csv.DictReader(io.StringIO(text)):
        records.setdefault(record["patient_nbr"], record)
    again = np.array([record["readmitted"] != "NO" for record in records.values()])
    generator = np.random.default_rng(0)
    sizes = [count // 2 for count in DIABETES_SIZES]
    picked = [generator.permutation(np.flatnonzero(again == value))[: sum(sizes)] for value in (False, True)]
    train, test = (
        generator.permutation(np.concatenate([rows[part] for rows in picked]))
        for part in (slice(sizes[0]), slice(sizes[0], None))
    )
    rows = _diabetes_rows(list(records.values()))
    labels = np.where(again, 1.0, -1.0)
    notes = ("not readmitted is -1, readmitted is +1", "one stay a patient, classes 1 : 1", UNIT)
    return Tabular("diabetes130", rows[train], labels[train], rows[test], labels[test], notes=notes)


def _diabetes_rows(records: Sequence[dict[str, str]]) -> FloatArray:
    """Numbers over fixed maxima, three-digit diagnoses by their first two, every other word as a column of its own."""
    columns: list[FloatArray] = []
    for name in records[0]:
        if name in DIABETES_LEFT_OUT:
            continue
        values = [record[name] for record in records]
        if name in DIABETES_NUMBERS:
            columns.append(np.minimum(np.array(values, dtype=float) / DIABETES_NUMBERS[name], 1.0)[:, None])
            continue
        if name.startswith("diag_"):
            values = [value[:2] for value in values]
        words, codes = np.unique(values, return_inverse=True)
        columns.append(np.eye(len(words))[codes])
    return unit_rows(np.concatenate(columns, axis=1))


TABULARS = Table(
    "data",
    TabularEntry(
        "mnist38",
        "MNIST, 3 against 8: 11,982 training images of 784 pixels (comes with dpviz)",
        title="MNIST 3 / 8",
        build=_mnist38,
        present=lambda data_dir: find("mnist", data_dir) is not None,
    ),
    TabularEntry(
        "breast-cancer",
        "Wisconsin breast cancer: 569 biopsies, 30 measurements (comes with scikit-learn)",
        build=_breast_cancer,
    ),
    TabularEntry(
        "a7a",
        "Adult census, LIBSVM's a7a: 16,100 people, 123 yes-or-no features (libsvm-adult/a7a, a7a.t)",
        title="Adult (a7a)",
        build=_a7a,
        present=lambda data_dir: _has_file(data_dir, "libsvm-adult", "a7a.t"),
    ),
    TabularEntry(
        "diabetes130",
        "Diabetes-130: readmission of hospital patients (diabetes130/diabetic_data.csv)",
        title="Diabetes-130",
        build=_diabetes130,
        present=lambda data_dir: _has_file(data_dir, "diabetes130", "diabetic_data.csv"),
    ),
)


# --- the same data for private training ---------------------------------------------------------------------------


def read_classes(dataset: Dataset, where: Path) -> tuple[Arrays, Arrays]:
    """An entry of DATASETS whose rows are made here, each from its own record alone; its classes count from 0."""
    for file in dataset.files:
        verified(dataset, where, file)
    data: Tabular = TABULARS[dataset.name].function(where)
    return _arrays(data.train_rows, data.train_labels), _arrays(data.test_rows, data.test_labels)


# Published with the data, so they cost no privacy; ten measurements: their mean, its standard error, the worst.
BREAST_CANCER_MAXIMA = (
    *(28.11, 39.28, 188.5, 2501.0, 0.1634, 0.3454, 0.4268, 0.2012, 0.304, 0.09744),
    *(2.873, 4.885, 21.98, 542.2, 0.03113, 0.1354, 0.396, 0.05279, 0.07895, 0.02984),
    *(36.04, 49.54, 251.2, 4254.0, 0.2226, 1.058, 1.252, 0.291, 0.6638, 0.2075),
)


def read_breast_cancer(dataset: Dataset, where: Path) -> tuple[Arrays, Arrays]:
    """Measurements over their published maxima, split as above."""
    from sklearn.datasets import load_breast_cancer

    rows, benign = load_breast_cancer(return_X_y=True)
    test, train = np.split(split_order(len(rows)), [len(rows) - dataset.size])
    rows, labels = rows / BREAST_CANCER_MAXIMA, 1 - benign
    return _arrays(rows[train], labels[train]), _arrays(rows[test], labels[test])


def _arrays(rows: FloatArray, labels: npt.NDArray[Any]) -> Arrays:
    return rows.astype(np.float32), (labels > 0).astype(np.int64)


# --- files that people bring --------------------------------------------------------------------------------------


def read_file(path: Path, label: str | None = None) -> Tabular:
    """The CSV or LIBSVM file at a path; its size is looked at before it is opened."""
    try:
        check_size(path.stat().st_size)
        with path.open("rb") as file:
            content = file.read(LIMITS["upload"].most * 10**6 + 1)
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror}") from None
    return read_upload(content, path.name, label)


def read_upload(content: bytes, name: str, label: str | None = None) -> Tabular:
    """A file's bytes as data: CSV if the name ends in .csv, else LIBSVM. Wrong content gets one sentence."""
    check_content(content)
    if name.lower().endswith(".csv"):
        rows, labels = parse_csv(content, label)
    else:
        rows, labels = parse_libsvm(content)
    return split(Path(name).name[:80], rows, labels)


def split_order(rows: int) -> npt.NDArray[np.int64]:
    """The rows in an order by a public seed; those for testing come first."""
    return np.random.default_rng(0).permutation(rows)


def split(name: str, rows: FloatArray, labels: FloatArray) -> Tabular:
    """A fixed fifth of the rows for testing; features scaled, a constant one added (intercept), rows to length 1."""
    if len(rows) < MIN_ROWS:
        raise InputError(f"there must be at least {MIN_ROWS} rows to train and test on, got {len(rows)}")
    test, train = np.split(split_order(len(rows)), [round(TEST_SHARE * len(rows))])
    if len(np.unique(labels[train])) < 2 or len(np.unique(labels[test])) < 2:
        raise InputError("both classes must have several rows; one of them is too rare to train and test on")
    # Whole arrays are made once and then changed in place: at the largest size allowed each takes 80 MB.
    unit = np.ones((rows.shape[0], rows.shape[1] + 1))
    with np.errstate(over="ignore", invalid="ignore"):
        some = rows[train]
        mean, deviation = some.mean(axis=0), some.std(axis=0)
        del some
        np.subtract(rows, mean, out=unit[:, :-1])
        unit[:, :-1] /= np.where(deviation > 0, deviation, 1.0)
        lengths = np.sqrt(np.vecdot(unit, unit))
    if not (np.all(np.isfinite(deviation)) and np.all(np.isfinite(lengths))):
        raise InputError("numbers must be of a size that can be averaged; one column's are too large or too small")
    unit /= lengths[:, None]
    return Tabular(name, unit[train], labels[train], unit[test], labels[test], notes=(SCALED, UNIT))
