"""A person's own model, `package.module:function`: imported, built and checked before anything private is touched.

`function(input_shape, classes)` returns a torch module that gives one row of `classes` numbers per example. The weights
are as the function leaves them; torch's random numbers follow the run's seed while it builds. Epsilon holds only if
each example's gradient is its own, so a model is tried on made-up examples: what an example gives alone it must give
among others, and the per-example gradients must be autograd's.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import inspect
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dpviz.privacy.registry import InputError
from dpviz.training.architectures import Shape
from dpviz.training.gradients.clipping import build_clipping
from dpviz.training.gradients.per_example import PerExample
from dpviz.training.limits import LIMITS
from dpviz.training.losses import build_loss

EXAMPLES = 3  # made-up ones that a model is tried on
TOLERANCE = 1e-3  # relative: single precision, and layers that sum in another order for another batch
_one_at_a_time = threading.Lock()  # torch's global random state is one for all threads


def own_function(name: str) -> Callable[[Shape, int], Any]:
    """The function behind "package.module:function"."""
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # importing runs a person's code, which may raise anything
        raise InputError(
            f"model {name} cannot be imported ({error}); start where {module} lies, or install it"
        ) from error
    if not callable(function):
        raise InputError(f"model {name} must be a function of input shape and classes, got {type(function).__name__}")
    return function  # type: ignore[no-any-return]


def source_hash(name: str) -> str:
    """A short hash of the file that holds the function, since the result depends on it; empty where there is none."""
    try:
        path = inspect.getsourcefile(inspect.unwrap(own_function(name)))
    except TypeError:
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16] if path and Path(path).is_file() else ""


def build_own(name: str, shape: Shape, classes: int, generator: torch.Generator, *, tokens: bool) -> nn.Module:
    """The module that the function returns, once it has passed every check."""
    function = own_function(name)
    try:
        with _seeded(generator):
            inputs = torch.randint(2, (EXAMPLES, *shape)) if tokens else torch.randn(EXAMPLES, *shape)
            model = function(shape, classes)
            if not isinstance(model, nn.Module):
                raise InputError(f"model {name} must return a torch module, got {type(model).__name__}")
            for layer in model.modules():
                if getattr(layer, "inplace", False):  # it would overwrite what the layer before it gave
                    layer.inplace = False  # type: ignore[assignment]
            with torch.no_grad():
                model.train()(inputs)  # lazy layers take their sizes
            LIMITS["weights"].check(sum(weights.numel() for weights in model.parameters()))
            _check_layers(name, model)
            twin = copy.deepcopy(model)
            with torch.no_grad():
                for weights in twin.parameters():  # weights that start at zero would hide other layers' gradients
                    weights.add_(torch.randn_like(weights), alpha=0.1)
            _check_answers(name, twin, inputs, classes)
            _check_gradients(name, twin, inputs, torch.arange(EXAMPLES) % classes)
    except InputError:
        raise
    except Exception as error:  # a person's code may raise anything
        raise InputError(
            f"model {name} failed on {EXAMPLES} examples of shape {shape}: {type(error).__name__}: {error}"
        ) from error
    return model.to(generator.device)


@contextmanager
def _seeded(generator: torch.Generator) -> Iterator[None]:
    """torch's own random numbers follow the generator's seed inside, and go on afterwards as if nothing had been."""
    with _one_at_a_time, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(generator.initial_seed())
        yield


def _check_layers(name: str, model: nn.Module) -> None:
    """Refuse, by its name, a layer that does not keep examples apart."""
    from opacus.validators import ModuleValidator  # seconds to import

    if not any(weights.requires_grad for weights in model.parameters()):
        raise InputError(f"model {name} has no weights to train; let some of them require gradients")
    for path, layer in model.named_modules():
        where = f"layer {path or 'itself'} ({type(layer).__name__}) of model {name}"
        if type(layer) in ModuleValidator.VALIDATORS and ModuleValidator.VALIDATORS[type(layer)](layer):
            raise InputError(
                f"{where} mixes the examples of a batch or hides their gradients; return "
                "opacus.validators.ModuleValidator.fix(model), which puts GroupNorm or a layer of Opacus in its place"
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and (layer.max_norm or layer.scale_grad_by_freq):
            raise InputError(f"{where} lets examples change one another; leave out max_norm and scale_grad_by_freq")
        if len({weights.requires_grad for weights in layer.parameters(recurse=False)}) > 1:
            raise InputError(f"{where} is frozen in part; let all or none of its weights require gradients")


@torch.no_grad()
def _check_answers(name: str, model: nn.Module, inputs: Tensor, classes: int) -> None:
    before = copy.deepcopy(model.state_dict())
    answers, again = model(inputs), model(inputs)
    if not isinstance(answers, Tensor) or answers.shape != (len(inputs), classes):
        shape = tuple(answers.shape) if isinstance(answers, Tensor) else type(answers).__name__
        raise InputError(
            f"model {name} must give a row of {classes} numbers per example, got {shape} for {len(inputs)}"
        )
    if not torch.equal(answers, again):
        raise InputError(f"model {name} gives another answer each time, which no seed decides; leave out dropout")
    if any(not torch.equal(before[key], value) for key, value in model.state_dict().items()):
        raise InputError(f"model {name} keeps something of the examples it sees; its buffers must stay as they are")
    alone = torch.cat([model(one) for one in inputs.split(1)])
    if not _close(alone, answers):
        raise InputError(
            f"model {name} mixes the examples of a batch: an example's answer changes with the others; keep them apart"
        )


def _check_gradients(name: str, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
    """Each example's gradient against autograd's for that example alone, in length and in sum."""
    loss = build_loss("cross-entropy", {})
    perexample = PerExample(model, loss, build_clipping("flat", {}), physical_batch=len(inputs))
    ours = perexample.clipped_sum(inputs, targets, epoch=0, clip_norm=math.inf)
    alone = []
    for one, target in zip(inputs.split(1), targets.split(1), strict=True):
        own = loss(model(one), target, 0, []).sum()
        grads = torch.autograd.grad(own, perexample.parameters, allow_unused=True, materialize_grads=True)
        alone.append(torch.cat([grad.flatten() for grad in grads]))
    each = torch.stack(alone)
    whole = torch.cat([grad.flatten() for grad in ours.gradients])
    if not (_close(ours.norms, each.norm(dim=1)) and _close(whole, each.sum(0))):
        raise InputError(
            f"model {name} has gradients that cannot be told apart by example; use each weight only in the layer that "
            "holds it, and change no layer's output in place"
        )


def _close(a: Tensor, b: Tensor) -> bool:
    return bool((a - b).norm() <= TOLERANCE * b.norm() + 1e-6)  # NaN is not
