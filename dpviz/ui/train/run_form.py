"""The form of a new run: every table as a choice with its knobs, and the numbers.

Its values live in the session, so that a recipe, another run or the Schedule page can fill it in.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import streamlit as st

from dpviz.papers import RECIPES
from dpviz.privacy import ACCOUNTANTS, ADJACENCIES, SAMPLINGS, SCHEDULES, Assumptions, Schedule
from dpviz.privacy.filters import least_filter
from dpviz.privacy.registry import Entry, InputError, Knob
from dpviz.privacy.schedules import CUSTOM
from dpviz.runs.settings import DEFAULT, LABELS
from dpviz.training.data.readers import here
from dpviz.training.pricing import AS_TRAINED, planned_guarantee
from dpviz.training.spec import NUMBERS, RunSpec
from dpviz.training.tables import CHOICES, DATASETS, METHODS, MODELS
from dpviz.ui.common.handover import PLAIN, RecipeHandover, ScheduleHandover, handed_over
from dpviz.ui.common.knobs import choose, knob_inputs, knob_key
from dpviz.ui.common.markdown import plain
from dpviz.ui.schedule.settings import parse_delta
from dpviz.ui.train.add_data import public_words
from dpviz.ui.train.state import ADDED, CURVE, HANDED, NOTE, SWEEP_HANDED, TRAIN
from dpviz.views.numbers import delta_text, epsilon_text

OWN = ""  # "start from" nothing but one's own settings
EXAMPLES = TRAIN("examples")
BUDGET = TRAIN("filter_epsilon")
MOST_SEEDS = 20
QUICK_EXAMPLES, QUICK_EPOCHS, QUICK_BATCH = 2000, 3, 200

SIZES = Entry(
    "size",
    "How much is trained.",
    {
        "epochs": Knob(5, 1, 1000, "passes over the training examples"),
        "batch_size": NUMBERS["batch_size"],
        "canaries": NUMBERS["canaries"],
    },
)
RATES = Entry("rate", "How far a step goes.", {name: NUMBERS[name] for name in ("learning_rate", "clip_norm")})
# Field of Assumptions -> what it is called in a sentence, and its table.
ASSUMED: dict[str, tuple[str, Mapping[str, Entry]]] = {
    "sampling": ("batches", SAMPLINGS),
    "adjacency": ("neighbours", ADJACENCIES),
    "accountant": ("accountant", ACCOUNTANTS),
}
FINE = {
    "loss": "Loss",
    "optimizer": "Optimizer",
    "clipping": "Clipping",
    "curriculum": "Curriculum",
    "learning_rate_schedule": "Learning rate over the epochs",
    "clip_norm_schedule": "Clipping norm over the epochs",
}


# --- filling it in


def fill_in(spec: RunSpec) -> None:
    """Put a run's settings into the form: before its widgets are drawn, or from a callback."""
    state = st.session_state
    entries = {choice: table[getattr(spec, choice)] for choice, table in CHOICES.items()}  # own data may be gone
    for choice, entry in entries.items():
        state[TRAIN(choice)] = entry.name
        _fill_knobs(TRAIN(choice), entry, spec.knobs_of(choice))
    _fill_schedule(spec.schedule)
    for entry in (SIZES, RATES):
        _fill_knobs(TRAIN.page, entry, {name: getattr(spec, name) for name in entry.knobs})
    state[EXAMPLES] = spec.examples
    state[TRAIN("delta")] = delta_text(spec.delta)
    state[TRAIN("seeds")] = str(spec.seed)
    state[TRAIN("diagnostics")] = spec.diagnostics
    state[TRAIN("filtered")] = spec.filter is not None
    state[BUDGET] = spec.filter_epsilon
    state[TRAIN("start")] = spec.recipe if spec.recipe in RECIPES else OWN


def _fill_schedule(schedule: Schedule) -> None:
    st.session_state[TRAIN("schedule")] = schedule.name
    if schedule.name == CUSTOM:
        CURVE.set(schedule.values)
    else:
        _fill_knobs(TRAIN("schedule"), SCHEDULES[schedule.name], dict(schedule.knobs))


def _fill_knobs(at: str, entry: Entry, values: Mapping[str, Any]) -> None:
    for name, value in values.items():
        st.session_state[knob_key(at, entry, name)] = value


def prepare() -> None:
    """First settings of a session, and what another page handed over."""
    if st.session_state.get(TRAIN("dataset")) not in DATASETS:  # nothing yet, or own data that were removed
        fill_in(DEFAULT)
    added = ADDED.take()
    if added:
        st.session_state[TRAIN("dataset")] = added
        _take_dataset()
        NOTE.set(f"Your data {plain(added)} were added, and the form is set to them.")
    handed = handed_over(RECIPES)
    if isinstance(handed, RecipeHandover):
        fill_in(RECIPES[handed.recipe].spec)
        NOTE.set("The settings come from the Papers page.")
    elif handed is not None:
        take_over(handed)


