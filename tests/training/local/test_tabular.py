"""Two-class data: the datasets, and strict reading of files that people bring."""

import gzip
import io
import os
import tracemalloc
import zipfile
from contextlib import suppress

import numpy as np
import pytest
from sklearn.datasets import load_svmlight_file

from dpviz.privacy.registry import InputError
from dpviz.training.local.parsing import MAX_CELLS, MAX_FEATURES, csv_header, parse_csv, parse_libsvm
from dpviz.training.local.tabular import TABULARS, load_tabular, read_file, read_upload


def csv_text(rows=40, label="label", classes=("no", "yes")):
    lines = [f"age,dose,{label}"]
    lines += [f"{20 + k},{k * 0.5:.2f},{classes[k % len(classes)]}" for k in range(rows)]
    return "\n".join(lines) + "\n"


def changed(row, cell, text):
    """The CSV with one cell of data row `row` (counted from 1) replaced."""
    lines = csv_text().splitlines()
    cells = lines[row].split(",")
    cells[cell] = text
    return "\n".join([*lines[:row], ",".join(cells), *lines[row + 1 :]])


# --- datasets -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "people", "tests", "dimension"), [("mnist38", 11_982, 1_984, 784), ("breast-cancer", 455, 114, 31)]
)
def test_datasets_have_unit_rows_and_two_classes(name, people, tests, dimension):
    data = load_tabular(name)
    assert data.train_rows.shape == (people, dimension)
    assert data.test_rows.shape == (tests, dimension)
    np.testing.assert_allclose(np.linalg.norm(data.train_rows, axis=1), 1.0)
    for labels in (data.train_labels, data.test_labels):
        assert set(labels) == {-1.0, 1.0}
        assert 0.3 < np.mean(labels > 0) < 0.7
    assert data.notes


def test_a7a_and_diabetes_are_read_from_the_data_folder(tmp_path):
    (tmp_path / "libsvm-adult").mkdir()
    (tmp_path / "libsvm-adult" / "a7a").write_text("-1 3:1 123:1\n+1 1:1\n")
    (tmp_path / "libsvm-adult" / "a7a.t").write_text("+1 2:1\n-1 5:1\n")
    data = load_tabular("a7a", tmp_path)
    assert data.train_rows.shape == (2, 123)
    assert data.train_rows[0, 2] == pytest.approx(np.sqrt(0.5))
    assert list(data.test_labels) == [1.0, -1.0]
    for name in ("a7a", "diabetes130"):
        with pytest.raises(InputError, match="was not found; put it into"):
            load_tabular(name, tmp_path / "nothing")


def test_diabetes_keeps_one_stay_a_patient_and_no_numbers_of_people(tmp_path):
    (tmp_path / "diabetes130").mkdir()
    numbers = "time_in_hospital,num_lab_procedures,num_procedures,num_medications,number_outpatient,number_emergency"
    head = f"encounter_id,patient_nbr,race,{numbers},number_inpatient,number_diagnoses,diag_1,readmitted"
    lines = [
        f"{k},{k // 2},{'AB'[k % 3 == 0]},{k % 14},5,1,9,0,0,0,7,{250 + k},{'NO' if k % 4 < 2 else '<30'}"
        for k in range(200)
    ]
    (tmp_path / "diabetes130" / "diabetic_data.csv").write_text("\n".join([head, *lines]))
    data = load_tabular("diabetes130", tmp_path)
    assert len(data.train_labels) + len(data.test_labels) == 100
    assert data.train_labels.mean() == 0


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(InputError, match="unknown data 'mnist39'; choose one of mnist38"):
        load_tabular("mnist39")
    assert set(TABULARS) == {"mnist38", "breast-cancer", "a7a", "diabetes130"}


# --- files that are right -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_file_with_two_classes_is_read(separator):
    content = csv_text().replace(",", separator).encode("utf-8-sig")
    data = read_upload(content, "people.csv")
    assert len(data.train_labels) == 32
    assert data.dimension == 3  # two features and the constant
    assert any("epsilon leaves out" in note for note in data.notes)
    assert csv_header(content) == ["age", "dose", "label"]


