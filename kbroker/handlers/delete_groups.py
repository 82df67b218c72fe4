"""DeleteGroups (42): groups without members go, with all their committed offsets.

Each group has its own error: NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND, the codes of
a group that this broker does not own. The tombstones of a deleted group are in the log.

Any handler thread, or the thread on which the last tombstone was written; the answer goes out once
every group has its result.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.handlers.authorization import denied
from kbroker.protocol import messages
from kbroker.security.rights import Operation, ResourceType

if TYPE_CHECKING:
    from kbroker.handlers.call import Call
    from kbroker.handlers.services import Services
    from kbroker.protocol.messages.delete_groups import Request


class _Results:
    """One error per group; the answer leaves with the last of them."""

    def __init__(self, call: Call[Request], names: Sequence[str]) -> None:
        self._call = call
        self._names = names
        self._codes = [ErrorCode.UNKNOWN_SERVER_ERROR] * len(names)
        self._missing = len(names)
        self._lock = threading.Lock()

    def put(self, place: int, code: ErrorCode) -> None:
        self._codes[place] = code
        with self._lock:
            self._missing -= 1
            complete = self._missing == 0
        if complete:
            self.send()

    def send(self) -> None:
        table = messages.delete_groups
        results = [
            table.DeletableGroupResult(group_id=name, error_code=code)
            for name, code in zip(self._names, self._codes, strict=True)
        ]
        self._call.answer(table.Response(results=results))


def handle(services: Services, call: Call[Request]) -> None:
    # A group named twice is deleted once and has one result.
    names = list(dict.fromkeys(call.message.groups_names))
    results = _Results(call, names)
    if not names:
        results.send()
    hidden = denied(services, call, Operation.DELETE, ResourceType.GROUP, names)
    for place, name in enumerate(names):
        if name in hidden:
            results.put(place, ErrorCode.GROUP_AUTHORIZATION_FAILED)
            continue
        services.groups.delete(name, partial(results.put, place))
