"""Broken and malicious files: one sentence each, nothing run, nothing left behind."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dpviz.paths import own_data_folder
from dpviz.privacy import InputError
from dpviz.training.data.own.source import Options
from dpviz.training.data.own.store import add
from tests.training.data.own.made_files import PEOPLE, as_csv, as_folder, as_npz, as_parquet, bars

PIXELS = Options(image_size=(8, 8))
TABLE = Options(label="ill", bounds={"age": (0.0, 100.0)})
RUN: list[str] = []  # filled by what a pickle would run


class Bomb:
    def __reduce__(self):
        return (RUN.append, ("ran",))


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_DATA", str(tmp_path / "data"))
    monkeypatch.setattr("dpviz.training.data.own.folders.MAX_PIXELS", 10_000)


def refusal(path: Path, options: Options, **more) -> str:
    """The one sentence that a file is refused with; nothing of it is kept."""
    with pytest.raises(InputError) as caught:
        add("mine", path, options, **more)
    text = str(caught.value)
    assert "\n" not in text
    assert 20 < len(text) < 400
    assert not own_data_folder().exists() or list(own_data_folder().iterdir()) == []
    assert RUN == []
    return text


def header(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"shape": shape, "fortran_order": False, "descr": dtype})
    return buffer.getvalue()


def zipped(path: Path, **members: bytes) -> Path:
    """An archive whose members are these bytes; the others are those of the bars."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in bars().items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            archive.writestr(f"{name}.npy", members.pop(name, buffer.getvalue()))
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def pickled(path: Path) -> Path:
    objects = np.array([Bomb()] * 1200, dtype=object)
    arrays = bars() | {"x_train": objects}
    np.savez(path, **arrays)
    return path


