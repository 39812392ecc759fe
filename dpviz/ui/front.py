"""Streamlit's own files, handed out at once, and the browser told early which of them a page will need.

Streamlit sends each file through a pool of threads, which on a fresh server wait for the warm-up; and a browser asks
for a widget's script only once the page wants to show the widget. Nothing here needs Streamlit to be loaded.
"""

from __future__ import annotations

import importlib.util
import mimetypes
import os
import re
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dpviz.ui.places import places
from dpviz.ui.request_guard import host_name

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


def _streamlit() -> Path:
    """Streamlit's folder, found without loading it."""
    spec = importlib.util.find_spec("streamlit")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("streamlit is not installed: pip install -r requirements.txt")
    return Path(spec.origin).parent


PAGE = _streamlit() / "static" / "index.html"  # the text of every page
STATIC = PAGE.parent / "static"
AHEAD = Path(__file__).with_name("ahead.js").read_text(encoding="utf-8")
SCRIPTS = "/static/js/"
SWIFT = 0.0005  # seconds that a busy thread works before it lets others run
FOREVER = "public, immutable, max-age=31536000"  # what Streamlit says of them, too: their names change with them
HOME = ("BidiComponent",)  # what the editor needs; the rest of the home page comes after it
NAMED = re.compile(r'"\.(/static/js/[\w.-]+\.js)"')  # in the text of every page
NEEDS = re.compile(r'(?:from|import)"\./([\w.-]+\.js)"')


class Front:
    """Stands before Streamlit: answers for its files and for the pages, lets everything else through."""

    heard = 0.0  # when a browser last said something, on the clock of time.monotonic

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = None) -> None:
        """With `hosts`, requests under other names are let through: whoever stands behind decides about them."""
        self.app, self.hosts = app, hosts
        self.files = _files()
        self.pages = {f"/{place.url_path}" for place in places()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Only what was found when the server started is a file here: no address leads out of the folder."""
        if scope["type"] != "http":
            await self.app(scope, _noting(receive), send)
        elif scope["method"] != "GET" or not self._knows(scope):
            await self.app(scope, receive, send)
        elif scope["path"] in self.files:
            file = self.files[scope["path"]]
            await _send(file.read_bytes(), mimetypes.guess_type(file.name)[0], FOREVER, send)
        elif scope["path"] in self.pages:
            await _send(page_text().encode(), "text/html; charset=utf-8", "no-cache", send)
        else:
            await self.app(scope, receive, send)

    def _knows(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        asked = host_name(headers.get(b"host", b"").decode("latin-1"))
        return self.hosts is None or (asked in self.hosts and b"origin" not in headers)


@cache
def _files() -> dict[str, Path]:
    """Streamlit's files by their addresses."""
    folders = (folder for folder in STATIC.iterdir() if folder.is_dir())
    return {f"/static/{folder.name}/{name}": folder / name for folder in folders for name in os.listdir(folder)}


@cache
def page_text() -> str:
    """The text of every page; after the scripts that it names itself come those of the editor.

    The script for figures is not among them: it takes a browser a second to run, so ahead.js picks the moment.
    """
    text = PAGE.read_text(encoding="utf-8")
    named = set(NAMED.findall(text))
    others = {path: file for path, file in _files().items() if path not in named}
    scripts = needed([path for widget in HOME if (path := script(widget))], others)
    links = "".join(f'<link rel="modulepreload" crossorigin href=".{path}">' for path in scripts)
    figures = script("PlotlyChart")
    ahead = f'<script type="module">const figures = ".{figures}";\n{AHEAD}</script>' if figures else ""
    return text.replace("</head>", f"{links}{ahead}</head>", 1)


def _noting(receive: Receive) -> Receive:
    async def note() -> Message:
        message = await receive()
        Front.heard = time.monotonic()
        return message

    return note


@contextmanager
def files_first() -> Iterator[None]:
    """While a thread loads something: it gives way often, so that a browser's files do not wait for it."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWIFT)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def script(widget: str) -> str | None:
    """The address of a widget's script, whatever this version of Streamlit calls it."""
    found = next((STATIC / "js").glob(f"{widget}.*.js"), None)
    return f"{SCRIPTS}{found.name}" if found else None


def needed(scripts: Iterable[str], files: Mapping[str, Path]) -> list[str]:
    """These scripts and, each once, those of the files that they import in turn: the nearest first."""
    found = dict.fromkeys(path for path in scripts if path in files)
    waiting = deque(found)
    while waiting:
        imports = NEEDS.findall(files[waiting.popleft()].read_text(encoding="utf-8"))
        new = [path for name in imports if (path := SCRIPTS + name) in files and path not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)


async def _send(content: bytes, kind: str | None, keep: str, send: Send) -> None:
    headers = {
        "content-type": kind or "application/octet-stream",
        "content-length": len(content),
        "cache-control": keep,
    }
    named = [(name.encode(), str(value).encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": 200, "headers": named})
    await send({"type": "http.response.body", "body": content})
