"""A private step beside its peers: the same model, batch and threads, complete steps from data to updated weights.

Columns are seconds: `dpviz`, `sgd` (a plain PyTorch step in the default memory format: no clipping, no noise),
`sgd_channels_last` (the same with the channels of images side by side), `opacus_hooks` and `opacus_ghost` (Opacus'
PrivacyEngine). Each column has a process of its own, so that none profits from another's memory, and they take turns
step by step, so that whatever else the machine does hits all alike; medians count. `over_best_sgd` is dpviz over the
faster of the two plain steps, `times_hooks` how many times as fast as Opacus' hooks, `examples_per_second` what dpviz
and the hooks make of it. `processor` has the seconds that the process really worked, summed over its threads: with one
thread, what to compare where other work waits in between. `peak_memory_mb` is how much the steps added to the process,
or to the device.

    python -m benchmarks.training [--seconds 20] [--threads 1] [--case mnist-cnn] [--device cuda]
"""

from __future__ import annotations

import argparse
import functools
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

from dpviz.training.devices import CPU, device_of, pick_device
from dpviz.training.gradients.clipping import build_clipping
from dpviz.training.gradients.per_example import PerExample
from dpviz.training.losses import build_loss
from dpviz.training.models import build_model
from dpviz.training.optimizers import build_optimizer
from dpviz.training.random_streams import Seeded, add_noise

CLIP_NORM, NOISE_MULTIPLIER, LEARNING_RATE, MOMENTUM = 0.1, 1.23, 0.01, 0.9
LEAST_ROUNDS = 5


@dataclass(frozen=True)
class Case:
    """A model and a batch of random data of the right shape: the work does not depend on the values."""

    model: str
    shape: tuple[int, ...]
    batch: int
    words: int = 0  # the inputs are numbers below this; 0: they are no words

    def parts(self, device: str) -> tuple[nn.Module, Tensor, Tensor]:
        generator = torch.Generator().manual_seed(0)
        model = build_model(self.model, {}, self.shape, 10, generator, tokens=self.words > 0)
        size = (self.batch, *self.shape)
        words, numbers = (
            torch.randint(max(1, self.words), size, generator=generator),
            torch.randn(size, generator=generator),
        )
        targets = torch.randint(10, (self.batch,), generator=generator)
        return model.to(device), (words if self.words else numbers).to(device), targets.to(device)


WORDS = 5000


