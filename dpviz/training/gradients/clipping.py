"""Clipping rules by name: from per-example gradient norms to the factors that shorten each example's gradient.

Whatever the rule, the example's whole gradient is no longer than clip_norm afterwards: that is its sensitivity. Norms
and products are rounded, so every rule stays a hair below it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from dpviz.privacy.registry import Value
from dpviz.training.tables import CLIPPINGS

# squared norms [layers, batch], clip_norm -> factors [layers, batch]
ClippingRule = Callable[[Tensor, float], Tensor]

HAIR = 32  # units of rounding: many times the relative error of a norm


def build_clipping(name: str, knobs: Mapping[str, Value]) -> ClippingRule:
    """The rule with its knobs set; knobs that are not given take their defaults."""
    rule: ClippingRule = CLIPPINGS[name].make(knobs)
    return rule


def example_norms(squared_norms: Tensor) -> Tensor:
    """Length of each example's whole gradient, from its layers' squared norms [layers, batch]."""
    return squared_norms.sum(0).sqrt()


def _just_below(clip_norm: float, norms: Tensor) -> float:
    return clip_norm * (1 - HAIR * torch.finfo(norms.dtype).eps)


def _limit(norms: Tensor, clip_norm: float) -> Tensor:
    """min(1, C / norm); a gradient of zero keeps its factor 1."""
    return (_just_below(clip_norm, norms) / norms).clamp(max=1.0)


def build_flat() -> ClippingRule:
    def flat(squared_norms: Tensor, clip_norm: float) -> Tensor:
        return _limit(example_norms(squared_norms), clip_norm).expand_as(squared_norms)

    return flat


def build_auto_s(gamma: float) -> ClippingRule:
    """C / (|g| + gamma): Bu, Wang, Zha & Karypis (2022), arXiv:2206.07136, Eq. 4, times C."""

    def auto_s(squared_norms: Tensor, clip_norm: float) -> Tensor:
        norms = example_norms(squared_norms)
        return (_just_below(clip_norm, norms) / (norms + gamma)).expand_as(squared_norms)

    return auto_s


def build_per_layer() -> ClippingRule:
    def per_layer(squared_norms: Tensor, clip_norm: float) -> Tensor:
        return _limit(squared_norms.sqrt(), clip_norm / math.sqrt(len(squared_norms)))

    return per_layer
