"""The training loop: clip, add noise, step; one record per epoch. Every method runs through it.

    noisy gradient = (sum of clipped per-example gradients + sigma C N(0, I)) / expected batch size

Abadi et al. (2016), arXiv:1607.00133, Alg. 1, with Poisson sampling: each example is in a batch with probability q,
independently, and the divisor is the expected batch size, since the real one is private.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dpviz.privacy.audit import Audit
from dpviz.privacy.records import Ledger, Phase, epoch_phases, steps_per_epoch
from dpviz.privacy.registry import InputError
from dpviz.training.audit import RunAudits
from dpviz.training.curricula import batches, build_curriculum
from dpviz.training.data.readers import Data, augment
from dpviz.training.data.scatter_features import load_for
from dpviz.training.diagnostics import diagnose
from dpviz.training.evaluation import as_inputs, evaluate, is_tokens
from dpviz.training.gradients.clipping import build_clipping
from dpviz.training.gradients.per_example import Clipped, PerExample
from dpviz.training.losses import build_loss
from dpviz.training.models import build_model
from dpviz.training.optimizers import build_optimizer
from dpviz.training.pricing import audit_refusal, planned_path
from dpviz.training.random_streams import SECURE, add_noise, noise_grid, randomness, seeded
from dpviz.training.rates import rate
from dpviz.training.screening import Screening
from dpviz.training.spec import EpochRecord, RunSpec
from dpviz.training.tables import METHODS

DEVICES = ("auto", "cpu", "cuda", "mps")


class Diverged(ArithmeticError):
    """The loss left the numbers; the message says at which step and why, most likely."""


class Trainer:
    """One run: its settings, its model and where it stands. `epochs()` trains on from there."""

    def __init__(
        self,
        spec: RunSpec,
        *,
        device: str = "cpu",
        data_dir: Path | None = None,
        data: Data | None = None,
        audited: bool = True,
    ) -> None:
        self.spec, self.device = spec, pick_device(device)
        self.data = _sized(data or load_for(spec, data_dir), spec.examples)
        self._plan()

        weights = seeded(spec, "weights").generator
        tokens = is_tokens(self.data.train_images)
        model = build_model(
            spec.model, spec.knobs_of("model"), self.data.shape, self.data.classes, weights, tokens=tokens
        )
        self.model = model.to(self.device)
        self.loss = build_loss(spec.loss, spec.knobs_of("loss"))
        clipping = build_clipping(spec.clipping, spec.knobs_of("clipping"))
        self.perexample = PerExample(self.model, self.loss, clipping)
        self.parameters = self.perexample.parameters
        self.optimizer = build_optimizer(spec.optimizer, spec.knobs_of("optimizer"), self.parameters)
        self.curriculum = build_curriculum(
            spec.curriculum, spec.knobs_of("curriculum"), self.data, self._training_losses
        )
        self.streams = {stream: randomness(spec, stream) for stream in SECURE}
        self.augmentation = seeded(spec, "augmentation")
        self.screening = self._build_screening() if METHODS[spec.method].screened else None
        self.audits = RunAudits(spec, self.perexample) if audited and not audit_refusal(spec) else None

        self.epoch, self.step = 0, 0
        self.spent: list[Phase] = []
        self.order: Tensor | None = None
        self._begin_sums()

    def _plan(self) -> None:
        """Everything an epoch's number decides, before any training: noise, clipping norm and learning rate."""
        spec = self.spec
        self.private = spec.private
        self.sigmas = spec.schedule.sigmas(spec.epochs).tolist()
        self.phases = spec.phases
        self.steps_per_epoch = steps_per_epoch(spec.sample_rate)
        rates, norms = spec.learning_rate_schedule, spec.clip_norm_schedule
        own_rates, own_norms = spec.knobs_of("learning_rate_schedule"), spec.knobs_of("clip_norm_schedule")
        epochs = range(spec.epochs)
        self.learning_rates = [rate(spec.learning_rate, t, spec.epochs, rates, own_rates) for t in epochs]
        self.clip_norms = [rate(spec.clip_norm, t, spec.epochs, norms, own_norms) for t in epochs]
        if not min(self.clip_norms) > 0:
            raise InputError("clip_norm must stay above 0 in every epoch; end its schedule above 0")
        public = int(spec.knobs_of("method").get("public_examples", 0))
        if not public < len(self.data.test_labels):
            raise InputError(f"public_examples must leave some of the {len(self.data.test_labels):,} test examples")
        self.public = (self.data.test_images[:public], self.data.test_labels[:public])
        self.test = (self.data.test_images[public:], self.data.test_labels[public:])

    # --- the loop -------------------------------------------------------------------------------------------------

    def epochs(
        self,
        *,
        on_step: Callable[[int, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        sigmas_at: Callable[[int], Sequence[float]] | None = None,
    ) -> Iterator[EpochRecord]:
        """Train on, yielding a record after each epoch; ends early, between two steps, once `should_stop()`.

        `on_step` gets the steps taken in the run and the steps in all. `sigmas_at`, for a run under a filter, says what
        every epoch's noise is now that this one (counted from 1) begins or goes on.
        """
        total = self.spec.epochs * self.steps_per_epoch
        settled = -1
        while self.epoch < self.spec.epochs:
            while self.step < self.steps_per_epoch:
                if should_stop and should_stop():
                    return
                if settled < self.epoch:
                    settled = self.epoch
                    if self.spec.filter:
                        self._settle_noise(sigmas_at(self.epoch + 1) if sigmas_at else self.sigmas)
                started = time.perf_counter()
                if self.step == 0:
                    self._begin_epoch()
                self._take_step()
                self.seconds += time.perf_counter() - started
                if on_step:
                    on_step(self.epoch * self.steps_per_epoch + self.step, total)
            yield self._finish_epoch()

    def _settle_noise(self, sigmas: Sequence[float]) -> None:
        """Take over the noise of a run under a filter; whatever it asks for, no step is taken beyond the budget."""
        assert self.spec.filter is not None
        self.sigmas, self.phases = list(sigmas), epoch_phases(sigmas, self.spec.sample_rate)
        begun = self.epoch + (self.step > 0)
        if len(sigmas) != self.spec.epochs or not _alike(self.spent[: self.epoch], self.phases[: self.epoch]):
            raise InputError("the noise of past epochs cannot be changed; the run's file of changes is damaged")
        self.spec.filter.check(self.phases[:begun], self.phases[begun:])
        if self.step == 0:
            course = tuple(self.sigmas[: self.epoch + 1])
            self.streams |= {stream: randomness(self.spec, stream, course) for stream in ("batches", "noise")}

    def _begin_epoch(self) -> None:
        self.order = self.curriculum.order(self.epoch, self.order)
        if self.screening:
            self.screening.begin_epoch()

    def _take_step(self) -> None:
        images, labels, canaries = self._draw_batch()
        sigma, clip_norm = self.sigmas[self.epoch], self.clip_norms[self.epoch] if self.private else math.inf
        keep = self.curriculum.keep(self.epoch)
        clipped = self.perexample.clipped_sum(images, labels, epoch=self.epoch, clip_norm=clip_norm, keep=keep)
        self._watch(clipped, labels)
        if self.audits:
            self.audits.add_canaries(clipped.gradients, canaries, clip_norm)
        noise_std = sigma * clip_norm if self.private else 0.0
        gradients = self._noisy_mean(clipped.gradients, noise_std)
        self._charge(sigma)
        if self.audits:
            self.audits.observe(clipped.gradients, gradients, clip_norm, sigma)
            if self.audits.looks_alone and len(labels):
                one = self.perexample.clipped_sum(images[:1], labels[:1], epoch=self.epoch, clip_norm=clip_norm)
                self.audits.step.observe_alone(one.gradients, clip_norm)

        def update() -> None:
            self.optimizer.step(gradients, self.learning_rates[self.epoch], noise_std / self.spec.batch_size)

        if self.screening:
            before, memory = [weights.detach().clone() for weights in self.parameters], self.optimizer.state_dict()
            self.screening.judge(update, undo=lambda: self._restore(before, memory))
        else:
            update()
        self._check_weights()
        self.step += 1

    def _draw_batch(self) -> tuple[Tensor, Tensor, Tensor]:
        """Images, labels, and which canaries were drawn beside them."""
        canaries = torch.zeros(0, dtype=torch.bool)
        if self.order is None:
            drawn = self.streams["batches"].uniform(self.spec.size) < self.spec.sample_rate
            index, canaries = drawn[: self.spec.examples].nonzero().squeeze(1), drawn[self.spec.examples :]
        else:
            index = batches(self.order, self.steps_per_epoch)[self.step]
        images = as_inputs(self.data.train_images[index])
        if self.spec.knobs_of("dataset").get("augment"):
            images = augment(images, self.augmentation.generator)
        return images.to(self.device), self.data.train_labels[index].to(self.device), canaries

    def _noisy_mean(self, sums: list[Tensor], noise_std: float) -> list[Tensor]:
        if noise_std > 0:
            noise = self.streams["noise"].normal(sum(part.numel() for part in sums)).mul_(noise_std)
            shares = noise.split([part.numel() for part in sums])
            grid = noise_grid(noise_std) if self.spec.secure else None
            sums = [add_noise(part, share.view(part.shape), grid) for part, share in zip(sums, shares, strict=True)]
        return [part / self.spec.batch_size for part in sums]

    def _charge(self, sigma: float) -> None:
        """Write the update into the ledger as it was really made."""
        steps = 1 if self.step == 0 else self.spent.pop().steps + 1
        self.spent.append(Phase(sigma, self.spec.sample_rate, steps))

    def _watch(self, clipped: Clipped, labels: Tensor) -> None:
        losses = clipped.losses.double()
        self.loss_sum += float(losses.where(losses.isfinite(), 0.0).sum())
        self.correct += int((clipped.logits.argmax(1) == labels).sum())
        self.seen += len(labels)

    def _check_weights(self) -> None:
        """Not the losses: one example's could end a private run, and an end tells of that example."""
        total = float(torch.stack([weights.detach().sum() for weights in self.parameters]).sum())
        if not math.isfinite(total):
            raise Diverged(self._why("weights", total))

    def _why(self, what: str, value: float) -> str:
        spec, step = self.spec, self.epoch * self.steps_per_epoch + self.step + 1
        cause = f"the learning rate ({self.learning_rates[self.epoch]:g}) is most likely too high"
        if not self.private:
            cause += ", and without clipping nothing holds large gradients back"
        elif self.sigmas[self.epoch] * self.clip_norms[self.epoch] / spec.batch_size > 0.1:
            cause += f" for this much noise (sigma C / batch = {self.sigmas[self.epoch]:g} * "
            cause += f"{self.clip_norms[self.epoch]:g} / {spec.batch_size})"
        return f"the {what} became {value} at step {step} (epoch {self.epoch + 1}): {cause}; lower it and start again"

    def _finish_epoch(self) -> EpochRecord:
        test = evaluate(self.model, self.loss, *self.test, self.epoch)
        if not math.isfinite(test.loss):
            raise Diverged(self._why("test loss", test.loss))
        claimed, sound = self._epsilon()
        record = EpochRecord(
            epoch=self.epoch + 1,
            step=(self.epoch + 1) * self.steps_per_epoch,
            noise_multiplier=self.sigmas[self.epoch],
            epsilon_claimed=claimed,
            epsilon_sound=sound,
            train_loss=self.loss_sum / max(self.seen, 1),
            train_accuracy=self.correct / max(self.seen, 1),
            test_loss=test.loss,
            test_accuracy=test.accuracy,
            seconds=self.seconds,
            diagnostics=diagnose(self, test) if self.spec.diagnostics else {},
        )
        self.epoch, self.step = self.epoch + 1, 0
        self._begin_sums()
        return record

    def _epsilon(self) -> tuple[float | None, float | None]:
        """Claimed and sound epsilon after this epoch: the point of the previewed path, once the ledgers agree."""
        if not _alike(self.spent, self.phases[: self.epoch + 1]):
            raise RuntimeError(f"training spent {self.spent}, but {self.phases[: self.epoch + 1]} was planned")
        return self._path()[self.epoch] if self.screening else self._planned_path[self.epoch]

    def _path(self) -> tuple[tuple[float | None, float | None], ...]:
        accepted = self.screening.accepted if self.screening else None
        return planned_path(self.spec, accepted)

    @functools.cached_property
    def _planned_path(self) -> tuple[tuple[float | None, float | None], ...]:
        return self._path()

    def _begin_sums(self) -> None:
        self.loss_sum, self.correct, self.seen, self.seconds = 0.0, 0, 0, 0.0

    # --- parts of methods -----------------------------------------------------------------------------------------

    def _training_losses(self, epoch: int) -> Tensor:
        return evaluate(self.model, self.loss, self.data.train_images, self.data.train_labels, epoch).losses

    def _build_screening(self) -> Screening:
        knobs = self.spec.knobs_of("method")
        cross_entropy = build_loss("cross-entropy", {})
        return Screening(
            float(knobs["temperature"]),
            int(knobs["rejections"]),
            lambda: evaluate(self.model, cross_entropy, *self.public, self.epoch).loss,
            self.streams["screening"],
        )

    @torch.no_grad()
    def _restore(self, weights: list[Tensor], memory: Mapping[str, Any]) -> None:
        for current, saved in zip(self.parameters, weights, strict=True):
            current.copy_(saved)
        self.optimizer.load_state_dict(memory)

    @property
    def audit(self) -> Audit | None:
        """What the audits show of the steps taken so far; None where there is nothing to audit."""
        return self.audits.result(self.spent) if self.audits and self.spent else None

    # --- checkpoints ----------------------------------------------------------------------------------------------

    @property
    def planned(self) -> Ledger:
        """What the whole run will spend, known before it starts."""
        return Ledger(self.phases)

    @property
    def ledger(self) -> Ledger:
        """What was spent so far, as recorded step by step; after the last epoch it equals `planned`."""
        return Ledger(self.spent)

    def state(self) -> dict[str, Any]:
        """Where the run stands: tensors and plain values only, so that it loads with weights_only=True."""
        return {
            "spec": self.spec.key,
            "epoch": self.epoch,
            "step": self.step,
            "sums": [self.loss_sum, self.correct, self.seen, self.seconds],
            "spent": [[phase.noise_multiplier, phase.sample_rate, phase.steps] for phase in self.spent],
            "weights": [weights.detach().cpu().clone() for weights in self.parameters],
            "optimizer": self.optimizer.state_dict(),
            "streams": {name: stream.state() for name, stream in self.streams.items()},
            "augmentation": self.augmentation.state(),
            "order": self.order,
            "screening": self.screening.state() if self.screening else None,
            "audits": self.audits.state() if self.audits else None,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to where a state was taken; the run then goes on as if it had never stopped."""
        if state.get("spec") != self.spec.key:
            raise InputError("the checkpoint belongs to a run with other settings; resume that run, or start anew")
        self.epoch, self.step = state["epoch"], state["step"]
        self.loss_sum, self.correct, self.seen, self.seconds = state["sums"]
        self.spent = [Phase(*phase) for phase in state["spent"]]
        self._restore(state["weights"], state["optimizer"])
        for name, stream in self.streams.items():
            stream.load(state["streams"][name])
        self.augmentation.load(state["augmentation"])
        self.order = state["order"]
        if self.screening:
            self.screening.load(state["screening"])
        if self.audits:
            self.audits.load(state.get("audits"))  # older checkpoints have none


def _alike(spent: Sequence[Phase], planned: Sequence[Phase]) -> bool:
    """Whether two ledgers are one, but for the last bits: a run may go on where the logarithm is rounded otherwise."""
    rest = [(phase.sample_rate, phase.steps) for phase in spent] == [(p.sample_rate, p.steps) for p in planned]
    noise = zip(spent, planned, strict=False)
    return rest and all(math.isclose(a.noise_multiplier, b.noise_multiplier, rel_tol=1e-12) for a, b in noise)


def _sized(data: Data, size: int) -> Data:
    if len(data.train_labels) < size:
        raise InputError(f"the settings ask for {size:,} training examples, but only {len(data.train_labels):,} came")
    return data.first(size)


def pick_device(name: str) -> str:
    """The device by name; auto takes CUDA, then MPS, then the CPU."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return next(device for device in ("cuda", "mps", "cpu") if there[device])
    if name.partition(":")[0] not in there:
        raise InputError(f"unknown device {name!r}; choose one of {', '.join(DEVICES)}")
    if not there[name.partition(":")[0]]:
        raise InputError(f"this machine has no {name} device; choose auto or cpu")
    return name
