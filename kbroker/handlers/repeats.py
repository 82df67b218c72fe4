"""What a request may have told again: who names one large thing thousands of times.

Apache Kafka answers a group or a resource as often as it is named, and so do we; but a name costs
ten bytes and its answer may be a hundred KB. So each is looked up and encoded once, and what is
told again is bounded by a MB and the size of the request. Beyond it a name has an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kbroker import limits

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest

NAMED_TOO_OFTEN: Final = "it is named too often in one request: once is enough"


class Repeats:
    """How many bytes may still be told again."""

    __slots__ = ("_left",)

    def __init__(self, request: ColdRequest) -> None:
        of_request = limits.REPEATED_ANSWER_TIMES_MAX * len(request.body)
        self._left = limits.REPEATED_ANSWER_BYTES_MAX + of_request

    @property
    def left(self) -> int:
        return self._left

    def allow(self, size_bytes: int) -> bool:
        if size_bytes > self._left:
            return False
        self._left -= size_bytes
        return True
