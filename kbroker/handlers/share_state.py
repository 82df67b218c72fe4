"""The state of share-partitions, between brokers: APIs 83 to 87 (KIP-932).

Initialize-, Read-, Write-, DeleteShareGroupState and ReadShareGroupStateSummary differ by the
question about each partition (`coordinator/share/wire.py`). The share coordinator answers each
question; the response leaves with the last answer, perhaps from another thread. A partition whose
coordinator is another broker is answered NOT_COORDINATOR.

Any handler thread; holds no lock but the one of its answers.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kbroker.coordinator.share.requests import failed
from kbroker.coordinator.share.wire import OF_KEY, Api, asked_of, response_of
from kbroker.errors import ErrorCode
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.coordinator.share.images import SharePartition
    from kbroker.coordinator.share.requests import Answer
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.table import Message


def handle(services: Services, call: Call[Any]) -> None:
    api = OF_KEY[ApiKey(call.request.api_key)]
    # As in Apache Kafka: without a group there is no answer of a partition.
    questions = asked_of(api, call.message) if call.message.group_id else {}
    answers = _Answers(api, call, len(questions))
    share = services.share
    coordinator = None if share is None else share.coordinator
    for key, asked in questions.items():
        if coordinator is None:
            answers.add(key, failed(asked, ErrorCode.NOT_COORDINATOR))
        else:
            coordinator.ask(asked, partial(answers.add, key))
    answers.all_begun()


class _Answers:
    """Of one request."""

    def __init__(self, api: Api, call: Call[Any], count: int) -> None:
        self._api: Final = api
        self._call: Final = call
        self._lock: Final = threading.Lock()
        self._left = count + 1  # the request is being read
        self._found: dict[SharePartition, Answer] = {}

    def add(self, key: SharePartition, answer: Answer) -> None:
        with self._lock:
            self._found[key] = answer
        self.all_begun()

    def all_begun(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._call.answer_made(self._response)

    def _response(self) -> Message:
        return response_of(self._api, self._found)
