"""Runs on the Train page: the queue with its progress, and one run with its curves and what can be done to it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Literal

import streamlit as st

from dpviz.privacy.registry import InputError
from dpviz.runs import Progress, Run, Summary
from dpviz.runs.execution.pace import duration_words
from dpviz.runs.store.records import LIVE, RESUMABLE
from dpviz.training.limits import read_only
from dpviz.training.tables import DATASETS, MODELS
from dpviz.ui.common.cards import input_error
from dpviz.ui.common.downloads import FileFormat, download_buttons
from dpviz.ui.common.markdown import plain
from dpviz.ui.common.runs import (
    STATUS_COLOURS,
    STATUS_WORDS,
    is_live,
    load,
    resume,
    runner,
    show_warnings,
    start,
    stop,
    store,
    summary_line,
    summary_name,
)
from dpviz.ui.train.run_form import fill_in
from dpviz.views.diagnostics import has_diagnostics
from dpviz.views.numbers import delta_text
from dpviz.views.runs import run_figure, run_frame, run_name, schedule_words, spent_words, title_of

PICKED = "train.run"  # the list's key; each choice that is not made in the list gives it a new number
PICKS = "train.picks"
SHOWN = "train.shown"  # the run that was shown last
PROBLEM = "train.problem"
RUN_FORMATS: tuple[FileFormat[[Run]], ...] = (
    FileFormat("Download", "{name}.json", "application/json", lambda run: json.dumps(run.to_json()).encode()),
)
LIVE_SECONDS, IDLE_SECONDS = 1.0, 5.0  # idle pages look too, so that a run launched in another tab appears


def runs_panel() -> None:
    """The panel, which looks again by itself: every second while something is live."""
    live = any(is_live(summary) for summary in store().list().runs)
    st.fragment(_panel, run_every=LIVE_SECONDS if live else IDLE_SECONDS)(live)


def _panel(live_before: bool) -> None:
    listing = store().list()
    if any(is_live(summary) for summary in listing.runs) != live_before:
        st.rerun()  # a fragment cannot change its own rhythm
    st.header("Runs")
    # Boxes of their own, so that a row that comes or goes moves nothing below it.
    top, queue, chosen = st.container(), st.container(), st.container()
    problem = st.session_state.pop(PROBLEM, "")
    if problem:
        with top:
            input_error(InputError(problem))
    if listing.runs:
        with queue:
            for summary in listing.runs:
                if is_live(summary):
                    _live_row(summary)
        with chosen:
            _chosen_run(listing.runs)
    else:
        st.info(
            "No runs yet. Fill in the form and press **Launch**; “Quick look” makes it a matter of seconds. "
            "The run goes on in the background, also when you leave this page."
        )
    show_warnings(listing.warnings)


def _chosen_run(summaries: tuple[Summary, ...]) -> None:
    try:
        _one_run(load(_pick(summaries)))
    except InputError as error:
        input_error(error)


def _pick(summaries: tuple[Summary, ...]) -> Summary:
    """The run to look at: newest first; the one in the address when the page is opened."""
    by_id = {summary.id: summary for summary in reversed(summaries)}
    key = _pick_key()
    # Streamlit sends a choice by its label; a label with an older accuracy, still under way, comes back as that text.
    asked = known(by_id, st.session_state.get(key), st.session_state.get(SHOWN), st.query_params.get("run"))
    st.session_state[key] = st.session_state[SHOWN] = asked
    picked = st.selectbox(
        "Run",
        list(by_id),
        key=key,
        format_func=lambda run_id: summary_line(by_id[run_id]),
        persist_state="session",
    )
    return by_id[picked]


def known(by_id: Mapping[str, Summary], *wishes: str | None) -> str:
    """The first wish that is a run's id, else the newest run."""
    return next((wish for wish in wishes if wish and wish in by_id), next(iter(by_id)))


