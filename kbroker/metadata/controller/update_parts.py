"""An update of the image that is too large for one request, in parts.

Place in the flow: a transport (`cluster/broker_links.py`) sends the requests of `UpdateParts` one
after the other, each when the one before was answered without an error; the last answer is the
answer to the update. At the other end the handler of UpdateMetadata puts them together in
`PartsReceived` and goes on as with a whole one.

A request above `socket.request.max.bytes` ends its connection, so an update above WHOLE_BYTES_MAX
goes in parts of PART_BYTES, which fit below any value that such a key has in practice. A broker of
a version before parts, or one with a smaller value, answers one of the two ways only: each time
that an update is not answered the next one to that broker goes the other way (`UpdateWays`).

A receiver holds one update that is not complete, of IMAGE_BYTES_MAX at most. A first part replaces
earlier parts, unless they are of a later controller; so what a sender left half done stays until
the next one sends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.limits import IMAGE_BYTES_MAX
from kbroker.metadata.controller.image_updates import (
    UPDATE_PART_VERSION,
    UPDATE_VERSION,
    ImageUpdate,
)
from kbroker.protocol import messages
from kbroker.protocol.wire import ProtocolError

# Larger updates are sent in parts.
WHOLE_BYTES_MAX: Final = 1 << 20
PART_BYTES: Final = 1 << 16


class UpdateKey(NamedTuple):
    """Which update a part is of."""

    controller_epoch: int
    broker_epoch: int
    base: int
    version: int
    parts: int


class UpdatePart(NamedTuple):
    update: UpdateKey
    number: int  # from 0
    data: bytes


def encode_part(part: UpdatePart) -> bytes:
    request = messages.update_metadata.Request(
        **part.update._asdict(), number=part.number, data=part.data
    )
    return request.encode(UPDATE_PART_VERSION)


def part_of(request: messages.update_metadata.Request) -> UpdatePart:
    """Raises ProtocolError."""
    if not 0 <= request.number < request.parts:
        raise ProtocolError(f"part {request.number} of an update in {request.parts} parts")
    key = UpdateKey(
        request.controller_epoch,
        request.broker_epoch,
        request.base,
        request.version,
        request.parts,
    )
    return UpdatePart(key, request.number, request.data)


class UpdateWays:
    """Which way the next update goes to each broker; one thread."""

    def __init__(
        self, whole_bytes_max: int = WHOLE_BYTES_MAX, part_bytes: int = PART_BYTES
    ) -> None:
        self._whole_bytes_max = whole_bytes_max
        self._part_bytes = part_bytes
        # By node id, the start of a broker that is sent updates the other way than by their size.
        self._other: dict[int, int] = {}

    def requests(
        self, node_id: int, update: ImageUpdate, body: bytes
    ) -> Iterator[tuple[int, bytes]]:
        """The API version and body of each request that carries this update, in their order."""
        large = len(body) > self._whole_bytes_max
        if large is (self._other.get(node_id) == update.broker_epoch):
            yield UPDATE_VERSION, body
            return
        size = self._part_bytes
        count = -(-len(body) // size)
        key = UpdateKey(
            update.controller_epoch, update.broker_epoch, update.base, update.version, count
        )
        for index in range(count):
            data = body[index * size : (index + 1) * size]
            yield UPDATE_PART_VERSION, encode_part(UpdatePart(key, index, data))

    def not_answered(self, node_id: int, update: ImageUpdate, body: bytes) -> None:
        """The next one goes the other way; what fits into a part is not refused for its size."""
        if len(body) <= self._part_bytes:
            return
        if self._other.get(node_id) == update.broker_epoch:
            del self._other[node_id]
        else:
            self._other[node_id] = update.broker_epoch


class PartsReceived:
    """The one update that is being received. Any thread; one lock, a leaf."""

    def __init__(self, bytes_max: int = IMAGE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._key: UpdateKey | None = None
        self._data: list[bytes] = []
        self._bytes = 0

    def take(self, part: UpdatePart) -> bytes | ErrorCode:
        """The whole update if this was its last part; NONE: the next part may come; else the code
        that the sender gets, which sends all of it again."""
        with self._lock:
            known = self._key
            if part.number == 0:
                if known and part.update.controller_epoch < known.controller_epoch:
                    return ErrorCode.STALE_CONTROLLER_EPOCH
                self._begin(part.update)
            elif known != part.update or part.number != len(self._data):
                return ErrorCode.INVALID_UPDATE_VERSION
            self._bytes += len(part.data)
            if self._bytes > self._bytes_max:
                self._begin(None)
                return ErrorCode.MESSAGE_TOO_LARGE
            self._data.append(part.data)
            if len(self._data) < part.update.parts:
                return ErrorCode.NONE
            whole = b"".join(self._data)
            self._begin(None)
            return whole

    def forget(self) -> None:
        """A whole update has come: what is not complete has no use any more."""
        with self._lock:
            self._begin(None)

    def _begin(self, key: UpdateKey | None) -> None:
        self._key, self._data, self._bytes = key, [], 0
