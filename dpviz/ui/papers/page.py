"""The parts of the Papers page."""

from __future__ import annotations

import functools
from typing import Any

import pandas as pd
import streamlit as st

from dpviz.papers import LOCAL_RECIPES, PAPERS, Paper, local_recipes_of, recipes_of
from dpviz.papers.claims import claims_of
from dpviz.papers.records import VERDICTS, Claim, Finding, LocalRecipe, Recipe
from dpviz.runs.experiments import Measured, findings, measured
from dpviz.ui.common.handover import RecipeHandover, hand_over
from dpviz.ui.common.runs import cached, cached_local, show_warnings
from dpviz.views.ideas import idea_figure
from dpviz.views.papers import FROM_TEXT, OURS_ONLY, agreement, difference_colour, far_off, table_frames

GO = "papers.go"
STILL = {"displayModeBar": False}
OPEN, OPEN_LOCAL = "Train ▸", "Try ▸"
ACCURACY = "Test accuracy after the last epoch, mean over seeds."
A_PERSON = "What a person pays over all visits."
MOST_ROWS = 24  # longer tables scroll
TITLE_WIDTH = 300  # pixels: most titles whole
COLOURS = dict(zip(VERDICTS, ("green", "orange", "red", "gray"), strict=True))
ICONS = dict(zip(VERDICTS, ("✓", "◐", "✗", "…"), strict=True))


def choose_paper() -> Paper:
    """Which paper to look at; an address may ask for one (?paper=screening)."""
    asked = st.query_params.get("paper", "")
    if "papers.paper" not in st.session_state:
        st.session_state["papers.paper"] = asked if asked in PAPERS else next(iter(PAPERS))
    name = st.segmented_control(
        "Paper",
        list(PAPERS),
        format_func=lambda name: PAPERS[name].short_title,
        key="papers.paper",
        label_visibility="collapsed",
        required=True,
    )
    return PAPERS[name or next(iter(PAPERS))]


def results() -> tuple[dict[str, Measured], tuple[str, ...]]:
    """What was measured, from the cached runs, and one sentence for each that cannot be used."""
    listing, (local, unread) = cached(), cached_local()
    found, odd = measured(listing.runs, local)
    return found, (*listing.warnings, *unread, *odd)


def proposal(paper: Paper) -> None:
    """What the paper proposes, and a picture of its idea."""
    words, picture = st.columns([5, 6], gap="large")
    with words:
        st.header(paper.title)
        st.caption(f"{paper.authors}, {paper.year}")
        st.markdown(" ".join(paper.summary))
    with picture:
        st.plotly_chart(idea_figure(paper), alt=paper.picture_sentence, config=STILL, key=f"idea.{paper.name}")
        st.caption(paper.picture_sentence)


# --- tables -------------------------------------------------------------------------------------------------------


def tables(paper: Paper) -> None:
    """Each table of the paper, reported beside ours."""
    found, _ = results()
    frames = table_frames(paper.name, found)
    st.markdown(f"{agreement(frames.values())} {far_off(frames.values())}")
    for heading, frame in frames.items():
        folded = heading == OURS_ONLY or (heading == FROM_TEXT and next(iter(frames)) != FROM_TEXT)
        box = st.expander(f"{heading} ({len(frame)})") if folded else st.container()
        with box:
            if not folded:
                st.markdown(f"**{heading}**")
            _table(paper, heading, frame)
    left_open(paper)


