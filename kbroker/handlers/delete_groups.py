"""DeleteGroups (42): groups without members go, with all their committed offsets.

Each group has its own error: NON_EMPTY_GROUP while it has members, GROUP_ID_NOT_FOUND, the codes of
a group that this broker does not own. What is answered as deleted has its tombstones in the log.

Any handler thread, or the thread on which the last tombstone was written; the answer goes out once
every group has its result.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from kbroker.errors import ErrorCode
from kbroker.handlers.reply import Reply
from kbroker.protocol.versions import is_flexible
from kbroker.protocol.wire import Reader, Writer
from kbroker.types import ApiKey

if TYPE_CHECKING:
    from kbroker.handlers.services import ColdRequest, Services


def decode(request: ColdRequest) -> list[str]:
    reader = Reader(request.body, flexible=is_flexible(ApiKey.DELETE_GROUPS, request.api_version))
    names = [reader.string() for _ in range(reader.array())]
    reader.tags()
    return names


class _Results:
    """One error per group; the answer leaves with the last of them."""

    def __init__(self, request: ColdRequest, reply: Reply, names: Sequence[str]) -> None:
        self._request = request
        self._reply = reply
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
        self._reply.send(lambda: encode(self._request.api_version, self._names, self._codes))


def handle(services: Services, request: ColdRequest) -> None:
    # A group named twice is deleted once and has one result.
    names = list(dict.fromkeys(decode(request)))
    with Reply(request, failure) as reply:
        results = _Results(request, reply, names)
        if not names:
            results.send()
        for place, name in enumerate(names):
            services.groups.delete(name, partial(results.put, place))


def encode(version: int, names: Sequence[str], codes: Sequence[ErrorCode]) -> bytes:
    out = Writer(flexible=is_flexible(ApiKey.DELETE_GROUPS, version))
    out.int32(0)  # throttle time
    out.array(len(names))
    for name, code in zip(names, codes, strict=True):
        out.string(name)
        out.int16(code)
        out.tags()
    out.tags()
    return out.getvalue()


def failure(request: ColdRequest, code: ErrorCode, message: str) -> bytes:
    names = decode(request)
    return encode(request.api_version, names, [code] * len(names))
