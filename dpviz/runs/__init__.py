"""Runs: what was trained, where it is kept, who works on it. Importing this imports no torch."""

from dpviz.runs.execution.runner import BackgroundRunner, ForegroundRunner, Runner, background, with_seeds
from dpviz.runs.settings import change
from dpviz.runs.store.cached import CachedListing, CachedRun, cached_runs, write_cached
from dpviz.runs.store.records import Listing, Progress, Provenance, Run, Summary
from dpviz.runs.store.store import Store

__all__ = [
    "BackgroundRunner",
    "CachedListing",
    "CachedRun",
    "ForegroundRunner",
    "Listing",
    "Progress",
    "Provenance",
    "Run",
    "Runner",
    "Store",
    "Summary",
    "background",
    "cached_runs",
    "change",
    "with_seeds",
    "write_cached",
]
