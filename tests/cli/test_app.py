"""`dpviz app`: Streamlit's own server at the address that is asked for, or one sentence."""

import socket
import subprocess
import sys

import pytest

from dpviz.cli import commands, main
from dpviz.cli.app import streamlit_arguments
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
    plain, named = (
        streamlit_arguments("127.0.0.1", 8501, []),
        streamlit_arguments("10.0.0.7", 80, ["dpviz.example.org"]),
    )
    assert plain == ["run", str(APP), "--server.address=127.0.0.1", "--server.port=8501"]
    allowed = [flag.partition("=")[2] for flag in named if flag.startswith("--server.allowedHosts")]
    assert allowed == ["localhost", "127.0.0.1", "::1", "10.0.0.7", "dpviz.example.org"]


def test_a_command_with_a_module_of_its_name_loads_no_other_module():
    """Half a second, each time a command is called or the dashboard is started."""
    script = "import sys; from dpviz.cli import parser; parser('app'); print('dpviz.papers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "False\n"
    assert {"app", "epsilon", "train"} <= {command.name for command in commands()}