def test_the_label_column_may_be_named():
    rows, labels = parse_csv(csv_text(label="Outcome").encode(), "outcome")
    assert rows.shape == (40, 2)
    assert list(labels[:3]) == [-1.0, 1.0, -1.0]  # "no" sorts before "yes"
    _, numeric = parse_csv(csv_text(classes=("10", "9")).encode())
    assert list(numeric[:2]) == [1.0, -1.0]  # as numbers 9 comes first


def test_libsvm_files_are_read_as_scikit_learn_reads_them(tmp_path):
    generator = np.random.default_rng(0)
    lines = []
    for k in range(30):
        columns = np.flatnonzero(generator.random(12) < 0.4) + 1
        lines.append(
            f"{'+1' if k % 3 else '-1'} " + " ".join(f"{c}:{generator.normal():.5g}" for c in columns) + " # note"
        )
    path = tmp_path / "some.libsvm"
    path.write_text("\n".join(lines))
    rows, labels = parse_libsvm(path.read_bytes())
    expected, names = load_svmlight_file(str(path), n_features=rows.shape[1])
    np.testing.assert_allclose(rows, expected.toarray())
    np.testing.assert_array_equal(labels, names)
    assert load_tabular(str(path)).name == "some.libsvm"


# --- files that are wrong: one sentence, nothing left behind ------------------------------------------------------

