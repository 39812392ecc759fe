"""A step asks the device nothing and copies nothing: counted on the CPU with a device's code paths, and on GPUs.

A mode of PyTorch sees every operation. On the CPU copies between devices are not operations, so there the mode also
looks at the calls that would make one: `cpu`, `numpy`, `tolist`, and tensors made of Python's numbers.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dpviz.privacy.registry import InputError
from dpviz.training.data.readers import Data
from dpviz.training.devices import CPU, Device, device_of, out_of_memory
from dpviz.training.engine import LOOK_EVERY, Trainer
from dpviz.training.random_streams import Seeded
from dpviz.training.tables import LOSSES, OPTIMIZERS
from tests.training.small import curve, small_data, small_spec

pytestmark = pytest.mark.gpu
WAITS = ("_local_scalar_dense", "nonzero", "_unique2", "unique_dim", "masked_select", "is_nonzero", "equal")
ASKS = ("cpu", "numpy", "tolist", "item", "__bool__", "__float__", "__int__", "__index__", "pin_memory")
DRAWS = ("rand", "randn", "randint", "randperm", "normal_", "uniform_", "random_", "bernoulli_")


class Watch(TorchDispatchMode):
    """Everything that makes the host wait, copies between host and device, or draws from a generator of the host."""

    def __init__(self, trainer: Trainer) -> None:
        super().__init__()
        audit = [trainer.audits.step.stream] if trainer.audits else []
        streams = (*trainer.streams.values(), *audit)
        own = [stream for stream in streams if isinstance(stream, Seeded) and stream.device == trainer.device]
        self.seeds = {stream.generator.initial_seed() for stream in own}  # every stream has a seed of its own
        self.found: list[str] = []
        self.calls = Calls(self.found)

    def __enter__(self):
        self.calls.__enter__()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.calls.__exit__(*error)

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = operation.overloadpacket.__name__
        if name in WAITS or name == "lift_fresh":
            self.found.append(name)
        if name in DRAWS and not (kwargs.get("generator") and kwargs["generator"].initial_seed() in self.seeds):
            self.found.append("drawn on the host")
        result = operation(*args, **kwargs)
        if name in ("_to_copy", "copy_"):
            tensors = [part for part in (*args, result) if isinstance(part, torch.Tensor)]
            if len({part.device.type for part in tensors}) > 1:
                self.found.append("copied between devices")
        return result


class Calls(TorchFunctionMode):
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if (name := getattr(function, "__name__", "")) in ASKS:
            self.found.append(name)
        return function(*args, **(kwargs or {}))


def devices() -> list:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    skipped = {name: pytest.mark.skipif(not here, reason=f"no {name} device") for name, here in there.items()}
    return [
        pytest.param(Device("cpu"), id="as a device"),
        pytest.param(Device("cpu", doubles=False), id="as a device without doubles"),
        *(pytest.param(name, id=name, marks=skip) for name, skip in skipped.items()),
    ]


on_every_device = pytest.mark.parametrize("device", devices())


def made(device: str | Device, spec=None, data: Data | None = None) -> Trainer:
    device = device if isinstance(device, Device) else device_of(device)
    return Trainer(spec or small_spec(), device=device, data=data or small_data())


def colours() -> Data:
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(120, 3, 32, 32, generator=generator), torch.arange(120) % 10
    return Data(images[:80], labels[:80], images[80:], labels[80:])


SPECS = {
    "a network and canaries": {"model": "cnn-mnist", "canaries": 20},
    "masked": {"curriculum": "masked"},
    "sorted": {"curriculum": "sample"},
    "per layer": {"clipping": "per-layer", "model": "mlp"},
    **{f"loss {name}": {"loss": name} for name in LOSSES},
    **{f"optimizer {name}": {"optimizer": name, "learning_rate": 0.01} for name in OPTIMIZERS},
}


@on_every_device
@pytest.mark.parametrize("changes", SPECS.values(), ids=SPECS)
def test_a_step_neither_waits_nor_copies_nor_draws_on_the_host(device, changes):
    check_steps(made(device, small_spec(**changes)))


@on_every_device
def test_nor_does_a_step_with_augmented_images(device):
    spec = small_spec(dataset="cifar10", subset=80, batch_size=20, knobs={"dataset.augment": True})
    check_steps(made(device, spec, colours()))


@on_every_device
def test_nor_does_a_step_that_looks_words_up(device):
    generator = torch.Generator().manual_seed(0)
    words, labels = torch.randint(50, (120, 12), generator=generator), torch.arange(120) % 2
    trainer = made(device)
    from dpviz.training.gradients.per_example import PerExample

    model = torch.nn.Sequential(torch.nn.Embedding(50, 8, padding_idx=0), torch.nn.Flatten(), torch.nn.Linear(96, 2))
    per_example = PerExample(
        model.to(trainer.device.name), trainer.loss, trainer.perexample.clipping, 64, device=trainer.device
    )
    inputs, targets = words.to(trainer.device.name), labels.to(trainer.device.name)
    with Watch(trainer) as watch:
        per_example.clipped_sum(inputs, targets, epoch=0, clip_norm=1.0)
    assert watch.found == []


class Queued(TorchDispatchMode):
    """Counts the operations, each of which a device would have to launch."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += 1
        return operation(*args, **(kwargs or {}))


