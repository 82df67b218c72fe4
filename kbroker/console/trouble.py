"""What a visitor reads instead of a page: the status, what happened, and what to do.

Errors of the protocol are the visitor's client's: what a broker refused, or could not answer. An
error that is none of these is a fault of ours (None); its text is for the log. Pure.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kbroker.console.asked import Ended, Refused
from kbroker.console.visitor import LoginNeeded
from kbroker.console.worker import Busy
from kbroker.errors import ErrorCode, KafkaError, UserError

_DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
_UNKNOWN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
)


class Trouble(NamedTuple):
    status: int
    what: str
    next_step: str = ""

    def __str__(self) -> str:
        return f"{self.what} -> {self.next_step}" if self.next_step else self.what


def trouble_of(error: BaseException) -> Trouble | None:
    match error:
        case Refused():
            return Trouble(error.status, error.what, error.next_step)
        case Busy():
            return Trouble(503, "too many pages are being made", "try again in a moment")
        case LoginNeeded():
            return Trouble(401, "you are not logged in, or no longer", "log in")
        case Ended():
            return Trouble(
                503, "the page took too long and was given up", "ask for less, or try again"
            )
        case KafkaError() if error.code in _DENIED:
            return Trouble(
                403, f"you may not see this ({error})", "have an administrator allow it with an ACL"
            )
        case KafkaError() if error.code in _UNKNOWN:
            return Trouble(404, f"there is no such thing ({error})", "see the list")
        case KafkaError():
            status = 503 if error.code.retriable else 502
            return Trouble(status, f"a broker could not answer ({error})", "see the brokers' logs")
        case UserError():
            return Trouble(503, error.cause, error.fix)
        case _:
            return None
