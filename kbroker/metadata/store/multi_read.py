"""Many nodes of ZooKeeper in one request, which kazoo does not know.

kazoo takes a turn of its loop for each request and each answer, with a selector made anew: for a
broker with a state to read of each partition that was a good part of its start. ZooKeeper answers
`multiRead` since 3.6: the frame of a transaction with reads in it, each answered by itself.
Source: ZooKeeper 3.9, zookeeper.jute (MultiHeader, GetDataRequest, ErrorResponse).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from kazoo.exceptions import EXCEPTIONS, ZookeeperError
from kazoo.protocol import serialization as wire
from kazoo.protocol.states import ZnodeStat

_GET_DATA: Final = 4
_ERROR: Final = -1
_PART: Final = wire.multiheader_struct.pack(_GET_DATA, False, -1)
_END: Final = wire.multiheader_struct.pack(-1, True, -1)
_WITHOUT_A_WATCH: Final = b"\0"

# A node's data, or why it could not be read.
Answer: TypeAlias = tuple[bytes | None, ZnodeStat] | ZookeeperError


class MultiRead:
    """As kazoo's client takes requests: it asks for `type` and `serialize`, then `deserialize`."""

    type: Final = 22

    def __init__(self, paths: Sequence[str]) -> None:
        """Whole paths, with the chroot."""
        self._paths = paths

    def serialize(self) -> bytes:
        found = bytearray()
        for path in self._paths:
            found += _PART + wire.write_string(path) + _WITHOUT_A_WATCH
        return bytes(found + _END)

    def deserialize(self, answer: bytes, at: int) -> list[Answer]:
        """In the order of the paths. struct.error for bytes that are no such answer."""
        found: list[Answer] = []
        while True:
            kind, done, _ = wire.multiheader_struct.unpack_from(answer, at)
            at += wire.multiheader_struct.size
            if done:
                if len(found) != len(self._paths):
                    raise struct.error(f"{len(found)} nodes for {len(self._paths)} paths")
                return found
            if kind == _ERROR:
                found.append(EXCEPTIONS[wire.int_struct.unpack_from(answer, at)[0]]())
                at += wire.int_struct.size
                continue
            data, at = wire.read_buffer(answer, at)
            found.append((data, ZnodeStat._make(wire.stat_struct.unpack_from(answer, at))))
            at += wire.stat_struct.size
