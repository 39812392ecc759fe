"""Audits of a run: what they find in sabotaged training, and that they leave honest training alone."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable

import pytest
import torch
from scipy.stats import binomtest, norm
from torch import Tensor

from dpviz.privacy import InputError, Schedule, epsilon
from dpviz.privacy.audit import one_run_bound
from dpviz.training import checkpoint
from dpviz.training.audit import CanaryClipping, StepAudit
from dpviz.training.data.readers import Data, load
from dpviz.training.engine import Trainer
from dpviz.training.gradients.clipping import build_clipping
from dpviz.training.gradients.per_example import PerExample
from dpviz.training.losses import build_loss
from dpviz.training.one_run_audit import OneRunAudit
from dpviz.training.pricing import audit_refusal, planned_guarantee
from dpviz.training.random_streams import Seeded
from dpviz.training.spec import RunSpec
from tests.training.small import quiet, small_data, small_spec

FULL, RUNS = bool(os.environ.get("DPVIZ_AUDITS")), 1000
# The MNIST recipe's 585 steps of 5 epochs, noise, clipping norm and model; with batches of 4, unless `make audits`.
SIZES = {"batch_size": 512} if FULL else {"batch_size": 4, "subset": 468}
SPEC = RunSpec(Schedule.of("constant", sigma=1.23), 5, **SIZES, knobs=(("optimizer.momentum", 0.9),))
FIRST_BIAS = slice(1024, 1040)  # behind the 16 filters of 8 x 8 of the first convolution


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Such small steps are no faster with two, and much slower beside others."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def data() -> Data:
    whole = load("mnist", subset=SPEC.subset)
    return dataclasses.replace(whole, test_images=whole.test_images[:100], test_labels=whole.test_labels[:100])


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
    "no noise on one parameter": (noise(without_first_bias), "too little noise on parameter 2 of 8"),
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
    assert audit.step.fpr == pytest.approx(float(norm.sf(0.5 / 1.23)), abs=0.01)  # the threshold lies in the middle
    assert audit.step.trials == 585 * 94  # 12 coordinates of each parameter, 10 of the last


# --- a run is left alone ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"method": "screening"}, {"curriculum": "masked"}, {"clipping": "per-layer"}, {"secure": False, "seed": 3}],
    ids=str,
)
def test_weights_are_the_same_bit_for_bit_with_and_without_the_audit(changes):
    spec = small_spec(epochs=12, **changes)  # 60 steps: an example is looked at alone on the way
    with_audit, without = (Trainer(spec, data=small_data(), audited=audited) for audited in (True, False))
    for trainer in (with_audit, without):
        list(trainer.epochs())
    assert with_audit.audit is not None
    assert without.audit is None
    assert all(map(torch.equal, with_audit.parameters, without.parameters))


def test_an_audit_goes_on_from_a_checkpoint_as_if_it_had_never_stopped():
    spec = small_spec(epochs=3, canaries=50)
    whole = trained(spec)
    first, second = (Trainer(spec, data=small_data()) for _ in range(2))
    steps: list[int] = []
    list(first.epochs(on_step=lambda step, _: steps.append(step), should_stop=lambda: len(steps) == 7))
    second.load(checkpoint.from_bytes(checkpoint.to_bytes(first.state())))
    list(second.epochs())
    assert second.audit == whole.audit
    assert torch.equal(second.audits.one_run.scores, whole.audits.one_run.scores)
    assert [level.steps for level in whole.audit.step.guesses] == [6, 6, 6]  # one level per epoch of a falling curve


def test_steps_count_the_same_to_the_last_bit_one_by_one_and_together():
    at_once, one_by_one = StepAudit(seed=4), StepAudit(seed=4)
    random, sums = torch.Generator().manual_seed(0), [torch.zeros(16, 9), torch.zeros(3)]
    for step in range(70):  # more than are drawn at once
        noisy = [part + torch.randn(part.shape, generator=random) for part in sums]
        for audit in (at_once, one_by_one):
            audit.observe(sums, noisy, 1.0, 1.0 if step < 40 else 0.7)
        one_by_one.count()
    first, second = at_once.state(), one_by_one.state()
    for name in ("sums", "squares", "stream"):
        assert torch.equal(first.pop(name), second.pop(name)), name
    assert first == second
    assert [[steps, trials] for _, steps, trials, *_ in first["counts"]] == [[40, 40 * 53], [30, 30 * 53]]


def test_a_checkpoint_from_before_there_were_audits_is_audited_from_there_on():
    spec = small_spec()
    first, second = (Trainer(spec, data=small_data()) for _ in range(2))
    next(first.epochs())
    state = first.state()
    del state["audits"]
    second.load(state)
    list(second.epochs())
    assert [level.noise_multiplier for level in second.audit.step.guesses] == [1.0]
    assert second.audit.failures == ()


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (quiet(), "no clipping and no noise"),
        (small_spec(curriculum="sample"), "private data"),
        (small_spec(curriculum="dynamic"), "no guarantee"),
        (small_spec(schedule=Schedule.custom([0.0, 1.0])), "no finite epsilon"),
    ],
)
def test_a_run_without_a_guarantee_is_not_audited(spec, reason):
    assert reason in audit_refusal(spec)
    assert trained(spec).audit is None


def test_canaries_are_clipped_to_c_in_every_trainable_parameter_also_of_shared_and_frozen_layers():
    first, second, third = (torch.nn.Linear(4, 4) for _ in range(3))
    second.weight = first.weight
    first.bias.requires_grad_(False)
    model = torch.nn.Sequential(first, second, third)
    clipping = CanaryClipping(PerExample(model, build_loss("cross-entropy", {}), build_clipping("flat", {})))
    assert clipping.layer_of.tolist() == [0, 1, 2, 2]  # weight, second bias, third weight and bias
    assert clipping.lengths(0.1) == pytest.approx(torch.ones(4), rel=1e-4)


# --- canaries -----------------------------------------------------------------------------------------------------


def test_canaries_are_counted_in_n_and_leave_the_keys_of_other_runs_alone():
    plain, spec = small_spec(), small_spec(canaries=100)
    assert "canaries" not in plain.to_json()
    assert dataclasses.replace(plain, streams=2).key == "7e37e1572172e6bd"  # as it was before there were canaries
    assert (spec.size, spec.examples, spec.sample_rate) == (500, 400, 80 / 500)
    assert RunSpec.from_json(spec.to_json()) == spec
    with pytest.raises(InputError, match="canaries test an epsilon, but sgd"):
        quiet(canaries=10)
    with pytest.raises(InputError, match="at most the model's 7,850 weights"):
        Trainer(small_spec(canaries=8000), data=small_data())


def test_canaries_change_what_is_trained_and_those_in_the_data_stand_out():
    spec = small_spec(epochs=20, canaries=400, schedule=Schedule.of("constant", sigma=0.5))
    trainer = trained(spec)
    scores, included = trainer.audits.one_run.scores, trainer.audits.one_run.included
    assert 150 < int(included.sum()) < 250
    assert scores[included].mean() > scores[~included].mean() + 1
    assert 0 < trainer.audit.one_run.lower < trainer.audit.proven
    assert trainer.audit.failures == ()


def test_canaries_that_are_drawn_too_often_show():
    """What the step audit cannot see: the sampler. Here canaries are in every batch instead of one in ten."""
    spec = small_spec(epochs=20, canaries=400, schedule=Schedule.of("constant", sigma=8.0))

    def always(trainer: Trainer) -> None:
        take = trainer.feed.take
        trainer.feed.take = lambda *place: (*take(*place)[:2], torch.ones(400, dtype=torch.bool))

    audit = trained(spec, always).audit
    assert audit.step.lower <= audit.proven
    assert [failure[:22] for failure in audit.failures] == ["the one-run audit show"]


def honest_one_run(runs: int, canaries: int, steps: int, rate: float, sigma: float) -> OneRunAudit:
    """Many honest runs at once: canaries lie on coordinates of their own, so runs may share a noisy sum."""
    sums = [torch.zeros(runs * canaries)]
    audit, noise = OneRunAudit(runs * canaries, sums, Seeded(1, "canaries")), Seeded(2, "noise")
    for _ in range(steps):
        sums[0].zero_()
        audit.add(sums, noise.uniform(runs * canaries) < rate, torch.ones(runs * canaries))
        after = sums[0] + sigma * torch.randn(runs * canaries, generator=noise.generator)
        audit.observe([after], 1.0, sigma, rate, 1.0)
    return audit


def test_at_most_one_honest_run_in_twenty_is_bounded_above_its_epsilon_by_canaries():
    """1,000 runs; `make audits` takes the length of the MNIST recipe and 1,000 canaries each."""
    canaries, steps, rate, sigma = (1000, 4680, 512 / 60_000, 1.23) if FULL else (100, 60, 0.1, 8.0)
    audit = honest_one_run(RUNS, canaries, steps, rate, sigma)
    true = epsilon([(sigma, rate, steps)], 1e-5).lower
    guesses = canaries // 10
    bounds = [one_run_bound(canaries, guesses, correct, 1e-5).lower for correct in range(guesses + 1)]
    assert bounds[-1] > true  # else no run could be bounded above it
    above = 0
    for scores, included in zip(audit.scores.view(RUNS, -1), audit.included.view(RUNS, -1), strict=True):
        above += bounds[int(included[scores.argsort(descending=True)[:guesses]].sum())] > true
    interval = binomtest(above, RUNS).proportion_ci(0.95)
    print(
        f"{above} of {RUNS} one-run bounds exceed epsilon {true:.3f}; rate in [{interval.low:.4f}, {interval.high:.4f}]"
    )
    assert above <= 0.05 * RUNS


# --- a loop of one's own ------------------------------------------------------------------------------------------


def opacus_audit(sigma: float, *, stated: float | None = None, steps: int = 60) -> StepAudit:
    """A real Opacus loop; `stated` is the sigma that the audit reads where it is not the real one."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    torch.manual_seed(0)
    images, labels = small_data().inputs(small_data().train_images), small_data().train_labels
    model = GradSampleModule(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10)))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), noise_multiplier=sigma, max_grad_norm=1.0, expected_batch_size=40
    )
    audit = StepAudit(coordinates=300)
    for _ in range(steps):
        index = torch.rand(len(labels)) < 0.1
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[index]), labels[index]).backward()
        optimizer.step()
        if stated is not None:
            optimizer.noise_multiplier = stated
        audit.observe_opacus(optimizer)
        optimizer.noise_multiplier = sigma
    return audit


@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_an_opacus_loop_is_audited_by_one_line_per_step():
    audit = opacus_audit(1.0).result(sample_rate=0.1, delta=1e-5)
    assert audit.failures == ()
    assert audit.proven == epsilon([(1.0, 0.1, 60)], 1e-5).upper
    assert 0.7 * audit.proven < audit.lower < audit.proven
    assert opacus_audit(0.5, stated=1.0).result(sample_rate=0.1, delta=1e-5).failures


def test_a_step_without_finite_noise_and_an_audit_of_nothing_are_refused():
    for clip_norm, sigma in ((0.0, 1.0), (1.0, 0.0), (1.0, float("nan")), (float("inf"), 1.0)):
        with pytest.raises(InputError, match="finite numbers > 0"):
            StepAudit().observe([torch.zeros(5)], [torch.zeros(5)], clip_norm, sigma)
    with pytest.raises(InputError, match="nothing was observed"):
        StepAudit().result(0.1, 1e-5)
    with pytest.raises(InputError, match="coordinates"):
        StepAudit(coordinates=0)
