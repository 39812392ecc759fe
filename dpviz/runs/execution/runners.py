"""Which runner works on a store's runs: the one place that knows both kinds."""

from __future__ import annotations

import os

from dpviz.privacy.registry import InputError
from dpviz.runs.execution.job import OnEpoch, OnProgress, log
from dpviz.runs.execution.process_wide import process_wide
from dpviz.runs.execution.provenance import cores
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.execution.ray_runner import RayRunner
from dpviz.runs.execution.runner import Runner
from dpviz.runs.store.store import Store
from dpviz.runs.tracking.mirror import Mirror, server_destination


def ray_address(asked: str | None = None) -> str:
    """The cluster to use: as asked, or DPVIZ_RAY; empty for none."""
    return (asked if asked is not None else os.environ.get("DPVIZ_RAY", "")).strip()


def runner_for(
    store: Store,
    address: str = "",
    *,
    spare_cores: int = 0,
    on_progress: OnProgress | None = None,
    on_epoch: OnEpoch | None = None,
    mirror: Mirror | None = None,
) -> Runner:
    """A Ray cluster if there is an address, else a queue with all but the spare cores; whoever asks closes it."""
    if address:
        return RayRunner(store, address, on_progress=on_progress, on_epoch=on_epoch, mirror=mirror)
    threads = max(1, cores() - spare_cores)
    return QueueRunner(store, threads=threads, on_progress=on_progress, on_epoch=on_epoch, mirror=mirror)


def server_runner(store: Store, address: str = "") -> Runner:
    """The server's one runner for a store and an address, made on first use; closed when the process ends."""
    name = f"runner {store.folder.resolve()} {address}"
    # A core is left for the page.
    runner = process_wide(name, lambda: runner_for(store, address, spare_cores=1, mirror=_server_mirror(store)))
    _made(store)[address] = runner
    return runner


def server_runner_of(store: Store, run_id: str) -> Runner:
    """The server's runner that has this run in its hands; the one without a cluster if none has."""
    holds = (runner for runner in tuple(_made(store).values()) if run_id in runner.live())
    return next(holds, None) or server_runner(store)


def _made(store: Store) -> dict[str, Runner]:
    """The server's runners for a store so far, by address."""
    return process_wide(f"runners {store.folder.resolve()}", dict)


def _server_mirror(store: Store) -> Mirror | None:
    """The mirror that the operator asked for; a setting that is wrong keeps no run from being made."""
    try:
        destination = server_destination()
    except InputError as error:
        log.warning("runs are not mirrored: %s", error)
        return None
    return Mirror(store, destination) if destination else None
