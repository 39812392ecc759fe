"""Own data are kept as they came, scaled by public constants, named by their content, and trained on from the disk."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import torch

from dpviz.paths import own_data_folder
from dpviz.privacy import InputError, Schedule, epsilon
from dpviz.runs.settings import DEFAULT, change
from dpviz.training.data.catalog import DATASETS, OwnData, own_names
from dpviz.training.data.own.source import Options, parse_bounds, parse_range, parse_size
from dpviz.training.data.own.store import add, description, remove
from dpviz.training.data.readers import load
from dpviz.training.engine import Trainer
from dpviz.training.pricing import planned_guarantee
from dpviz.training.spec import RunSpec
from dpviz.training.tables import MODELS
from tests.browser import ROOT
from tests.training.data.own.made_files import (
    HEIGHT,
    KINDS,
    PEOPLE,
    TRAIN,
    WIDTH,
    as_csv,
    as_folder,
    as_npz,
    as_parquet,
    bars,
)

MODEL = "logistic"
PIXELS = Options(image_size=(HEIGHT, WIDTH), grey=True)
TABLE = Options(label="ill", bounds={"age": (0.0, 100.0)})


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("DPVIZ_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def spec_on(name: str, **changes) -> RunSpec:
    settings = {"dataset": name, "model": MODEL, "epochs": 2, "batch_size": 40, "clip_norm": 1.0}
    return RunSpec(Schedule.of("constant", sigma=1.0), **(settings | changes))


# --- what is stored ---------------------------------------------------------------------------------------------------


def test_an_archive_is_read_back_as_it_was_scaled_to_plus_minus_one(tmp_path):
    add("bars", as_npz(tmp_path / "b.npz"), Options())
    data, raw = load("bars"), bars()
    assert data.train_images.shape == (TRAIN, 1, HEIGHT, WIDTH)
    for part in ("train", "test"):
        images, labels = getattr(data, f"{part}_images"), getattr(data, f"{part}_labels")
        expected = torch.from_numpy(raw[f"x_{part}"]).float()[:, None] / 127.5 - 1
        torch.testing.assert_close(images.float(), expected, atol=5e-4, rtol=0)
        assert labels.tolist() == raw[f"y_{part}"].tolist()


@pytest.mark.parametrize("parts", [("train", "test"), ("all",)])
def test_a_folder_holds_the_same_images_in_an_order_at_random(tmp_path, parts):
    dataset = add("bars", as_folder(tmp_path / "f", parts=parts, most=200), PIXELS)
    data, raw = load("bars"), bars()
    assert dataset.class_names == KINDS
    assert (dataset.size, len(data.test_labels)) == ((200, 200) if len(parts) == 2 else (320, 80))
    known = {}
    for part in ("train", "test"):
        for image, label in zip(raw[f"x_{part}"][:200], raw[f"y_{part}"], strict=False):
            known[image.tobytes()] = int(label)
    stored = torch.cat([data.train_images, data.test_images]).float().add(1).mul(127.5).round().byte()
    labels = torch.cat([data.train_labels, data.test_labels]).tolist()
    assert [known.pop(image.numpy().tobytes()) for image in stored] == labels
    assert not known
    assert len(set(data.train_labels[:20].tolist())) == 3  # a short run sees every class


@pytest.mark.parametrize("write", [as_csv, as_parquet, lambda path: as_csv(path, separator=";")])
def test_a_table_becomes_scaled_numbers_and_yes_or_no_features(tmp_path, write):
    suffix = ".parquet" if write is as_parquet else ".csv"
    dataset = add("people", write(tmp_path / f"p{suffix}"), TABLE)
    assert dataset.class_names == ("ill", "well")
    about = description("people")
    assert about["features"] == ["age", "town=north", "town=south", "town=west", "smoker=no", "smoker=yes"]
    data = load("people")
    rows = torch.cat([data.train_images, data.test_images])
    labels = torch.cat([data.train_labels, data.test_labels])
    expected = sorted(
        (
            age / 50 - 1,
            *(town == word for word in ("north", "south", "west")),
            smoker == "no",
            smoker == "yes",
            ill == "well",
        )
        for age, town, smoker, ill in PEOPLE[1:]
    )
    found = sorted(tuple(row) for row in torch.cat([rows, labels[:, None]], dim=1).tolist())
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (len(data.train_labels), len(data.test_labels)) == (192, 48)


def test_numbers_outside_of_the_public_range_are_cut_off_and_never_widen_it(tmp_path):
    rows = [*PEOPLE, (1e9, "north", "no", "ill")]
    add("people", as_csv(tmp_path / "p.csv", rows), TABLE)
    assert description("people")["mean"][0] == 50
    data = load("people")
    assert torch.cat([data.train_images, data.test_images]).abs().max() == 1.0


@pytest.mark.parametrize(
    ("arrays", "shape"),
    [((5, 7, 3), (3, 5, 7)), ((3, 5, 7), (3, 5, 7)), ((5, 7, 1), (1, 5, 7)), ((5, 7), (1, 5, 7)), ((9,), (9,))],
)
def test_colours_come_first_wherever_they_were(tmp_path, arrays, shape):
    generator = np.random.default_rng(0)
    inputs = {f"x_{part}": generator.uniform(-2, 2, (30, *arrays)) for part in ("train", "test")}
    labels = {f"y_{part}": np.arange(30, dtype=np.uint8) % 2 for part in ("train", "test")}
    path = tmp_path / "some.npz"
    np.savez(path, **inputs, **labels)
    assert add("some", path, Options(mean=(1.0,), std=(2.0,))).shape == shape
    moved = np.moveaxis(inputs["x_train"], -1, 1) if arrays in ((5, 7, 3), (5, 7, 1)) else inputs["x_train"]
    expected = (moved.reshape(30, *shape) - 1) / 2
    np.testing.assert_allclose(load("some").train_images, expected, atol=1e-6)


def test_what_is_public_is_written_down(tmp_path):
    add("people", as_csv(tmp_path / "p.csv"), TABLE)
    words = " ".join(description("people")["public"])
    for fact in ("192", "48", "2 classes", "names of the columns", "words that occur"):
        assert fact in words


def test_content_and_not_the_name_decides_the_hash(tmp_path):
    path = as_npz(tmp_path / "b.npz")
    first, again = (add(name, path, Options()).own.content_hash for name in ("one", "two"))
    other = add("three", path, Options(value_range=(0, 300))).own.content_hash
    assert first == again != other


# --- runs name their data ---------------------------------------------------------------------------------------------


def test_built_in_data_leave_settings_and_keys_as_they_were():
    assert "own" not in DEFAULT.to_json()
    spec = RunSpec(Schedule.of("constant", sigma=1.0), epochs=3, streams=2)
    assert spec.key == "055b7a2363088ab5"  # as it was before there were own data
    assert RunSpec.from_json(json.loads(json.dumps(DEFAULT.to_json()))) == DEFAULT


def test_own_data_are_named_by_name_and_content_and_survive_json(tmp_path):
    own = add("bars", as_npz(tmp_path / "b.npz"), Options()).own
    spec = spec_on("bars")
    assert spec.own == own
    assert RunSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    remove("bars")
    add("bars", as_npz(tmp_path / "c.npz", **bars(seed=4)), Options())
    assert spec_on("bars").key != spec.key
    assert change(spec, {"dataset": "mnist"}).own is None
    assert dataclasses.replace(spec, seed=3).own == own


def test_a_run_whose_data_are_gone_opens_and_is_priced_and_only_training_needs_them(tmp_path):
    add("bars", as_npz(tmp_path / "b.npz"), Options())
    spec = spec_on("bars")
    text, price = json.dumps(spec.to_json()), planned_guarantee(spec).sound
    remove("bars")
    assert own_names() == []
    opened = RunSpec.from_json(json.loads(text))
    planned_guarantee.cache_clear()
    assert planned_guarantee(opened).sound == price == epsilon(spec.phases, spec.delta)
    assert opened.data.class_names == ("0", "1", "2")
    with pytest.raises(InputError, match="'bars' are not on this machine; add them again"):
        Trainer(opened)
    with pytest.raises(InputError, match="unknown dataset 'bars'"):
        spec_on("bars")
    add("bars", as_npz(tmp_path / "c.npz", **bars(seed=4)), Options())
    with pytest.raises(InputError, match="'bars' are others than the run was set up with"):
        Trainer(opened)
    remove("bars")
    add("bars", as_npz(tmp_path / "b.npz"), Options())
    assert len(list(Trainer(opened).epochs())) == 2


def test_a_forged_or_damaged_description_is_a_sentence_and_hides_only_itself(tmp_path):
    own = add("bars", as_npz(tmp_path / "b.npz"), Options()).own
    for change_ in ({"size": 0}, {"shape": [1, 10**9, 10**9]}, {"class_names": ["a"]}, {"content_hash": "x"}, {"z": 1}):
        with pytest.raises(InputError):
            OwnData.from_json("bars", own.to_json() | change_)
    with pytest.raises(InputError):
        RunSpec.from_json(spec_on("bars").to_json() | {"own": ["bars"]})
    (own_data_folder() / "bars" / "dataset.toml").write_text("size = [")
    assert "bars" not in DATASETS
    assert "mnist" in list(DATASETS)
    with pytest.raises(InputError, match="no readable"):
        DATASETS["bars"]
    remove("bars")
    assert own_names() == []


def test_a_training_array_that_was_cut_is_a_sentence(tmp_path):
    add("bars", as_npz(tmp_path / "b.npz"), Options())
    path = own_data_folder() / "bars" / "x_train.npy"
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(InputError, match="damaged"):
        load("bars")


# --- training ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["breast-cancer", "people"])
def test_tables_are_trained_on_and_image_models_refuse_them(tmp_path, name):
    add("people", as_csv(tmp_path / "p.csv"), TABLE)
    settings = {"learning_rate": 2.0, "epochs": 12, "batch_size": 40}
    *_, last = Trainer(spec_on(name, **settings)).epochs()
    assert last.test_accuracy > 0.8
    assert last.epsilon_sound == epsilon(spec_on(name, **settings).phases, 1e-5).upper
    with pytest.raises(InputError, match="cnn-mnist"):
        spec_on(name, model="cnn-mnist")


def test_every_dataset_that_is_here_loads_as_its_entry_says(tmp_path):
    add("bars", as_npz(tmp_path / "b.npz"), Options())
    for name in ("mnist", "breast-cancer", "bars"):
        data, entry = load(name), DATASETS[name]
        assert (len(data.train_labels), data.shape, data.classes) == (entry.size, entry.shape, entry.classes)
        assert set(data.train_labels.tolist()) == set(range(entry.classes))
        assert any(model.takes(entry) for model in MODELS.values())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads how much memory a process holds from /proc")
def test_data_larger_than_the_memory_train_from_the_disk(tmp_path):
    """160 MB of pixels in a process that may take 100 MB more than it has."""
    labels = np.arange(8_000, dtype=np.uint8) % 2
    images = np.broadcast_to((labels * 200)[:, None, None], (8_000, 100, 100))
    as_npz(tmp_path / "b.npz", x_train=images, y_train=labels, x_test=images[:50], y_test=labels[:50])
    add("wide", tmp_path / "b.npz", Options())
    code = """
        import re, resource, sys
        from pathlib import Path
        from dpviz.training.engine import Trainer
        from dpviz.training.spec import RunSpec
        spec = RunSpec.from_json(__import__("json").loads(sys.argv[1]))
        held = int(re.search(r"VmData:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (held + 100_000_000, held + 100_000_000))
        trainer = Trainer(spec)
        print([record.test_accuracy for record in trainer.epochs()])
        try:
            trainer.data.train_images.clone()
        except RuntimeError:
            print("too large")
    """
    spec = json.dumps(spec_on("wide", epochs=1, batch_size=100).to_json())
    run = [sys.executable, "-c", textwrap.dedent(code), spec]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(run, cwd=ROOT, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout.split("\n")[:2] == ["[1.0]", "too large"], done.stderr


# --- options ----------------------------------------------------------------------------------------------------------


def test_ranges_sizes_and_bounds_are_written_as_people_write_them():
    assert parse_range(" -1, 2.5") == (-1.0, 2.5)
    assert parse_range("") is None
    assert parse_size("20x24") == (20, 24)
    assert parse_bounds(["age=0,120", "a=b=1,2"]) == {"age": (0.0, 120.0), "a=b": (1.0, 2.0)}


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: parse_range("1"),
        lambda: parse_range("a,b"),
        lambda: parse_size("20"),
        lambda: parse_size("0x5"),
        lambda: parse_bounds(["age"]),
        lambda: parse_bounds(["=1,2"]),
        lambda: Options(value_range=(1.0, 1.0)),
        lambda: Options(value_range=(float("nan"), 1.0)),
        lambda: Options(mean=(1.0,)),
        lambda: Options(mean=(1.0,), std=(0.0,)),
        lambda: Options(mean=(float("nan"),), std=(1.0,)),
        lambda: Options(mean=(1.0,), std=(1.0,), value_range=(0, 1)),
        lambda: Options(test_share=float("nan")),
    ],
)
def test_options_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError):
        wrong()
