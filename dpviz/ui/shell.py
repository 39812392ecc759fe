"""The shell around every page: which pages there are, and the way in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from dpviz.ui.people import person, sign_out_button

ROOT = Path(__file__).parents[2]
ROUTED = "routed"  # in the session once it came through the navigation


@dataclass(frozen=True)
class Place:
    """A page: its script, its name in the navigation, an emoji, and its address (empty: the home page)."""

    script: str
    title: str
    icon: str
    url_path: str = ""

    @property
    def path(self) -> Path:
        return ROOT / self.script


PLACES = (
    Place("pages/schedule.py", "Schedule", "✏️"),
    Place("pages/train.py", "Train", "▶️", "train"),
    Place("pages/compare.py", "Compare", "⚖️", "compare"),
    Place("pages/gradients.py", "Gradients", "↘️", "gradients"),
    Place("pages/papers.py", "Papers", "✒️", "papers"),
    Place("pages/local.py", "Local privacy", "☂️", "local"),
    Place("pages/guide.py", "Guide", "ℹ️", "guide"),
)


def places() -> tuple[Place, ...]:
    """The pages whose scripts are there."""
    return tuple(place for place in PLACES if place.path.exists())


def run() -> None:
    """Show the navigation and run the page that was asked for."""
    # The page's own title comes first in the browser's tab; an emoji needs no font from another host.
    st.set_page_config(page_icon="✏️", layout="wide", initial_sidebar_state="auto")
    st.session_state[ROUTED] = True
    page = _navigation()
    person()
    sign_out_button()
    page.run()


def ensure_navigation() -> None:
    """The first line of every page: come in through app.py, and be signed in where that is asked for.

    Streamlit runs a script in a folder named pages on its own when its address is the first one that a fresh server is
    asked for. Calling `st.navigation` ends that for the whole server; then the run starts again, this time from app.py.
    """
    if not st.session_state.get(ROUTED):
        st.session_state[ROUTED] = True
        _navigation()
        st.rerun()
    person()


def _navigation() -> st.Page:
    pages = [
        st.Page(place.path, title=place.title, icon=place.icon, url_path=place.url_path, default=not place.url_path)
        for place in places()
    ]
    return st.navigation(pages, position="top")
