"""Streamlit's search for the path it is served under, answered without an error.

A page that is opened by its own address, such as /train, makes Streamlit ask for /train/_stcore/health first: the
dashboard might be served under /train. It takes any answer but a success for a no and asks for /_stcore/health next.
A 404 is a no, but browsers report it as an error on every page (https://github.com/streamlit/streamlit/issues/7074).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from dpviz.ui.common.navigation import PAGES

QUESTIONS = ("_stcore/health", "_stcore/host-config")
ELSEWHERE = 300  # Multiple Choices: neither a success nor an error, and without a Location nobody is sent anywhere


class BasePathAnswer:
    """Names the right address to whoever asks below a page's address; `option` reads a setting of Streamlit's."""

    def __init__(self, app: ASGIApp, option: Callable[[str], Any]) -> None:
        self.app = app
        base = f"/{str(option('server.baseUrlPath') or '').strip('/')}".rstrip("/")
        pages = [place.url_path for place in PAGES if place.url_path]
        self.right = {f"{base}/{page}/{asked}": f"{base}/{asked}" for page in pages for asked in QUESTIONS}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        right = self.right.get(scope["path"]) if scope["type"] == "http" else None
        answer = PlainTextResponse(f"{right}\n", ELSEWHERE) if right else self.app
        await answer(scope, receive, send)