@on_every_device
def test_a_larger_batch_is_no_more_pieces_of_work(device):
    trainer, queued = made(device, small_spec(model="cnn-mnist")), []
    images, labels = trainer.feed.examples.take(torch.arange(400))
    for count in (400, 400, 40, 4):  # the first time makes the buffers
        with Queued() as work:
            trainer.perexample.clipped_sum(images[:count], labels[:count], epoch=0, clip_norm=1.0)
        queued.append(work.count)
    assert queued[1] == queued[2] == queued[3]


def check_steps(trainer: Trainer) -> None:
    """Three steps after the first: the first makes tables and finds out how many examples fit."""
    trainer._begin_epoch()
    trainer.stride = 5
    trainer._look_ahead()
    trainer._take_step()
    with Watch(trainer) as watch:
        for _ in range(3):
            trainer._take_step()
    # The noise of a device without doubles comes from the host: docs/gpu.md.
    allowed = set() if trainer.device.doubles else {"drawn on the host", "copied between devices"}
    assert set(watch.found) <= allowed


@on_every_device
def test_a_look_reads_once(device):
    trainer = made(device, small_spec(model="cnn-mnist"))
    trainer._begin_epoch()
    trainer._take_step()
    with Watch(trainer) as watch:
        trainer._look_ahead()
    assert watch.found.count("cpu") == 1  # what follows looks at what was read
    assert watch.found.count("copied between devices") <= 1


@on_every_device
def test_looks_are_half_a_second_apart(device, monkeypatch):
    trainer, looks, look, take_step = made(device, small_spec(batch_size=1)), [], Trainer._look, Trainer._take_step
    now = [0.0]

    def step(self) -> None:
        now[0] += 0.005
        take_step(self)

    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(Trainer, "_take_step", step)
    monkeypatch.setattr(Trainer, "_look", lambda self, *sizes: (looks.append(now[0]), look(self, *sizes))[1])
    next(trainer.epochs())  # 400 steps, 2 seconds
    apart = [after - before for before, after in pairwise(looks)]
    assert len(apart) <= 8  # the first find the pace, the last ends the epoch
    assert apart[3:-1] == pytest.approx([LOOK_EVERY] * len(apart[3:-1]), rel=0.02)


def test_the_device_path_gives_the_same_result_as_the_cpus():
    for changes in ({"model": "cnn-mnist", "canaries": 20}, {"curriculum": "dynamic"}, {"method": "screening"}):
        spec = small_spec(**changes)
        plain, forced = made(CPU, spec), made(Device("cpu"), spec)
        assert curve(plain.epochs()) == curve(forced.epochs())
        assert plain.audit == forced.audit


