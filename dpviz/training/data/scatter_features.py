"""Fixed ScatterNet features: wavelet filters that were never trained, so they cost no privacy.

Each colour channel gives 81 channels at a quarter of the size (J = 2 scales, 8 angles, orders 0 to 2):
1 + 8 J + 8^2 J (J - 1) / 2. Oyallon & Mallat (2015), arXiv:1412.8659; used for private training by Tramer & Boneh
(2021), arXiv:2011.11660, who pay for statistics of the features or normalise each example on its own. dpviz does the
latter, inside the scatter-* models, so what is stored here depends on one example at a time only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from dpviz.paths import cache_folder
from dpviz.privacy.registry import InputError
from dpviz.training.data.catalog import Dataset
from dpviz.training.data.readers import Data, load
from dpviz.training.evaluation import as_inputs
from dpviz.training.spec import RunSpec
from dpviz.training.tables import MODELS

SCALES, ANGLES = 2, 8
CHUNK = 500


def load_for(spec: RunSpec, data_dir: Path | None = None) -> Data:
    """The data a run trains on: pixels, or ScatterNet features for the models that start from those."""
    data = load(spec.data, data_dir, spec.subset)
    return scattered(spec.data, data) if MODELS[spec.model].scattered else data


_last: dict[tuple[str, int, int], Data] = {}
_one_at_a_time = threading.Lock()  # a run and a trial may both ask; two sets of features would take twice the memory


def scattered(dataset: Dataset, data: Data) -> Data:
    """The dataset with features in place of pixels: computed once, then read from dpviz's cache folder.

    Stored and held in half precision, which keeps all 60,000 images of CIFAR-10 under 2 GB; batches are widened when
    they are drawn. Only the features used last stay in memory.
    """
    key = (_cache_name(dataset), len(data.train_images), len(data.test_images))
    with _one_at_a_time:
        if key not in _last:
            train = _features(dataset, "train", data, data.train_images)
            test = _features(dataset, "test", data, data.test_images)
            _last.clear()
            _last[key] = Data(train, data.train_labels, test, data.test_labels, data.classes)
        return _last[key]


def _cache_name(dataset: Dataset) -> str:
    """Own data by their content too: others may get the same name later."""
    return f"{dataset.name}-{dataset.own.content_hash[:16]}" if dataset.own else dataset.name


def _features(dataset: Dataset, part: str, data: Data, images: Tensor) -> Tensor:
    path = cache_folder() / f"{_cache_name(dataset)}-scatter-{part}-{len(images)}.pt"
    if not path.is_file():
        features = scatter(dataset, images, data.inputs)
        _write(path, features)
        return features
    features = torch.load(path, weights_only=True)
    if not (isinstance(features, Tensor) and len(features) == len(images) and features.dim() == 4):
        raise InputError(
            f"{path.name} in the cache folder does not hold features of this dataset; delete it, and it is made again"
        )
    return features


@torch.no_grad()
def scatter(dataset: Dataset, images: Tensor, inputs: Callable[[Tensor], Tensor] = as_inputs) -> Tensor:
    """ScatterNet features of images, which `inputs` normalises: [examples, 81 x colours, height / 4, width / 4]."""
    # Not `from kymatio.torch import ...`: that also imports its 3D part, which needs a SciPy function that is gone.
    from kymatio.scattering2d.frontend.torch_frontend import ScatteringTorch2D

    scattering = ScatteringTorch2D(J=SCALES, shape=tuple(images.shape[2:]), L=ANGLES)
    mean, std = (torch.tensor(numbers).view(1, -1, 1, 1) for numbers in (dataset.mean, dataset.std))
    return torch.cat([scattering(inputs(some) * std + mean).flatten(1, 2).half() for some in images.split(CHUNK)])


def _write(path: Path, features: Tensor) -> None:
    """Under another name first: a reader never sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        torch.save(features, part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
