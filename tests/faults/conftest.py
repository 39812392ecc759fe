"""Servers that are killed, stores that break: what the other suites' fixtures are needed for here."""

from __future__ import annotations

from tests.runs.conftest import epoch_record, python, read_only, small_spec

__all__ = ["epoch_record", "python", "read_only", "small_spec"]
