"""A real Ray cluster of two raylets, for all tests of runners in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dpviz.runs.execution.ray_runner import RayRunner
from dpviz.runs.store.store import Store


@pytest.fixture(scope="session")
def raylets() -> Iterator[Any]:
    from benchmarks.scale import raylets

    with raylets(2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ray_runner(raylets, tmp_path_factory) -> Iterator[RayRunner]:
    """Open to the end, so that Ray's workers, which take seconds to import torch, are used again by other runners."""
    runner = RayRunner(Store(tmp_path_factory.mktemp("ray") / "runs"), raylets.address)
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def address(raylets, ray_runner) -> str:
    return raylets.address