ARRAYS = bars()
ARCHIVES = {
    "pickled": (pickled, "pickled objects are never opened"),
    "a bare pickle": (lambda path: path.write_bytes(pickle.dumps(Bomb())) and path, "cannot be read as an .npz"),
    "a pickle as a member": (lambda path: zipped(path, x_train=pickle.dumps(Bomb())), "cannot be read as an .npz"),
    "a path in the archive": (lambda path: zipped(path, **{"../x_train.npy": b"x"}), "nothing else, got '../x_train"),
    "an array is missing": (lambda path: as_npz(path, y_test=None), "must hold x_train, y_train, x_test and y_test"),
    "a bomb by its header": (lambda path: zipped(path, x_train=header((10**7, 10**6))), "cut short"),
    "too many examples": (lambda path: zipped(path, x_train=header((10**12, 2))), "1 to 10,000,000 examples"),
    "a header of nonsense": (
        lambda path: zipped(path, x_train=b"\x93NUMPY\x01\x00\x10\x00{'shape': huh}  "),
        "read as",
    ),
    "short labels": (lambda path: as_npz(path, y_train=ARRAYS["y_train"][:-1]), "one whole number per example"),
    "labels of words": (lambda path: as_npz(path, y_train=np.array(["a"] * 1200)), "must hold plain numbers"),
    "labels with fractions": (lambda path: as_npz(path, y_train=np.ones(1200)), "one whole number per example"),
    "negative labels": (lambda path: as_npz(path, y_train=ARRAYS["y_train"] - 1), "from 0 to at most 999, got -1"),
    "10^9 classes": (lambda path: as_npz(path, y_train=ARRAYS["y_train"] * 10**9), "at most 999, got 0 to 2000000000"),
    "huge unsigned labels": (
        lambda path: as_npz(path, y_train=np.full(1200, 2**64 - 1, dtype=np.uint64)),
        "at most 999, got 18446744073709551615",
    ),
    "a class without examples": (lambda path: as_npz(path, y_train=ARRAYS["y_train"] // 2 * 2), "and '1' has none"),
    "one class": (lambda path: as_npz(path, y_train=0 * ARRAYS["y_train"], y_test=0 * ARRAYS["y_test"]), "2 to 1,000"),
    "other shapes in the test": (lambda path: as_npz(path, x_test=ARRAYS["x_test"][:, :9]), "one shape"),
    "no examples": (
        lambda path: as_npz(path, x_test=ARRAYS["x_test"][:0], y_test=ARRAYS["y_test"][:0]),
        "1 to 10,000,000 examples",
    ),
    "floats without a range": (lambda path: floats(path, 1.0), "say its public range"),
    "five axes": (lambda path: as_npz(path, **axes(5)), "x_train must be"),
    "by columns": (lambda path: by_columns(path), "np.ascontiguousarray"),
    "cut in the middle": (lambda path: cut(as_npz(path)), "cannot be read as an .npz"),
    "empty": (lambda path: path.write_bytes(b"") == 0 and path, "cannot be read as an .npz"),
}


def floats(path: Path, value: float) -> Path:
    inputs = {name: ARRAYS[name] / 255.0 for name in ("x_train", "x_test")}
    inputs["x_train"][700, 3, 3] = value
    return as_npz(path, **inputs)


def axes(count: int) -> dict[str, np.ndarray]:
    return {
        name: ARRAYS[name].reshape(len(ARRAYS[name]), *(1,) * (count - 3), 20, 24) for name in ("x_train", "x_test")
    }


def by_columns(path: Path) -> Path:
    return as_npz(path, x_train=np.asfortranarray(ARRAYS["x_train"]))


def cut(path: Path) -> Path:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


@pytest.mark.parametrize("case", ARCHIVES)
def test_an_archive_that_cannot_be_used_is_one_sentence(tmp_path, case):
    make, words = ARCHIVES[case]
    assert words in refusal(make(tmp_path / "mine.npz"), Options())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("scaling", [{"value_range": (0.0, 1.0)}, {"mean": (0.5,), "std": (0.5,)}])
def test_pixels_that_are_no_numbers_are_refused(tmp_path, value, scaling):
    path = floats(tmp_path / "mine.npz", value)
    assert "NaN or infinite" in refusal(path, Options(**scaling))


def test_a_member_that_holds_less_than_it_declares_is_refused(tmp_path):
    """The directory's size can be forged; what is unpacked is counted too."""
    path = zipped(tmp_path / "mine.npz", x_train=header((1200, 20, 24)) + bytes(1000))
    assert "cut short" in refusal(path, Options())


def test_what_unpacks_to_more_than_is_allowed_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    wide = {name: np.zeros((len(ARRAYS[name]), 1000), np.uint8) for name in ("x_train", "x_test")}
    path = tmp_path / "mine.npz"
    np.savez_compressed(path, **(ARRAYS | wide))
    assert path.stat().st_size < 50_000
    assert "may take up to 2 MB once it is unpacked" in refusal(path, Options(), most_mb=2)
    monkeypatch.setenv("DPVIZ_MAX_DATA_MB", "2")
    assert "DPVIZ_MAX_DATA_MB" in refusal(path, Options())


# --- tables -----------------------------------------------------------------------------------------------------------

HEAD, ROWS = PEOPLE[0], PEOPLE[1:]
TABLES = {
    "no label column": ([("age", "town"), (1, "a")], "no column 'ill'"),
    "a column twice": ([("age", "age", "ill"), (1, 2, 3)], "comes twice"),
    "only a head": ([HEAD], "no rows"),
    "an empty cell": ([*PEOPLE, ("", "north", "no", "ill")], "column 'age' has empty ones"),
    "not a number": ([*PEOPLE, ("nan", "north", "no", "ill")], "column 'age' must hold finite numbers"),
    "infinite": ([*PEOPLE, ("-inf", "north", "no", "ill")], "column 'age' must hold finite numbers"),
    "a short row": ([*PEOPLE, (5, "north")], "cannot be read as CSV"),
    "too many words": ([HEAD, *((n, f"town {n}", "no", ("a", "b")[n % 2]) for n in range(300))], "'town' has more"),
    "too many classes": ([HEAD, *((n % 9, "north", "no", n) for n in range(2000))], "'ill' has more"),
    "one class": ([HEAD, *((n % 9, "north", "no", "ill") for n in range(50))], "2 to 1,000 classes"),
    "no feature": ([("ill", "age"), *((n % 2, n) for n in range(9))], ""),
    "words of control": ([*PEOPLE, (5, "no\x07rth", "no", "ill")], "printable"),
}


@pytest.mark.parametrize("case", TABLES)
def test_a_table_that_cannot_be_used_is_one_sentence(tmp_path, case):
    rows, words = TABLES[case]
    options = Options(label="ill", leave_out=("age",)) if case == "no feature" else TABLE
    assert words in refusal(as_csv(tmp_path / "mine.csv", rows), options)


def test_numbers_need_a_range_that_somebody_gave(tmp_path):
    text = refusal(as_csv(tmp_path / "mine.csv"), Options(label="ill"))
    assert "column 'age' holds numbers, so say their public range" in text
    assert "no column 'weight'" in refusal(as_csv(tmp_path / "m.csv"), Options(label="ill", bounds={"weight": (0, 1)}))
    assert "ranges, not by mean" in refusal(as_csv(tmp_path / "m.csv"), Options(label="ill", mean=(0,), std=(1,)))


@pytest.mark.parametrize("content", [b"", b"\x00\x01\xff" * 50, b"a,ill\n\xff\xfe,1\n", b'a,ill\n"x,1\n'])
def test_bytes_that_are_no_csv_are_one_sentence(tmp_path, content):
    path = tmp_path / "mine.csv"
    path.write_bytes(content)
    refusal(path, Options(label="ill"))


def test_a_truncated_or_nested_parquet_file_is_one_sentence(tmp_path):
    import pyarrow
    import pyarrow.parquet

    assert "cannot be read as Parquet" in refusal(cut(as_parquet(tmp_path / "mine.parquet")), TABLE)
    whole = as_parquet(tmp_path / "w.parquet").read_bytes()
    (tmp_path / "w.parquet").write_bytes(whole[:4] + bytes(200) + whole[204:])
    refusal(tmp_path / "w.parquet", TABLE)
    pyarrow.parquet.write_table(pyarrow.table({"age": [[1], [2]], "ill": ["a", "b"]}), tmp_path / "n.parquet")
    assert "must be numbers or words" in refusal(tmp_path / "n.parquet", TABLE)
    pyarrow.parquet.write_table(pyarrow.table({"age": [1.0, None], "ill": ["a", "b"]}), tmp_path / "m.parquet")
    assert "'age' has empty ones" in refusal(tmp_path / "m.parquet", TABLE)


def test_without_pyarrow_tables_are_refused_with_the_extra_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert "dpviz[data]" in refusal(as_csv(tmp_path / "mine.csv"), TABLE)


# --- folders ----------------------------------------------------------------------------------------------------------


def test_folders_that_cannot_be_used_are_one_sentence(tmp_path):
    root = as_folder(tmp_path / "f", most=30)
    assert "--size" in refusal(root, Options())
    assert "one folder per class" in refusal(root / "train" / "high", PIXELS)
    (root / "train" / "nothing").mkdir()
    assert "'nothing' has none" in refusal(root, PIXELS)
    (root / "train" / "nothing").rmdir()
    (root / "test" / "strange").mkdir()
    assert "a class 'strange' that train/ has not" in refusal(root, PIXELS)
    (root / "test" / "strange").rmdir()
    broken = root / "train" / "high" / "broken.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(40))
    assert "broken.png is not an image" in refusal(root, PIXELS)
    broken.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    assert "broken.png is not an image" in refusal(root, PIXELS)
    Image.new("L", (200, 200)).save(broken)
    assert "more than 10,000 pixels" in refusal(root, PIXELS)


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    secret = tmp_path / "secret.png"
    Image.new("L", (8, 8)).save(secret)
    root = as_folder(tmp_path / "f", most=30)
    link = root / "train" / "high" / "link.png"
    link.symlink_to(secret)
    assert "leads out of the folder" in refusal(root, PIXELS)
    link.unlink()
    (tmp_path / "elsewhere").mkdir()
    secret.rename(tmp_path / "elsewhere" / "secret.png")
    (root / "train" / "linked").symlink_to(tmp_path / "elsewhere")
    assert "leads out of the folder" in refusal(root, PIXELS)


# --- names, limits, and what goes wrong on the way --------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["", "..", "../x", "a/b", "Mine", "-x", "x" * 41, "mnist", "own", "all", "mine\n", "ä"]
)
def test_names_that_lead_elsewhere_or_are_taken_are_refused(tmp_path, name):
    path = as_csv(tmp_path / "p.csv")
    with pytest.raises(InputError, match="name"):
        add(name, path, TABLE)
    assert not own_data_folder().exists()


def test_a_name_is_taken_once_and_the_number_of_datasets_is_limited(tmp_path, monkeypatch):
    path = as_csv(tmp_path / "p.csv")
    add("mine", path, TABLE)
    with pytest.raises(InputError, match="taken"):
        add("mine", path, TABLE)
    monkeypatch.setenv("DPVIZ_MAX_DATASETS", "1")
    with pytest.raises(InputError, match="DPVIZ_MAX_DATASETS"):
        add("other", path, TABLE)
    monkeypatch.setenv("DPVIZ_READ_ONLY", "1")
    with pytest.raises(InputError, match="read-only"):
        add("third", path, TABLE)
    assert [path.name for path in own_data_folder().iterdir()] == ["mine"]


def test_other_files_and_folders_that_cannot_be_written_are_one_sentence(tmp_path, monkeypatch):
    assert "end" in refusal(tmp_path / "gone.npz", TABLE)
    (tmp_path / "p.xlsx").touch()
    assert ".npz, .csv or .parquet" in refusal(tmp_path / "p.xlsx", TABLE)
    (tmp_path / "data").write_text("a file where a folder should be")
    with pytest.raises(InputError, match="cannot be kept in the data folder"):
        add("mine", as_csv(tmp_path / "p.csv"), TABLE)


def test_a_disk_that_is_full_and_a_ctrl_c_leave_nothing(tmp_path, monkeypatch):
    path = as_csv(tmp_path / "p.csv")

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.posix_fallocate", full)
        assert "No space left on device" in refusal(path, TABLE)

    def interrupted(_share):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        add("mine", path, TABLE, on_progress=interrupted)
    assert list(own_data_folder().iterdir()) == []
