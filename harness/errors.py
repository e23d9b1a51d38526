"""Two families: HarnessError (we could not judge) and CheckFailure (the training is wrong)."""

from __future__ import annotations

from pathlib import Path


class HarnessError(Exception):
    """The harness could not judge; pytest reports an error, `python -m harness` exits 3."""


class ConfigError(HarnessError):
    """An option, an ini key or a combination of them cannot be used; a usage error (exit 2)."""


class CommandError(ConfigError):
    """The training command cannot be understood or cannot be launched as it stands."""


class LaunchError(HarnessError):
    """The launcher could not start the job, or lost it."""

    def __init__(
        self,
        message: str,
        *,
        command: tuple[str, ...] = (),
        exit_code: int | None = None,
        log_path: Path | None = None,
        tail: str = "",
    ) -> None:
        super().__init__(message)
        self.command = command
        self.exit_code = exit_code
        self.log_path = log_path
        self.tail = tail


class MetricsError(HarnessError):
    """A metric source cannot be read at all (`path`, byte `offset`)."""

    def __init__(self, message: str, *, path: Path | None = None, offset: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class HubError(HarnessError):
    """An asset of ModelScope cannot be had; `code` is hub-unreachable, hub-missing, hub-denied, hub-damaged, ..."""

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class RecordError(HarnessError):
    """An artifact of the out-dir is missing, unreadable or does not meet its schema."""


class LeaseHeld(HarnessError):
    """Another supervisor owns this out-dir."""


class CheckFailure(AssertionError):
    """The training is wrong, or unproven; the message says what, where the evidence is, and what to do."""
