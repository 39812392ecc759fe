"""A run whose weights or loss left the numbers: what it ends with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dpviz.training.engine import Trainer


class Diverged(ArithmeticError):
    """The loss left the numbers; the message says by which step it was noticed and why, most likely."""


def diverged(trainer: Trainer, what: str, value: float) -> Diverged:
    """The error, with its most likely cause."""
    batch, step = trainer.spec.batch_size, trainer.epoch * trainer.steps_per_epoch + trainer.step
    sigma, clip_norm = trainer.sigmas[trainer.epoch], trainer.clip_norms[trainer.epoch]
    cause = f"the learning rate ({trainer.learning_rates[trainer.epoch]:g}) is most likely too high"
    if not trainer.private:
        cause += ", and without clipping nothing holds large gradients back"
    elif sigma * clip_norm / batch > 0.1:
        cause += f" for this much noise (sigma C / batch = {sigma:g} * {clip_norm:g} / {batch})"
    return Diverged(
        f"the {what} became {value} by step {step} (epoch {trainer.epoch + 1}): {cause}; lower it and start again"
    )
