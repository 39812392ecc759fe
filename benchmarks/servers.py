"""Dashboards for measurements and tests: one, or several on one store behind nginx, as examples/nginx.conf says."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dpviz.privacy.registry import InputError
from tests.browser import APP, ROOT, free_port, start_server, stop_server, wait_for_server

SITE = ROOT / "examples" / "nginx.conf"
# Around the site: everything in one folder, one process, in the foreground, under whatever user this is.
MAIN = """daemon off; master_process off; pid nginx.pid; error_log error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
    include {site};
}}
"""


@dataclass(frozen=True)
class Servers:
    """The address that people use, and every server behind it: its own address, its process, its log."""

    url: str
    urls: tuple[str, ...]
    processes: tuple[subprocess.Popen[bytes], ...]
    logs: tuple[Path, ...]


def nginx_path() -> str | None:
    """nginx on the PATH, or where Debian puts it, which is not on everybody's PATH."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


@contextlib.contextmanager
def running(count: int, folder: Path, env: Mapping[str, str]) -> Iterator[Servers]:
    """So many servers with the same environment, behind nginx if there are two or more."""
    with contextlib.ExitStack() as stack:
        logs = tuple(folder / f"server-{number}.log" for number in range(count))
        processes, urls = [], []
        for log in logs:
            process, url = start_server(APP, env, log)
            stack.callback(stop_server, process)
            processes.append(process)
            urls.append(url)
        url = stack.enter_context(_nginx(folder, urls)) if count > 1 else urls[0]
        yield Servers(url, tuple(urls), tuple(processes), logs)


@contextlib.contextmanager
def _nginx(folder: Path, urls: list[str]) -> Iterator[str]:
    """The address of an nginx before these servers; its configuration is the example's with other ports."""
    program = nginx_path()
    if program is None:
        raise InputError("two servers need nginx in front of them; install it with: apt-get install nginx-light")
    site, url = site_for(urls, free_port())
    (folder / "site.conf").write_text(site, encoding="utf-8")
    main = folder / "nginx.conf"
    main.write_text(MAIN.format(site=folder / "site.conf"), encoding="utf-8")
    log = folder / "error.log"
    log.touch()
    command = [program, "-p", str(folder), "-c", str(main), "-e", str(log)]
    process = subprocess.Popen(command, env={**os.environ}, stderr=subprocess.DEVNULL)
    try:
        yield wait_for_server(process, url, log)
    finally:
        stop_server(process)


def site_for(urls: list[str], port: int) -> tuple[str, str]:
    """The example with these servers in it, and its address."""
    site = SITE.read_text(encoding="utf-8")
    line = re.search(r"    server 127\.0\.0\.1:8501(.*)\n", site)
    assert line is not None
    servers = "".join(f"    server {url.removeprefix('http://')}{line[1]}\n" for url in urls)
    site = re.sub(r"(    server 127\.0\.0\.1:\d+.*\n)+", lambda _: servers, site, count=1)
    return site.replace("127.0.0.1:8500", f"127.0.0.1:{port}"), f"http://127.0.0.1:{port}"
