"""Data is found, checked, and the same as torchvision's own."""

import dataclasses
import gzip
import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

from dpviz.privacy.registry import InputError
from dpviz.training.data import readers as data_module
from dpviz.training.data import scatter_features as features
from dpviz.training.data.readers import (
    PROJECT_DATA,
    Data,
    available,
    download,
    find,
    import_torchvision,
    load,
    places,
)
from dpviz.training.tables import DATASETS

RAW = PROJECT_DATA / "MNIST" / "raw"


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No data anywhere but in the places a test makes."""
    monkeypatch.delenv("DPVIZ_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(data_module, "PROJECT_DATA", tmp_path / "project")
    monkeypatch.setattr(data_module, "SYSTEM_DATA", ())
    data_module._load.cache_clear()
    yield tmp_path
    data_module._load.cache_clear()


def empty_files(place, name):
    folder = place / DATASETS[name].folder
    folder.mkdir(parents=True)
    for file in DATASETS[name].files:
        (folder / file).touch()


def test_mnist_comes_with_the_project():
    assert find("mnist") is not None
    assert all((RAW / file).is_file() for file in DATASETS["mnist"].files)


def test_looking_for_data_imports_no_torch():
    code = "import sys, dpviz.training.data.readers as d; d.available(); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_folder_asked_for_comes_before_the_environment_and_the_project(alone, monkeypatch):
    monkeypatch.setenv("DPVIZ_DATA", str(alone / "environment"))
    assert places(alone / "asked")[:3] == (alone / "asked", alone / "environment", alone / "project")
    for place in ("project", "environment", "asked"):
        empty_files(alone / place, "mnist")
        assert find("mnist", alone / "asked") == alone / place


def test_a_folder_with_one_file_missing_does_not_count(alone):
    empty_files(alone / "project", "cifar10")
    (alone / "project" / "cifar-10-batches-py" / "test_batch").unlink()
    assert {name for name, folder in available() if folder is None} == {
        name for name in DATASETS if DATASETS[name].files
    }


def test_mnist_equals_torchvisions_own(tmp_path):
    mine = load("mnist")
    mean, std = DATASETS["mnist"].mean[0], DATASETS["mnist"].std[0]
    shutil.copytree(RAW, tmp_path / "MNIST" / "raw", ignore=lambda folder, files: [f for f in files if f[-3:] != ".gz"])
    theirs = import_torchvision().MNIST(tmp_path, train=False, download=True)
    assert mine.train_images.shape == (60_000, 1, 28, 28)
    torch.testing.assert_close(mine.inputs(mine.test_images)[:, 0] * std + mean, theirs.data.float() / 255)
    assert torch.equal(mine.test_labels, theirs.targets)


def test_statistics_are_those_of_the_training_set():
    data = load("mnist")
    assert data.train_images.dtype == torch.uint8
    images = data.inputs(data.train_images)
    assert abs(float(images.mean())) < 1e-3
    assert abs(float(images.std()) - 1) < 1e-3


def test_a_dataset_is_kept_in_memory_and_a_subset_shares_it():
    whole, some = load("mnist"), load("mnist", subset=100)
    assert load("mnist").train_images is whole.train_images
    assert some.train_images.data_ptr() == whole.train_images.data_ptr()
    assert (len(some.train_images), len(some.train_labels), len(some.test_images)) == (100, 100, 10_000)


def test_a_damaged_file_is_refused_by_name(alone):
    shutil.copytree(RAW, alone / "project" / "MNIST" / "raw")
    damaged = alone / "project" / "MNIST" / "raw" / "t10k-labels-idx1-ubyte.gz"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match=r"t10k-labels-idx1-ubyte\.gz is damaged"):
        load("mnist")


def test_unpacked_files_are_read_too_and_a_short_one_is_refused(alone):
    folder = alone / "project" / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for file in DATASETS["mnist"].files:
        (folder / file).with_suffix("").write_bytes(gzip.decompress((RAW / file).read_bytes()))
    assert load("mnist").train_labels[:3].tolist() == [5, 0, 4]
    data_module._load.cache_clear()
    short = folder / "train-labels-idx1-ubyte"
    short.write_bytes(short.read_bytes()[:-1])
    with pytest.raises(InputError, match="not the file it should be"):
        load("mnist")


class Trap:
    """A pickle that leaves a mark if it is ever loaded."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (self.mark,))


def test_an_unverified_pickle_is_never_loaded(alone):
    empty_files(alone / "project", "cifar10")
    mark = str(alone / "sprung")
    for file in DATASETS["cifar10"].files:
        (alone / "project" / "cifar-10-batches-py" / file).write_bytes(pickle.dumps(Trap(mark)))
    with pytest.raises(InputError, match="data_batch_1 is damaged"):
        load("cifar10")
    assert not os.path.exists(mark)


