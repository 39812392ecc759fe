"""The parts of the Guide page."""

from __future__ import annotations

from functools import lru_cache

import pandas as pd
import streamlit as st

from dpviz.privacy import SCHEDULES, Ledger, Phase, Schedule, epsilon, risk
from dpviz.privacy.schedules import CUSTOM
from dpviz.ui.common.navigation import PAGES
from dpviz.ui.common.session import Keys
from dpviz.ui.schedule.board import BOARD
from dpviz.ui.schedule.settings import Settings, read_settings
from dpviz.views.guide import belief, belief_figure, belief_frame, worlds_figure, worlds_frame
from dpviz.views.numbers import delta_text, epsilon_number, risk_sentence
from dpviz.views.pitfalls import PITFALLS, Example, case_figure, case_frame
from dpviz.views.schedules import path_figure, path_frame, schedule_figure, schedule_frame

EPSILON = (
    "**Epsilon (ε) limits how much a trained model can give away about any one person in its data: the smaller, the "
    "more private.**"
)
GUIDE = Keys("guide")
STILL = {"displayModeBar": False}
DELTA = 1e-5
LINKED = 880  # pixels: a page's name and its text
TEXT = 720  # pixels: a line that is read without losing the next one
DRAWN = "Your drawing"


@st.fragment
def meaning() -> None:
    """Epsilon in words, and one slider that moves two pictures."""
    st.markdown(
        "A model learns from many people, each with one example. Epsilon limits what it can give away about **any one "
        "of them**: train once with your example and once without it. Whatever results you name, they are at most "
        "$e^{\\varepsilon}$ times as likely in one world as in the other, plus δ. Small is private: below 1 is strong, "
        "a few is common in practice, and above 10 the promise is weak. Somebody with several examples is protected "
        "less: merge them into one first. DP-SGD gets there by clipping each example's gradient and adding noise; the "
        "noise multiplier σ says how much noise, measured in clipping norms.",
        width=TEXT,
    )
    sigma = st.slider("Noise multiplier σ of one update that uses everybody", 0.3, 10.0, 2.0, 0.1, key=GUIDE("sigma"))
    cost = epsilon(Ledger([Phase(sigma, 1.0, 1)]), DELTA).upper
    left, right = st.columns(2, gap="medium")
    words = f"One look at this update costs ε = {epsilon_number(cost)} (δ = {delta_text(DELTA)})."
    left.markdown(f"**Two worlds.** {words} The more the bells overlap, the less an update says about you.")
    left.plotly_chart(worlds_figure(worlds_frame(sigma)), alt=words, config=STILL)
    bound = (
        f"who gave it even odds that you are in the data can be at most {100 * belief(cost, 0.5):.1f} % sure after it, "
        "but for rare results"
    )
    right.markdown(f"**What an attacker may conclude.** Somebody {bound}.")
    right.plotly_chart(belief_figure(belief_frame(), cost), alt=f"Somebody {bound}.", config=STILL)
    means = risk_sentence(risk([(sigma, 1.0, 1)]), 0.001)
    st.markdown(f"**In people.** {means} The Risk tab of the Schedule page says it for a whole training.", width=TEXT)


def spending() -> None:
    """Two schedules, and what each has spent by the end of each epoch."""
    st.markdown(
        "**A schedule spends epoch by epoch.** Every update adds to the bill, and the bill is what the *whole* "
        "training gives away. Much noise at first is cheap; the quiet epochs at the end cost most.",
        width=TEXT,
    )
    curves, paths = _two_schedules()
    left, right = st.columns(2, gap="medium")
    left.plotly_chart(schedule_figure(schedule_frame(curves)), alt="Noise by epoch, flat and falling.", config=STILL)
    totals = "; ".join(f"{name}: ε = {epsilon_number(path['epsilon_upper'].iloc[-1])}" for name, path in paths.items())
    right.plotly_chart(path_figure(paths), alt=f"Epsilon spent by epoch. In the end, {totals}.", config=STILL)
    st.caption(f"In the end, {totals} (MNIST, batch size 600, δ = {delta_text(DELTA)}).")


@lru_cache(maxsize=1)
def _two_schedules() -> tuple[dict[str, tuple[float, ...]], dict[str, pd.DataFrame]]:
    shapes = {"constant σ = 2": Schedule.of("constant", sigma=2.0), "linear, 5 to 1": Schedule.of("linear")}
    settings = Settings()
    curves = {name: tuple(shape.sigmas(settings.epochs).tolist()) for name, shape in shapes.items()}
    return curves, {name: path_frame(sigmas, settings.sample_rate, DELTA) for name, sigmas in curves.items()}


def pages_table() -> None:
    """What each page is for, with the way there."""
    for page in (page for page in PAGES if page.how_to_read):
        link, text = st.columns([1, 5], width=LINKED)
        link.page_link(page.path, label=f":primary[**{page.title} →**]")
        text.markdown(page.how_to_read)


def choose_example() -> Example:
    """The curve on which the pitfalls are shown: a preset, or what lies on the drawing board."""
    settings = read_settings() if BOARD in st.session_state else Settings()
    presets = [name for name in SCHEDULES if name != CUSTOM]
    choices = [DRAWN, *presets] if BOARD in st.session_state else presets
    name = st.selectbox(
        "Worked out for",
        choices,
        index=choices.index(DRAWN if DRAWN in choices else "linear"),
        format_func=lambda name: name if name == DRAWN else f"{SCHEDULES[name].title} preset",
        key=GUIDE("example"),
        width=320,
    )
    if name == DRAWN:
        sigmas = tuple(st.session_state[BOARD].sigmas)
    else:
        sigmas = tuple(Schedule.of(name).sigmas(settings.epochs).tolist())
    st.caption(
        f"{len(sigmas)} epochs, batch size {settings.batch_size:,} of {settings.dataset_size:,} examples, "
        f"δ = {delta_text(settings.delta)}. Every number below is worked out now."
    )
    return Example(sigmas, settings.batch_size, settings.dataset_size, settings.delta)


def pitfalls(example: Example) -> None:
    """One fold for each; only those that are open are worked out."""
    for index, pitfall in enumerate(PITFALLS):
        fold = st.expander(pitfall.title, expanded=index == 0, key=GUIDE(index), on_change="rerun")
        if fold.open:
            with fold:
                st.markdown(pitfall.lesson, width=TEXT)
                finding = pitfall.example(example)
                frame = case_frame(finding)
                left, right = st.columns(2, gap="medium", vertical_alignment="center")
                left.markdown(f"**Here:** {finding.sentence}")
                shown = frame[["case", "epsilon"]].rename(columns={"case": "Case", "epsilon": "ε"})
                left.table(shown, hide_index=True, border="horizontal")
                right.plotly_chart(case_figure(frame), alt=finding.sentence, config=STILL, key=GUIDE("figure", index))
