"""Servers that are killed, stores that break: what the other suites' fixtures are needed for here."""

from __future__ import annotations

from tests.runs.conftest import epoch_record, python, read_only, small_spec
from tests.ui.conftest import browser, new_page

__all__ = ["browser", "epoch_record", "new_page", "python", "read_only", "small_spec"]
