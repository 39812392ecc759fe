"""`dpviz app`: Streamlit's own server at the address that is asked for, or one sentence."""

import socket

import pytest

from dpviz.cli import main
from dpviz.cli.app import command_of
from dpviz.paths import APP


def test_a_port_that_is_taken_is_said_in_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["app", "--port", str(port)]) == 2
    found = capsys.readouterr().err
    assert found.startswith(f"dpviz: cannot listen on 127.0.0.1 port {port}: ")
    assert found.count("\n") == 1


@pytest.mark.parametrize("port", ["0", "65536", "-1"])
def test_no_such_port(port, capsys):
    assert main(["app", f"--port={port}"]) == 2
    assert "ports go from 1 to 65535" in capsys.readouterr().err


def test_names_that_are_allowed_come_beside_this_machines_own():
    plain, named = command_of("127.0.0.1", 8501, []), command_of("10.0.0.7", 80, ["dpviz.example.org"])
    assert plain[1:] == ["-m", "streamlit", "run", str(APP), "--server.address=127.0.0.1", "--server.port=8501"]
    allowed = [flag.partition("=")[2] for flag in named if flag.startswith("--server.allowedHosts")]
    assert allowed == ["localhost", "127.0.0.1", "::1", "10.0.0.7", "dpviz.example.org"]
