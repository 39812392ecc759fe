"""The shell around every page: the navigation, the warm-up, and the way in."""

from __future__ import annotations

import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from dpviz.ui.common.auth import person, sign_out_button
from dpviz.ui.common.base_path import BasePathAnswer
from dpviz.ui.common.navigation import PAGES
from dpviz.ui.common.request_guard import RequestGuard

ICON, LOGO = (Path(__file__).with_name(name) for name in ("icon.svg", "logo.svg"))
# White on a primary colour that is bright enough to read on black is too pale; Streamlit has no setting for it.
STYLE = "<style>[kind='primary'] { color: light-dark(#fff, #0b1018); }</style>"
ROUTED = "routed"  # in the session once it came through the navigation


def run() -> None:
    """Show the navigation and run the page that was asked for."""
    st.session_state[ROUTED] = True
    page = _navigation()
    # A picture of ours, and none beside the pages' names: emoji would cost the first page a quarter of a second,
    # symbols a request to another host.
    st.set_page_config(f"{page.title} · dpviz", page_icon=ICON, layout="wide", initial_sidebar_state="auto")
    st.logo(LOGO)
    st.html(STYLE)
    person()
    sign_out_button()
    page.run()
    # After the page, so that the first one need not wait for what is imported here.
    from dpviz.ui.common.announce import announce_ends

    announce_ends()
    _load_compare()


def middleware() -> list[Middleware]:
    """What stands before Streamlit on the server."""
    return [
        Middleware(RequestGuard, option=st.get_option, locked=_locked),
        Middleware(BasePathAnswer, option=st.get_option),
    ]


def _locked() -> str:
    from dpviz.training.limits import read_only  # here, so that the server answers before the accountant is loaded

    return read_only()


@asynccontextmanager
async def warm_up(_: st.App) -> AsyncIterator[None]:
    """Load what the first page needs while the first browser is still fetching Streamlit's own files."""
    threading.Thread(target=_load_schedule, name="warm-up", daemon=True).start()
    yield


def _load_schedule() -> None:
    from dpviz.ui.schedule import page

    page.prepare()


@st.cache_resource(show_spinner=False)
def _load_compare() -> None:
    """Once per server, a second after its first page, whose files would have to wait for it otherwise."""

    def load() -> None:
        from dpviz.ui.compare import data

        data.prepare()
        # What is loaded now stays for good: without it a later collection, which stops every session, is short.
        gc.collect()
        gc.freeze()

    timer = threading.Timer(1.0, load)
    timer.daemon = True
    timer.start()


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
    pages = [st.Page(page.path, title=page.title, url_path=page.url_path, default=not page.url_path) for page in PAGES]
    return st.navigation(pages, position="top")