class Bag(nn.Module):
    """The mean of a text's word vectors, then one fully connected layer."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(WORDS, 32), nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.words(x).mean(1))


def bag(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    return Bag(classes)


CASES = {
    "mnist-cnn": Case("cnn-mnist", (1, 28, 28), 512),
    "cifar10-cnn": Case("cnn-cifar10", (3, 32, 32), 256),
    "resnet20": Case("resnet20", (3, 32, 32), 128),
    "table-mlp": Case("mlp", (105,), 512),
    "text-embedding": Case("benchmarks.training:bag", (64,), 256, WORDS),
}
Step = Callable[[], object]


def dpviz_step(case: Case, device: str) -> Step:
    where = device_of(device)
    model, inputs, targets = case.parts(device)
    clipping = build_clipping("flat", {})
    perexample = PerExample(model, build_loss("cross-entropy", {}), clipping, device=where)
    optimizer = build_optimizer("sgd", {"momentum": MOMENTUM}, model.parameters())
    stream = Seeded(0, "noise", device=where if where.doubles else CPU)

    def step() -> None:
        sums = perexample.clipped_sum(inputs, targets, epoch=0, clip_norm=CLIP_NORM).gradients
        noise = stream.normal(sum(part.numel() for part in sums)).mul_(NOISE_MULTIPLIER * CLIP_NORM)
        shares = noise.split([part.numel() for part in sums])
        noisy = [
            add_noise(part, share.view(part.shape), doubles=where.doubles)
            for part, share in zip(sums, shares, strict=True)
        ]
        optimizer.step([part / case.batch for part in noisy], LEARNING_RATE)

    return step


def sgd_step(case: Case, device: str, memory_format: torch.memory_format = torch.contiguous_format) -> Step:
    model, inputs, targets = case.parts(device)
    model = model.to(memory_format=memory_format)
    inputs = inputs.to(memory_format=memory_format) if inputs.dim() == 4 else inputs
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    return _tutorial_step(model, nn.CrossEntropyLoss(), optimizer, inputs, targets)


def opacus_step(case: Case, device: str, mode: str) -> Step:
    from opacus import PrivacyEngine

    model, inputs, targets = case.parts(device)
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


COLUMNS: dict[str, Callable[[Case, str], Step]] = {
    "dpviz": dpviz_step,
    "sgd": sgd_step,
    "sgd_channels_last": functools.partial(sgd_step, memory_format=torch.channels_last),
    "opacus_hooks": functools.partial(opacus_step, mode="hooks"),
    "opacus_ghost": functools.partial(opacus_step, mode="ghost"),
}


class Worker:
    """A fresh process that takes one column's steps on demand."""

    def __init__(self, case: str, column: str, threads: int, device: str) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.training", "--threads", str(threads)]
        self.process = subprocess.Popen(
            [*command, "--case", case, "--device", device, "--serve", column],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: str) -> Any:
        """`step` answers with seconds and the processor's seconds, `memory` with megabytes."""
        print(question, file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def serve(case: Case, column: str, device: str) -> None:
    """The worker's side: one answer a line until the questions end."""
    step = COLUMNS[column](case, device)
    wait = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}.get(device, lambda: None)
    before = torch.cuda.memory_allocated() / 1e6 if device == "cuda" else _resident("VmRSS")

    def timed() -> tuple[float, float]:
        started, worked = time.perf_counter(), time.process_time()
        step()
        wait()
        return time.perf_counter() - started, time.process_time() - worked

    def memory() -> int | None:
        peak = torch.cuda.max_memory_allocated() / 1e6 if device == "cuda" else _resident("VmHWM")
        return None if before is None or peak is None else round(peak - before)

    answers = {"step": timed, "memory": memory}
    for question in sys.stdin:
        print(json.dumps(answers[question.strip()]()), flush=True)


def _resident(key: str) -> float | None:
    """Megabytes now (VmRSS) or at the peak (VmHWM); None where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith(key))
    return int(line.split()[1]) * 1024 / 1e6


def row(case: str, seconds: float, threads: int, device: str) -> dict[str, Any]:
    """Median seconds a step of each column, taken in turn until the time is up, and the memory each needed."""
    workers = {column: Worker(case, column, threads, device) for column in COLUMNS}
    try:
        times: dict[str, list[tuple[float, float]]] = {column: [] for column in workers}
        for worker in workers.values():
            worker.ask("step")
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times["sgd"]) < LEAST_ROUNDS:
            for column, worker in workers.items():
                times[column].append(worker.ask("step"))
        memory = {column: worker.ask("memory") for column, worker in workers.items()}
    finally:
        for worker in workers.values():
            worker.close()
    middle, processor = (
        {column: round(median(pair[clock] for pair in pairs), 5) for column, pairs in times.items()} for clock in (0, 1)
    )
    batch, best = CASES[case].batch, min(middle["sgd"], middle["sgd_channels_last"])
    ratios = {
        "over_best_sgd": round(middle["dpviz"] / best, 3),
        "times_hooks": round(middle["opacus_hooks"] / middle["dpviz"], 2),
        "examples_per_second": {name: round(batch / middle[name]) for name in ("dpviz", "opacus_hooks")},
    }
    measured = {**middle, **ratios, "processor": processor, "peak_memory_mb": memory}
    return {"case": case, "device": device, "threads": threads, **measured}


def rows(
    seconds: float = 20.0, threads: int | None = None, cases: Sequence[str] = tuple(CASES), device: str = "cpu"
) -> list[dict[str, Any]]:
    """One row per case; `seconds` is how long each case's steps are timed."""
    device = pick_device(device)
    return [row(case, seconds, threads or torch.get_num_threads(), device) for case in cases]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or mps")
    parser.add_argument("--serve", choices=COLUMNS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        torch.set_num_threads(args.threads)
        serve(CASES[args.case], args.serve, args.device)
    else:
        cases = [args.case] if args.case else list(CASES)
        print(json.dumps({"rows": rows(args.seconds, args.threads, cases, args.device)}, indent=2))


if __name__ == "__main__":
    main()
