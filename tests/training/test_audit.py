"""Audits of a run: what they find in sabotaged training, and that they leave honest training alone."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dpviz.privacy import Schedule
from dpviz.training.data.readers import Data, load
from dpviz.training.engine import Trainer
from dpviz.training.pricing import planned_guarantee
from dpviz.training.random_streams import Seeded
from dpviz.training.spec import RunSpec
from tests.training.small import small_data

# The MNIST recipe's 585 steps of 5 epochs, noise, clipping norm and model, with batches of 4 in place of 512.
SPEC = RunSpec(Schedule.of("constant", sigma=1.23), 5, batch_size=4, subset=468, knobs=(("optimizer.momentum", 0.9),))
FIRST_BIAS = slice(1024, 1040)  # behind the 16 filters of 8 x 8 of the first convolution


@functools.cache
def data() -> Data:
    whole = load("mnist", subset=SPEC.subset)
    return Data(whole.train_images, whole.train_labels, whole.test_images[:100], whole.test_labels[:100])


def trained(spec: RunSpec, sabotage: Callable[[Trainer], None] = lambda trainer: None) -> Trainer:
    trainer = Trainer(spec, data=data() if spec.subset == SPEC.subset else small_data())
    sabotage(trainer)
    list(trainer.epochs())
    return trainer


# --- sabotage -----------------------------------------------------------------------------------------------------


class Tampered(Seeded):
    """A run's noise with something done to it, given the number of the step."""

    def __init__(self, change: Callable[[Tensor, int], Tensor]) -> None:
        super().__init__(7, "noise")
        self.change, self.step = change, -1

    def normal(self, count: int) -> Tensor:
        self.step += 1
        return self.change(super().normal(count), self.step)


def noise(change: Callable[[Tensor, int], Tensor]) -> Callable[[Trainer], None]:
    return lambda trainer: trainer.streams.update(noise=Tampered(change))


def without_first_bias(values: Tensor, step: int) -> Tensor:
    values[FIRST_BIAS] = 0.0
    return values


def same_every(steps: int) -> Callable[[Tensor, int], Tensor]:
    return lambda values, step: torch.randn(
        len(values), generator=torch.Generator().manual_seed(step % steps), dtype=torch.float64
    )


def double_factors(trainer: Trainer) -> None:
    rule = trainer.perexample.clipping
    trainer.perexample.clipping = lambda squared_norms, clip_norm: 2 * rule(squared_norms, clip_norm)


def clip_at_twice(trainer: Trainer) -> None:
    """The rule is right, but the loop asks it for twice the clipping norm that the noise is scaled to."""
    clipped_sum = trainer.perexample.clipped_sum
    trainer.perexample.clipped_sum = lambda *batch, clip_norm, **rest: clipped_sum(
        *batch, clip_norm=2 * clip_norm, **rest
    )


SABOTAGE = {
    "noise halved": (noise(lambda values, step: values / 2), "audit shows"),
    "no noise in every tenth step": (noise(lambda values, step: values * (step % 10 > 0)), "audit shows"),
    "no noise on one parameter": (noise(without_first_bias), "parameter 2 of 8 gets too little"),
    "same noise at every step": (noise(same_every(1)), "different steps is not independent"),
    "same noise in every epoch": (noise(same_every(117)), "different steps is not independent"),
    "same noise on all coordinates": (
        noise(lambda values, step: values[:1].expand_as(values).clone()),
        "different coordinates is not independent",
    ),
    "clipping factors doubled": (double_factors, "audit shows"),
    "clipped at twice the norm": (clip_at_twice, "2.00 times as long"),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_sabotage_is_found_within_five_epochs(name):
    sabotage, sign = SABOTAGE[name]
    audit = trained(SPEC, sabotage).audit
    assert any(sign in failure for failure in audit.failures), audit.failures


def test_an_honest_run_passes_with_a_bound_close_to_its_epsilon():
    audit = trained(SPEC).audit
    assert audit.failures == ()
    assert audit.proven == planned_guarantee(SPEC).sound.upper
    assert 0.9 * audit.proven < audit.lower < audit.proven
    assert audit.step.trials == 585 * 94  # 12 coordinates of each parameter, 10 of the last
