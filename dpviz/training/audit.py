"""Audits of a run while it trains: the noise that was really added, and canaries that were in or out by a coin.

A loop of your own, here with Opacus, is audited with three lines:

    audit = dpviz.StepAudit()
    ...
    optimizer.step()
    audit.observe_opacus(optimizer)      # before zero_grad
    ...
    audit.result(sample_rate, delta)     # an Audit: proven at most, audited at least
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import chdtr, chdtrc
from torch import Tensor

from dpviz.privacy.audit import (
    THRESHOLD,
    Audit,
    Guesses,
    StepBound,
    noise_level,
    step_bound,
)
from dpviz.privacy.prices import epsilon
from dpviz.privacy.records import Phase
from dpviz.privacy.registry import InputError
from dpviz.training.devices import CPU, Device
from dpviz.training.gradients.layer_gradients import has_doubles
from dpviz.training.gradients.per_example import PerExample
from dpviz.training.one_run_audit import OneRunAudit
from dpviz.training.pricing import course_guarantee
from dpviz.training.random_streams import Seeded, seeded
from dpviz.training.spec import RunSpec

COORDINATES = 100  # per step; every parameter has one at least
LOUD = 1000.0  # length of a canary's gradient before clipping, in units of C
ALONE_EVERY = 50  # steps between two looks at the clipped gradient of one example
SLACK = 1e-3  # by which a clipped gradient may exceed C: Opacus and single precision round
FALSE_ALARM = 1e-6  # of a check, in an honest run

TOGETHER = 1000  # steps that are counted at once, at most: it takes hardly longer than one, and waits for a device once
DRAWN = 50  # steps whose coordinates are drawn at once

FloatArray = npt.NDArray[np.float64]


class Look(NamedTuple):
    """What was read off a step, not counted yet: noisy coordinates and bare ones, end to end."""

    seen: Tensor
    canaries: Tensor  # a canary's length after clipping, over C, in each parameter; on the host
    clip_norm: float
    sigma: float
    scale: float


class StepAudit:
    """Tells at each step whether coordinates of the noisy sum hold a canary, and counts how often that is right.

    The noise is read off the result, so it is the noise that was added, not the noise that was meant. Each step takes
    coordinates anew, evenly spread over every parameter. The same number of fixed ones shows whether the noise of
    different steps is independent.

    To read a number off a device is to wait for it. So what was seen stays there until `count` reads it all at once.
    """

    def __init__(self, seed: int = 0, coordinates: int = COORDINATES, stream: Seeded | None = None) -> None:
        if not coordinates >= 1:
            raise InputError(f"coordinates must be a whole number >= 1, got {coordinates}")
        self.stream, self.coordinates = stream or Seeded(seed, "audit"), coordinates
        self.counts: dict[float, list[int]] = {}  # noise level -> steps, trials, false and true positives
        self.steps, self.longest, self.together = 0, 0.0, 0.0
        self.sums = self.squares = np.zeros(0)
        self.shares: list[int] = []
        self.ahead, self.place = torch.zeros(0), self.stream.state()  # coordinates of steps, and before they were drawn
        self.looks: list[Look] = []
        self.lengths: list[Tensor] = []  # of single clipped gradients, over C

    def observe(
        self,
        before: Sequence[Tensor],
        after: Sequence[Tensor],
        clip_norm: float,
        sigma: float,
        *,
        scale: float = 1.0,
        canaries: Tensor | None = None,
    ) -> None:
        """Look at one step: the sums of clipped gradients before noise, and `after` times `scale`, with noise.

        One tensor per parameter. `canaries` is how long a canary in each parameter is after the loop's own clipping,
        over C; without it they count as C.
        """
        if not (0 < clip_norm < math.inf and 0 < sigma < math.inf):
            raise InputError(f"clip_norm and sigma must be finite numbers > 0, got {clip_norm} and {sigma}")
        if not self.shares:
            self._spread(before)
        places = self._places().split(self.shares)
        seen = torch.cat([part.take(some) for part, some in zip((*after, *before), places * 2, strict=True)])
        canaries = torch.ones(len(self.sizes)) if canaries is None else canaries
        self.looks.append(Look(seen, canaries, clip_norm, sigma, scale))
        self.steps += 1
        if len(self.looks) == TOGETHER:
            self.count()

    @property
    def unread(self) -> list[Tensor]:
        """Everything that `count` has to read: the steps' coordinates in one piece, then the lengths."""
        return [*([torch.cat([look.seen for look in self.looks])] if self.looks else ()), *self.lengths]

    def count(self, read: Tensor | None = None) -> None:
        """Guess and count for the steps that were looked at since the last time; `read` is `unread` on the host."""
        if not (self.looks or self.lengths):
            return
        if read is None:
            read = torch.cat([part.cpu().double() for part in self.unread])
        seen, lengths = read.split([len(read) - len(self.lengths), len(self.lengths)])
        self.longest = max(self.longest, *lengths.tolist(), 0.0)
        self.lengths = []
        if self.looks:
            self._count(seen.view(len(self.looks), -1).numpy())

    def _count(self, seen: np.ndarray) -> None:
        _, canaries, *numbers = zip(*self.looks, strict=True)
        self.looks = []
        clip_norm, sigma, scale = np.array(numbers)[:, :, None]
        noisy, bare = np.split(seen, 2, axis=1)
        noise = (noisy * scale - bare) / clip_norm
        fixed, fresh = np.ascontiguousarray(noise[:, ~self.moving]), np.ascontiguousarray(noise[:, self.moving])
        lengths = torch.stack(canaries).double().numpy()[:, self.owners]
        hits = np.stack([(fresh > THRESHOLD).sum(1), (fresh + lengths > THRESHOLD).sum(1)], axis=1)
        for each in dict.fromkeys(sigma[:, 0].tolist()):
            some = hits[sigma[:, 0] == each]
            counts = self.counts.get(noise_level(each), [0, 0, 0, 0])
            more = (len(some), some.shape[0] * len(self.owners), *some.sum(0).tolist())
            self.counts[noise_level(each)] = [a + b for a, b in zip(counts, more, strict=True)]
        fixed, fresh = fixed / sigma, fresh / sigma
        self.sums = _added(self.sums, fixed)
        self.together = float(_added(self.together, fresh.sum(1) ** 2 / fresh.shape[1]))
        self.squares = _added(self.squares, np.add.reduceat(fresh**2, np.unique(self.owners, return_index=True)[1], 1))

    def observe_opacus(self, optimizer: Any) -> None:
        """Look at the step that an Opacus DPOptimizer has just taken; call it before zero_grad."""
        parameters = [p for p in optimizer.params if getattr(p, "summed_grad", None) is not None]
        scale = optimizer.expected_batch_size * optimizer.accumulated_iterations
        self.observe(
            [p.summed_grad for p in parameters],
            [p.grad for p in parameters],
            optimizer.max_grad_norm,
            optimizer.noise_multiplier,
            scale=scale if optimizer.loss_reduction == "mean" else 1.0,
        )

    def observe_alone(self, gradients: Iterable[Tensor], clip_norm: float) -> None:
        """Look at the clipped gradient of one example, summed with no other: it must not be longer than C."""
        squares = [(part.double() if has_doubles(part) else part).square().sum() for part in gradients]
        self.lengths.append(sum(squares[1:], squares[0]).sqrt()[None] / clip_norm)

    def result(self, sample_rate: float, delta: float) -> Audit:
        """What the audit shows of the steps that it saw, had they been Poisson samples at this rate."""
        self.count()
        phases = [Phase(sigma, sample_rate, steps) for sigma, (steps, *_) in self.counts.items()]
        if not phases:
            raise InputError("nothing was observed yet; call observe after each step")
        return Audit(epsilon(phases, delta).upper, self.bound(phases, delta))

    def bound(self, phases: Iterable[Phase], delta: float) -> StepBound:
        """What is left to these steps; noise levels that were not seen count nothing."""
        self.count()
        return step_bound(
            [Guesses(sigma, *counts) for sigma, counts in self.counts.items()], phases, delta, self.faults
        )

    @property
    def faults(self) -> tuple[str, ...]:
        """Checks that failed, one sentence each; an honest run fails one with a probability of a few in a million."""
        self.count()
        parts: list[str] = []
        if self.longest > 1 + SLACK:
            parts.append(f"an example's clipped gradient was {self.longest:.2f} times as long as the clipping norm")
        if self.steps == 0:
            return tuple(parts)
        trials = self.steps * np.bincount(self.owners)
        quiet = chdtr(trials, self.squares) * len(trials) < FALSE_ALARM
        if quiet.any():
            places = ", ".join(str(index + 1) for index in np.flatnonzero(quiet))
            parts.append(f"there is too little noise on parameter {places} of {len(trials)}")
        variance = self.squares.sum() / trials.sum()
        if variance > 0:
            by_steps = np.square(self.sums).sum() / self.steps / variance
            if _odd(by_steps, self.sums.size):
                parts.append("the noise of different steps is not independent")
            if _odd(self.together / variance, self.steps):
                parts.append("the noise of different coordinates is not independent")
        return tuple(parts)

    # --- which coordinates

    def _spread(self, parameters: Sequence[Tensor]) -> None:
        """Share the coordinates out: as many to each parameter, as far as it has them; fixed ones, then moving ones."""
        self.sizes = np.array([part.numel() for part in parameters])
        halves = np.minimum(self.sizes, max(1, self.coordinates // len(self.sizes)))
        self.shares = (2 * halves).tolist()
        owners = np.repeat(np.arange(len(self.sizes)), 2 * halves)
        # Places in even steps through a parameter are all different, wherever they start.
        even = [np.arange(half) * (size // half) for half, size in zip(halves, self.sizes, strict=True)]
        places = np.concatenate([place for part in even for place in (part, part)])
        self.moving = np.concatenate([np.repeat([False, True], half) for half in halves])
        self.owners = owners[self.moving]
        # Places, the parameter of each, its size, and whether it moves, where the gradients are.
        table = np.stack([places, owners, self.sizes[owners], self.moving])
        self.table = torch.from_numpy(table).to(parameters[0].device)
        self.spans = torch.from_numpy(self.sizes).to(self.stream.device.name)
        if self.steps == 0:
            self.sums, self.squares = np.zeros(len(self.owners)), np.zeros(len(self.sizes))

    def _places(self) -> Tensor:
        """Of this step; drawn for some steps at once, always the same ones, wherever a run goes on."""
        if self.steps % DRAWN == 0 or not len(self.ahead):
            self.place = self.stream.state()
            places, owners, sizes, moving = self.table
            drawn = self.stream.uniform(DRAWN * len(self.spans)).view(DRAWN, -1)
            starts = (drawn * self.spans).long().to(places.device)  # whole numbers: not every device has doubles
            self.ahead = (places + starts[:, owners] * moving) % sizes
        return self.ahead[self.steps % DRAWN]

    # --- checkpoints

    def state(self) -> dict[str, Any]:
        self.count()
        return {
            "counts": [[sigma, *counts] for sigma, counts in self.counts.items()],
            "steps": self.steps,
            "longest": self.longest,
            "together": float(self.together),
            "sums": torch.from_numpy(self.sums.copy()),
            "squares": torch.from_numpy(self.squares.copy()),
            "stream": self.place if len(self.ahead) and self.steps % DRAWN else self.stream.state(),
        }

    def load(self, state: Mapping[str, Any], parameters: Sequence[Tensor]) -> None:
        self.looks, self.lengths = [], []
        self.counts = {sigma: list(counts) for sigma, *counts in state["counts"]}
        self.steps, self.longest, self.together = state["steps"], state["longest"], state["together"]
        self.sums, self.squares = state["sums"].numpy().copy(), state["squares"].numpy().copy()
        self.stream.load(state["stream"])
        self.ahead = torch.zeros(0)
        self._spread(parameters)


def _added(total: npt.ArrayLike, rows: FloatArray) -> FloatArray:
    """Row by row, so that the last bits are the same however many come at once."""
    whole: FloatArray = np.cumsum(np.concatenate([np.asarray(total)[None], rows]), axis=0)[-1]
    return whole


def _odd(value: float, freedom: int) -> bool:
    """Whether a chi-squared variable is far too small or far too large."""
    return bool(2 * min(chdtr(freedom, value), chdtrc(freedom, value)) < FALSE_ALARM)


class CanaryClipping:
    """The run's own clipping, applied to canaries: gradients on one coordinate each, far longer than C."""

    def __init__(self, perexample: PerExample) -> None:
        self.perexample = perexample
        held = [{id(p) for p in layer.parameters(recurse=False)} for layer in perexample.layers]
        layers = [next(k for k, ids in enumerate(held) if id(p) in ids) for p in perexample.parameters]
        self.layer_of, self.one_each = torch.tensor(layers), torch.eye(len(held))

    def lengths(self, clip_norm: float) -> Tensor:
        """How long a canary in each parameter is after clipping, over C. The rule sees one per layer."""
        loud = self.one_each * (LOUD * clip_norm) ** 2
        return self.perexample.clipping(loud, clip_norm).diagonal()[self.layer_of] * LOUD


class RunAudits:
    """The audits of one run: step by step always, with canaries where its settings ask for them."""

    def __init__(self, spec: RunSpec, perexample: PerExample, device: Device = CPU) -> None:
        self.spec, self.parameters = spec, perexample.parameters
        self.clipping = CanaryClipping(perexample)
        self.step = StepAudit(stream=seeded(spec, "audit", device=device))
        few = spec.canaries
        self.one_run = OneRunAudit(few, self.parameters, seeded(spec, "canaries"), device) if few else None
        self.asked = (math.nan, torch.zeros(0))  # clipping norm, and canaries' lengths after clipping, over C
        self.added: dict[float, Tensor] = {}  # clipping norm -> the canaries' clipped gradients, on the device

    @property
    def looks_alone(self) -> bool:
        return self.step.steps % ALONE_EVERY == 1

    def add_canaries(self, sums: Sequence[Tensor], drawn: Tensor, clip_norm: float) -> None:
        if self.one_run:
            if clip_norm not in self.added:
                lengths = self._lengths(clip_norm)[self.one_run.owners]
                self.added = {clip_norm: (clip_norm * lengths).to(sums[0].device)}
            self.one_run.add(sums, drawn, self.added[clip_norm])

    def observe(self, sums: Sequence[Tensor], noisy_means: Sequence[Tensor], clip_norm: float, sigma: float) -> None:
        """Look at a step: the sums before noise, and what the optimizer gets."""
        scale = float(self.spec.batch_size)
        self.step.observe(sums, noisy_means, clip_norm, sigma, scale=scale, canaries=self._lengths(clip_norm))
        if self.one_run:
            self.one_run.observe(noisy_means, clip_norm, sigma, self.spec.sample_rate, scale)

    def _lengths(self, clip_norm: float) -> Tensor:
        """What the clipping rule answers; asked again when C changes, and whenever an example is looked at alone."""
        if clip_norm != self.asked[0] or self.looks_alone:
            self.asked = clip_norm, self.clipping.lengths(clip_norm)
        return self.asked[1]

    def result(self, spent: Sequence[Phase]) -> Audit:
        """What they show of the steps that were taken, beside the epsilon that is proven for these."""
        spec = self.spec
        sound = course_guarantee(spec, tuple(spent)).sound
        assert sound is not None  # audit_refusal
        one_run = self.one_run.bound(spec.delta) if self.one_run else None
        return Audit(sound.upper, self.step.bound(spent, spec.delta), one_run)

    def state(self) -> dict[str, Any]:
        return {"step": self.step.state(), "scores": self.one_run.scores.cpu().clone() if self.one_run else None}

    def load(self, state: Mapping[str, Any] | None) -> None:
        """Go on from a state; without one, from a checkpoint of before there were audits, begin here."""
        if state is None:
            return
        self.step.load(state["step"], self.parameters)
        if self.one_run:
            self.one_run.scores.copy_(state["scores"])