def pick(run_id: str) -> None:
    """Show this run. The list gets a new key, or the browser's old choice, still under way, would win."""
    st.session_state[PICKS] = st.session_state.get(PICKS, 0) + 1
    st.session_state[SHOWN] = run_id


def _pick_key() -> str:
    picks = st.session_state.get(PICKS, 0)
    return f"{PICKED}.{picks}" if picks else PICKED


# --- progress


def _live_row(summary: Summary) -> None:
    """One bar a live run: how far it is and how long it will take."""
    progress = runner().progress(summary.id)
    with st.container(horizontal=True, vertical_alignment="center"):
        words = f"**{plain(summary_name(summary))}** — {progress_words(summary, progress)}"
        st.progress(share_done(summary, progress), text=words)
        if summary.id in runner().live():
            _button("Stop", summary.id, _stop, help="Ends the run within a step; it can be resumed.")


def share_done(summary: Summary, progress: Progress | None) -> float:
    if progress and progress.steps:
        return min(1.0, progress.step / progress.steps)
    return summary.epochs_done / max(1, summary.epochs)


def progress_words(summary: Summary, progress: Progress | None) -> str:
    """How far a live run is, with the time left once a step was timed."""
    here = runner().live()
    if summary.id not in here:
        return f"{STATUS_WORDS[summary.status]} in another process, epoch {summary.epochs_done} of {summary.epochs}"
    if summary.status == "queued" and summary.id not in here[:1]:
        return f"waits for {here.index(summary.id)} before it"
    if progress is None:
        return "starting"
    left = "" if progress.seconds_left is None else f", {duration_words(progress.seconds_left)} left"
    return f"step {progress.step:,} of {progress.steps:,}{left}"


# --- one run


def _one_run(run: Run) -> None:
    with st.container(border=True):
        st.markdown(f"#### {plain(run_name(run))} :{STATUS_COLOURS[run.status]}-badge[{STATUS_WORDS[run.status]}]")
        st.caption(settings_words(run))
        with st.container():
            _what_happened(run)
        _numbers(run)
        _curves(run)
        _actions(run)


def _what_happened(run: Run) -> None:
    if run.error:
        input_error(InputError(run.error))
    elif run.status == "interrupted":
        st.warning("The process that worked on this run ended before it was done. Resume it from its last checkpoint.")


def settings_words(run: Run) -> str:
    """The settings that matter most, in one line."""
    spec = run.spec
    parts = [
        f"{title_of(DATASETS, spec.dataset)}, {spec.size:,} examples",
        title_of(MODELS, spec.model),
        f"noise {schedule_words(spec)}",
        f"batch {spec.batch_size:,}",
        f"learning rate {spec.learning_rate:g}",
        f"clipping norm {spec.clip_norm:g}" if spec.private else "no clipping",
        f"seed {spec.seed}",
        f"δ = {delta_text(spec.delta)}",
    ]
    return " · ".join(parts)


def _numbers(run: Run) -> None:
    spent = run.spent
    shown = {"Test accuracy": "–", "Sound ε spent": "–", "Claimed ε spent": "–"}
    if run.epochs:
        shown["Test accuracy"] = f"{100 * run.epochs[-1].test_accuracy:.2f} %"
    if spent and (spent.steps or spent.redone):
        shown["Sound ε spent"] = spent_words(spent.epsilon_sound, spent.at_most)
        shown["Claimed ε spent"] = spent_words(spent.epsilon_claimed, spent.at_most, "none")
    shown["Epochs"] = f"{len(run.epochs)} of {run.spec.epochs}"
    shown["Training time"] = duration_words(sum(record.seconds for record in run.epochs))
    with st.container(horizontal=True):
        for label, value in shown.items():
            st.metric(label, value, width="content")
    extra = extra_words(run)
    if extra:
        st.caption(extra)


