"""Opacus' own MNIST example in miniature, with three more lines: the run appears in dpviz while it trains."""

import argparse
import warnings

import torch
import torch.nn.functional as F
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import dpviz  # 1
from dpviz.training.data.readers import load

warnings.filterwarnings("ignore", message="Secure RNG|Full backward hook|Optimal order")
DELTA, BATCH_SIZE, SIGMA, CLIP_NORM, LEARNING_RATE = 1e-5, 30, 1.0, 1.0, 0.5


def build_model():
    """The network of Opacus' example."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def train(model, optimizer, loader):
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


@torch.no_grad()
def test(model, images, labels):
    model.eval()
    return (model(images[:500]).argmax(1) == labels[:500]).float().mean().item()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    epochs = parser.parse_args().epochs
    torch.manual_seed(0)
    mnist = load("mnist", subset=300)
    images, test_images = mnist.inputs(mnist.train_images), mnist.inputs(mnist.test_images)
    loader = DataLoader(TensorDataset(images, mnist.train_labels), batch_size=BATCH_SIZE)
    model = build_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    privacy_engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = privacy_engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=SIGMA,
        max_grad_norm=CLIP_NORM,
    )
    with dpviz.track(privacy_engine, delta=DELTA, name="Opacus, digits", dataset="mnist", epochs=epochs) as run:  # 2
        for epoch in range(1, epochs + 1):
            train(model, optimizer, loader)
            accuracy, epsilon = test(model, test_images, mnist.test_labels), privacy_engine.get_epsilon(DELTA)
            run.log(test_accuracy=accuracy, epsilon=epsilon)  # 3
            print(f"epoch {epoch}: test accuracy {accuracy:.4f}, Opacus' epsilon {epsilon:.4f}", flush=True)
    weights = sum(parameter.double().sum().item() for parameter in model.parameters())
    print("history", privacy_engine.accountant.history, "weights", weights)


if __name__ == "__main__":
    main()
