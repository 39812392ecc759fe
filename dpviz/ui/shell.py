"""The shell around every page: the navigation, the warm-up, and the way in."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from dpviz.training.limits import read_only
from dpviz.ui.front import Front, files_first
from dpviz.ui.people import person, sign_out_button
from dpviz.ui.places import places
from dpviz.ui.request_guard import RequestGuard

ICON = Path(__file__).with_name("icon.svg")
QUIET = 3.0  # seconds without a word from any browser, then comes the other pages' turn
ROUTED = "routed"  # in the session once it came through the navigation


def run() -> None:
    """Show the navigation and run the page that was asked for."""
    # A picture of ours, and none beside the pages' names: emoji would cost the first page a quarter of a second,
    # symbols a request to another host.
    st.set_page_config(page_icon=ICON, layout="wide", initial_sidebar_state="auto")
    st.session_state[ROUTED] = True
    page = _navigation()
    person()
    sign_out_button()
    page.run()


def front() -> list[Middleware]:
    """What stands before Streamlit on the server."""
    return [Middleware(RequestGuard, option=st.get_option, locked=read_only), Middleware(Front)]


@asynccontextmanager
async def warm_up(_: st.App) -> AsyncIterator[None]:
    """Load what the home page needs while the first browser is still fetching Streamlit's own files, then the rest."""
    threading.Thread(target=_load_pages, name="warm-up", daemon=True).start()
    yield


def _load_pages() -> None:
    _load_home()
    Front.heard = time.monotonic()
    while time.monotonic() < Front.heard + QUIET:
        time.sleep(QUIET / 10)
    from dpviz.ui import compare

    compare.prepare()


def _load_home() -> None:
    with files_first():
        from PIL import Image  # for the icon

        from dpviz.ui.schedule_page import prepare

        Image.preinit()
        prepare()


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
        st.Page(place.path, title=place.title, url_path=place.url_path, default=not place.url_path)
        for place in places()
    ]
    return st.navigation(pages, position="top")
