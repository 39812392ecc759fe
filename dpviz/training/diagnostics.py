"""What goes on inside a run, once per epoch: plain numbers and lists for the run's record.

Computed from private examples, so none of it is covered by epsilon. Random numbers come from a stream of their own:
looking at a run does not change it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from dpviz.training.evaluation import Evaluation, evaluate, forward, weighted_layers
from dpviz.training.losses import PerExampleLoss
from dpviz.training.random_streams import seeded

if TYPE_CHECKING:
    from dpviz.training.engine import Trainer

EXAMPLES = 256
HESSIAN_EXAMPLES = 64
HESSIAN_ITERATIONS = 20
BINS = 30
SMALLEST = 1e-6  # of the largest norm, where the histogram begins


def diagnose(trainer: Trainer, test: Evaluation) -> dict[str, Any]:
    """Everything there is to see after an epoch, on the same few training examples in every epoch of a run.

    The quantities are those of `losing-less`, Fig. 1, 2 and 5 to 8.
    """
    generator = seeded(trainer.spec, "diagnostics").generator
    index = torch.randperm(trainer.spec.examples, generator=generator)[:EXAMPLES]
    data, device = trainer.data, trainer.device.name
    images, labels = data.inputs(data.train_images[index].to(device)), data.train_labels[index].to(device)
    train = evaluate(trainer.model, trainer.loss, images, labels.cpu(), trainer.epoch)
    few = slice(HESSIAN_EXAMPLES)
    found = {
        "examples": len(index),
        **_gradients(trainer, images, labels),
        **_sizes(trainer.model, images),
        "confusion": {"train": confusion(train, trainer.data.classes), "test": confusion(test, trainer.data.classes)},
        "hessian_eigenvalue": _finite(
            largest_eigenvalue(trainer.model, trainer.loss, images[few], labels[few], trainer.epoch, generator)
        ),
    }
    if trainer.screening:
        found["screening"] = {
            "accepted": trainer.screening.accepted[-1],
            "generated": trainer.screening.generated[-1],
        }
    return found


def _gradients(trainer: Trainer, images: Tensor, labels: Tensor) -> dict[str, Any]:
    """Gradient norms, and the sizes of an update's parts: |mean|, |clipped mean - mean| and sigma C sqrt(d) / B."""
    clip_norm = trainer.clip_norms[trainer.epoch] if trainer.private else math.inf
    raw = trainer.perexample.clipped_sum(images, labels, epoch=trainer.epoch, clip_norm=math.inf)
    clipped = trainer.perexample.clipped_sum(images, labels, epoch=trainer.epoch, clip_norm=clip_norm)
    mean, kept = (_flat(part.gradients) / len(labels) for part in (raw, clipped))
    norms = raw.norms.cpu().double().numpy()
    counts, edges = _histogram(norms)
    noise_std = trainer.sigmas[trainer.epoch] * clip_norm / trainer.spec.batch_size if trainer.private else 0.0
    return {
        "gradient_norms": {"edges": edges.tolist(), "counts": counts.tolist()},
        "clip_norm": _finite(clip_norm),
        "clipped_fraction": float((norms > clip_norm).mean()),
        "cosine": _finite(float(mean @ kept / (mean.norm() * kept.norm()))),
        "update": {
            "signal": float(mean.norm()),
            "clipping_bias": float((kept - mean).norm()),
            "noise": noise_std * math.sqrt(len(mean)),
        },
    }


def _histogram(norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts and edges of bins that are equally wide on a log axis: the clipping norm is often among the smallest.

    What is a millionth of the largest or less, zero included, is counted in the first bin.
    """
    most = norms.max(initial=0.0)
    least = max(norms.min(initial=most), SMALLEST * most)
    if not 0 < least < most:
        return np.histogram(norms, BINS)
    edges = np.geomspace(least, most, BINS + 1)
    return np.histogram(norms.clip(edges[0], edges[-1]), edges)


def _sizes(model: nn.Module, images: Tensor) -> dict[str, Any]:
    """Length of each layer's weights, and of its output averaged over examples (the last one's, if it works twice)."""
    sizes: dict[nn.Module, float] = {}

    def length(output: Tensor) -> float:
        return float(output.flatten(1).norm(dim=1).mean())

    def measure(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        sizes[layer] = length(output)

    layers = weighted_layers(model)
    handles = [layer.register_forward_hook(measure) for layer in layers.values()]
    with torch.no_grad():
        logits, _ = forward(model, images)
    for handle in handles:
        handle.remove()
    named = [
        {"name": name, "weight_norm": float(layer.weight.detach().norm()), "pre_activation_norm": sizes[layer]}
        for name, layer in layers.items()
        if layer in sizes
    ]
    return {"layers": named, "logit_norm": length(logits)}


def confusion(seen: Evaluation, classes: int) -> list[list[int]]:
    """Examples by true class (rows) and predicted class (columns)."""
    cells = torch.bincount(seen.labels * classes + seen.predictions, minlength=classes**2)
    return cells.view(classes, classes).tolist()


def largest_eigenvalue(
    model: nn.Module, loss: PerExampleLoss, images: Tensor, labels: Tensor, epoch: int, generator: torch.Generator
) -> float:
    """The eigenvalue of the mean loss's Hessian that is largest in size, by power iteration: v <- H v / |H v|.

    Ends when a round changes the value v^T H v by less than 1 %, or after HESSIAN_ITERATIONS.
    """
    weights = [p for p in model.parameters() if p.requires_grad]
    logits, hidden = forward(model, images)
    mean_loss = loss(logits, labels, epoch, hidden).mean()
    slope = _flat(torch.autograd.grad(mean_loss, weights, create_graph=True, allow_unused=True, materialize_grads=True))
    direction = torch.randn(len(slope), generator=generator).to(slope.device)
    value, last = 0.0, math.inf
    for _ in range(HESSIAN_ITERATIONS):
        direction = direction / direction.norm()
        curvature = torch.autograd.grad(slope, weights, direction, retain_graph=True, materialize_grads=True)
        product = _flat(curvature)
        value, last = float(direction @ product), value
        if not abs(value - last) > 0.01 * abs(value):
            break
        direction = product
    return value


def _flat(parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts])


def _finite(value: float) -> float | None:
    """JSON has no infinity and no NaN: None."""
    return value if math.isfinite(value) else None
