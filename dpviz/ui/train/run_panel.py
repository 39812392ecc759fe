"""Runs on the Train page: those at work with their progress, the list, and one run with its curves and its buttons."""

from __future__ import annotations

import dataclasses
import json
import math

import streamlit as st

from dpviz.forecast.pilots import is_pilot
from dpviz.forecast.response import Forecast
from dpviz.privacy.audit import LIKELY_CAUSES, Audit
from dpviz.privacy.registry import InputError, title_of
from dpviz.runs import Progress, Run, Summary
from dpviz.runs.execution.pace import duration_words
from dpviz.runs.execution.work import failure_words
from dpviz.runs.store.imported import ImportedSpec, guarantee_of
from dpviz.runs.store.records import LIVE, epochs_text
from dpviz.training.limits import read_only
from dpviz.training.pricing import audit_refusal, planned_risk
from dpviz.training.tables import DATASETS, MODELS
from dpviz.ui.common.actions import Action, action_buttons, progress_bar, show_problem
from dpviz.ui.common.cards import guarantee_card, input_error
from dpviz.ui.common.downloads import FileFormat, download_buttons
from dpviz.ui.common.markdown import plain
from dpviz.ui.common.runs import (
    STATUS_COLOURS,
    cached,
    is_live,
    load,
    load_all,
    runner_of,
    show_warnings,
    start,
    store,
    summary_name,
)
from dpviz.ui.train.course_panel import course_panel
from dpviz.ui.train.forecasts import RunForecast, fit_again, run_forecast, runs_alike
from dpviz.ui.train.run_form import fill_in
from dpviz.ui.train.runs_list import compare_button, folded, run_actions, runs_table, select, several_actions
from dpviz.ui.train.state import LEARN, TRAIN
from dpviz.views.diagnostics import has_diagnostics
from dpviz.views.forecast import basis_words, expected_words, forecast_frame, outcome_words
from dpviz.views.numbers import delta_text
from dpviz.views.runs import (
    STATUS_WORDS,
    audit_remark,
    audited_words,
    baseline_name,
    nearest_baselines,
    run_figure,
    run_frame,
    run_name,
    schedule_words,
    spent_words,
)

RUN_FORMATS: tuple[FileFormat[[Run]], ...] = (
    FileFormat("Download", "{name}.json", "application/json", lambda run: json.dumps(run.to_json()).encode()),
)
LIVE_SECONDS, IDLE_SECONDS = 1.0, 5.0  # idle pages look too, so that a run launched in another tab appears
LOOK_BACK = 100  # own runs among which baselines are sought
EPSILON_MARGIN = 1.05  # baselines go on a little beyond the budget


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
    with top:
        show_problem()
    if listing.runs:
        with queue:
            for summary in (run for run in listing.runs if is_live(run) and not is_pilot(run)):
                progress = runner_of(summary.id).progress(summary.id)
                progress_bar(share_done(summary, progress), summary_name(summary), progress_words(summary, progress))
        with chosen:
            shown = folded(listing.runs)
            if shown:
                _chosen_runs(shown)
    else:
        st.info(
            "No runs yet. **Quick look** above makes one in seconds; the form's **Launch** takes the settings as they "
            "are. A run goes on in the background, also when you leave this page."
        )
    show_warnings(listing.warnings)


def _chosen_runs(summaries: tuple[Summary, ...]) -> None:
    chosen = runs_table(summaries)
    several_actions(chosen)
    try:
        _one_run(load(chosen[0]), chosen[0])
    except InputError as error:
        input_error(error)


# --- progress


def share_done(summary: Summary, progress: Progress | None) -> float:
    if progress and progress.steps:
        return min(1.0, progress.step / progress.steps)
    return summary.epochs_done / max(1, summary.epochs)


def progress_words(summary: Summary, progress: Progress | None) -> str:
    """How far a live run is, with the time left once a step was timed."""
    here = runner_of(summary.id).live()
    if summary.id not in here:
        done = epochs_text(summary.epochs_done, summary.epochs)
        return f"{STATUS_WORDS[summary.status]} in another process, epoch {done}"
    if summary.status == "queued" and summary.id not in here[:1]:
        return f"waits for {here.index(summary.id)} before it"
    if progress is None:
        return "starting"
    left = "" if progress.seconds_left is None else f", {duration_words(progress.seconds_left)} left"
    return f"step {progress.step:,} of {progress.steps:,}{left}"


# --- one run


