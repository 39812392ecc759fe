"""Doors of a real server: names and origins that pass and that do not, over HTTP and for web sockets; uploads."""

from __future__ import annotations

import base64
import http.client
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

from dpviz.training.limits import LIMITS
from dpviz.ui.common.request_guard import host_allowed, host_name, origin_allowed
from tests.browser import APP, _start, stop_server

NAME = "dpviz.example.org"  # what the operator allows
EVIL = "evil.example"
OWN_SERVER = (["-m", "dpviz", "app"], "--port")
STREAMLIT = (["-m", "streamlit", "run", str(APP)], "--server.port")
BOTH = pytest.mark.parametrize("way", ["own server", "streamlit"])
BOUNDARY = "a-line-between"


class Servers:
    """Servers by their settings, started when first asked for."""

    def __init__(self, folder) -> None:
        self.folder, self.processes, self.urls = folder, [], {}

    def __call__(self, way: str, *options: str, **env: str) -> str:
        asked = (way, options, *env.items())
        if asked not in self.urls:
            command, port = OWN_SERVER if way == "own server" else STREAMLIT
            log = self.folder / f"log-{len(self.urls)}.txt"
            runs = {"DPVIZ_RUNS": str(self.folder / "runs")}
            process, url = _start([*command, *options], port, runs | env, log, "/_stcore/health")
            self.processes.append(process)
            self.urls[asked] = url
        return self.urls[asked]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    servers = Servers(tmp_path_factory.mktemp("servers"))
    yield servers
    for process in servers.processes:
        stop_server(process)


def ask(url: str, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> tuple[int, str, str]:
    """Status, text and cookie of an answer; `Host` is sent as given."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode("utf-8", "replace"), answer.headers.get("Set-Cookie", "")
    finally:
        connection.close()


def handshake(url: str, host: str, origin: str | None) -> int:
    """The status that a web socket's handshake is answered with: 101 if it is opened."""
    lines = ["GET /_stcore/stream HTTP/1.1", f"Host: {host}", "Upgrade: websocket", "Connection: Upgrade"]
    lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}"]
    lines += ["Sec-WebSocket-Protocol: streamlit", *([f"Origin: {origin}"] if origin else [])]
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=30) as line:
        line.sendall("\r\n".join([*lines, "", ""]).encode())
        return int(line.recv(4096).split()[1])


# --- names and origins ------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("path", ["/", "/compare", "/_stcore/health", "/_stcore/host-config", "/static/js/none.js"])
def test_a_strange_name_is_refused_in_a_sentence(servers, way, path):
    port = urlsplit(servers(way)).port
    for host in (EVIL, f"{EVIL}:{port}", "127.0.0.1.evil.example", "localhost@evil.example", "192.0.2.7"):
        status, text, _ = ask(servers(way), path, Host=host)
        assert status == 403
        assert "server.allowedHosts" in text


@BOTH
def test_this_machines_own_names_pass(servers, way):
    port = urlsplit(servers(way)).port
    for name in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST", "localhost."):
        for host in (name, f"{name}:{port}"):
            assert ask(servers(way), "/_stcore/health", Host=host)[:2] == (200, "ok")
            assert ask(servers(way), "/", Host=host)[0] == 200
            assert handshake(servers(way), host, f"http://{host}") == 101


@BOTH
def test_a_web_socket_needs_a_known_name_and_a_known_origin(servers, way):
    own = urlsplit(servers(way)).netloc
    assert handshake(servers(way), own, None) == 101
    assert handshake(servers(way), own, f"http://{own}") == 101
    assert handshake(servers(way), EVIL, f"http://{EVIL}") == 403
    assert handshake(servers(way), EVIL, None) == 403
    assert handshake(servers(way), EVIL, f"http://{own}") == 403
    assert handshake(servers(way), own, f"http://{EVIL}") == 403
    assert handshake(servers(way), own, "null") == 403


@BOTH
def test_a_page_of_another_site_gets_no_answer(servers, way):
    own = urlsplit(servers(way)).netloc
    assert ask(servers(way), "/_stcore/health", Host=own, Origin=f"http://{own}")[0] == 200
    for path in ("/", "/_stcore/health"):
        status, text, _ = ask(servers(way), path, Host=own, Origin=f"http://{EVIL}")
        assert status == 403
        assert "its own pages only" in text


@pytest.mark.parametrize(
    ("way", "options", "env"),
    [
        ("own server", (f"--allow-host={NAME}",), {}),
        ("streamlit", (), {"STREAMLIT_SERVER_ALLOWED_HOSTS": f"localhost 127.0.0.1 {NAME}"}),
        ("streamlit", tuple(f"--server.allowedHosts={name}" for name in ("127.0.0.1", "localhost", NAME)), {}),
    ],
    ids=["own server", "variable", "option"],
)
def test_a_name_that_the_operator_allows_works_and_no_other(servers, way, options, env):
    url = servers(way, *options, **env)
    assert ask(url, "/_stcore/health", Host=NAME)[:2] == (200, "ok")
    assert ask(url, "/", Host=NAME)[0] == 200
    assert handshake(url, NAME, f"https://{NAME}") == 101
    assert handshake(url, "localhost", "http://localhost") == 101
    assert ask(url, "/_stcore/health", Host=EVIL)[0] == 403
    assert handshake(url, EVIL, f"https://{EVIL}") == 403
    assert handshake(url, NAME, f"https://{EVIL}") == 403


