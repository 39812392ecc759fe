"""CIFAR-10's pickles: what the real files hold is read, and nothing that a pickle names is ever built."""

import os
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpviz.privacy.registry import InputError
from dpviz.training.data.cifar_batches import read_batch

PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 12)


def as_python_2_wrote_it(pixels: np.ndarray, labels: list[int]) -> bytes:
    """Bytes as bytes, and NumPy's names as in the published files."""
    text = pickle.dumps({"data": pixels, "labels": labels}, protocol=3)
    return text.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def test_pixels_and_labels_come_back():
    pixels, labels = read_batch(as_python_2_wrote_it(PIXELS, [3, 8]), "data_batch_1", 12)
    np.testing.assert_array_equal(pixels, PIXELS)
    assert labels.tolist() == [3, 8]


class Trap:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("place", ["data", "labels", "more"])
def test_a_pickle_that_names_a_function_is_refused_and_the_function_not_called(tmp_path, place):
    mark = tmp_path / "sprung"
    content = {"data": PIXELS, "labels": [3, 8], place: Trap(os.mkdir, str(mark))}
    with pytest.raises(InputError, match="data_batch_1 is not the file it should be"):
        read_batch(pickle.dumps(content, protocol=3), "data_batch_1", 12)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [
        {},
        [],
        {"data": PIXELS},
        {"data": PIXELS, "labels": [1]},
        {"data": PIXELS, "labels": ["a", "b"]},
        {"data": PIXELS, "labels": [[1], [2]]},
        {"data": PIXELS.astype(np.int32), "labels": [1, 2]},
        {"data": np.asfortranarray(PIXELS), "labels": [1, 2]},
        {"data": "text", "labels": [1, 2]},
    ],
    ids=str,
)
def test_other_content_is_refused_in_words(content):
    with pytest.raises(InputError, match="not the file it should be"):
        read_batch(pickle.dumps(content, protocol=3), "data_batch_1", 12)


@given(st.integers(0, 250), st.binary(max_size=6))
def test_damaged_bytes_give_the_sentence_or_an_array_of_the_right_shape(place, extra):
    content = as_python_2_wrote_it(PIXELS, [3, 8])
    try:
        pixels, labels = read_batch(content[:place] + extra + content[place + len(extra) :], "data_batch_1", 12)
    except InputError:
        return
    assert pixels.shape == (len(labels), 12)