def _one_run(run: Run, summary: Summary) -> None:
    with st.container(border=True):
        mark = " :violet-badge[imported]" if run.kind == "imported" else ""
        badge = f":{STATUS_COLOURS[run.status]}-badge[{STATUS_WORDS[run.status]}]"
        st.markdown(f"### {plain(run_name(run))} {badge}{mark}")
        st.caption(plain(settings_words(run)))
        with st.container():
            _what_happened(run)
        _numbers(run)
        known = run_forecast(run)
        _curves(run, known.first if known else None)
        if known:
            _forecast(run, known)
        if run.course:
            course_panel(run)
        if isinstance(run.spec, ImportedSpec) and run.spec.phases:
            guarantee_card(guarantee_of(run.spec), planned_risk(run.spec), title="Guarantee of the logged steps")
        _actions(run, summary)


def _what_happened(run: Run) -> None:
    if run.audit and run.audit.failures:
        st.error(_alarm(run.audit))
    if run.error and not (run.audit and run.error == failure_words(run.audit)):
        input_error(InputError(run.error))
    elif run.status == "interrupted" and run.kind == "imported":
        st.warning(
            "The program that trained this run ended without saying so; what it did after its last log is unknown."
        )
    elif run.status == "interrupted":
        st.warning("The process that worked on this run ended before it was done. Resume it from its last checkpoint.")


def _alarm(audit: Audit) -> str:
    """Why the proven epsilon of a run does not hold, and what most likely causes it."""
    lists = (("The audit failed: the proven ε does not hold.", audit.failures), ("Likely causes", LIKELY_CAUSES))
    return "\n\n".join(f"**{title}**\n\n" + "\n".join(f"- {plain(line)}" for line in lines) for title, lines in lists)


def settings_words(run: Run) -> str:
    """The settings that matter most, in one line."""
    spec = run.spec
    if isinstance(spec, ImportedSpec):
        facts = (f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in spec.facts)
        dataset = title_of(DATASETS, spec.dataset) or "an unnamed dataset"
        return " · ".join((dataset, f"noise {schedule_words(spec)}", *facts, f"δ = {delta_text(spec.delta)}"))
    parts = [
        f"{title_of(DATASETS, spec.dataset)}, {spec.examples:,} examples"
        + (f" and {spec.canaries:,} canaries" if spec.canaries else ""),
        title_of(MODELS, spec.model),
        f"noise {schedule_words(spec)}",
        f"batch {spec.batch_size:,}",
        f"learning rate {spec.learning_rate:g}",
        f"clipping norm {spec.clip_norm:g}" if spec.private else "no clipping",
        f"seed {spec.seed}",
        f"δ = {delta_text(spec.delta)}",
    ]
    if spec.filter:
        parts.append(f"may be changed on the way, budget ε {spec.filter.epsilon:g}")
    if run.provenance and run.provenance.gradients:
        parts.append("per-example gradients by Opacus")
    if run.provenance and run.provenance.workers > 1:
        parts.append(f"{run.provenance.workers} workers")
    if run.provenance and run.provenance.physical_batch:
        parts.append(f"{run.provenance.physical_batch} examples at once, since memory ran out")
    return " · ".join(parts)


def _numbers(run: Run) -> None:
    spent = run.spent
    shown = {"Test accuracy": "–", "Sound ε spent": "–", "Claimed ε spent": "–"}
    accuracy = run.epochs[-1].test_accuracy if run.epochs else None
    if accuracy is not None:
        shown["Test accuracy"] = f"{100 * accuracy:.2f} %"
    if spent and (spent.steps or spent.redone):
        shown["Sound ε spent"] = spent_words(spent.epsilon_sound, spent.at_most)
        shown["Claimed ε spent"] = spent_words(spent.epsilon_claimed, spent.at_most, "none")
    if run.audit:
        shown["Audited ε"] = audited_words(run.audit.lower)
    shown["Epochs"] = epochs_text(len(run.epochs), run.spec.epochs)
    shown["Training time"] = duration_words(sum(record.seconds for record in run.epochs))
    with st.container(horizontal=True):
        for label, value in shown.items():
            st.metric(label, value, width="content")
    for words in (extra_words(run), audit_words(run)):
        if words:
            st.caption(words)


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


def audit_words(run: Run) -> str:
    """What the audit of a run shows and what it cannot show; why there is none; empty while the run is at work."""
    if run.audit:
        return audit_remark(run.audit)
    refusal = audit_refusal(run.spec)
    return f"No audit: {refusal}." if refusal else ""


