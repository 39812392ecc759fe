"""The exported script runs, draws as it is priced, and Opacus counts and prints what the script says it will."""

from __future__ import annotations

import ast
import math
import os
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from opacus.accountants import RDPAccountant

from dpviz.privacy import Ledger, epoch_phases, epsilon
from dpviz.privacy.rdp import phase_rdp, smallest_epsilon
from dpviz.privacy.rounding import epsilon_number
from dpviz.training.tables import DATASETS
from dpviz.ui.schedule.export import opacus_script, script_epsilons
from dpviz.ui.schedule.settings import OWN_DATA, Settings
from dpviz.views.numbers import epsilon_text

SIGMAS = (3.5, 0.9, 1.7)


def own(**changes) -> Settings:
    return Settings(**{"dataset": OWN_DATA, "dataset_size": 1000, "epochs": 3, "delta": 1e-6} | changes)


def run_script(text: str, folder) -> list[str]:
    """The lines that the script prints on random data."""
    script = folder / "train_private.py"
    script.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), "--synthetic"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def stated(text: str) -> tuple[str, str]:
    """The two epsilons in the script's first words: Opacus' and the certified one."""
    words = ast.get_docstring(ast.parse(text))
    return tuple(re.search(rf"^ *{name}.*: (\S.*)$", words, re.MULTILINE).group(1) for name in ("Opacus'", "dpviz's"))


# 130 does not divide 1,000: a data loader's rate would be 1/8, and its epsilon another one. Of batches of 3 some are
# empty, and they count like all others.
@pytest.mark.parametrize("batch_size", [130, 3])
def test_opacus_counts_the_steps_that_dpviz_prices_and_prints_the_epsilon_that_is_stated(tmp_path, batch_size):
    settings = own(batch_size=batch_size)
    text = opacus_script(SIGMAS, settings)
    whole = "\nassert all(torch.isfinite(weights).all() for weights in model.parameters())\n"
    *epochs, history = run_script(text + whole, tmp_path)
    phases = epoch_phases(SIGMAS, settings.sample_rate)
    counted = ast.literal_eval(history.removeprefix("counted (sigma, sample rate, steps): "))
    assert counted == [(phase.noise_multiplier, phase.sample_rate, phase.steps) for phase in phases]
    printed = [float(re.search(r"RDP epsilon ([\d.]+)$", line).group(1)) for line in epochs]
    for number, found in enumerate(printed, start=1):
        ours, _ = smallest_epsilon(phase_rdp(phases[:number]).sum(axis=0), settings.delta)
        assert found == pytest.approx(ours, abs=1e-6)
    assert epsilon_number(printed[-1]) == stated(text)[0]


@pytest.mark.filterwarnings("ignore:Optimal order is the largest alpha")  # Opacus, where noise is large
@pytest.mark.parametrize(
    ("sigmas", "settings"),
    [
        ((1.0,) * 20, Settings()),
        ((1.0,) * 20, Settings(accountant="rdp", adjacency="replace-one", sampling="fixed-order")),
        ((0.3, 0.2), own(batch_size=50, epochs=2, delta=1e-5)),
        ((50.0,) * 3, own(dataset_size=1_000_000, batch_size=1000, delta=1 / 3e6)),
        ((5.0,), own(batch_size=10, epochs=1, delta=0.5)),
    ],
    ids=["default", "other assumptions", "little noise", "much noise", "large delta"],
)
def test_both_epsilons_are_those_of_the_script_whatever_the_page_assumes(sigmas, settings):
    text = opacus_script(sigmas, settings)
    opacus = RDPAccountant()
    phases = epoch_phases(sigmas, settings.sample_rate)
    opacus.history = [(phase.noise_multiplier, phase.sample_rate, phase.steps) for phase in phases]
    band = epsilon(Ledger(phases), settings.delta, accountant="pld")
    printed = f"{max(0.0, opacus.get_epsilon(settings.delta)):.6f}"  # as the script has it
    assert stated(text) == (epsilon_number(float(printed)), f"{epsilon_text(band)} (certified)")
    assert stated(text) == script_epsilons(sigmas, settings)
    assert "same epsilon" not in text


def test_batches_are_drawn_at_the_rate_that_is_priced_to_the_last_bit():
    settings = own(batch_size=130)
    rate = settings.sample_rate
    drawn = re.search(r"drawn = (.+)", opacus_script(SIGMAS, settings)).group(1)
    numbers = [math.nextafter(rate, 0), rate, math.nextafter(rate, 1)]  # one and the same in single precision

    def rand(size, dtype=torch.float32):
        return torch.tensor(numbers, dtype=dtype)

    names = {"torch": SimpleNamespace(rand=rand, float64=torch.float64), "images": numbers, "SAMPLE_RATE": rate}
    assert eval(drawn, names).tolist() == [True, False, False]


@pytest.mark.parametrize("dataset", [*DATASETS, OWN_DATA])
def test_every_dataset_gets_a_script_that_is_python_and_holds_the_settings_exactly(dataset):
    size = DATASETS[dataset].size if dataset != OWN_DATA else 12_345
    settings = Settings(dataset=dataset, dataset_size=size, batch_size=256, epochs=3, delta=1 / 61_234)
    text = opacus_script(SIGMAS, settings)
    values = {
        target.id: node.value
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert ast.literal_eval(values["SIGMAS"]) == list(SIGMAS)
    assert ast.literal_eval(values["STEPS"]) == settings.steps
    assert ast.literal_eval(values["DELTA"]) == settings.delta
    known = dataset in DATASETS and DATASETS[dataset].torchvision
    assert bool(known) == ("torchvision.datasets" in text)
