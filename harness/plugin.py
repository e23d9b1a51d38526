"""pytest hooks; every body is one call into the session object."""

from __future__ import annotations

from typing import Any

import pytest

from harness import options
from harness.errors import ConfigError
from harness.session import NO_SOURCE, HarnessSession

GATES = ("env_facts", "dataset_contract", "training_command", "smoke_capacity", "real_step", "sample_coherence",
         "save_reload", "retry")
SESSION = pytest.StashKey[HarnessSession]()

for _module in (*(f"harness.fixtures.{gate}" for gate in GATES), "harness.acceptance", "harness.judge.require"):
    pytest.register_assert_rewrite(_module)

pytest_plugins = [f"harness.fixtures.{gate}" for gate in GATES]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and ini keys."""
    options.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Register markers; refuse options that cannot be used before anything runs."""
    for gate in GATES:
        config.addinivalue_line("markers", f"{gate}: acceptance tests of the gate {gate} of a real training run")
    session = HarnessSession(config)
    config.stash[SESSION] = session
    _as_usage_error(session)


def _as_usage_error(session: HarnessSession) -> None:
    option = session.config.option
    wanted = getattr(option, "markexpr", "").strip() in ("real_step", "smoke_capacity") and not session.is_worker
    wanted = wanted and not option.collectonly
    try:
        asked = session.resolve() is not None
        if wanted:
            session.refuse_retry()
    except ConfigError as error:
        raise pytest.UsageError(str(error)) from error
    if wanted and not asked:
        raise pytest.UsageError(NO_SOURCE)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Acceptance tests without a command are a usage error, not a green nothing; their run has its own time limit."""
    config.stash[SESSION].collected(items)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give an xdist worker the session's identity, so that all workers share one run."""
    node.workerinput.update(node.config.stash[SESSION].worker_input())


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """A run that could not be judged is told once."""
    item.config.stash[SESSION].about_to_run(item)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Make sure of the report, and let no session exit 0 over a run that is not GO."""
    session.config.stash[SESSION].finish(session, exitstatus)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Render the summary of the report."""
    config.stash[SESSION].render(terminalreporter)
