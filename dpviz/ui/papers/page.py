"""The parts of the Papers page."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dpviz.papers import PAPERS, Paper, local_recipes_of, recipes_of
from dpviz.papers.claims import claims_of
from dpviz.papers.records import VERDICTS, Claim, Finding, LocalRecipe, Recipe
from dpviz.privacy.audit import CANNOT_SHOW
from dpviz.runs.experiments import Measured, findings, measured
from dpviz.ui.common.runs import cached, cached_local, show_warnings
from dpviz.ui.papers.results_table import results_table
from dpviz.views.ideas import idea_figure
from dpviz.views.papers import (
    FROM_TEXT,
    MARKS_KEY,
    NONE,
    OURS_ONLY,
    agreement,
    forest_figure,
    pairs_frame,
    pairs_words,
    table_frames,
)

STILL = {"displayModeBar": False}
CHOICE, ADDRESS = "papers.paper", "papers.address"  # in the session: what is chosen, and what the address says
MOST_ROWS = 24  # longer tables are folded
COLOURS = dict(zip(VERDICTS, ("green", "orange", "red", "blue", "gray"), strict=True))
ICONS = dict(zip(VERDICTS, ("✓", "◐", "✗", "?", "…"), strict=True))


def choose_paper() -> Paper:
    """Which paper to look at; the address says it too (?paper=screening), also after going back."""
    state, asked = st.session_state, st.query_params.get("paper", "")
    if asked in PAPERS and asked != state.get(ADDRESS):
        state[CHOICE] = asked
    elif CHOICE not in state:
        state[CHOICE] = state.get(ADDRESS, next(iter(PAPERS)))
    name = st.segmented_control(
        "Paper",
        list(PAPERS),
        format_func=lambda name: PAPERS[name].short_title,
        key=CHOICE,
        label_visibility="collapsed",
        required=True,
    )
    state[ADDRESS] = st.query_params["paper"] = name or next(iter(PAPERS))
    return PAPERS[state[ADDRESS]]


def place_of(paper: Paper) -> DeltaGenerator:
    """Every paper has a place of its own, and the others are emptied at once: no old row waits for the new ones."""
    return {name: st.empty() for name in PAPERS}[paper.name].container()


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
    frames = table_frames(paper.name, results()[0])
    error = bool(local_recipes_of(paper.name))
    if error or recipes_of(paper.name):
        page = "Local privacy" if error else "Train"
        st.markdown(agreement(frames.values()))
        audited = any((frame["epsilon_audited"] != NONE).any() for frame in frames.values())
        st.caption(
            f"{MARKS_KEY}. ± is the standard deviation over seeds. A name opens the experiment in {page}."
            + (f" Audited ε is what an audit of our run leaves to it, at least. {CANNOT_SHOW}" if audited else "")
        )
    for index, (heading, frame) in enumerate(frames.items()):
        folded = heading in (OURS_ONLY, FROM_TEXT) or len(frame) > MOST_ROWS
        with st.expander(f"{heading} ({len(frame)})", expanded=index == 0 or not folded):
            st.html(results_table(frame, error=error))
    left_open(paper)


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
        if finding.pairs:
            figure = forest_figure(pairs_frame(finding.pairs))
            st.plotly_chart(figure, alt=pairs_words(finding.pairs), config=STILL, key=f"pairs.{claim.name}")


def warnings() -> None:
    """Cached runs that could not be used."""
    show_warnings(results()[1])
