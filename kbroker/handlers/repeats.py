"""What a request may have answered again: one thing that is named thousands of times.

Apache Kafka answers a group or a resource as often as it is named, and so do we; but a name costs
one byte to ten, and its answer may be a hundred KB. So each is looked up and encoded once, and what
is repeated is bounded by a MB and 16 times the size of the request. Beyond it a name has an
error; where a name may cost less than its error, as in `answers_of`, it has that once.

APIs whose answer to a name is never more than 16 times as long as the name need none of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kbroker import limits

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import ColdRequest
    from kbroker.protocol._messages import Encoded
    from kbroker.protocol.messages.table import Record

NAMED_TOO_OFTEN: Final = "it is named too often in one request: once is enough"


class Repeats:
    """How many bytes of repeated answers a request may still have."""

    __slots__ = ("left",)

    def __init__(self, request: ColdRequest) -> None:
        of_request = limits.REPEATED_ANSWER_TIMES_MAX * len(request.body)
        self.left = limits.REPEATED_ANSWER_BYTES_MAX + of_request

    def allow(self, size_bytes: int) -> bool:
        if size_bytes > self.left:
            return False
        self.left -= size_bytes
        return True


def answers_of(
    call: Call[Any],
    names: Iterable[str],
    answer: Callable[[str], Record],
    refusal: Callable[[str], Record],
) -> list[Any]:
    """The answers to names, in their order, each made and encoded once."""
    repeats = Repeats(call.request)
    answers: dict[str, Encoded] = {}
    refused: set[str] = set()
    found: list[Encoded] = []
    for name in names:
        known = answers.get(name)
        if known is None:
            known = answers[name] = call.encoded(answer(name))
        elif name in refused:
            continue
        elif not repeats.allow(len(known.data)):
            refused.add(name)
            known = call.encoded(refusal(name))
        found.append(known)
    return found
