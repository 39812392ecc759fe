"""SCHEDULE_FORMATS: a schedule as files, among them a short Opacus training script, to run anywhere.

The script samples, clips and adds noise as dpviz prices it. What Opacus' RDP accountant prints is above the certified
epsilon of the same steps, so the script states both.
"""

from __future__ import annotations

import json
import pprint
from dataclasses import replace
from string import Template

from dpviz.privacy.rdp import ORDERS, phase_rdp, smallest_epsilon
from dpviz.privacy.rounding import epsilon_number
from dpviz.training.spec import RunSpec
from dpviz.training.tables import DATASETS
from dpviz.ui.common.downloads import FileFormat
from dpviz.ui.schedule.board import Board, as_json
from dpviz.ui.schedule.settings import Settings
from dpviz.views.numbers import delta_text, epsilon_kind, epsilon_text
from dpviz.views.schedules import path_frame

SCRIPT = Template('''\
"""DP-SGD with a noise schedule, for Opacus. Needs: pip install opacus torchvision

    python train_private.py               train on $title
    python train_private.py --synthetic   a trial on random data: no download, and the same steps are counted

Epsilon of these steps at delta = $delta, by two accountants:
    Opacus' RDP, an upper bound, which this script prints after every epoch: $opacus
    dpviz's, of which the upper end holds as well: $tight
Both hold for Poisson sampling and for neighbours that differ by one example more or less, if the schedule was chosen
without looking at the data. Both take noise for exactly normal; torch's is single precision, from its ordinary
generator, and whoever knows the seed can subtract it.
"""

import sys

import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.optimizers import DPOptimizer
from torch import nn

SIGMAS = $sigmas  # noise multiplier of each epoch; noise std = sigma * CLIP_NORM
BATCH_SIZE, DATASET_SIZE = $batch_size, $dataset_size
SAMPLE_RATE = BATCH_SIZE / DATASET_SIZE
STEPS = $steps  # updates in one epoch
DELTA = $exact_delta
CLIP_NORM = $clip_norm
LEARNING_RATE = $learning_rate


def load_data(synthetic):
    """Images as floats, and labels."""
    if synthetic:
        size = min(DATASET_SIZE, max(2000, 2 * STEPS))
        return torch.rand(size, $shape), torch.randint($classes, (size,))
$load


images, labels = load_data("--synthetic" in sys.argv[1:])
model = GradSampleModule(
    nn.Sequential(
        nn.Conv2d($channels, 16, 5, stride=2, padding=2),
        nn.Tanh(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.Tanh(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, $classes),
    )
)
optimizer = DPOptimizer(
    torch.optim.SGD(model.parameters(), lr=LEARNING_RATE),
    noise_multiplier=SIGMAS[0],
    max_grad_norm=CLIP_NORM,
    expected_batch_size=max(1, round(SAMPLE_RATE * len(images))),
)
accountant = RDPAccountant()
optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=SAMPLE_RATE))
loss_of = nn.CrossEntropyLoss()

for epoch, sigma in enumerate(SIGMAS, start=1):
    optimizer.noise_multiplier = sigma
    for _ in range(STEPS):
        # Poisson sampling: every example takes part with the same probability, on its own.
        # In double precision: 24 bits would round the rate, and draw rare examples too often.
        drawn = torch.rand(len(images), dtype=torch.float64) < SAMPLE_RATE
        optimizer.zero_grad()
        loss = loss_of(model(images[drawn]), labels[drawn])
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        accuracy = (model(images[:2000]).argmax(1) == labels[:2000]).float().mean().item()
    epsilon = max(0.0, accountant.get_epsilon(DELTA))
    print(f"epoch {epoch}: sigma {sigma:g}, accuracy {accuracy:.1%} on training examples, RDP epsilon {epsilon:.6f}")
print("counted (sigma, sample rate, steps):", accountant.history)
''')

LOAD_DATASET = Template("""\
    from torchvision.datasets import $name

    dataset = $name("data", train=True, download=True)
    pixels = torch.as_tensor(dataset.data).float() / 255
    pixels = pixels.reshape(len(pixels), $height, $width, -1).permute(0, 3, 1, 2)  # colours first
    return pixels, torch.as_tensor(dataset.targets)""")

LOAD_OWN = """\
    raise SystemExit("put your own tensors here: images (N, channels, height, width) and labels (N,)")"""


def script_epsilons(sigmas: tuple[float, ...], settings: Settings) -> tuple[str, str]:
    """What the script's steps cost for the script's own assumptions: as Opacus prints it, and dpviz's tightest.

    Opacus tries RDP's usual orders only; where a larger one is better, dpviz's `rdp` is below what it prints.
    """
    opacus, _ = smallest_epsilon(phase_rdp(settings.phases(sigmas), ORDERS).sum(axis=0), settings.delta)
    tight = replace(settings, accountant="pld", adjacency="add-remove", sampling="poisson").price(sigmas)
    return epsilon_number(opacus), f"{epsilon_text(tight)} ({epsilon_kind(tight)})"


def opacus_script(sigmas: tuple[float, ...], settings: Settings) -> str:
    """A training script for this curve, which says what Opacus will print and what is certified."""
    opacus, tight = script_epsilons(sigmas, settings)
    known = DATASETS.get(settings.dataset)
    source = known.torchvision if known else ""
    # What torchvision does not know starts from random images: of its own shape, else of MNIST's.
    dataset = known if known and len(known.shape) == 3 else DATASETS["mnist"]
    channels, height, width = dataset.shape
    load = LOAD_DATASET.substitute(name=source, height=height, width=width) if source else LOAD_OWN
    return SCRIPT.substitute(
        title=dataset.title if source else "your own data",
        opacus=opacus,
        tight=tight,
        sigmas=pprint.pformat(list(sigmas), width=110, compact=True),
        batch_size=settings.batch_size,
        dataset_size=settings.dataset_size,
        steps=settings.steps,
        delta=delta_text(settings.delta),
        exact_delta=repr(settings.delta),
        clip_norm=RunSpec.clip_norm,
        learning_rate=RunSpec.learning_rate,
        shape=", ".join(map(str, dataset.shape)),
        channels=channels,
        classes=dataset.classes,
        load=load,
    )


def _json(board: Board, settings: Settings) -> bytes:
    return json.dumps(as_json(board, settings), indent=2, allow_nan=False).encode()


def _csv(board: Board, settings: Settings) -> bytes:
    frame = path_frame(board.sigmas, settings.sample_rate, settings.delta, settings.assumptions)
    return frame.to_csv(index=False).encode()


def _script(board: Board, settings: Settings) -> bytes:
    return opacus_script(board.sigmas, settings).encode()


SCHEDULE_FORMATS: tuple[FileFormat[[Board, Settings]], ...] = (
    FileFormat("Schedule as JSON", "{name}.json", "application/json", _json),
    FileFormat("Schedule as CSV", "{name}.csv", "text/csv", _csv),
    FileFormat("Export code", "train_private.py", "text/x-python", _script),
)