@on_every_device
def test_a_run_on_a_device_resumes_bit_for_bit(device):
    spec = small_spec(model="cnn-mnist", canaries=20)
    whole, first, second = (made(device, spec) for _ in range(3))
    expected, taken = curve(whole.epochs()), []
    records = list(first.epochs(on_step=lambda step, _: taken.append(step), should_stop=lambda: len(taken) == 7))
    second.load(first.state())
    assert curve([*records, *second.epochs()]) == expected
    assert second.audit == whole.audit


@on_every_device
def test_data_that_do_not_fit_are_copied_ahead_and_give_the_same_result(device, monkeypatch):
    expected = curve(made(device).epochs())
    monkeypatch.setattr(Device, "free_bytes", 1000.0)
    streamed = made(device)
    assert not streamed.feed.examples.resident
    assert curve(streamed.epochs()) == expected


def test_a_checkpoint_of_another_kind_of_device_is_refused():
    trainer = made(CPU)
    with pytest.raises(InputError, match=r"drawn on cuda \(A100\), and cpu would draw others"):
        trainer.load(trainer.state() | {"generators": "cuda (A100)"})
    older = {name: value for name, value in trainer.state().items() if name != "generators"}
    trainer.load(older)


@on_every_device
def test_pixels_stay_bytes_where_they_are_kept(device):
    assert made(device).feed.examples.stored[0].dtype == torch.uint8


# --- out of memory ------------------------------------------------------------------------------------------------


def test_every_devices_way_to_say_that_memory_ran_out_is_known():
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"))
    for text in (
        "[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to",
        "MPS backend out of memory (MPS allocated: 7.64 GiB, other allocations: 8.91 GiB). Tried to allocate 2 GiB",
        "Invalid buffer size: 33.92 GiB",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ):
        assert out_of_memory(RuntimeError(text))
    assert not out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))


SHORT_OF_MEMORY = """
import resource, sys, torch
torch.set_num_threads(1)
from dpviz.training.engine import Trainer
from tests.training.small import curve, small_data, small_spec
spec = small_spec(model="cnn-mnist", batch_size=400, epochs=1)
plain = Trainer(spec, data=small_data())
plain.perexample.physical_batch = 50
expected = curve(plain.epochs())
short = Trainer(spec, data=small_data())
short.perexample.physical_batch = 400
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 10 * 2**20,) * 2)
print(curve(short.epochs()), expected, short.perexample.halved_to, sep="\\n")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits a process as Linux does")
def test_memory_that_runs_out_halves_the_physical_batch_and_draws_nothing_twice():
    root = Path(__file__).parents[2]
    answer = subprocess.run([sys.executable, "-c", SHORT_OF_MEMORY], cwd=root, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr[-2000:]
    mine, expected, halved = (eval(line) for line in answer.stdout.splitlines())
    assert halved in (25, 50, 100, 200)
    assert [number for record in mine for number in record] == pytest.approx(
        [number for record in expected for number in record], rel=1e-4
    )


def test_a_run_whose_memory_ran_out_goes_on_with_the_same_parts():
    halved = Trainer(small_spec(), data=small_data())
    halved.perexample.physical_batch = halved.perexample.halved_to = 25
    resumed = Trainer(small_spec(), data=small_data())
    resumed.load(halved.state())
    assert (resumed.perexample.physical_batch, resumed.perexample.halved_to) == (25, 25)
    resumed.load(halved.state() | {"physical_batch": None})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no cuda device")
def test_a_gpu_that_is_full_halves_the_physical_batch():
    spec = small_spec(model="cnn-mnist", batch_size=400, epochs=1)
    expected = curve(made("cuda", spec).epochs())
    trainer = made("cuda", spec)
    trainer.perexample.physical_batch = 400
    free, total = torch.cuda.mem_get_info()
    torch.cuda.set_per_process_memory_fraction((total - free + 30e6) / total)
    try:
        assert curve(trainer.epochs()) == pytest.approx(expected, rel=1e-3)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_a_device_is_a_plain_record():
    assert dataclasses.replace(CPU, asynchronous=True) == Device("cpu")
    assert device_of("cpu") is CPU