def test_cifar10_is_read_in_order_with_channels_first(alone, monkeypatch):
    folder, files = alone / "project" / "cifar-10-batches-py", {}
    folder.mkdir(parents=True)
    for number, file in enumerate(DATASETS["cifar10"].files):
        pixels = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
        pixels[:, 2] = 255
        content = pickle.dumps({"data": pixels.flatten(1).numpy(), "labels": [number, number]}, protocol=3)
        (folder / file).write_bytes(content)
        files[file] = hashlib.md5(content).hexdigest()
    monkeypatch.setitem(DATASETS, "cifar10", dataclasses.replace(DATASETS["cifar10"], files=files))
    data = load("cifar10")
    assert data.train_labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert data.test_labels.tolist() == [5, 5]
    mean, std = DATASETS["cifar10"].mean, DATASETS["cifar10"].std
    expected = torch.tensor([(0 - mean[0]) / std[0], (0 - mean[1]) / std[1], (1 - mean[2]) / std[2]])
    torch.testing.assert_close(data.inputs(data.train_images[:1])[0, :, 5, 7], expected)


@pytest.fixture
def server(tmp_path):
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_words):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(RAW))) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/"
        http.shutdown()
        thread.join()


def test_what_is_missing_is_downloaded_with_progress(alone, server, monkeypatch):
    monkeypatch.setattr(import_torchvision().MNIST, "mirrors", ["http://127.0.0.1:9/", server])
    seen = []
    load("mnist", alone / "asked", on_download=lambda file, done, total: seen.append((file, done, total)))
    assert find("mnist", alone / "asked") == alone / "asked"
    finished = {file: total for file, done, total in seen if done == total}
    assert finished == {file: (RAW / file).stat().st_size for file in DATASETS["mnist"].files}


def test_a_download_with_a_wrong_checksum_leaves_nothing(alone, server, monkeypatch):
    kind = import_torchvision().MNIST
    monkeypatch.setattr(kind, "mirrors", [server])
    monkeypatch.setattr(kind, "resources", [("train-labels-idx1-ubyte.gz", "0" * 32)])
    with pytest.raises(InputError, match="sent something else"):
        download("mnist", alone / "asked")
    assert list((alone / "asked" / "MNIST" / "raw").iterdir()) == []


def test_data_that_cannot_be_had_says_which_files_to_put_where(alone, monkeypatch):
    monkeypatch.setattr(import_torchvision().CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    with pytest.raises(InputError, match=r"put the files data_batch_1, .*test_batch into .*cifar-10-batches-py"):
        load("cifar10")


def test_an_unknown_dataset_lists_the_known_ones():
    with pytest.raises(InputError, match="choose one of mnist, fashion-mnist, cifar10"):
        find("imagenet")


def few_digits():
    some = load("mnist", PROJECT_DATA, subset=6)
    return dataclasses.replace(some, test_images=some.test_images[:4], test_labels=some.test_labels[:4])


@pytest.fixture
def forgotten(alone):
    """Nothing cached, neither in memory nor on disk."""
    features._last.clear()
    yield alone / "cache" / "dpviz"
    features._last.clear()


def test_scatter_features_have_81_channels_and_are_read_back_from_the_cache(forgotten, monkeypatch):
    first = features.scattered(DATASETS["mnist"], few_digits())
    assert first.shape == (81, 7, 7)
    assert sorted(path.name for path in forgotten.iterdir()) == ["mnist-scatter-test-4.pt", "mnist-scatter-train-6.pt"]
    features._last.clear()
    monkeypatch.setattr(features, "scatter", None)
    again = features.scattered(DATASETS["mnist"], few_digits())
    assert torch.equal(first.train_images, again.train_images)
    assert torch.equal(first.test_images, again.test_images)


def test_two_threads_that_ask_for_features_get_each_their_own(forgotten, monkeypatch):
    class Slow(dict):
        """Gives the other thread every chance to come between: without a lock it does."""

        def __setitem__(self, key, value):
            super().__setitem__(key, value)
            time.sleep(0.02)

    monkeypatch.setattr(features, "_last", Slow())
    monkeypatch.setattr(features, "scatter", lambda name, images, inputs: images)
    monkeypatch.setattr(features, "_write", lambda path, made: None)
    pictures = {name: torch.full((6, 1, 4, 4), float(mark)) for mark, name in enumerate(("mnist", "fashion-mnist"))}
    data = {name: Data(images, torch.zeros(6), images, torch.zeros(6)) for name, images in pictures.items()}
    with ThreadPoolExecutor(2) as pool:
        asked = ["mnist", "fashion-mnist"] * 20
        answers = list(pool.map(lambda name: features.scattered(DATASETS[name], data[name]), asked))
    for name, answer in zip(asked, answers, strict=True):
        assert torch.equal(answer.train_images, pictures[name])
    assert len(features._last) == 1


def test_a_colour_image_gives_81_channels_a_colour():
    assert features.scatter(DATASETS["cifar10"], torch.zeros(2, 3, 32, 32)).shape == (2, 243, 8, 8)


def test_scatter_features_of_an_example_depend_on_nothing_else():
    data = load("mnist", subset=6)
    images = data.inputs(data.train_images)
    torch.testing.assert_close(
        features.scatter(DATASETS["mnist"], images)[2:3], features.scatter(DATASETS["mnist"], images[2:3])
    )


def test_a_cache_file_of_something_else_is_refused(forgotten):
    features._write(forgotten / "mnist-scatter-train-6.pt", torch.zeros(5, 81, 7, 7))
    with pytest.raises(InputError, match="delete it"):
        features.scattered(DATASETS["mnist"], few_digits())
