"""The settings of the Local privacy page: taken over from Papers, chosen by hand, and what they come to."""

from __future__ import annotations

import math
from typing import Any

import streamlit as st

from dpviz.papers import LOCAL_RECIPES
from dpviz.privacy.local import METHODS, scale
from dpviz.training.local.spec import ANSWERED, LOSSES, RANGES, TRUE, LocalSpec
from dpviz.training.local.tabular import TABULARS, Tabular, available
from dpviz.ui.common.handover import RecipeHandover, handed_over

GRADIENT_LABELS = {ANSWERED: "the answered label (as printed)", TRUE: "the person's own label"}


def key(name: str) -> dict[str, Any]:
    return {"key": f"local.{name}", "persist_state": "session"}


def adopt() -> None:
    """Take over the experiment that was opened on the Papers page: every widget of it, before widgets are drawn."""
    handed = handed_over(LOCAL_RECIPES)
    if not isinstance(handed, RecipeHandover) or handed.recipe not in LOCAL_RECIPES:
        return
    recipe = LOCAL_RECIPES[handed.recipe]
    spec, here = recipe.spec, recipe.data in available()
    names = ("method", "epsilon", "loss", "threshold", "mu", "epochs", "regularization", "radius", "length")
    values = {name: getattr(spec, name) for name in (*names, "gradient_label")}
    values |= {"batch": spec.batch_size, "split": (1 - spec.share) / spec.share}
    values |= {"data": recipe.data} if here else {}
    for name, value in values.items():
        st.session_state[f"local.{name}"] = value
    said = f"The settings come from the Papers page: {recipe.title}."
    missing = "" if here else f" {TABULARS[recipe.data].title} is not there, so the data stay as they were."
    st.toast(said + missing)


def settings() -> LocalSpec:
    """The inputs of Algorithm 1 as widgets."""
    left, right = st.columns(2)
    method = left.selectbox(
        "Method in the picture",
        [name for name, method in METHODS.items() if method.private],
        format_func=METHODS.titles.__getitem__,
        help="  \n".join(f"**{METHODS[name].title}**: {METHODS[name].help}" for name in METHODS),
        **key("method"),
    )
    epsilon = right.number_input("ε of one visit", 0.01, 20.0, 1.0, 0.1, format="%.3g", **key("epsilon"))
    loss = left.selectbox(
        "Loss",
        list(LOSSES),
        format_func=LOSSES.titles.__getitem__,
        help="  \n".join(f"**{LOSSES[name].title}**: {LOSSES[name].help}" for name in LOSSES),
        **key("loss"),
    )
    batch = right.segmented_control("Batch size", [1, 5, 10], default=1, required=True, **key("batch"))
    with st.expander("More: whom PRESTIGE learns from, steps, lengths, and which label the gradient uses"):
        parts = st.slider(
            "Gradient's part for each part of the curriculum (r : s = 1 : …)",
            0.25,
            10.0,
            4.0,
            0.25,
            help="The paper splits ε as 1 : 4. Only PRESTIGE pays for its curriculum's answer.",
            **key("split"),
        )
        left, right = st.columns(2)
        threshold = left.number_input(
            "Threshold D", value=1.5, step=0.1, help=RANGES["threshold"].help, **key("threshold")
        )
        mu = right.number_input("Its step μ", 0.0, 100.0, 1.0, 0.1, help=RANGES["mu"].help, **key("mu"))
        more = _more(loss)
    return LocalSpec(
        method=method,
        epsilon=epsilon,
        loss=loss,
        batch_size=batch,
        share=1 / (1 + parts),
        threshold=threshold,
        mu=mu,
        **more,
    )


def _more(loss: str) -> dict[str, Any]:
    left, right = st.columns(2)
    names = {"epochs": "Epochs (visits)", "regularization": "λ", "radius": "Radius R", "length": "Length of rows"}
    values: dict[str, Any] = {}
    for place, (name, title) in zip((left, right, left, right), names.items(), strict=True):
        knob = RANGES[name]
        if name == "epochs":
            values[name] = place.number_input(
                title, int(knob.low), 100, int(knob.default), help=knob.help, format="%d", **key(name)
            )
        else:
            values[name] = place.number_input(
                title, knob.low, knob.high, float(knob.default), help=knob.help, format="%.4g", **key(name)
            )
    for name, knob in LOSSES[loss].knobs.items():
        title, first = f"{LOSSES[loss].title}: {name}", float(knob.default)
        values["loss_knob"] = left.number_input(
            title, knob.low, knob.high, first, help=knob.help, **key(f"{loss}.{name}")
        )
    values["gradient_label"] = st.selectbox(
        "Gradients are made with",
        list(GRADIENT_LABELS),
        format_func=GRADIENT_LABELS.__getitem__,
        **key("gradient_label"),
    )
    return values


def numbers(spec: LocalSpec, data: Tabular) -> None:
    """What the settings come to: how often labels flip, how little a private gradient leans."""
    unbiased = scale(data.dimension, spec.gradient_epsilon)
    left, middle, right = st.columns(3)
    left.metric(
        "Labels flipped",
        f"{100 * spec.flip:.1f} %",
        help="1 / (e^ε_r + 1). Half of them would say nothing at all.",
    )
    middle.metric(
        "Towards the gradient",
        f"{100 / (1 + math.exp(-spec.gradient_epsilon)):.1f} %",
        help="How often a gradient of full length is answered from its own half-sphere; 50 % is a fair coin.",
    )
    right.metric(
        "Length sent, B / L",
        f"{unbiased:.1f}",
        help=f"What makes answers unbiased in {data.dimension} dimensions. The paper prints twice that, "
        f"{2 * unbiased:.1f}; its learning rate R / (λ B √t) cancels either.",
    )
