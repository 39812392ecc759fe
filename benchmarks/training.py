"""A private step beside its peers: the same model, batch and threads, complete steps from data to updated weights.

Columns are seconds (medians of interleaved rounds, so that whatever else the machine does hits all alike):
`dpviz`, `sgd` (a plain PyTorch step in the default memory format: no clipping, no noise), `opacus_hooks` and
`opacus_ghost` (Opacus' PrivacyEngine). `peak_memory_mb` is how much each added to a fresh process.

    python -m benchmarks.training [--seconds 20] [--threads 1] [--case mnist-cnn]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dpviz.training.clipping import build_clipping
from dpviz.training.losses import build_loss
from dpviz.training.models import build_model
from dpviz.training.noise import randomness
from dpviz.training.optimizers import build_optimizer
from dpviz.training.perexample import PerExample

CLIP_NORM, NOISE_MULTIPLIER, LEARNING_RATE, MOMENTUM = 0.1, 1.23, 0.01, 0.9
LEAST_ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """A model and a batch of random data of the right shape: the work does not depend on the values."""

    model: str
    shape: tuple[int, ...]
    batch: int

    def parts(self) -> tuple[nn.Module, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        model = build_model(self.model, {}, self.shape, 10, generator)
        inputs = torch.randn(self.batch, *self.shape, generator=generator)
        return model, inputs, torch.randint(10, (self.batch,), generator=generator)


CASES = {
    "mnist-cnn": Case("cnn-mnist", (1, 28, 28), 512),
    "cifar10-cnn": Case("cnn-cifar10", (3, 32, 32), 256),
    "resnet20": Case("resnet20", (3, 32, 32), 128),
}
Step = Callable[[], object]


def dpviz_step(case: Case) -> Step:
    model, inputs, targets = case.parts()
    perexample = PerExample(model, build_loss("cross-entropy", {}), build_clipping("flat", {}))
    optimizer = build_optimizer("sgd", {"momentum": MOMENTUM}, model.parameters())
    stream = randomness(0, "noise", False)

    def step() -> None:
        sums = perexample.clipped_sum(inputs, targets, epoch=0, clip_norm=CLIP_NORM).gradients
        noise = stream.normal(sum(part.numel() for part in sums)).mul_(NOISE_MULTIPLIER * CLIP_NORM)
        shares = noise.split([part.numel() for part in sums])
        mean = [(part + share.view(part.shape)) / case.batch for part, share in zip(sums, shares, strict=True)]
        optimizer.step(mean, LEARNING_RATE)

    return step


def sgd_step(case: Case) -> Step:
    model, inputs, targets = case.parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    return _tutorial_step(model, nn.CrossEntropyLoss(), optimizer, inputs, targets)


def opacus_hooks_step(case: Case) -> Step:
    return _opacus_step(case, "hooks")


def opacus_ghost_step(case: Case) -> Step:
    return _opacus_step(case, "ghost")


def _opacus_step(case: Case, mode: str) -> Step:
    from opacus import PrivacyEngine

    model, inputs, targets = case.parts()
    criterion = nn.CrossEntropyLoss()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        private = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM),
            criterion=criterion,
            data_loader=DataLoader(TensorDataset(inputs, targets), batch_size=case.batch),
            noise_multiplier=NOISE_MULTIPLIER,
            max_grad_norm=CLIP_NORM,
            poisson_sampling=False,
            grad_sample_mode=mode,
        )
    model, optimizer = private[0], private[1]
    return _tutorial_step(model, private[2] if mode == "ghost" else criterion, optimizer, inputs, targets)


def _tutorial_step(model: nn.Module, criterion: Any, optimizer: Any, inputs: Tensor, targets: Tensor) -> Step:
    def step() -> None:
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()

    return step


COLUMNS: dict[str, Callable[[Case], Step]] = {
    "dpviz": dpviz_step,
    "sgd": sgd_step,
    "opacus_hooks": opacus_hooks_step,
    "opacus_ghost": opacus_ghost_step,
}


def medians(case: Case, seconds: float) -> dict[str, float]:
    """Median seconds a step of each column; one step of each in turn until the time is up."""
    steps = {name: build(case) for name, build in COLUMNS.items()}
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        step()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["sgd"]) < LEAST_ROUNDS:
        for name, step in steps.items():
            started = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - started)
    return {name: median(values) for name, values in times.items()}


def peak_memory(case: str, column: str, threads: int) -> int | None:
    """Megabytes that three steps add to the peak of a fresh process."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.training", "--threads", str(threads)]
    done = subprocess.run(
        [*command, "--case", case, "--memory-of", column],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    megabytes = json.loads(done.stdout)["megabytes"]
    return None if megabytes is None else round(megabytes)


def _added_megabytes(case: Case, column: str) -> float | None:
    """Peak after three steps less what was resident before them; None where the system does not say (no /proc)."""
    step = COLUMNS[column](case)
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    before = _kilobytes(status, "VmRSS")
    for _ in range(3):
        step()
    return (_kilobytes(status, "VmHWM") - before) * 1024 / 1e6


def _kilobytes(status: Path, key: str) -> int:
    return int(next(line for line in status.read_text().splitlines() if line.startswith(key)).split()[1])


def rows(
    seconds: float = 20.0, threads: int | None = None, cases: Sequence[str] = tuple(CASES)
) -> list[dict[str, Any]]:
    """One row per case; `seconds` is how long each case's steps are timed."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        return [
            {
                "case": name,
                "threads": torch.get_num_threads(),
                **medians(CASES[name], seconds),
                "peak_memory_mb": {c: peak_memory(name, c, torch.get_num_threads()) for c in COLUMNS},
            }
            for name in cases
        ]
    finally:
        torch.set_num_threads(before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--memory-of", choices=COLUMNS, help="print the memory that this column adds, and nothing else")
    args = parser.parse_args()
    if args.memory_of:
        torch.set_num_threads(args.threads or torch.get_num_threads())
        print(json.dumps({"megabytes": _added_megabytes(CASES[args.case or "mnist-cnn"], args.memory_of)}))
    else:
        names = [args.case] if args.case else list(CASES)
        print(json.dumps({"rows": rows(args.seconds, args.threads, names)}, indent=2))


if __name__ == "__main__":
    main()
