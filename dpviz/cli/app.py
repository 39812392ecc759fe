"""app: serve the dashboard."""

from __future__ import annotations

import argparse
import importlib.util
import runpy
import socket
import sys

from dpviz.cli.command import Command, Result, whole
from dpviz.paths import APP
from dpviz.privacy.registry import InputError
from dpviz.runs.tracking.mirror import server_destination

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; the default is this machine only")
    parser.add_argument("--port", type=whole, default=8501, help="default: 8501")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="another name that browsers reach it by"
    )


def streamlit_arguments(host: str, port: int, names: list[str]) -> list[str]:
    """What Streamlit is called with for this address; options that a person gives it elsewhere stay in force."""
    known = (*LOOPBACK, host, *names) if names else ()
    flags = [f"--server.address={host}", f"--server.port={port}", *(f"--server.allowedHosts={name}" for name in known)]
    return ["run", str(APP), *flags]


def _run(args: argparse.Namespace) -> Result:
    """Never returns: the same as `python -m streamlit run`, in this process, which has loaded a part of it already."""
    if importlib.util.find_spec("streamlit") is None:
        raise InputError("the dashboard needs streamlit; install it with: pip install 'dpviz[app,train]'")
    server_destination()  # refuses a mirror that is written wrong or not installed
    refuse_if_taken(args.host, args.port)
    sys.argv = ["streamlit", *streamlit_arguments(args.host, args.port, args.allow_host)]
    runpy.run_module("streamlit", run_name="__main__")
    raise SystemExit


def refuse_if_taken(host: str, port: int) -> None:
    """One sentence where nobody can listen, before anything is loaded."""
    try:
        if not 0 < port < 2**16:
            raise OSError("ports go from 1 to 65535")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise InputError(f"cannot listen on {host} port {port}: {error.strerror or error}") from None


COMMANDS = (Command("app", "serve the dashboard", _arguments, _run),)