WRONG = {
    "no label": (csv_text(label="outcome"), "no label column"),
    "three classes": (csv_text(classes=("a", "b", "c")), "exactly two classes, got 3: 'a', 'b', 'c'"),
    "one class": (csv_text(classes=("a",)), "exactly two classes, got 1"),
    "text in numbers": (changed(7, 1, "high"), "row 8, column 'dose' holds 'high'"),
    "empty cell": (changed(7, 0, ""), "row 8, column 'age' is empty"),
    "formula": (changed(3, 1, "=1+1"), "row 4, column 'dose' holds the formula '=1\\+1'"),
    "formula call": (changed(3, 1, "@SUM(A1)"), "holds the formula"),
    "formula with sign": (changed(3, 1, "+cmd|'/C calc'!A0"), "holds the formula"),
    "formula label": (changed(3, 2, "=HYPERLINK(A1)"), "row 4 holds the formula"),
    "nan": (changed(3, 1, "nan"), "must be numbers"),
    "infinity": (changed(3, 1, "1e999"), "must be numbers"),
    "underscore": (changed(3, 1, "1_000"), "must be numbers"),
    "other digits": (changed(3, 1, "\u0661\u0662"), "must be numbers"),
    "missing label": (changed(3, 2, ""), "row 4 has none"),
    "short row": (csv_text() + "1,2\n", "row 42 must have 3 cells"),
    "same names": (csv_text().replace("dose", "age"), "'age' comes twice"),
    "too few rows": (csv_text(rows=8), "at least 20 rows"),
    "rare class": (csv_text(rows=60, classes=("a",)) + "1,1,b\n", "too rare"),
    "too large numbers": ("x,label\n" + "".join(f"{k % 2}e308,{k % 2}\n" for k in range(40)), "too large"),
    "only labels": ("label\n" + "a\nb\n" * 20, "feature columns"),
    "empty": ("", "is empty"),
    "open quote": ('a,label\n"1,2\n3,4\n', "must be CSV"),
    "zero byte": ("a,label\n1,\x00\n", "binary data"),
    "too many columns": (",".join(f"c{k}" for k in range(MAX_FEATURES + 1)) + ",label\n", "feature columns"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_csv_file_gets_one_clear_sentence(case):
    text, message = WRONG[case]
    with pytest.raises(InputError, match=message) as caught:
        read_upload(text.encode(), "people.csv")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 220


WRONG_LIBSVM = {
    "no label": ("1:0.5 2:1\n", "must begin with its label"),
    "word label": ("yes 1:0.5\n", "must begin with its label"),
    "three classes": ("1 1:1\n2 1:1\n3 1:1\n", "exactly two classes, got 3"),
    "text in numbers": ("1 1:low\n", "line 1, feature 1 holds 'low'"),
    "index 0": ("1 0:1\n", "rising indices"),
    "falling indices": ("1 2:1 1:1\n", "rising indices"),
    "huge index": ("1 999999999:1\n", "rising indices from 1 to 5,000"),
    "no pair": ("1 5\n", "index:value pairs"),
    "nothing": ("\n\n", "no features"),
    "labels only": ("1\n-1\n", "no features"),
}


@pytest.mark.parametrize("case", WRONG_LIBSVM)
def test_a_wrong_libsvm_file_gets_one_clear_sentence(case):
    text, message = WRONG_LIBSVM[case]
    with pytest.raises(InputError, match=message) as caught:
        read_upload(text.encode(), "people.libsvm")
    assert "\n" not in str(caught.value)


def test_archives_are_not_unpacked():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.csv", b"0" * 30_000_000)
    assert len(packed.getvalue()) < 100_000
    for content, name in ((packed.getvalue(), "bomb.csv"), (gzip.compress(b"0" * 1_000_000), "bomb.libsvm")):
        with pytest.raises(InputError, match="must be plain text, and this one is"):
            read_upload(content, name)
    with pytest.raises(InputError, match="UTF-8"):
        read_upload(b"\xff\xfe\x00a", "people.csv")


def test_a_file_of_two_gigabytes_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(2 * 10**9)  # a hole: takes no room on the disk
    with pytest.raises(InputError, match=r"no larger than 20 MB, got 2,000\.0 MB"):
        read_file(path)
    with pytest.raises(InputError, match="no larger than 20 MB"):
        read_upload(b"0" * 20_000_001, "large.csv")


def test_too_many_rows_are_refused_while_reading(monkeypatch):
    monkeypatch.setattr("dpviz.training.local.parsing.MAX_ROWS", 30)
    with pytest.raises(InputError, match="at most 30 rows"):
        parse_csv(csv_text().encode())
    with pytest.raises(InputError, match="at most 30 rows"):
        parse_libsvm(b"1 1:1\n-1 1:1\n" * 20)


def sparse_lines(rows: int) -> bytes:
    """Short lines; every other one names the last feature that is allowed."""
    return b"".join(b"%d %d:1\n" % (row % 2, MAX_FEATURES if row % 2 else 1) for row in range(rows))


def peak_memory(content: bytes, name: str) -> int:
    tracemalloc.start()
    try:
        with suppress(InputError):
            read_upload(content, name)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_small_sparse_file_that_would_fill_the_memory_is_refused_before_it_does():
    content = sparse_lines(10_000)
    assert len(content) < 100_000
    with pytest.raises(InputError, match=r"at most 100,000 rows and 10,000,000 numbers.*got 2,001 rows of 5,000"):
        read_upload(content, "small.libsvm")
    assert peak_memory(content, "small.libsvm") < 10e6


def test_the_largest_data_that_are_allowed_are_read_in_some_hundred_megabytes():
    content = sparse_lines(MAX_CELLS // MAX_FEATURES)
    assert len(read_upload(content, "largest.libsvm").train_labels) == 1600
    assert peak_memory(content, "largest.libsvm") < 310e6


def test_many_numbers_take_little_more_than_their_eight_bytes_while_they_are_read():
    row = ",".join("7" for _ in range(500))
    table = ",".join(f"c{k}" for k in range(500)) + ",y\n" + "".join(f"{row},{k % 2}\n" for k in range(400))
    pairs = " ".join(f"{k}:7" for k in range(1, 501))
    lines = "".join(f"{k % 2} {pairs}\n" for k in range(400))
    for text, name in ((table, "dense.csv"), (lines, "dense.libsvm")):
        assert peak_memory(text.encode(), name) < 6 * len(text) + 4 * 8 * 200_000


def test_numbers_whose_spread_is_no_number_are_refused_and_not_taken_for_zeros():
    text = "size,label\n" + "".join(f"{1 + k % 2}{'0' * 298},{k % 2}\n" for k in range(40))
    with pytest.raises(InputError, match="of a size that can be averaged"):
        read_upload(text.encode(), "huge.csv")


def test_reading_a_file_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for content, name in ((csv_text().encode(), "right.csv"), (b"PK\x03\x04", "wrong.csv")):
        try:
            read_upload(content, name)
        except InputError:
            continue
    assert os.listdir(tmp_path) == []


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_tabular(str(tmp_path / "gone.csv"))
    with pytest.raises(InputError, match="cannot be read"):
        read_file(tmp_path)