def _table(paper: Paper, heading: str, frame: pd.DataFrame) -> None:
    at = f"papers.open.{paper.name}.{heading}"
    recipes = tuple(recipe if isinstance(recipe, str) else None for recipe in frame["recipe"])
    error = bool(local_recipes_of(paper.name))
    label, page = (OPEN_LOCAL, "Local privacy") if error else (OPEN, "Train")
    labels: list[Any] = [label if recipe else None for recipe in recipes]
    shown = frame.assign(open=labels)
    colour = functools.partial(difference_colour, error=error)
    ours = "Test error of the last weights, mean over repeats." if error else ACCURACY
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn
    st.dataframe(
        shown.drop(columns=["recipe"]).style.map(colour, subset=["difference"]).format(na_rep="–"),
        hide_index=True,
        placeholder="–",
        height="content" if len(frame) <= MOST_ROWS else "auto",
        key=f"{at}.table",
        column_order=[*(["open"] if frame["recipe"].notna().any() else []), *_columns(shown)],
        column_config={
            "open": st.column_config.ButtonColumn(
                "",
                help=f"Open in {page}: the settings of this row, ready to run.",
                width="small",
                type="tertiary",
                key=at,
                on_click=_open,
                args=(at, recipes),
            ),
            "title": text("Experiment", width=TITLE_WIDTH),
            "place": text("Place", width="small"),
            "reported": number("Reported error (%)" if error else "Reported (%)", format="%.2f"),
            "reported_spread": number("± sd (paper)", format="%.2f"),
            "ours": number("Ours (%)", format="%.2f", help=ours),
            "spread": number("± sd", format="%.2f", help="Standard deviation over seeds, in points."),
            "seeds": number("Repeats" if error else "Seeds", format="%d"),
            "difference": number("Difference", format="%+.2f", help="Ours minus reported, in points."),
            "epsilon_claimed": text("Claimed ε", alignment="right", help="As the paper prints it."),
            "epsilon_sound": text(
                "Sound ε", alignment="right", help=A_PERSON if error else "Tight accounting of every use of the data."
            ),
            "note": text("Note", width="large"),
        },
    )


def _columns(frame: pd.DataFrame) -> list[str]:
    """The columns that say something in this table."""
    runnable = ("ours", "epsilon_sound") if frame["recipe"].notna().any() else ()
    known = [name for name in frame.columns if frame[name].replace(("", "–"), None).notna().any()]
    return [name for name in frame.columns if name not in ("open", "recipe") and name in (*known, *runnable)]


def _open(at: str, recipes: tuple[str | None, ...]) -> None:
    """Hand the clicked row's recipe to the page that runs it; the page switches once the callback is over."""
    click = st.session_state[at]
    recipe = recipes[click["row"]] if click is not None else None
    if recipe is not None:
        hand_over(RecipeHandover(recipe))
        st.session_state[GO] = "pages/local.py" if recipe in LOCAL_RECIPES else "pages/train.py"


def go() -> None:
    """Switch pages if a row was opened; a callback may not do it itself."""
    if page := st.session_state.pop(GO, None):
        st.switch_page(page)


def left_open(paper: Paper) -> None:
    """What the paper leaves open and what was chosen, and doubts about its numbers."""
    recipes: tuple[Recipe | LocalRecipe, ...] = (*recipes_of(paper.name), *local_recipes_of(paper.name))
    values = {value: None for recipe in recipes for value in recipe.open_values}
    if values:
        with st.expander(f"What the paper leaves open, and what was chosen ({len(values)})"):
            st.markdown("\n".join(f"- **{v.what}**: {v.chosen}. {_sentence(v.why)}" for v in values))
    if paper.tried:
        with st.expander(f"What was tried where our numbers differ ({len(paper.tried)})"):
            st.markdown("\n".join(f"- {line}" for line in paper.tried))
    with st.expander(f"Doubts about its numbers ({len(paper.doubts)})"):
        st.markdown("\n".join(f"- {doubt}" for doubt in paper.doubts))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


# --- what holds ---------------------------------------------------------------------------------------------------


def what_holds(paper: Paper) -> None:
    """Each claim with the verdict of its check, which runs now."""
    found, _ = results()
    for claim, finding in findings(claims_of(paper.name), found):
        _claim(claim, finding)
    st.caption("Every verdict is worked out by a function of dpviz when this page is drawn, not written down.")


def _claim(claim: Claim, finding: Finding) -> None:
    with st.container(border=True):
        st.markdown(
            f":{COLOURS[finding.verdict]}-badge[{ICONS[finding.verdict]} {finding.verdict}] **{claim.text}** "
            f":gray[:small[{claim.place}]]"
        )
        st.markdown(finding.text)


def warnings() -> None:
    """Cached runs that could not be used."""
    show_warnings(results()[1])