@pytest.mark.parametrize("way", [OWN_SERVER, STREAMLIT], ids=["own server", "streamlit"])
def test_a_server_of_all_addresses_goes_by_every_number_and_no_name(servers, way):
    option = "--host" if way is OWN_SERVER else "--server.address"
    url = servers("own server" if way is OWN_SERVER else "streamlit", f"{option}=0.0.0.0")
    for host in ("192.0.2.7", "192.0.2.7:8501", "[2001:db8::1]:80", "localhost"):
        assert ask(url, "/_stcore/health", Host=host)[0] == 200
        assert handshake(url, host, f"http://{host}") == 101
    assert ask(url, "/", Host=EVIL)[0] == 403
    assert handshake(url, EVIL, f"http://{EVIL}") == 403


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Example.ORG:80", "example.org"),
        ("[::1]:8501", "::1"),
        ("localhost.", "localhost"),
        ("", ""),
        ("::1", ""),
        ("a:b", ""),
        ("a:99999", ""),
        ("[::1", ""),
        ("user@localhost", ""),
        ("localhost/evil", ""),
        ("localhost?evil", ""),
        ("localhost#evil", ""),
    ],
)
def test_the_name_in_a_host_header(host, name):
    assert host_name(host) == name


def test_a_list_of_names_replaces_what_is_allowed_without_one_and_may_hold_stars():
    listed = ["*.example.org", " Box.local "]
    assert all(host_allowed(host, "127.0.0.1", listed) for host in ("a.example.org", "b.a.example.org:80", "box.local"))
    assert not any(
        host_allowed(host, "127.0.0.1", listed) for host in ("localhost", "example.org", "aexample.org", "local", "")
    )
    assert host_allowed("anything.test", "127.0.0.1", ["*"])
    assert not host_allowed("", "127.0.0.1", ["*"])


def test_no_address_allows_no_more_than_this_machine():
    assert host_allowed("localhost", None, [])
    assert not host_allowed("192.0.2.7", None, [])
    assert not host_allowed("192.0.2.7", "192.0.2.8", [])
    assert host_allowed("192.0.2.8:8501", "192.0.2.8", [])


def test_an_origin_that_is_listed_passes_by_its_whole_text():
    assert origin_allowed("https://a.test", "localhost", [" https://a.test "])
    assert not origin_allowed("http://a.test", "localhost", ["https://a.test"])
    assert not origin_allowed("file://localhost", "localhost", [])


# --- uploads ----------------------------------------------------------------------------------------------------------


@contextmanager
def session(url: str) -> Iterator[tuple[str, str]]:
    """A session's id and the cookie against forged requests, as a browser gets them."""
    cookie = re.search(r"_streamlit_xsrf=([^;]+)", ask(url, "/_stcore/health")[2]).group(1)
    stream = f"{url.replace('http', 'ws', 1)}/_stcore/stream"
    with connect(stream, subprotocols=["streamlit"], max_queue=None) as line:  # a full queue would delay the end
        message = BackMsg()
        message.rerun_script.query_string = ""
        line.send(message.SerializeToString())
        while True:
            answer = ForwardMsg.FromString(line.recv(30))
            if answer.WhichOneof("type") == "new_session":
                yield answer.new_session.initialize.session_id, cookie
                return


def upload(url: str, size: int) -> tuple[int, str]:
    """What the server says to a file of this size, sent as a browser sends it."""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="f"; filename="f.csv"\r\n\r\n'
    body = head.encode() + b"1" * size + f"\r\n--{BOUNDARY}--\r\n".encode()
    with session(url) as (session_id, cookie):
        status, text, _ = ask(
            url,
            f"/_stcore/upload_file/{session_id}/a-file",
            "PUT",
            body,
            Content_Type=f"multipart/form-data; boundary={BOUNDARY}",
            Cookie=f"_streamlit_xsrf={cookie}",
            X_Xsrftoken=cookie,
        )
    return status, text


@BOTH
def test_a_file_of_the_documented_size_arrives_and_one_well_above_does_not(servers, way):
    most = LIMITS["upload"].default * 10**6
    assert upload(servers(way), most) == (204, "")
    assert upload(servers(way), most + 10**6)[0] == 413


@BOTH
def test_a_read_only_server_takes_no_file_at_all(servers, way):
    url = servers(way, DPVIZ_READ_ONLY="1")
    status, text = upload(url, 10)
    assert status == 403
    assert "read-only" in text
    assert ask(url, "/_stcore/health")[0] == 200
