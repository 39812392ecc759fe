"""The dashboard's server, `python -m dpviz.serve`: it listens at once and loads Streamlit while a browser loads a page.

`streamlit run app.py` serves the same pages; there the browser can only start once Streamlit is loaded.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from dpviz.ui.front import Front, files_first
from dpviz.ui.places import ROOT
from dpviz.ui.request_guard import LOOPBACK

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from starlette.types import ASGIApp, Receive, Scope, Send
    from streamlit.web.server.starlette import App

PING = 30.0  # seconds between two signs of life to a browser, as Streamlit has it

Loaded = tuple["App", Callable[["App"], "AbstractAsyncContextManager[None]"]]  # an application and its lifespan


class Later:
    """An application that is still being loaded, in a thread: who asks for it waits until it is there."""

    app: asyncio.Future[ASGIApp]

    def __init__(self, load: Callable[[], Loaded]) -> None:
        self.load = load
        self.error: Exception | None = None
        self.on_error: Callable[[], None] = lambda: None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            app = await asyncio.shield(self.app)
            await app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()  # startup
        self.app = asyncio.get_running_loop().create_future()
        leaving = asyncio.Event()
        life = asyncio.create_task(self._load(leaving))
        await send({"type": "lifespan.startup.complete"})
        await receive()  # shutdown
        leaving.set()
        await life
        await send({"type": "lifespan.shutdown.complete"})

    async def _load(self, leaving: asyncio.Event) -> None:
        try:
            app, lifespan = await asyncio.to_thread(self.load)
            async with lifespan(app):
                self.app.set_result(app)
                await leaving.wait()
        except Exception as error:
            self.error = error
            self.app.cancel()
            self.on_error()


def dashboard(host: str, port: int, names: Sequence[str] = ()) -> Loaded:
    """What app.py serves, told where it is served: sign-in sends people back there. Loading it takes a second."""
    with files_first():
        from streamlit.components.v2 import manifest_scanner
        from streamlit.web.bootstrap import load_config_options

        from app import app

        options = {"server.address": host, "server.port": port}
        load_config_options(options | ({"server.allowedHosts": [*LOOPBACK, host, *names]} if names else {}))

        # The dashboard's components are its own: no need to read what a hundred packages say of themselves.
        manifest_scanner.scan_component_manifests = lambda: []
        return app, app.lifespan()


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until stopped; 0 then, 2 with one line on standard error when the address cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m dpviz.serve", description="Serve the dashboard.")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; the default is this machine only")
    parser.add_argument("--port", type=int, default=8501, help="0: any that is free")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="another name that browsers reach it by"
    )
    args = parser.parse_args(arguments)
    try:
        if not 0 <= args.port < 2**16:
            raise OSError("ports go from 0 to 65535")
        family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
        listening = socket.create_server((args.host, args.port), family=family)
    except OSError as error:
        print(f"dpviz: cannot listen on {args.host} port {args.port}: {error.strerror or error}", file=sys.stderr)
        return 2
    port = listening.getsockname()[1]
    name = f"[{args.host}]" if ":" in args.host else args.host
    print(f"dpviz is at http://{name}:{port} (Ctrl-C ends it)", flush=True)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy's other threads would only wait, busily
    sys.path.insert(0, str(ROOT))
    return serve(Later(partial(dashboard, args.host, port, args.allow_host)), listening, (*LOOPBACK, args.host))


def serve(app: Later, listening: socket.socket, hosts: Sequence[str] = LOOPBACK) -> int:
    """Answer on this socket until stopped; an application that cannot be loaded ends it with its error."""
    for name in ("uvicorn.access", "uvicorn.error"):  # Streamlit lets them tell of every file
        logging.getLogger(name).addFilter(lambda record: record.levelno >= logging.WARNING)
    config = uvicorn.Config(
        Front(app, hosts),
        log_config=None,
        ws="websockets-sansio",
        ws_ping_interval=PING,
        ws_ping_timeout=PING,
        ws_per_message_deflate=False,
    )
    server = uvicorn.Server(config)
    app.on_error = lambda: setattr(server, "should_exit", True)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
    if app.error is not None:
        raise app.error
    return 0


if __name__ == "__main__":
    sys.exit(main())
