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
from dpviz.training.curricula import build_curriculum
from dpviz.training.data.readers import Data
from dpviz.training.data.scatter_features import load_for
from dpviz.training.devices import Device, device_of
from dpviz.training.diagnostics import diagnose
from dpviz.training.divergence import diverged
from dpviz.training.evaluation import Evaluation, evaluate, is_tokens
from dpviz.training.feed import Feed
from dpviz.training.gradients.clipping import build_clipping
from dpviz.training.gradients.per_example import Clipped, PerExample
from dpviz.training.losses import PerExampleLoss, build_loss
from dpviz.training.models import build_model
from dpviz.training.optimizers import build_optimizer
from dpviz.training.pricing import audit_refusal, planned_path
from dpviz.training.random_streams import SECURE, add_noise, drawn_on, noise_grid, randomness, seeded
from dpviz.training.rates import rate
from dpviz.training.screening import Screening
from dpviz.training.spec import EpochRecord, RunSpec
from dpviz.training.tables import METHODS
from dpviz.training.team import ALONE, Team

LOOK_EVERY = 0.5  # seconds between two looks at the device, each of which waits for it


class Trainer:
    """One run: its settings, its model and where it stands. `epochs()` trains on from there.

    Several workers may train it, each with a trainer of its own that takes the same steps: see `Team`.
    """

    def __init__(
        self,
        spec: RunSpec,
        *,
        device: str | Device = "cpu",
        data_dir: Path | None = None,
        data: Data | None = None,
        audited: bool = True,
        team: Team = ALONE,
    ) -> None:
        self.spec, self.device = spec, device if isinstance(device, Device) else device_of(device)
        if not team.alike(self.generators):
            raise InputError("the workers have GPUs of several models, which draw different noise; use one model")
        self.data = _sized(data or load_for(spec, data_dir), spec.examples)
        self.team, self.feed = team, Feed(spec, self.data, self.device, team)
        self._plan()

        weights = seeded(spec, "weights").generator
        tokens = is_tokens(self.data.train_images)
        model = build_model(
            spec.model, spec.knobs_of("model"), self.data.shape, self.data.classes, weights, tokens=tokens
        )
        self.model = model.to(self.device.name)
        self.loss = build_loss(spec.loss, spec.knobs_of("loss"))
        clipping = build_clipping(spec.clipping, spec.knobs_of("clipping"))
        self.perexample = PerExample(self.model, self.loss, clipping, device=self.device)
        self.parameters = self.perexample.parameters
        self.optimizer = build_optimizer(spec.optimizer, spec.knobs_of("optimizer"), self.parameters)
        self.curriculum = build_curriculum(
            spec.curriculum, spec.knobs_of("curriculum"), self.data, self._training_losses
        )
        self.streams = {name: randomness(spec, name, device=self.device, agree=team.first) for name in SECURE}
        self.screening = self._build_screening() if METHODS[spec.method].screened else None
        self.audits = RunAudits(spec, self.perexample, self.device) if audited and not audit_refusal(spec) else None

        self.epoch, self.step, self.stopping = 0, 0, False
        self.spent: list[Phase] = []
        self.looked, self.unseen, self.stride = time.perf_counter(), 0, 1  # last look, steps since, steps to the next
        self._begin_sums()

    def _plan(self) -> None:
        """Everything an epoch's number decides, before any training: noise, clipping norm and learning rate."""
        spec = self.spec
        self.private = spec.private
        self.sigmas = spec.schedule.sigmas(spec.epochs).tolist()
        self.phases = spec.phases
        self.steps_per_epoch = steps_per_epoch(spec.sample_rate)
        self.learning_rates, self.clip_norms = _rates(spec, "learning_rate"), _rates(spec, "clip_norm")
        if not min(self.clip_norms) > 0:
            raise InputError("clip_norm must stay above 0 in every epoch; end its schedule above 0")
        public = int(spec.knobs_of("method").get("public_examples", 0))
        if not public < len(self.data.test_labels):
            raise InputError(f"public_examples must leave some of the {len(self.data.test_labels):,} test examples")
        images, labels = self.feed.examples.test
        self.public, self.test = (images[:public], labels[:public]), (images[public:], labels[public:])

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
        settled, self.stopping = -1, False
        while self.epoch < self.spec.epochs:
            while self.step < self.steps_per_epoch:
                if self._to_stop(should_stop):
                    return
                if settled < self.epoch:
                    settled = self.epoch
                    if self.spec.filter:
                        self._settle_noise(sigmas_at(self.epoch + 1) if sigmas_at else self.sigmas)
                started = time.perf_counter()
                if self.step == 0:
                    self._begin_epoch()
                self._take_step()
                if self.step == self.steps_per_epoch:
                    self._look()
                self.seconds += time.perf_counter() - started
                if on_step:
                    on_step(self.epoch * self.steps_per_epoch + self.step, total)
            yield self._finish_epoch()

    def _to_stop(self, asked: Callable[[], bool] | None) -> bool:
        """Whether to end here. Several workers end together, so they ask the first one, and only at a look."""
        if asked and (self.team.alone or not self.feed.ahead):
            self.stopping = bool(self.team.first_number(asked))
        return self.stopping

    def _settle_noise(self, sigmas: Sequence[float]) -> None:
        """Take over the noise of a run under a filter; whatever it asks for, no step is taken beyond the budget."""
        assert self.spec.filter is not None
        self.sigmas, self.phases = list(sigmas), epoch_phases(sigmas, self.spec.sample_rate)
        begun = self.epoch + (self.step > 0)
        if len(sigmas) != self.spec.epochs or not _alike(self.spent[: self.epoch], self.phases[: self.epoch]):
            raise InputError("the noise of past epochs cannot be changed; the run's file of changes is damaged")
        self.spec.filter.check(self.phases[:begun], self.phases[begun:])
        course, begins = tuple(self.sigmas[: self.epoch + 1]), self.step == 0
        self.feed.follow(course, begins=begins)
        if begins:
            self.streams["noise"] = randomness(self.spec, "noise", course, self.device)

    def _begin_epoch(self) -> None:
        self.feed.begin_epoch(self.curriculum.order(self.epoch, self.feed.order))
        if self.screening:
            self.screening.begin_epoch()

    def _take_step(self) -> None:
        if not self.feed.ahead:
            self._look_ahead()
        images, labels, canaries = self.feed.take(self.epoch, self.step, self.steps_per_epoch)
        sigma, clip_norm = self.sigmas[self.epoch], self.clip_norms[self.epoch] if self.private else math.inf
        keep = self.curriculum.keep(self.epoch)
        clipped = self.perexample.clipped_sum(images, labels, epoch=self.epoch, clip_norm=clip_norm, keep=keep)
        watched = self._watch(clipped, labels)
        self.team.add([watched])
        self.team.add(clipped.gradients)
        self.sums += watched
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
        self.step += 1
        self.unseen += 1

    def _look_ahead(self) -> None:
        """Have batches drawn up to the next look; workers must agree how many."""
        stride = int(self.team.first_number(lambda: self.stride))
        self.feed.look_ahead(self.epoch, self.step, self.steps_per_epoch, stride, self._look)

    def _look(self, sizes: Sequence[Tensor] = ()) -> list[int]:
        """Wait for the device and read it, the one place where a step does: sizes of batches, and whether all is well.

        Not the losses: one example's could end a private run, and an end tells of that example.
        """
        total = torch.stack([weights.detach().sum() for weights in self.parameters]).sum()
        audited = self.audits.step.unread if self.audits else []
        asked = (*(number[None] for number in (*sizes, total)), *audited)
        read = torch.cat([numbers.to(self.sums) for numbers in asked]).cpu().double()
        if self.audits:
            self.audits.step.count(read[len(sizes) + 1 :])
        *counted, weights = read[: len(sizes) + 1].tolist()
        now = time.perf_counter()
        if self.unseen:
            self.stride = math.ceil(LOOK_EVERY * self.unseen / max(now - self.looked, 1e-9))
        self.looked, self.unseen = now, 0
        if not math.isfinite(weights):
            raise diverged(self, "weights", weights)
        return [int(size) for size in counted]

    def _noisy_mean(self, sums: list[Tensor], noise_std: float) -> list[Tensor]:
        if noise_std > 0:
            noise = self.streams["noise"].normal(sum(part.numel() for part in sums)).mul_(noise_std)
            shares = noise.split([part.numel() for part in sums])
            grid = noise_grid(noise_std) if self.spec.secure else None
            noisy = functools.partial(add_noise, grid=grid, doubles=self.device.doubles)
            sums = [noisy(part, share.view(part.shape)) for part, share in zip(sums, shares, strict=True)]
        return [part / self.spec.batch_size for part in sums]

    def _charge(self, sigma: float) -> None:
        """Write the update into the ledger as it was really made."""
        steps = 1 if self.step == 0 else self.spent.pop().steps + 1
        self.spent.append(Phase(sigma, self.spec.sample_rate, steps))

    def _watch(self, clipped: Clipped, labels: Tensor) -> Tensor:
        """Sum of the losses, correct answers and examples of a batch, on the device; a loss that is infinite is 0."""
        losses = clipped.losses.to(self.sums.dtype)
        loss, correct = losses.where(losses.isfinite(), 0.0).sum(), (clipped.logits.argmax(1) == labels).sum()
        return torch.stack((loss, correct.to(loss.dtype), loss.new_full((), len(labels))))

    def _finish_epoch(self) -> EpochRecord:
        loss_sum, correct, seen = self.sums.tolist()
        test = self._evaluate(*self.test)
        if not math.isfinite(test.loss):
            raise diverged(self, "test loss", test.loss)
        claimed, sound = self._epsilon()
        record = EpochRecord(
            epoch=self.epoch + 1,
            step=(self.epoch + 1) * self.steps_per_epoch,
            noise_multiplier=self.sigmas[self.epoch],
            epsilon_claimed=claimed,
            epsilon_sound=sound,
            train_loss=loss_sum / max(seen, 1),
            train_accuracy=correct / max(seen, 1),
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
        """Sums over the epoch so far, on the device: losses, correct answers, examples."""
        self.sums, self.seconds = torch.zeros(3, dtype=self.device.wide, device=self.device.name), 0.0

    # --- parts of methods -----------------------------------------------------------------------------------------

    def _training_losses(self, epoch: int) -> Tensor:
        own = evaluate(self.model, self.loss, *self.feed.examples.stored, epoch, self.data.inputs)
        return self.team.whole(own.losses, self.spec.examples)

    def _evaluate(self, images: Tensor, labels: Tensor, loss: PerExampleLoss | None = None) -> Evaluation:
        part, count = self.team.part(len(labels)), len(labels)
        own = evaluate(self.model, loss or self.loss, images[part], labels[part], self.epoch, self.data.inputs)
        losses, predictions = (self.team.whole(row, count) for row in (own.losses, own.predictions))
        return Evaluation(losses, predictions, labels.cpu())

    def _build_screening(self) -> Screening:
        knobs = self.spec.knobs_of("method")
        cross_entropy = build_loss("cross-entropy", {})
        return Screening(
            float(knobs["temperature"]),
            int(knobs["rejections"]),
            lambda: self._evaluate(*self.public, cross_entropy).loss,
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

    @property
    def generators(self) -> str:
        """The kind of device that draws the run's random numbers."""
        return drawn_on(self.spec, self.device).model

    def state(self) -> dict[str, Any]:
        """Where the run stands: tensors and plain values only, so that it loads with weights_only=True."""
        return {
            "spec": self.spec.key,
            "generators": self.generators,
            "epoch": self.epoch,
            "step": self.step,
            "sums": [*self.sums.tolist(), self.seconds],
            "spent": [[phase.noise_multiplier, phase.sample_rate, phase.steps] for phase in self.spent],
            "weights": [weights.detach().cpu().clone() for weights in self.parameters],
            "optimizer": self.optimizer.state_dict(),
            "streams": {name: stream.state() for name, stream in self.streams.items()},
            "feed": self.feed.state(),
            "screening": self.screening.state() if self.screening else None,
            "audits": self.audits.state() if self.audits else None,
            "physical_batch": self.perexample.halved_to,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go back to where a state was taken; the run then goes on as if it had never stopped."""
        if state.get("spec") != self.spec.key:
            raise InputError("the checkpoint belongs to a run with other settings; resume that run, or start anew")
        drawn_by = state.get("generators", "cpu")  # older checkpoints, whatever the device was
        if drawn_by != self.generators:
            raise InputError(
                f"the run's random numbers were drawn on {drawn_by}, and {self.generators} would draw others; resume "
                "it on such a device, or start it anew"
            )
        self.epoch, self.step = state["epoch"], state["step"]
        *sums, self.seconds = state["sums"]
        self.sums.copy_(torch.tensor(sums, dtype=self.sums.dtype))
        self.spent = [Phase(*phase) for phase in state["spent"]]
        self._restore(state["weights"], state["optimizer"])
        for name, stream in self.streams.items():
            stream.load(state["streams"][name])
        # Older checkpoints hold what is fed beside the rest.
        self.feed.load(state.get("feed") or {**state["streams"], **state})
        if self.screening:
            self.screening.load(state["screening"])
        if self.audits:
            self.audits.load(state.get("audits"))  # older checkpoints have none
        if halved := state.get("physical_batch"):  # memory ran out, and other parts would be rounded otherwise
            self.perexample.physical_batch = self.perexample.halved_to = halved


def _alike(spent: Sequence[Phase], planned: Sequence[Phase]) -> bool:
    """Whether two ledgers are one, but for the last bits: a run may go on where the logarithm is rounded otherwise."""
    rest = [(phase.sample_rate, phase.steps) for phase in spent] == [(p.sample_rate, p.steps) for p in planned]
    noise = zip(spent, planned, strict=False)
    return rest and all(math.isclose(a.noise_multiplier, b.noise_multiplier, rel_tol=1e-12) for a, b in noise)


def _rates(spec: RunSpec, name: str) -> list[float]:
    """A learning rate or clipping norm, epoch by epoch."""
    start, schedule, knobs = getattr(spec, name), getattr(spec, f"{name}_schedule"), spec.knobs_of(f"{name}_schedule")
    return [rate(start, epoch, spec.epochs, schedule, knobs) for epoch in range(spec.epochs)]


def _sized(data: Data, size: int) -> Data:
    if len(data.train_labels) < size:
        raise InputError(f"the settings ask for {size:,} training examples, but only {len(data.train_labels):,} came")
    return data.part(slice(size))
