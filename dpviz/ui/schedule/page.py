"""The parts of the Schedule page, from the drawing board down to the files."""

from __future__ import annotations

from functools import partial

import streamlit as st

from dpviz.privacy import MEASURES, SCHEDULES, InputError, Schedule, rdp_table
from dpviz.privacy.schedules import CUSTOM
from dpviz.training.limits import read_only
from dpviz.training.pricing import steps_guarantee
from dpviz.ui.common.cards import guarantee_card, input_error
from dpviz.ui.common.downloads import download_buttons
from dpviz.ui.common.editor import Certified, Curve, schedule_editor
from dpviz.ui.common.handover import PLAIN, hand_over
from dpviz.ui.common.knobs import choose, knob_inputs
from dpviz.ui.schedule import board as drawing
from dpviz.ui.schedule.board import PRESET, Board, act, current_board
from dpviz.ui.schedule.check_panel import check_panel
from dpviz.ui.schedule.outlook import (
    chosen_response,
    forecast_buttons,
    forecast_choice,
    known_runs,
    live_forecast,
)
from dpviz.ui.schedule.risk_plot import risk_plot
from dpviz.ui.schedule.search import search_panel
from dpviz.ui.schedule.settings import OWN_DATA, Settings, read_settings, settings_panel
from dpviz.views.numbers import epsilon_kind, epsilon_remark, epsilon_text

PASTE = "paste"  # the place of what is wrong with a list
TABS = ("Guarantee", "Risk", "Trade-off", "Price tags", "What if", "Files and code")


def prepare() -> None:
    """Fill the caches that the page's first sight needs."""
    settings = Settings()
    settings.price(tuple(Schedule.of("linear").sigmas(settings.epochs).tolist()))
    rdp_table(settings.sample_rate)


@st.fragment
def schedule_page() -> None:
    """Presets and board on the left, settings on the right, details under both; a stroke reruns no more than this."""
    board = current_board()
    settings = read_settings()
    left, right = st.columns([3, 1], gap="medium")
    with left:
        _preset_row(board)
        _editor(board, settings)
        _buttons(board, settings)
        search_panel()
        _notes(board)
        check_panel(settings)
    with right:
        settings_panel(on_epochs=partial(act, drawing.change_epochs))
        forecast_choice(settings)
    _details(board, settings)


def _preset_row(board: Board) -> None:
    push = partial(act, drawing.push_preset)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        entry = choose("Preset", SCHEDULES, PRESET, leave_out=(CUSTOM,), default="linear", on_change=push)
        knob_inputs(entry, PRESET, on_change=push)
        with st.popover("Paste or upload"):
            st.text_area("One σ per epoch, by lines or commas", key="schedule.pasted", placeholder="5, 4, 3, 2, 1")
            st.button("Use this list", on_click=_use_pasted)
            st.file_uploader(
                "Or a CSV file",
                type=["csv", "txt"],
                key="schedule.file",
                on_change=_use_file,
                disabled=bool(read_only()),
                help=read_only() or None,
            )
            _problem(board, PASTE)  # the popover would cover the place under the board


def _use_pasted() -> None:
    act(drawing.paste, st.session_state["schedule.pasted"], place=PASTE)


def _use_file() -> None:
    file = st.session_state["schedule.file"]
    if file is not None:
        act(drawing.paste_bytes, file.getvalue(), place=PASTE)


def _editor(board: Board, settings: Settings) -> None:
    cost, forecast = settings.price(board.sigmas), live_forecast(settings)
    pins = [Curve(pin.name, pin.sigmas, settings.price(pin.sigmas).upper) for pin in board.pins]
    schedule_editor(
        board.editor,
        key="schedule.editor",
        table=rdp_table(settings.sample_rate),
        steps_per_epoch=settings.steps,
        delta=settings.delta,
        ghost=board.ghost,
        pinned=pins,
        target=settings.target,
        certified=Certified(cost.lower, cost.upper, epsilon_text(cost), epsilon_kind(cost)),
        measure=settings.live_risk(board.sigmas),
        forecast=forecast,
        height=470 if forecast else 380,
        link=drawing.address(board, settings),
        kept=drawing.pins_text(board),
        on_draw=lambda _: act(drawing.drawn),
        on_open=partial(act, drawing.open_link),
        on_restore=partial(act, drawing.restore_pins),
    )
    if epsilon_remark(cost):
        st.caption(f"This number: {epsilon_remark(cost)}.")


def _buttons(board: Board, settings: Settings) -> None:
    with st.container(horizontal=True):
        goal = MEASURES[settings.measure].symbol
        fit_help = "Keep the shape and scale it to the target."
        st.button(f"Fit to {goal}", key="schedule.fit", on_click=act, args=(drawing.fit,), help=fit_help)
        forecast_buttons(settings)
        st.button(
            "Match", on_click=act, args=(drawing.match,), help="Pin the constant σ with the same ε as this curve."
        )
        st.button("Mirror", on_click=act, args=(drawing.mirror,), help="Turn the curve round: ε stays.")
        st.button("Pin", on_click=act, args=(drawing.pin,), help="Keep this curve in the plot, up to four.")
        if board.pins:
            _pins(board, settings)
        st.button(
            "Share link",
            on_click=act,
            args=(drawing.share,),
            help="Copy the address: it holds all of this.",
        )
        own = "Choose one of the datasets to train on." if settings.dataset == OWN_DATA else ""
        reason = own or drawing.no_sweep(board)
        sweep = st.button(
            "Sweep against its constant",
            disabled=bool(reason),
            help=reason or "Train this curve and the constant of the same ε over three seeds: which is better?",
        )
        train = st.button(
            "Train this schedule",
            type="primary",
            disabled=bool(own),
            help=own or "Go to Train with everything filled in.",
        )
    if train or sweep:
        hand_over(drawing.handover(board, settings, sweep=sweep))
        st.switch_page("pages/train.py")