def _forecast(run: Run, known: RunForecast) -> None:
    """What was to be expected, how good that was, and the way to learn from the run."""
    st.caption(forecast_words(run, known))
    with st.container(horizontal=True):
        if run.status == "done":
            action_buttons(LEARN, run.id, fit_again(run.own_spec, runs_alike(run.own_spec)))


def forecast_words(run: Run, known: RunForecast) -> str:
    """The forecast of a run in words: against what was measured once it is done."""
    if run.status == "done" and run.epochs:
        told = run.own_spec.key in known.response.runs
        words = outcome_words(known.first, run.epochs[-1].accuracy, fitted_to_it=told)
    else:
        words = f"Forecast of its end: {expected_words(known.first)}"
        words += f"; with the epochs seen so far: {expected_words(known.now)}." if run.epochs else "."
    return f"{words} {basis_words(known.first)}"


def _curves(run: Run, forecast: Forecast | None) -> None:
    """Against epochs and against epsilon. The figures change only with new data, so that a zoom stays."""
    if not run.epochs:
        st.caption("The curve starts with the first epoch.")
        return
    measure = st.segmented_control(
        "Measure",
        ["accuracy", "loss"],
        label_visibility="collapsed",
        default="accuracy",
        key=TRAIN("measure"),
        format_func=str.capitalize,
        required=True,
    )
    frame, sound = run_frame([run]), guarantee_of(run.spec).sound
    planned = math.inf if sound is None else sound.upper
    named = baselines(run, planned if math.isfinite(planned) else None)
    behind = {name: run_frame([other]) for name, other in named.items()}
    by_epoch, by_epsilon = st.columns(2)
    expected = forecast_frame(forecast) if forecast and measure == "accuracy" else None
    figure = run_figure(frame, "epoch", measure, behind, run.spec.epochs or len(run.epochs), expected)
    by_epoch.plotly_chart(figure, key=TRAIN("by_epoch"), alt=f"{measure} by epoch")
    if frame["epsilon_sound"].isna().all():
        by_epsilon.info("No guarantee: these settings have no sound epsilon, so there is nothing to draw against.")
    elif run.course:
        by_epsilon.info("The sound ε is the declared budget from the first step on: there is nothing to draw against.")
    else:
        figure = run_figure(frame, "epsilon_sound", measure, behind, EPSILON_MARGIN * planned)
        by_epsilon.plotly_chart(figure, key=TRAIN("by_epsilon"), alt=f"{measure} by epsilon spent")
    if behind:
        alike = "dataset" if run.kind == "imported" else "dataset and model"
        st.caption(f"Dashed: finished runs of the same {alike} whose ε is nearest to this run's; test data.")


def baselines(run: Run, epsilon: float | None) -> dict[str, Run]:
    """The nearest full-length and own runs by their names in the legend."""
    own, _ = load_all([run for run in store().list().runs if not is_pilot(run)][-LOOK_BACK:])
    sources = {other.id: "full-length run" for other in (item.run for item in cached().runs)}
    others = [*(item.run for item in cached().runs), *(other for other in own if other.id != run.id)]
    nearest = nearest_baselines(run, epsilon, others)
    return {baseline_name(other, sources.get(other.id, "your run")): other for other in nearest}


def _actions(run: Run, summary: Summary) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        action_buttons(TRAIN, run.id, run_actions([summary]))
        if not is_pilot(summary):
            compare_button([run])
        if run.kind == "measured":
            help = "Fills in the form with these settings."
            action_buttons(TRAIN, run.id, [Action("Duplicate", lambda: fill_in(run.own_spec), help, redraws=True)])
        with st.popover("Rename", disabled=bool(read_only())):
            title = st.text_input("Title", run.title, max_chars=120, key=TRAIN("title", run.id))
            action_buttons(TRAIN, run.id, [Action("Save title", lambda: store().rename(run.id, title))])
        _diagnostics(run)
        download_buttons(RUN_FORMATS, f"run-{run.id}", run)


def _diagnostics(run: Run) -> None:
    """A link to what was looked at; without diagnostics, the same run once more with them."""
    if has_diagnostics(run):
        st.page_link(
            "pages/gradients.py", label="Gradients", icon=":material/trending_down:", query_params={"run": run.id}
        )
    elif run.status == "done" and run.kind == "measured" and not run.redrawn:
        again = dataclasses.replace(run.own_spec, diagnostics=True)
        repeat = Action(
            "Repeat with diagnostics",
            lambda: select(start((again,), run.title)[0]),
            "The same run once more; looking does not change it.",
        )
        action_buttons(TRAIN, run.id, [repeat])
