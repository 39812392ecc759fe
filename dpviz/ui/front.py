"""Streamlit's own files, handed out at once, and the browser told early which of them a page will need.

Streamlit sends each file through a pool of threads, which on a fresh server wait for the warm-up; and a browser asks
for a widget's script only once the page wants to show the widget.
"""

from __future__ import annotations

import mimetypes
import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

STATIC = Path(streamlit.__file__).parent / "static" / "static"
SCRIPTS = "/static/js/"
FOREVER = b"public, immutable, max-age=31536000"  # what Streamlit says of them, too: their names change with them
HOME = ("BidiComponent", "Selectbox", "NumberInput", "TextInput", "Button", "Metric")  # the home page's widgets
NAMED = re.compile(r'"\.(/static/js/[\w.-]+\.js)"')  # in the text of every page
NEEDS = re.compile(r'(?:from|import)"\./([\w.-]+\.js)"')


class Front:
    """Stands before Streamlit: answers for its files, lets everything else through."""

    heard = 0.0  # when a browser last said something, on the clock of time.monotonic

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        folders = (folder for folder in STATIC.iterdir() if folder.is_dir())
        self.files = {
            f"/static/{folder.name}/{name}": folder / name for folder in folders for name in os.listdir(folder)
        }
        named = set(NAMED.findall((STATIC.parent / "index.html").read_text(encoding="utf-8")))
        others = {path: file for path, file in self.files.items() if path not in named}
        early = needed([path for widget in HOME if (path := script(widget))], others)
        self.link = ", ".join(f"<.{path}>; rel=modulepreload" for path in early).encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only what was found when the server started is a file here: no address leads out of the folder."""
        if scope["type"] != "http":
            await self.app(scope, _noting(receive), send)
        elif scope["method"] == "GET" and scope["path"] in self.files:
            await _send_file(self.files[scope["path"]], send)
        else:
            await self.app(scope, receive, self._announcing(send))

    def _announcing(self, send: Send) -> Send:
        """The same, with the home page's scripts named in the head of each HTML answer."""

        async def announce(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                if any(name == b"content-type" and value.startswith(b"text/html") for name, value in headers):
                    message = {**message, "headers": [*headers, (b"link", self.link)]}
            await send(message)

        return announce


def _noting(receive: Receive) -> Receive:
    async def note() -> Message:
        message = await receive()
        Front.heard = time.monotonic()
        return message

    return note


def script(widget: str) -> str | None:
    """The address of a widget's script, whatever this version of Streamlit calls it."""
    found = next((STATIC / "js").glob(f"{widget}.*.js"), None)
    return f"{SCRIPTS}{found.name}" if found else None


def needed(scripts: Iterable[str], files: dict[str, Path]) -> list[str]:
    """These scripts and, each once, those of the files that they import in turn."""
    found: dict[str, None] = {}
    waiting = list(scripts)
    while waiting:
        path = waiting.pop()
        if path in files and path not in found:
            found[path] = None
            waiting += [SCRIPTS + name for name in NEEDS.findall(files[path].read_text(encoding="utf-8"))]
    return list(found)


async def _send_file(file: Path, send: Send) -> None:
    content = file.read_bytes()
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(content)).encode()),
        (b"cache-control", FOREVER),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": content})
