"""A browser's side of Streamlit's protocol, without a browser: pages are opened, widgets set and pressed, deltas read.

Messages are those of the installed Streamlit (`streamlit.proto`). A client learns every id, page and fragment from what
the server sends. Like a browser it keeps large messages, so that the server need not send them twice, and reruns the
fragments that ask for it. It draws nothing: what is measured is the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.Common_pb2 import FileURLs, UploadedFileInfo
from streamlit.proto.Element_pb2 import Element
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.proto.WidgetStates_pb2 import WidgetState
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin, Subprotocol

from dpviz.privacy.registry import InputError
from dpviz.ui.common.request_guard import LOOPBACK

PATIENCE = 60.0  # seconds until an answer that does not come is an error
XSRF = "_streamlit_xsrf"
DONE = (ForwardMsg.FINISHED_SUCCESSFULLY, ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY)


@dataclass(frozen=True)
class Shown:
    """An element on the page, the fragment and the script run that it came from."""

    element: Element
    fragment: str
    run: str

    @property
    def widget(self) -> Any:
        """The message of its own kind: a button, a slider ..."""
        return getattr(self.element, self.element.WhichOneof("type"))


@dataclass
class Kept:
    """A large message that may be sent as a reference next time, and how many runs have passed without it."""

    message: ForwardMsg
    age: int = 0


@dataclass
class StreamlitClient:
    """One session. `async with StreamlitClient(url) as client` connects; the first page comes with `open_page`."""

    url: str
    cookies: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)  # what the server said went wrong
    received: int = 0  # bytes
    session_id: str = ""

    def __post_init__(self) -> None:
        place = urlsplit(self.url)
        if place.scheme != "http" or place.hostname not in LOOPBACK:
            raise InputError(f"the address must be http:// and on this machine, got {self.url!r}")
        self._place = place.netloc
        self._shown: dict[tuple[int, ...], Shown] = {}
        self._states: dict[str, WidgetState] = {}
        self._kept: dict[str, Kept] = {}
        self._oldest = 0  # runs after which an unused message is forgotten; the server says how many
        self._pages: dict[str, str] = {}
        self._page = ""
        self._run = ""  # the script run whose messages are coming in
        self._waiting: list[tuple[Callable[[ForwardMsg], bool], asyncio.Future[None]]] = []
        self._timers: dict[str, asyncio.Task[None]] = {}

    async def __aenter__(self) -> StreamlitClient:
        for path in ("/", "/_stcore/health", "/_stcore/host-config"):  # what a browser asks for before it connects
            await self.request("GET", path)
        self._socket: ClientConnection = await connect(
            f"ws://{self._place}/_stcore/stream",
            origin=Origin(self.url),
            subprotocols=[Subprotocol("streamlit"), Subprotocol(self.cookies.get(XSRF, "none"))],
            additional_headers={"Cookie": self._cookie_header},
            max_size=None,
            ping_interval=None,
            open_timeout=PATIENCE,
        )
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stop_timers()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        await self._socket.close()

    # --- requests beside the web socket

    @property
    def _cookie_header(self) -> str:
        return "; ".join(f"{name}={value}" for name, value in self.cookies.items())

    async def request(self, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
        """A request with the session's cookies; those of the answer are kept."""
        return await asyncio.to_thread(self._request, method, path, body, headers)

    def _request(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
        connection = http.client.HTTPConnection(self._place, timeout=PATIENCE)
        with contextlib.closing(connection):
            known = {"Cookie": self._cookie_header, "Origin": self.url}
            connection.request(method, path, body or None, {**known, **headers})
            answer = connection.getresponse()
            content = answer.read()
        for line in answer.headers.get_all("Set-Cookie") or ():
            name, _, value = line.partition(";")[0].partition("=")
            self.cookies[name.strip()] = value.strip()
        if answer.status >= 400:
            raise InputError(f"{method} {path} was answered with {answer.status}: {content[:200]!r}")
        return content

    async def upload(self, label: str, name: str, data: bytes) -> None:
        """Give a file to an uploader, as its widget does: ask for an address, put the file there, tell the script."""
        message = BackMsg()
        message.file_urls_request.request_id = asked = uuid.uuid4().hex
        message.file_urls_request.file_names.append(name)
        message.file_urls_request.session_id = self.session_id
        found: list[FileURLs] = []

        def answered(reply: ForwardMsg) -> bool:
            if reply.file_urls_response.response_id == asked:
                found.extend(reply.file_urls_response.file_urls)
            return bool(found)

        async with self.until(answered):
            await self._send(message)
        boundary = uuid.uuid4().hex
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{name}"\r\n\r\n'
        body = head.encode() + data + f"\r\n--{boundary}--\r\n".encode()
        content_type = f"multipart/form-data; boundary={boundary}"
        headers = {"Content-Type": content_type, "X-Xsrftoken": self.cookies.get(XSRF, "")}
        await self.request("PUT", found[0].upload_url, body, **headers)
        shown = self.find("file_uploader", label)
        state = WidgetState(id=shown.widget.id)
        info = UploadedFileInfo(name=name, size=len(data), file_id=found[0].file_id, file_urls=found[0])
        state.file_uploader_state_value.uploaded_file_info.append(info)
        await self._change(shown, state)

    # --- what a person does

    async def open_page(self, title: str = "") -> None:
        """Go to a page by its name in the navigation; the first page needs none. Returns when the script has ended."""
        if title:
            self._page = self._pages[title]
            self._stop_timers()
        async with self.until_done():
            await self._rerun()

    async def press(self, label: str) -> None:
        shown = self.find("button", label)
        await self._rerun(WidgetState(id=shown.widget.id, trigger_value=True), fragment=shown.fragment)

    async def type_number(self, label: str, value: float) -> None:
        shown = self.find("number_input", label)
        await self._change(shown, WidgetState(id=shown.widget.id, double_value=value))

    async def choose(self, kind: str, label: str, option: str) -> None:
        """One option of a `selectbox` or of a slider of options (`slider`)."""
        shown = self.find(kind, label)
        state = WidgetState(id=shown.widget.id)
        if kind == "selectbox":
            state.string_value = option
        else:
            state.string_array_value.data.append(option)
        await self._change(shown, state)

    async def set_component(self, name: str, json: str) -> None:
        """Another state of a component of the page, as its JavaScript would set it."""
        shown = self.find("bidi_component", name)
        await self._change(shown, WidgetState(id=shown.widget.id, json_value=json))

    def find(self, kind: str, label: str) -> Shown:
        """The first element of a kind with this label, or component of this name, that is on the page."""
        for shown in self._shown.values():
            if shown.element.WhichOneof("type") == kind and _label(shown.widget) == label:
                return shown
        raise LookupError(f"there is no {kind} {label!r} on the page")

    def texts(self) -> str:
        """Everything that the page says in paragraphs, boxes, toasts and progress bars."""
        kinds = {
            "markdown": "body",
            "alert": "body",
            "text": "body",
            "code": "code_text",
            "toast": "body",
            "progress": "text",
        }
        shown = [(one, kinds.get(one.element.WhichOneof("type") or "")) for one in self._shown.values()]
        return "\n".join(getattr(one.widget, field) for one, field in shown if field)

    # --- waiting

    @contextlib.asynccontextmanager
    async def until(self, came: Callable[[ForwardMsg], bool]) -> Any:
        """What is done inside is answered by a message for which `came` is true; ends when that has arrived."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (came, future)
        self._waiting.append(entry)
        try:
            yield
            await asyncio.wait_for(future, PATIENCE)
        finally:
            self._waiting.remove(entry)

    def until_done(self, fragment: str = "") -> Any:
        """What is done inside reruns the script, or one fragment of it; ends when that run has.

        Of a fragment that is rerun while another one waits for its turn the server may not say so: where fragments
        rerun by themselves, wait for what the run is to show.
        """

        def done(message: ForwardMsg) -> bool:
            if message.WhichOneof("type") != "script_finished" or message.script_finished not in DONE:
                return False
            ran = message.metadata.run.fragment_ids
            return fragment in ran if fragment else not ran

        return self.until(done)

    # --- messages

    async def _change(self, shown: Shown, state: WidgetState) -> None:
        self._states[state.id] = state
        await self._rerun(fragment=shown.fragment)

    async def _rerun(self, trigger: WidgetState | None = None, *, fragment: str = "", auto: bool = False) -> None:
        message = BackMsg()
        rerun = message.rerun_script
        rerun.widget_states.widgets.extend(self._states.values())
        if trigger is not None:
            rerun.widget_states.widgets.append(trigger)
        rerun.page_script_hash, rerun.fragment_id, rerun.is_auto_rerun = self._page, fragment, auto
        rerun.cached_message_hashes.extend(self._kept)
        rerun.context_info.url, rerun.context_info.timezone = self.url, "UTC"
        rerun.context_info.locale = "en"
        await self._send(message)

    async def _send(self, message: BackMsg) -> None:
        await self._socket.send(message.SerializeToString())

    async def _read(self) -> None:
        try:
            async for data in self._socket:
                assert isinstance(data, bytes)
                self.received += len(data)
                message = ForwardMsg.FromString(data)
                self._take(message)
                for came, future in self._waiting:
                    if not future.done() and came(message):
                        future.set_result(None)
            closed = "the server closed the connection"
        except ConnectionClosed as error:
            closed = f"the connection broke: {error}"
        self.errors.append(closed)
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(ConnectionError(closed))

    def _take(self, message: ForwardMsg) -> None:
        kind = message.WhichOneof("type")
        if kind == "ref_hash":
            kept = self._kept[message.ref_hash]
            kept.age = 0
            message.delta.CopyFrom(kept.message.delta)  # the metadata are the reference's own
            kind = "delta"
        elif message.metadata.cacheable:
            self._kept[message.hash] = Kept(message)
        if kind == "delta":
            self._take_delta(message)
        elif kind == "new_session":
            self.session_id = message.new_session.initialize.session_id
            self._run = message.metadata.run.script_run_id
            self._oldest = message.new_session.config.max_cached_message_age
            if not message.metadata.run.fragment_ids:
                self._stop_timers()
        elif kind == "navigation":
            self._pages = {page.page_name: page.page_script_hash for page in message.navigation.app_pages}
            self._page = message.navigation.page_script_hash
        elif kind == "auto_rerun":
            self._start_timer(message.auto_rerun.fragment_id, message.auto_rerun.interval)
        elif kind == "stop_auto_rerun":
            self._stop_timers(*message.stop_auto_rerun.fragment_ids)
        elif kind == "script_finished":
            self._clear_stale(message)

    def _take_delta(self, message: ForwardMsg) -> None:
        if message.delta.WhichOneof("type") != "new_element":
            return
        element = message.delta.new_element
        path = tuple(message.metadata.delta_path)
        self._shown[path] = Shown(element, message.delta.fragment_id, self._run)
        if element.WhichOneof("type") == "exception":
            self.errors.append(f"an exception on the page: {element.exception.type} {element.exception.message[:200]}")

    def _clear_stale(self, message: ForwardMsg) -> None:
        """After a whole run, what it did not send is gone; after a fragment's, what is left in it from before."""
        status, run = message.script_finished, message.metadata.run
        if status == ForwardMsg.FINISHED_WITH_COMPILE_ERROR:
            self.errors.append("the script has a compile error")
        if status not in DONE:
            return
        fragments = set(run.fragment_ids)
        self._shown = {
            path: shown
            for path, shown in self._shown.items()
            if shown.run == run.script_run_id or (fragments and shown.fragment not in fragments)
        }
        here = {shown.widget.id for shown in self._shown.values() if hasattr(shown.widget, "id")}
        self._states = {id_: state for id_, state in self._states.items() if id_ in here}
        for kept in self._kept.values():
            kept.age += not fragments or kept.message.delta.fragment_id in fragments
        self._kept = {name: kept for name, kept in self._kept.items() if kept.age <= self._oldest + 1}

    # --- fragments that rerun by themselves

    def _start_timer(self, fragment: str, seconds: float) -> None:
        if fragment in self._timers:
            self._timers[fragment].cancel()
        self._timers[fragment] = asyncio.create_task(self._repeat(fragment, seconds))

    def _stop_timers(self, *fragments: str) -> None:
        """Those of these fragments; of all without any."""
        for fragment in [name for name in self._timers if name in fragments or not fragments]:
            self._timers.pop(fragment).cancel()

    async def _repeat(self, fragment: str, seconds: float) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                await asyncio.sleep(seconds)
                await self._rerun(fragment=fragment, auto=True)


def _label(widget: Any) -> str:
    return str(getattr(widget, "label", "") or getattr(widget, "component_name", ""))
