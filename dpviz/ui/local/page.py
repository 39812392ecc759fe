"""The Local privacy page's picture: its settings, what they come to, and the guarantee."""

from __future__ import annotations

import dataclasses
import math
from functools import lru_cache
from typing import Any

import streamlit as st

from dpviz.papers import LOCAL_RECIPES
from dpviz.privacy.local import METHODS, local_guarantee, scale
from dpviz.training.local.prestige_reference import walk
from dpviz.training.local.spec import LOSSES, RANGES, LocalSpec
from dpviz.training.local.tabular import TABULARS, Tabular, available, picture_data
from dpviz.ui.common.cards import guarantee_card
from dpviz.ui.common.handover import RecipeHandover, handed_over
from dpviz.ui.local.state import GRADIENT_LABELS, LOCAL, keyed
from dpviz.views.numbers import epsilon_text
from dpviz.views.plane import plane_figure

PICTURE: dict[str, Any] = {"length": 4.0, "radius": 1.5, "epochs": 4, "batch_size": 1}
PICTURE_VISITS = 64
LENGTHS = {"regularization": "λ", "radius": "Radius R", "length": "Length of rows"}


# --- from the Papers page -----------------------------------------------------------------------------------------


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
        st.session_state[LOCAL(name)] = value
    said = f"The settings come from the Papers page: {recipe.title}."
    missing = "" if here else f" {TABULARS[recipe.data].title} is not there, so the data stay as they were."
    st.toast(said + missing)


# --- settings -----------------------------------------------------------------------------------------------------


def settings() -> LocalSpec:
    """The inputs of Algorithm 1: the method and its budget in sight, the rest on demand."""
    left, right = st.columns(2)
    method = left.selectbox(
        "Method in the picture",
        [name for name, method in METHODS.items() if method.private],
        format_func=METHODS.titles.__getitem__,
        help="  \n".join(f"**{METHODS[name].title}**: {METHODS[name].help}" for name in METHODS),
        **keyed("method"),
    )
    epsilon = right.number_input("ε of one visit", 0.01, 20.0, 1.0, 0.1, format="%.3g", **keyed("epsilon"))
    with st.expander("More settings: loss, batches, who is used, and how far a step goes"):
        return LocalSpec(method=method, epsilon=epsilon, **_more())


def _more() -> dict[str, Any]:
    parts = st.slider(
        "Gradient's part for each part of the curriculum (r : s = 1 : …)",
        0.25,
        10.0,
        4.0,
        0.25,
        help="The paper splits ε as 1 : 4. Only PRESTIGE pays for its curriculum's answer.",
        **keyed("split"),
    )
    left, right = st.columns(2)
    loss = left.selectbox(
        "Loss",
        list(LOSSES),
        format_func=LOSSES.titles.__getitem__,
        help="  \n".join(f"**{LOSSES[name].title}**: {LOSSES[name].help}" for name in LOSSES),
        **keyed("loss"),
    )
    values: dict[str, Any] = {"loss": loss, "share": 1 / (1 + parts)}
    values["batch_size"] = right.segmented_control("Batch size", [1, 5, 10], default=1, required=True, **keyed("batch"))
    help = {name: RANGES[name].help for name in RANGES}
    shown = {"help": help["threshold"], **keyed("threshold")}
    values["threshold"] = left.number_input("Threshold D", value=1.5, step=0.1, **shown)
    values["mu"] = right.number_input("Its step μ", 0.0, 100.0, 1.0, 0.1, help=help["mu"], **keyed("mu"))
    epochs = RANGES["epochs"]
    values["epochs"] = left.number_input(
        "Epochs (visits)", int(epochs.low), 100, int(epochs.default), help=epochs.help, format="%d", **keyed("epochs")
    )
    for place, (name, title) in zip((right, left, right), LENGTHS.items(), strict=True):
        knob, shown = RANGES[name], {"help": help[name], "format": "%.4g", **keyed(name)}
        values[name] = place.number_input(title, knob.low, knob.high, float(knob.default), **shown)
    for name, knob in LOSSES[loss].knobs.items():
        title, first = f"{LOSSES[loss].title}: {name}", float(knob.default)
        shown = {"help": knob.help, **keyed(f"{loss}.{name}")}
        values["loss_knob"] = left.number_input(title, knob.low, knob.high, first, **shown)
    values["gradient_label"] = st.selectbox(
        "Gradients are made with",
        list(GRADIENT_LABELS),
        format_func=GRADIENT_LABELS.__getitem__,
        **keyed("gradient_label"),
    )
    return values


def numbers(spec: LocalSpec, data: Tabular) -> None:
    """What the settings come to: what a person gives away, how often labels flip, how little a gradient leans."""
    unbiased = scale(data.dimension, spec.gradient_epsilon)
    whole = epsilon_text(local_guarantee(spec.method, spec.budget(data.people)).sound)
    towards = 100 / (1 + math.exp(-spec.gradient_epsilon))
    shown = {
        f"ε of all {spec.epochs} visits": (whole, "What one person gives away in all; it holds for each of them."),
        "Labels flipped": (f"{100 * spec.flip:.1f} %", "1 / (e^ε_r + 1). Half of them would say nothing at all."),
        "Towards the gradient": (
            f"{towards:.1f} %",
            "How often a gradient of full length is answered from its own half-sphere; 50 % is a fair coin.",
        ),
        "Length sent, B / L": (
            f"{unbiased:.1f}",
            f"What makes answers unbiased in {data.dimension} dimensions. The paper prints twice that, "
            f"{2 * unbiased:.1f}; its learning rate R / (λ B √t) cancels either.",
        ),
    }
    with st.container(horizontal=True):
        for label, (value, help) in shown.items():
            st.metric(label, value, help=help, width="content")


# --- the picture --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=8)
def _picture(spec: LocalSpec) -> Any:
    small = dataclasses.replace(spec, **PICTURE)
    data = picture_data()
    visits = list(walk(data, small))[:: max(1, data.people * small.epochs // PICTURE_VISITS)]
    return plane_figure(data, visits, small)


def picture(spec: LocalSpec) -> None:
    st.plotly_chart(
        _picture(dataclasses.replace(spec, **PICTURE)),
        key=LOCAL("figure", "picture"),
        config={"displayModeBar": False},
        alt="People in a plane, the model's line and the region in which people are used; below, the private gradient "
        "and the half-circle it was drawn from.",
    )
    st.caption(
        "48 real breast-cancer records, two measurements of each (circles: malignant, +1; squares: benign, −1). "
        "Grey: the line of the current model. Green points are on its right side (beneficial), orange ones are not "
        "(adverse). Blue: where a person who gives the current answer is used. Below: the person's own gradient and "
        "what is sent instead, drawn from the shaded half."
    )


def card(spec: LocalSpec, people: int) -> None:
    what = "labels only" if METHODS[spec.method].flips_labels else "whole records"
    guarantee_card(
        local_guarantee(spec.method, spec.budget(people)),
        title=f"{METHODS[spec.method].title}, {what}: one visit (claimed) and all {spec.epochs} of a person (sound)",
    )
