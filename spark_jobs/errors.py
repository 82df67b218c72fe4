"""Expected trouble of a job: one line that says what, why and what to do, and an exit code.

Scripts and service managers rely on the codes; docs/reports.md lists them.
"""

from __future__ import annotations

from typing import Final

from kbroker.errors import UserError

EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_LOSS: Final = 4  # records that were to be landed are gone
EXIT_LOCKED: Final = 5  # another job lands the same topic into the same tables
EXIT_ALARM: Final = 10  # a report's


class JobError(UserError):
    """`message` is the line; `exit_code` what the process ends with."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class LostRange(JobError):
    """Records between what has landed and what the topic still holds are gone."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_LOSS)


class Locked(JobError):
    """Another job is at the same work."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_LOCKED)