def extra_words(run: Run) -> str:
    """Why a run has spent more than its last epoch says; empty if it has not."""
    spent, last = run.spent, run.epochs[-1].step if run.epochs else 0
    if spent is None or run.status in LIVE or not (spent.steps > last or spent.redone):
        return ""
    if spent.at_most:
        return "It is not on record how far the run came after its last epoch, so ε counts one more epoch in full."
    again = sum(end - start for start, end in spent.redone)
    parts = [f"{spent.steps - last:,} steps after its last epoch"] if spent.steps > last else []
    parts += [f"{again:,} steps that were lost and taken again with fresh noise"] if again else []
    return f"ε counts also {' and '.join(parts)}."


def _curves(run: Run) -> None:
    """Against epochs and against epsilon. The figures change only with new data, so that a zoom stays."""
    if not run.epochs:
        st.caption("The curve starts with the first epoch.")
        return
    measure = st.segmented_control(
        "Measure",
        ["accuracy", "loss"],
        label_visibility="collapsed",
        default="accuracy",
        key="train.measure",
        format_func=str.capitalize,
        required=True,
    )
    frame = run_frame([run])
    by_epoch, by_epsilon = st.columns(2)
    by_epoch.plotly_chart(run_figure(frame, "epoch", measure), key="train.by_epoch", alt=f"{measure} by epoch")
    if frame["epsilon_sound"].isna().all():
        by_epsilon.info("No guarantee: these settings have no sound epsilon, so there is nothing to draw against.")
    else:
        figure = run_figure(frame, "epsilon_sound", measure)
        by_epsilon.plotly_chart(figure, key="train.by_epsilon", alt=f"{measure} by epsilon spent")


def _actions(run: Run) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        if run.status in RESUMABLE:
            _button("Resume", run.id, _resume, help="Goes on from its last checkpoint.", type="primary")
        if _button("Duplicate", run.id, _duplicate, help="Fills in the form with these settings."):
            st.rerun()
        with st.popover("Rename", disabled=bool(read_only())):
            title = st.text_input("Title", run.title, max_chars=120, key=f"train.title.{run.id}")
            _button("Save title", run.id, _rename, title)
        with st.popover("Delete", disabled=bool(read_only()) or run.status in LIVE):
            st.markdown("The run, its curve and its checkpoint are removed for good.")
            _button("Yes, delete it", run.id, _delete, type="primary")
        _diagnostics(run)
        st.page_link("pages/compare.py", label="Compare", icon=":material/balance:")
        download_buttons(RUN_FORMATS, f"run-{run.id}", run)


def _diagnostics(run: Run) -> None:
    """A link to what was looked at; without diagnostics, the same run once more with them."""
    if has_diagnostics(run):
        st.page_link(
            "pages/gradients.py", label="Gradients", icon=":material/trending_down:", query_params={"run": run.id}
        )
    elif run.status == "done":
        _button(
            "Repeat with diagnostics", run.id, _diagnose, help="The same run once more; looking does not change it."
        )


def _button(
    label: str,
    run_id: str,
    action: Callable[..., None],
    *arguments: object,
    help: str | None = None,
    type: Literal["primary", "secondary"] = "secondary",
) -> bool:
    """A button that acts on a run; what goes wrong is shown as a sentence at the top."""
    locked = read_only()
    return st.button(
        label,
        key=f"train.{label}.{run_id}",
        help=locked or help,
        on_click=_act,
        args=(action, run_id, *arguments),
        type=type,
        disabled=bool(locked),
    )


def _act(action: Callable[..., None], run_id: str, *arguments: object) -> None:
    try:
        action(run_id, *arguments)
    except InputError as error:
        st.session_state[PROBLEM] = str(error)


def _stop(run_id: str) -> None:
    stop(run_id)


def _resume(run_id: str) -> None:
    resume(run_id)


def _duplicate(run_id: str) -> None:
    fill_in(store().get(run_id).spec)


def _rename(run_id: str, title: str) -> None:
    store().rename(run_id, title)


def _delete(run_id: str) -> None:
    store().delete(run_id)


def _diagnose(run_id: str) -> None:
    run = store().get(run_id)
    pick(start((dataclasses.replace(run.spec, diagnostics=True),), run.title)[0])
