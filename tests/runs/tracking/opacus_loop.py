"""A tiny real Opacus loop: logistic regression on 200 points, two classes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

SIZE, BATCH, SIGMA, DELTA = 200, 20, 1.0, 1e-5


@dataclass
class Loop:
    engine: Any
    model: Any
    optimizer: Any
    loader: Any
    points: Any
    labels: Any

    def train(self) -> None:
        """One epoch."""
        for points, labels in self.loader:
            self.optimizer.zero_grad()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a model's inputs need no gradient
                torch.nn.functional.cross_entropy(self.model(points), labels).backward()
            self.optimizer.step()

    def accuracy(self) -> torch.Tensor:
        with torch.no_grad():
            return (self.model(self.points).argmax(1) == self.labels).float().mean()

    @property
    def history(self) -> list[Any]:
        return self.engine.accountant.history


def opacus_loop(accountant: str = "rdp") -> Loop:
    torch.manual_seed(0)
    points = torch.randn(SIZE, 5)
    labels = (points[:, 0] > 0).long()
    model = torch.nn.Linear(5, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Opacus says that its noise is not for production
        engine = PrivacyEngine(accountant=accountant)
        model, optimizer, loader = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), 0.5),
            data_loader=DataLoader(TensorDataset(points, labels), batch_size=BATCH),
            noise_multiplier=SIGMA,
            max_grad_norm=1.0,
        )
    return Loop(engine, model, optimizer, loader, points, labels)