def take_over(handed: ScheduleHandover) -> None:
    """The schedule and all that decides its epsilon into the form; the rest stays as it is."""
    state = st.session_state
    state[TRAIN("dataset")] = handed.dataset
    _take_dataset()
    state[EXAMPLES] = handed.dataset_size
    _fill_schedule(handed.schedule)
    _fill_knobs(TRAIN.page, SIZES, {"epochs": handed.epochs, "batch_size": handed.batch_size})
    state[TRAIN("delta")] = delta_text(handed.delta)
    state[TRAIN("start")] = OWN
    state[TRAIN("method")], state[TRAIN("curriculum")] = PLAIN
    HANDED.set(handed)
    SWEEP_HANDED.set(handed.sweep)
    NOTE.set("The schedule and its settings come from the Schedule page.")


def changed_price(spec: RunSpec) -> str:
    """What a run does not keep of the assumptions that its schedule was brought along with, and both epsilons.

    Empty where it keeps them all, so that the epsilons are the same, and once the form's run is another one.
    """
    handed = HANDED.get()
    if handed is None or handed.assumptions == AS_TRAINED or not handed.is_of(spec):
        return ""
    there, here = (planned_guarantee(spec, assumptions).sound for assumptions in (handed.assumptions, AS_TRAINED))
    return (
        f"A run rests on other assumptions than the Schedule page had ({changed_words(handed.assumptions)}): its ε is "
        f"{epsilon_text(here)}; on the Schedule page it was {epsilon_text(there)}."
    )


def changed_words(there: Assumptions) -> str:
    """Each assumption that a run does not keep: its own, and the one that was asked for."""
    return "; ".join(
        f"{what}: {table[getattr(AS_TRAINED, field)].title} instead of {table[getattr(there, field)].title}"
        for field, (what, table) in ASSUMED.items()
        if getattr(there, field) != getattr(AS_TRAINED, field)
    )


def _take_recipe() -> None:
    name = st.session_state[TRAIN("start")]
    if name != OWN:
        fill_in(RECIPES[name].spec)


def quick(spec: RunSpec) -> RunSpec:
    """The same in seconds: few examples, few epochs; the curve of a drawn schedule keeps its length."""
    examples = min(QUICK_EXAMPLES, spec.examples)
    epochs = spec.epochs if spec.schedule.name == CUSTOM else min(QUICK_EPOCHS, spec.epochs)
    batch_size = min(QUICK_BATCH, spec.batch_size, examples)
    # Its epochs are over before anybody looks, so there is nothing to change on the way.
    spec = dataclasses.replace(spec, filter_epsilon=None, filter_order=None)
    return dataclasses.replace(spec, subset=examples, epochs=epochs, batch_size=batch_size, recipe="")


def _take_dataset() -> None:
    """Another dataset: all of its examples; the model, the batch and delta stay if they suit it."""
    state = st.session_state
    state[TRAIN("model")] = suggested_model(state[TRAIN("dataset")], state[TRAIN("model")])
    data = DATASETS[state[TRAIN("dataset")]]
    state[EXAMPLES] = data.size
    if not state[knob_key(TRAIN.page, SIZES, "batch_size")] <= data.size:
        _fill_knobs(TRAIN.page, SIZES, {"batch_size": data.batch_size})
    with contextlib.suppress(InputError):  # what is wrong with it is said where it was typed
        if parse_delta(state[TRAIN("delta")]) > 1 / data.size:
            state[TRAIN("delta")] = delta_text(data.delta)


def fitting_models(dataset: str) -> list[str]:
    """Models that take examples of the dataset's shape."""
    return [name for name, model in MODELS.items() if model.takes(DATASETS[dataset])]


def suggested_model(dataset: str, chosen: str) -> str:
    """The chosen model if it was made for such images or for any; else the first that was."""
    homes = (DATASETS[dataset].shape, None)
    fitting = fitting_models(dataset)
    suited = [name for home in homes for name in fitting if MODELS[name].home == home]
    return chosen if chosen in suited else suited[0]


# --- the widgets


def start_from() -> None:
    """The recipe to start from, and what its paper leaves open."""
    st.selectbox(
        "Experiment",
        [OWN, *RECIPES],
        key=TRAIN("start"),
        format_func=lambda name: f"{RECIPES[name].paper}: {RECIPES[name].title}" if name else "none: my own settings",
        on_change=_take_recipe,
        persist_state="session",
        help="Fills in the settings of a paper's experiment; change what you like afterwards.",
    )
    name = st.session_state[TRAIN("start")]
    if name == OWN:
        return
    recipe = RECIPES[name]
    reported = recipe.headline
    if reported:
        cost = f" at a claimed ε of {reported.epsilon:g}" if reported.epsilon is not None else ""
        where = f"{reported.paper}, {reported.place}"
        st.caption(f"The paper reports {100 * reported.value:.2f} % test accuracy{cost} ({where}).")
    if recipe.open_values:
        with st.expander(f"What the paper leaves open ({len(recipe.open_values)})"):
            st.markdown("\n".join(f"- **{o.what}**: {o.chosen}. {o.why}" for o in recipe.open_values))


