"""The exported script runs, and Opacus counts what dpviz counts."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys

import pytest

from dpviz.privacy import Ledger, epoch_phases, epsilon
from dpviz.privacy.rounding import epsilon_number
from dpviz.training.spec import DATASETS
from dpviz.ui.export import CLASSES, opacus_script
from dpviz.ui.settings import OWN_DATA, Settings

SIGMAS = (3.5, 0.9, 1.7)


def test_the_script_runs_and_ends_at_dpviz_epsilon(tmp_path):
    # 130 does not divide 1,000: a data loader's rate would be 1/8, and its epsilon another one.
    settings = Settings(dataset_size=1000, dataset=OWN_DATA, batch_size=130, epochs=3, delta=1e-6)
    script = tmp_path / "train_private.py"
    script.write_text(opacus_script(SIGMAS, settings), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), "--synthetic"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(SIGMAS)
    found = [float(re.search(r"epsilon ([\d.]+)$", line).group(1)) for line in lines]
    for epochs, counted in enumerate(found, start=1):
        ledger = Ledger(epoch_phases(SIGMAS[:epochs], settings.sample_rate))
        assert counted == pytest.approx(epsilon(ledger, settings.delta, accountant="rdp").upper, rel=1e-4)


@pytest.mark.parametrize("dataset", [*DATASETS, OWN_DATA])
def test_every_dataset_gets_a_script_that_is_python_and_says_its_epsilon(dataset):
    size = int(DATASETS[dataset].facts["size"]) if dataset != OWN_DATA else 12_345
    settings = Settings(dataset=dataset, dataset_size=size, batch_size=512, epochs=3)
    text = opacus_script(SIGMAS, settings)
    tree = ast.parse(text)
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert ast.literal_eval(values["SIGMAS"]) == list(SIGMAS)
    assert ast.literal_eval(values["STEPS"]) == settings.steps
    assert ast.literal_eval(values["DELTA"]) == settings.delta
    cost = epsilon(Ledger(epoch_phases(SIGMAS, settings.sample_rate)), settings.delta, accountant="rdp")
    assert epsilon_number(cost.upper) in ast.get_docstring(tree)
    assert (dataset in CLASSES) == ("torchvision.datasets" in text)


def test_every_dataset_has_a_loader():
    assert set(CLASSES) == set(DATASETS)