def _pins(board: Board, settings: Settings) -> None:
    with st.popover(f"Pinned ({len(board.pins)})"):
        for index, pin in enumerate(board.pins):
            with st.container(horizontal=True, vertical_alignment="center"):
                st.markdown(f"{pin.name}: ε {epsilon_text(settings.price(pin.sigmas))}", width="stretch")
                st.button("Use", key=f"use {index}", on_click=act, args=(drawing.use_pin, index))
                st.button("Remove", key=f"remove {index}", on_click=act, args=(drawing.unpin, index))


def _problem(board: Board, place: str) -> None:
    if board.problem and board.place == place:
        input_error(InputError(board.problem))


def _notes(board: Board) -> None:
    _problem(board, "")
    if board.note:
        st.info(board.note)
    if board.link:
        st.code(board.link, language=None, wrap_lines=True)


# --- under the board


def _details(board: Board, settings: Settings) -> None:
    """Only the tab that is open is worked out."""
    tabs = st.tabs(TABS, key="schedule.tab", on_change="rerun")
    for tab, fill in zip(tabs, (_guarantee, _risk, _trade_off, _price_tags, _what_if, _files), strict=True):
        if tab.open:
            with tab:
                fill(board, settings)


def _guarantee(board: Board, settings: Settings) -> None:
    phases = settings.phases(board.sigmas)
    guarantee = steps_guarantee(*PLAIN, phases, settings.delta, settings.assumptions)
    guarantee_card(guarantee, settings.risk(board.sigmas))


def _risk(board: Board, settings: Settings) -> None:
    from dpviz.views.risk import risk_table

    risks = {
        "this schedule": settings.risk(board.sigmas),
        **{pin.name: settings.risk(pin.sigmas) for pin in board.pins},
    }
    risk_plot(risks, settings.fpr)
    st.table(risk_table(risks, settings.fpr), hide_index=True, border="horizontal")
    st.caption(
        "The attacker sees every noisy step, knows all other examples and has any computer; who sees only the model "
        "finds fewer. Advantage: the most by which the share of members found exceeds the share of false alarms. μ: "
        "Gaussian differential privacy with this μ is at least as risky everywhere; its regret is by how much it "
        "overstates the rates. Batches and neighbours are those of the settings; δ plays no part."
    )


def _trade_off(board: Board, settings: Settings) -> None:
    from dpviz.views import forecast as views

    response = chosen_response(settings)
    if response is None:
        st.markdown(
            "Nothing was learnt from runs on all of this dataset yet, or nothing is chosen. *Learn the response* on "
            "Train learns it."
        )
        return
    frame = views.shape_frame(response, board.sigmas, settings.price, settings.batch_size)
    words = views.shape_words(frame, response)
    st.markdown(words)
    runs = views.runs_frame(response, known_runs())
    st.plotly_chart(views.shape_figure(frame, runs), alt=words, config={"displayModeBar": False})
    st.caption("Dots: runs that the forecast rests on, at their sound ε, whatever their schedule and number of epochs.")


def _price_tags(board: Board, settings: Settings) -> None:
    from dpviz.views.schedules import price_tag_figure, price_tag_frame, price_tag_words

    frame = price_tag_frame(board.sigmas, settings.sample_rate, settings.delta, settings.assumptions)
    words = price_tag_words(frame)
    st.markdown(words)
    st.plotly_chart(price_tag_figure(frame), alt=words, config={"displayModeBar": False})


def _what_if(board: Board, settings: Settings) -> None:
    from dpviz.views.schedules import what_if_figure, what_if_frame, what_if_table

    frame = what_if_frame(board.sigmas, settings.sample_rate, settings.delta)
    st.markdown("This very curve, under other assumptions.")
    left, right = st.columns(2, gap="medium")
    left.table(what_if_table(frame), hide_index=True, border="horizontal")
    right.plotly_chart(
        what_if_figure(frame), alt="The epsilons of the table on one axis.", config={"displayModeBar": False}
    )
    st.caption(
        "Fixed order and shuffled: each example is in one batch per epoch. Nobody has a tight price for shuffling, so "
        "neither gets credit for randomness. One example less would shift all their later batches, so their neighbours "
        "differ by an example that counts nothing, or by another example. RDP gives upper bounds; PLD a certified band."
    )


def _files(board: Board, settings: Settings) -> None:
    from dpviz.ui.schedule.export import SCHEDULE_FORMATS, opacus_script, script_epsilons

    opacus, tight = script_epsilons(board.sigmas, settings)
    with st.container(horizontal=True):
        download_buttons(SCHEDULE_FORMATS, "schedule", board, settings)
    st.markdown(
        f"A training script for Opacus with this schedule. It prints ε by Opacus' RDP accountant, at the end {opacus}. "
        f"dpviz's own for the same steps is {tight}."
    )
    if settings.sampling != "poisson" or settings.adjacency != "add-remove":
        st.caption("The script draws Poisson batches, and Opacus prices neighbours with one example more or less.")
    st.code(opacus_script(board.sigmas, settings), language="python", height=360)