def settings_form() -> RunSpec:
    """All the widgets, top to bottom; the settings they make up, or an InputError."""
    left, right = st.columns(2)
    with left:
        away = set(DATASETS) - {*here(), st.session_state[TRAIN("dataset")]}
        dataset = choose("Dataset", DATASETS, TRAIN("dataset"), leave_out=list(away), on_change=_take_dataset)
        if DATASETS[dataset.name].own:
            public_words(dataset.name)
    with right:
        fitting = fitting_models(dataset.name)
        model = choose("Model", MODELS, TRAIN("model"), leave_out=[name for name in MODELS if name not in fitting])
    with left:
        method = choose("Method", CHOICES["method"], TRAIN("method"))
    schedule = _schedule(right, private=METHODS[method.name].private)
    chosen = {"dataset": dataset, "model": model, "method": method}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        knobs = {choice: knob_inputs(entry, TRAIN(choice)) for choice, entry in chosen.items()}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        sizes = knob_inputs(SIZES, TRAIN.page)
        sizes["subset"] = _examples(dataset.name)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        sizes |= knob_inputs(RATES, TRAIN.page)
        delta = st.text_input("δ", key=TRAIN("delta"), persist_state="session", help="Typed exactly, for example 1e-5.")
    names = {choice: entry.name for choice, entry in chosen.items()}
    with st.expander("Loss, optimizer, clipping, curriculum, rates"):
        for field, label in FINE.items():
            entry = choose(label, CHOICES[field], TRAIN(field))
            names[field] = entry.name
            knobs[field] = knob_inputs(entry, TRAIN(field))
    flat = tuple((f"{choice}.{name}", value) for choice, own in knobs.items() for name, value in own.items())
    diagnostics = st.toggle(
        "Diagnostics",
        key=TRAIN("diagnostics"),
        persist_state="session",
        help="Gradient norms, layer sizes and confusion after each epoch, for the Gradients page. Slower.",
    )
    fields: dict[str, Any] = {**names, **sizes}
    spec = RunSpec(schedule=schedule, delta=parse_delta(delta), diagnostics=diagnostics, knobs=flat, **fields)
    spec = dataclasses.replace(spec, filter_epsilon=_budget(spec))
    return dataclasses.replace(spec, recipe=recipe_of(spec, st.session_state[TRAIN("start")]))


def _budget(spec: RunSpec) -> float | None:
    """The budget of a run that may be changed on the way; None: its schedule is fixed ahead."""
    filtered = st.toggle(
        "May be changed on the way",
        key=TRAIN("filtered"),
        persist_state="session",
        help="Declares a budget ahead. While the run trains, the noise of epochs to come can be redrawn within it; the "
        "sound ε is the whole budget (a Renyi filter), also if less is used.",
    )
    if not filtered:
        return None
    if not st.session_state.get(BUDGET):
        st.session_state[BUDGET] = roomy_budget(spec)
    help = "What the run may cost in all, however its noise is changed."
    return st.number_input("Budget ε", 0.0, 1e6, step=0.1, key=BUDGET, persist_state="session", help=help)


def roomy_budget(spec: RunSpec) -> float:
    """A budget with room for less noise than planned, to start from."""
    if not all(phase.noise_multiplier for phase in spec.phases):
        return 1.0
    return math.ceil(125 * least_filter(spec.phases, spec.delta).epsilon) / 100


def _examples(dataset: str) -> int:
    """How many training examples: 0 means all of them, as in a run's settings."""
    whole = DATASETS[dataset].size
    label = f"Training examples (of {whole:,})"
    help = "Fewer examples train faster, but each is seen more often: epsilon rises."
    chosen = st.number_input(label, 1, whole, step=1000, key=EXAMPLES, persist_state="session", help=help)
    return 0 if chosen == whole else chosen


def _schedule(place: Any, *, private: bool) -> Schedule:
    """The noise: a named curve with its knobs, or the drawn one."""
    if not private:
        place.text_input("Noise", "none: this method has no noise", disabled=True)
        return Schedule.of("constant", sigma=0.0)
    curve = CURVE.get()
    with place:
        entry = choose("Noise", SCHEDULES, TRAIN("schedule"), leave_out=() if curve else (CUSTOM,))
    if entry.name == CUSTOM and curve:
        st.caption(
            f"Your own curve: {len(curve)} epochs, σ from {min(curve):g} to {max(curve):g}; its length is fixed."
        )
        _fill_knobs(TRAIN.page, SIZES, {"epochs": len(curve)})
        return Schedule.custom(curve)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        return Schedule.of(entry.name, **knob_inputs(entry, TRAIN("schedule")))


def recipe_of(spec: RunSpec, name: str) -> str:
    """The recipe's name while the settings are still the recipe's; empty once they are others."""
    if name not in RECIPES or spec.schedule != RECIPES[name].spec.schedule:
        return ""
    start = RECIPES[name].spec
    same = {label: getattr(start, label) for label in LABELS}
    return name if dataclasses.replace(spec, recipe=start.recipe, **same) == start else ""
