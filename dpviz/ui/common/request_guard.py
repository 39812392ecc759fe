"""Which requests the server answers: known host names and origins only, and no uploads where nothing may be changed.

A page on another site can make its own name point to this machine (DNS rebinding); a browser then takes this server's
answers for that site's. The name stays in the request's Host header, so that is where it is caught. Streamlit compares
names with `server.allowedHosts` for web sockets only; here the same setting holds for every request.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = ("localhost", "127.0.0.1", "::1")
EVERY_ADDRESS = ("0.0.0.0", "::")
UPLOADS = "/_stcore/upload_file/"  # Streamlit's own address for files, after whatever path comes before it


class RequestGuard:
    """Stands before everything else; `option` reads a setting of Streamlit's, `locked` says why nothing may change."""

    def __init__(self, app: ASGIApp, option: Callable[[str], Any], locked: Callable[[], str]) -> None:
        self.app, self.option, self.locked = app, option, locked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        why = self.refusal(scope) if scope["type"] in ("http", "websocket") else ""
        if why:
            await PlainTextResponse(f"{why}\n", 403)(scope, receive, send)
        else:
            await self.app(scope, receive, send)

    def refusal(self, scope: Scope) -> str:
        """Why this request is not answered, in one sentence; empty if it is."""
        headers = Headers(scope=scope)
        host, origin = headers.get("host", ""), headers.get("origin")
        if not host_allowed(host, self.option("server.address"), self.option("server.allowedHosts")):
            return "This server does not go by that name; its operator can add the name to server.allowedHosts."
        if not origin_allowed(origin, host, self.option("server.corsAllowedOrigins")):
            return "This server answers its own pages only; its operator can add others to server.corsAllowedOrigins."
        return self.locked() if UPLOADS in scope["path"] else ""


def host_allowed(host: str, address: str | None, listed: Sequence[str]) -> bool:
    """Whether the Host header is one of `listed`, or without a list, this machine's or the address that is served.

    `*.example.org` lists every name below example.org, `*` every name. A server of all addresses also goes by any
    number: a site that rebinds its name cannot have a number for a name.
    """
    name = host_name(host)
    if not name:
        return False
    if listed:
        patterns = [pattern.strip().lower().rstrip(".") for pattern in listed]
        return any(
            pattern in ("*", name) or (pattern.startswith("*.") and name.endswith(pattern[1:])) for pattern in patterns
        )
    return name in (*LOOPBACK, (address or "").lower()) or (address in EVERY_ADDRESS and _is_number(name))


def origin_allowed(origin: str | None, host: str, listed: Sequence[str]) -> bool:
    """Whether a page of this origin may ask: one from this host, from this machine, or listed.

    Programs send none. Streamlit checks web sockets alike, but for strangers it asks an outside host for its own
    address first, and nobody is served meanwhile.
    """
    if origin is None or origin in [entry.strip() for entry in listed]:
        return True
    scheme, _, place = origin.partition("://")
    return scheme in ("http", "https") and (place == host or host_name(place) in LOOPBACK)


def host_name(host: str) -> str:
    """The name or number in `name`, `name:port` or `[number]:port`, in small letters; empty if it is none of these."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port  # raises for what is no port
    except ValueError:
        return ""
    name = (parts.hostname or "").rstrip(".")
    return name if parts.netloc == host and "@" not in host else ""


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
