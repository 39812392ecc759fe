"""Settings that every test shares."""

import hypothesis
import pytest

pytest_plugins = ["tests.browser"]

# A busy machine is no reason to fail, and a failure must come back on the next run.
hypothesis.settings.register_profile("dpviz", deadline=None, derandomize=True)
hypothesis.settings.load_profile("dpviz")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Browser tests get a second try (tests/browser.py); how many needed it is always told, and which."""
    again = terminalreporter.stats.get("rerun", [])
    terminalreporter.write_line(f"{len(again)} browser tests needed a second try")
    for report in again:
        terminalreporter.write_line(f"  second try: {report.nodeid}")
