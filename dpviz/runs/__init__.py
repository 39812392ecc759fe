"""Runs: what was trained, where it is kept, who works on it. Importing this imports no torch."""

from dpviz.runs.execution.job import RunOptions
from dpviz.runs.execution.queue_runner import QueueRunner
from dpviz.runs.execution.runner import Runner, with_seeds
from dpviz.runs.execution.runners import runner_for, server_runner
from dpviz.runs.settings import change
from dpviz.runs.store.cached import CachedListing, CachedRun, cached_runs, write_cached
from dpviz.runs.store.records import Listing, Progress, Provenance, Run, Summary
from dpviz.runs.store.store import Store

__all__ = [
    "CachedListing",
    "CachedRun",
    "Listing",
    "Progress",
    "Provenance",
    "QueueRunner",
    "Run",
    "RunOptions",
    "Runner",
    "Store",
    "Summary",
    "cached_runs",
    "change",
    "runner_for",
    "server_runner",
    "with_seeds",
    "write_cached",
]
