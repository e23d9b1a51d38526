"""Our own tests run pytest inside pytest."""

import os

import pytest

pytest_plugins = ["pytester"]

INSIDE_A_TEST = "PYTEST_CURRENT_TEST" in os.environ
"""Whether this pytest was started by a test; its own tests take the variable away."""


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """An environment that exists for a component is not green over tests that it skips; a pytest inside may skip."""
    terminal = session.config.pluginmanager.getplugin("terminalreporter")
    skipped = len(terminal.stats.get("skipped", [])) if terminal is not None else 0
    if os.environ.get("REAL_STEP_NO_SKIPS") and not INSIDE_A_TEST and skipped and exitstatus == pytest.ExitCode.OK:
        terminal.write_line(f"{skipped} skipped: this environment exists to run them")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
